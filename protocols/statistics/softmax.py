"""Multinomial logistic regression on weighted rows, without privacy of its own: for rows that are
synthetic, and for the raw records that a simulation compares with."""

import numpy as np
from numpy.typing import NDArray

from protocols.privacy.laplace import Integers
from protocols.records import Column

Matrix = NDArray[np.float64]

PENALTY = 1e-6
"""Of squared coefficients, for each row: it moves none that rows determine, and gives separable
classes, collinear columns and classes without a row an answer."""
MAX_STEPS = 500


def softmax(scores: Matrix) -> Matrix:
    """Probabilities of classes, one record a row."""
    shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
    found: Matrix = shifted / shifted.sum(axis=1, keepdims=True)
    return found


def fit_softmax(
    design: Matrix,
    classes: Integers,
    weights: Column,
    count: int,
    penalty: float = PENALTY,
    steps: int = MAX_STEPS,
) -> Matrix:
    """Coefficients, one row a class of `count`: the maximum of the weighted likelihood, by L-BFGS.

    Preconditions: a row at least, weights that are positive, classes below `count`.
    """
    from scipy import optimize  # a party needs none of it

    size, terms = float(weights.sum()), design.shape[1]
    wanted = np.zeros((len(classes), count))
    wanted[np.arange(len(classes)), classes] = 1.0
    shares = weights / size

    def loss(flat: Column) -> tuple[float, Column]:
        coefficients = flat.reshape(count, terms)
        scores = design @ coefficients.T
        scores -= scores.max(axis=1, keepdims=True)
        logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        value = -shares @ logs[np.arange(len(classes)), classes] + penalty * (flat @ flat) / 2
        apart = (np.exp(logs) - wanted) * shares[:, None]
        return float(value), (apart.T @ design).ravel() + penalty * flat

    found = optimize.minimize(
        loss,
        np.zeros(count * terms),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": steps, "ftol": 1e-13, "gtol": 1e-8, "maxcor": 20},
    )
    return np.asarray(found.x, dtype=np.float64).reshape(count, terms)
