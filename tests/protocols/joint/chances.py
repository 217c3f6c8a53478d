"""Chances of choices under noise, exactly."""

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.joint.noise_circuit import JointGeometric


def exact_probabilities(scores: NDArray[np.int64], noise: JointGeometric) -> NDArray[np.float64]:
    """P(i wins): its noisy score is v, those before it are below v and those after it at most v."""
    p = noise.probabilities()
    below = np.concatenate([[0.0], np.cumsum(p)])  # P(G < g)
    found = np.zeros(len(scores))
    for i, score in enumerate(scores.tolist()):
        for g, weight in enumerate(p):
            chance = weight
            for j, other in enumerate(scores.tolist()):
                if j != i:
                    limit = score + g - other + (1 if j > i else 0)
                    chance *= below[min(max(limit, 0), len(p))]
            found[i] += chance
    return found
