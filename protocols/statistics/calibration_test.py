"""Whether noisy groups of scores are calibrated: a p-value that includes the noise, and its power.

Without noise, the Hosmer–Lemeshow statistic Σ D²/V, with D the observed less the predicted
positives of a group of n records and V = n·p̄(1 − p̄), is χ² with Q degrees of freedom for Q groups,
if the records did not train the model (Hosmer, Lemeshow and Sturdivant, "Applied Logistic
Regression", 3rd ed., §5.2.2). Fitting a logistic model to the same records leaves Q − 2: the fit
makes the differences add up to 0, alone and weighted by the logit (Hosmer and Lemeshow, 1980).

Noise of variance ω² in D makes that Σ D²/(V + ω²), and its law is neither. It is simulated: counts
of calibrated groups as large as those released, with noise of the law that was drawn. All of it
follows from released values, so it spends nothing, and they are the seed: one release has one p.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics.release import Noise

LEVEL = 0.05
"""The level of the test whose power is told."""
WANTED_POWER = 0.8
ROUNDS, PER_ROUND = 10, 1000
"""How many draws are made, in rounds that fit into memory."""


@dataclass(frozen=True)
class NoisyTest:
    """The test of `cells`, one row a group: predicted positives, observed positives, observed
    negatives. `noise` is that of the cells in units of `step`.

    `fitted` says that the model was fitted to these very records.
    """

    cells: Column
    noise: Noise
    step: float
    fitted: bool = False

    @property
    def statistic(self) -> float:
        difference, deviation_squared = self._compared(self.cells)
        return float((difference**2 / deviation_squared).sum())

    @property
    def p_value(self) -> float:
        """At least one part of so many draws and one."""
        null = self.null_draws[:, 0]
        return float((1 + np.count_nonzero(null >= self.statistic)) / (1 + len(null)))

    def power(self, difference: float) -> float:
        """The probability that a test of level `LEVEL` rejects, if the share of positives in every
        group is so far from what is predicted, in either direction."""
        constant, linear, square = self.null_draws.T
        critical = np.quantile(constant, 1 - LEVEL)
        return float((constant + difference * (linear + difference * square) > critical).mean())

    @cached_property
    def detectable(self) -> float | None:
        """The difference that is found with a power of `WANTED_POWER`; None if not even 1 is."""
        low, high = 0.0, 1.0
        if self.power(high) < WANTED_POWER:
            return None
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (low, middle) if self.power(middle) >= WANTED_POWER else (middle, high)
        return high

    # --- the null ---

    @property
    def _errors(self) -> Column:
        """The standard deviation of the noise in each cell."""
        errors: Column = self.noise.deviations(self.cells.size) * self.step
        return errors.reshape(self.cells.shape)

    def _compared(self, cells: Column) -> tuple[Column, Column]:
        """D of each group, and V + ω² by the same cells; `cells` may be of many draws."""
        predicted, size = cells[..., 0], cells[..., 1] + cells[..., 2]
        own = (self._errors[:, :2] ** 2).sum(axis=1)
        whole = binomial_variance(size, predicted) + own
        return cells[..., 1] - predicted, np.maximum(whole, np.finfo(float).tiny)

    @cached_property
    def null_draws(self) -> Column:
        """For each draw from the null the coefficients of its statistic as a polynomial in the
        difference that is added to the share of positives in all groups."""
        size = np.maximum(self.cells[:, 1] + self.cells[:, 2], 0.0)
        predicted = np.clip(self.cells[:, 0], 0.0, size)
        calibrated = np.stack([predicted, predicted, size - predicted], axis=1)
        seed = np.rint(self.cells / self.step).astype(np.int64).view(np.uint64).ravel()
        generator = np.random.default_rng(seed)
        drawn = []
        for _ in range(ROUNDS):
            cells = calibrated + self._noise(generator)
            labels = self._labels(size, predicted, generator)
            cells[..., 1] += labels
            cells[..., 2] -= labels
            difference, whole = self._compared(cells)
            terms = (difference**2, 2 * difference * size, np.broadcast_to(size**2, whole.shape))
            drawn.append(np.stack([(term / whole).sum(axis=1) for term in terms], axis=1))
        return np.concatenate(drawn)

    def _noise(self, generator: np.random.Generator) -> Column:
        """A sum of r Laplace noises is the difference of two gamma variables of shape r."""
        shape = (PER_ROUND, *self.cells.shape)
        if not isinstance(self.noise.law, DiscreteLaplace):
            return self._errors * generator.normal(size=shape)
        r = self.noise.noises
        drawn = generator.gamma(r, size=shape) - generator.gamma(r, size=shape)
        noise: Column = self._errors * drawn / np.sqrt(2 * r)
        return noise

    def _labels(self, size: Column, predicted: Column, generator: np.random.Generator) -> Column:
        """What the labels of calibrated groups add to their predicted positives."""
        deviations = np.sqrt(binomial_variance(size, predicted))
        drawn = generator.normal(size=(PER_ROUND, len(size)))
        if self.fitted:
            share = np.divide(predicted, size, np.full(len(size), 0.5), where=deviations > 0)
            share = np.clip(share, 1e-9, 1 - 1e-9)
            taken = np.stack([np.ones(len(size)), np.log(share / (1 - share))], axis=1)
            basis, _ = np.linalg.qr(deviations[:, None] * taken)
            drawn -= drawn @ basis @ basis.T
        labels: Column = deviations * drawn
        return labels


def binomial_variance(size: Column, predicted: Column) -> Column:
    """n·p̄(1 − p̄) of each group; 0 where noise makes a count negative."""
    positives, negatives = np.maximum(predicted, 0.0), np.maximum(size - predicted, 0.0)
    whole = positives + negatives
    zeros = np.zeros_like(whole)
    found: Column = np.divide(positives * negatives, whole, zeros, where=whole > 0)
    return found
