"""How well predicted probabilities tell classes apart: the area under the ROC curve, and its
generalisation to several classes (Hand and Till 2001)."""

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.privacy.laplace import Integers
from tallyroom.protocols.records import Column

Matrix = NDArray[np.float64]


def area(scores: Column, positive: NDArray[np.bool]) -> float:
    """The part of pairs of a positive and a negative record that scores order rightly, ties for
    half; NaN if a class is empty."""
    positives = int(positive.sum())
    negatives = len(positive) - positives
    if not positives or not negatives:
        return math.nan
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    above = float(ranks[positive].sum()) - positives * (positives + 1) / 2
    return above / (positives * negatives)


def hand_till(classes: Integers, probabilities: Matrix) -> float:
    """The mean over pairs of classes of the areas between them, each class's own probability being
    the score. For two classes it is the area. Classes without a record are left out; NaN if fewer
    than two have any."""
    present = [each for each in range(probabilities.shape[1]) if (classes == each).any()]
    found = []
    for one, other in itertools.combinations(present, 2):
        among = (classes == one) | (classes == other)
        for which in (one, other):
            found.append(area(probabilities[among, which], classes[among] == which))
    return float(np.mean(found)) if found else math.nan
