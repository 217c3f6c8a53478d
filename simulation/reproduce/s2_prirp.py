"""S2's own PriRP (S2 §4.2). This project's is `protocols.privacy.prirp`, which says how it differs.

S2's Algorithm 2 finds [−d, d] for each axis, DAWA counts the cells within, and every count is
rounded on its own. S2 does not say which share of ε its axes have: here it is this project's. The
records outside are counted in one more cell, since DAWA takes the total for public.
"""

from fractions import Fraction

import numpy as np

from tallyroom.protocols.privacy.laplace import Integers
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.privacy.prirp import (
    REACH_SHARE,
    PlotGrid,
    dawa_counts,
    side_for,
    wanted,
)
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Column

MOST_DOUBLINGS = 32
"""Algorithm 2 as printed need not end."""


def private_bound(
    values: Column, unit: float, epsilon: Fraction, threshold: int, randomness: Randomness
) -> float:
    """Algorithm 2: the first of μ, 2μ, 4μ, … within which noisily enough records lie."""
    bar = threshold + int(DiscreteLaplace(2 / epsilon).draw(1, randomness)[0])
    noise = DiscreteLaplace(4 / epsilon).draw(MOST_DOUBLINGS, randomness)
    bound = unit
    for each in noise.tolist():
        if np.count_nonzero(np.abs(values) <= bound) + each >= bar:
            break
        bound *= 2
    return bound


def s2_prirp(
    fitted: Column, residuals: Column, unit: float, epsilon: Fraction, randomness: Randomness
) -> tuple[PlotGrid, Integers]:
    """A whole plot by a curator: counts by residual (rows) and fitted value."""
    n, spent = len(fitted), REACH_SHARE * epsilon
    across, up = (
        private_bound(values, unit, spent / 2, wanted(n), randomness)
        for values in (fitted, residuals)
    )
    plot = PlotGrid((-across, across), up, side_for(n, epsilon))
    cells = dawa_counts(plot.counts(fitted, residuals), epsilon - spent, randomness)
    return plot, plot.placed(np.maximum(np.rint(cells), 0).astype(np.int64))
