"""Multinomial logistic regression on weighted rows, which adds no noise: for synthetic rows, and
for the raw records that a simulation compares with."""

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.privacy.laplace import Integers
from tallyroom.protocols.records import Column

Matrix = NDArray[np.float64]

PENALTY = 1e-6
"""The penalty on squared coefficients, for each row. It does not move coefficients that the rows
determine, and gives an answer for separable classes, collinear columns and classes without a
row."""
MAX_STEPS = 100


def softmax(scores: Matrix) -> Matrix:
    """Probabilities of classes, one row for each record."""
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
    """Coefficients, one row a class of `count`: the maximum of the weighted likelihood, by Newton's
    method with step halving.

    Preconditions: a row at least, weights that are positive, classes below `count`.
    """
    shares = weights / weights.sum()
    wanted = np.zeros((len(classes), count))
    wanted[np.arange(len(classes)), classes] = 1.0
    found = np.zeros((count, design.shape[1]))
    value = _loss(design, classes, shares, found, penalty)
    for _ in range(steps):
        chances = softmax(design @ found.T)
        gradient = ((chances - wanted) * shares[:, None]).T @ design + penalty * found
        curvature = _curvature(design, chances, shares, penalty)
        move = np.linalg.solve(curvature, gradient.ravel()).reshape(found.shape)
        decrease, length = float((gradient * move).sum()), 1.0
        if decrease < 1e-14:
            break
        while (
            tried := _loss(design, classes, shares, found - length * move, penalty)
        ) > value - length * decrease / 4 and length > 1e-9:
            length /= 2
        if length <= 1e-9:
            break
        found, value = found - length * move, tried
    return found


def _loss(
    design: Matrix, classes: Integers, shares: Column, coefficients: Matrix, penalty: float
) -> float:
    scores = design @ coefficients.T
    top = scores.max(axis=1)
    logs = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
    likelihood = shares @ (scores[np.arange(len(classes)), classes] - logs)
    return float(penalty * (coefficients**2).sum() / 2 - likelihood)


def _curvature(design: Matrix, chances: Matrix, shares: Column, penalty: float) -> Matrix:
    """A block for each pair of classes."""
    count, terms = chances.shape[1], design.shape[1]
    found = penalty * np.eye(count * terms)
    for one in range(count):
        for other in range(one, count):
            spread = chances[:, one] * ((one == other) - chances[:, other]) * shares
            block = design.T @ (spread[:, None] * design)
            rows, columns = (slice(each * terms, (each + 1) * terms) for each in (one, other))
            found[rows, columns] += block
            if one != other:
                found[columns, rows] += block.T
    return found
