"""Logistic regression by Newton steps, each a release for its part of ε, or by a curator in one."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.names import look_up
from tallyroom.protocols.offers import Offers
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.bounded import clipped_records
from tallyroom.protocols.statistics.by_objective import CERTAIN
from tallyroom.protocols.statistics.coefficients import Coefficients
from tallyroom.protocols.statistics.contract import Bounds, Statistic
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Estimate, Table
from tallyroom.protocols.statistics.labels import positives_of
from tallyroom.protocols.statistics.logistic_objective import LogisticObjective
from tallyroom.protocols.statistics.logistic_step import STEPS, LogisticStep
from tallyroom.protocols.statistics.option import option, role
from tallyroom.protocols.studies.contract import Answer, Ask, Finding, Steps, Study

Matrix = NDArray[np.float64]

METHODS = ("newton", "objective")
MAX_STEPS = 100
LONGEST = 4.0
"""A step at most."""
SETTLED = 1e-6
"""Less than this is left to go where there is no noise."""


@dataclass(frozen=True)
class LogisticRegression(Study):
    """Coefficients of a logistic model of a label on the columns x."""

    x: tuple[str, ...] = role(("x",), "A column that predicts; repeat it for more.")
    label: str = role("label", "The column of labels, 0 or 1.")
    positive: float | None = option(None, "The label of positive records, if it is not 1.")
    ranges: tuple[str, ...] = option(
        (), "Public bounds of a column, as COLUMN=LOWER:UPPER; repeat.", flag="--range"
    )
    newton_steps: int = option(
        6, "How many Newton steps; they share ε evenly.", flag="--newton-steps"
    )
    method: str = option(
        "newton", "By Newton steps, or a curator's objective perturbation.", choices=METHODS
    )
    penalty: float = option(
        0.0, "Least penalty on squared coefficients, per record; for --method objective."
    )

    name: ClassVar[str] = "logistic-regression"
    style: ClassVar[Style] = Style("marks", "coefficient", "")

    def __post_init__(self) -> None:
        if not 1 <= self.newton_steps <= MAX_STEPS:
            raise LocalError(f"--newton-steps is from 1 to {MAX_STEPS}, not {self.newton_steps}")
        look_up("method", self.method, dict.fromkeys(METHODS))
        if self.penalty and self.method != "objective":
            raise LocalError("--penalty is of --method objective")
        self._objective()
        self._step(np.zeros(len(self.x) + 1))

    def asked_of(self, offers: Offers) -> "Study | Statistic":
        """Objective perturbation is one question."""
        return self if self.method == "newton" else self._objective()

    def _objective(self) -> LogisticObjective:
        return LogisticObjective(
            ranges=self.ranges,
            x=self.x,
            label=self.label,
            positive=self.positive,
            penalty=self.penalty,
        )

    def _step(self, at: Column) -> LogisticStep:
        return LogisticStep(self.ranges, self.x, self.label, self.positive, tuple(at.tolist()))

    def with_bounds(self, published: Mapping[str, Bounds]) -> Self:
        bounded = self._step(np.zeros(len(self.x) + 1)).with_bounds(published)
        return dataclasses.replace(self, ranges=bounded.ranges)

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.x, self.label)

    def shares(self) -> tuple[Fraction, ...]:
        return (Fraction(1, self.newton_steps),) * self.newton_steps

    def may_ask(self) -> tuple[Ask, ...]:
        return (Ask(self._step(np.zeros(len(self.x) + 1)), self.shares()[0]),)

    def clipped(self, holdings: Holdings) -> int:
        return clipped_records(self._objective(), holdings)

    def steps(self) -> Steps:
        beta = np.zeros(len(self.x) + 1)
        weak, farther, unsettled = 0, False, False
        inverse, noise = np.eye(len(beta)), 0.0
        for share in self.shares():
            answer = yield Ask(self._step(beta), share)
            gradient, curvature = _sums(answer)
            noise = float(np.max(answer.deviations))
            inverse, weak = _inverse(curvature, noise, answer.records)
            move = -inverse @ gradient
            move *= min(1.0, LONGEST / max(float(np.linalg.norm(move)), 1e-300))
            farther = bool((np.abs(beta + move) > CERTAIN).any())
            beta = np.clip(beta + move, -CERTAIN, CERTAIN)
            unsettled = _is_unsettled(move, noise * np.sqrt(np.diag(inverse @ inverse)))
        notes = []
        if farther:
            notes.append(
                f"coefficients stop at ±{CERTAIN:g} on columns scaled to [−1, 1]: the classes are "
                "separable, or bounds are far wider than the values, or noise makes it look so"
            )
        elif unsettled and not weak:
            notes.append(
                "the steps have not settled: too few --newton-steps, too much noise, or classes "
                "that are separable"
            )
        if weak and not noise:
            notes.append(
                "some coefficients are anybody's guess: columns are collinear, one has a single "
                "value within its bounds, or the classes are separable"
            )
        elif weak:
            hidden = "1 direction" if weak == 1 else f"{weak} directions"
            notes.append(
                f"noise hides the curvature in {hidden}: steps there are short, and coefficients "
                "lie closer to 0 than they should, nobody knows by how much: they have no interval"
            )
        to_raw = self._to_raw()
        told = [np.sqrt(np.diag(to_raw @ each @ to_raw.T)) for each in (inverse, inverse @ inverse)]
        estimate = Coefficients(
            self.label,
            ["intercept", *self.x],
            (to_raw @ beta).tolist(),
            [math.nan] * len(beta) if weak else told[0].tolist(),
            weak=weak,
        )
        known = not (weak or farther or unsettled)
        return Finding(estimate, tuple(notes), noise * told[1] if known else None)

    def _to_raw(self) -> Matrix:
        """From coefficients of scaled columns to those of columns as they are."""
        middle, half = self._step(np.zeros(len(self.x) + 1)).scaling
        found = np.diag(np.append(1.0, 1 / half))
        found[0, 1:] = -middle / half
        return found

    def reference(self, holdings: Holdings) -> Estimate | None:
        """By Newton's method on the raw columns, to the last digit; None where it has no end, as
        for classes that are separable."""
        labels = positives_of(holdings.column(self.label), self.label, self.positive)
        raw = np.stack([holdings.column(name) for name in self.x], axis=1)
        middle, half = raw.mean(axis=0), np.maximum(raw.std(axis=0), 1e-300)
        design = np.column_stack([np.ones(holdings.rows), (raw - middle) / half])
        beta = np.zeros(design.shape[1])
        for _ in range(MAX_STEPS):
            probability = 0.5 * (1 + np.tanh(design @ beta / 2))
            weights = probability * (1 - probability)
            curvature = design.T @ (weights[:, None] * design)
            if np.linalg.eigvalsh(curvature)[0] < 1e-9 * holdings.rows:
                return None
            move = np.linalg.solve(curvature, design.T @ (labels - probability))
            beta = beta + move
            if np.abs(move).max() < 1e-12:
                break
        to_raw = np.diag(np.append(1.0, 1 / half))
        to_raw[0, 1:] = -middle / half
        covariance = to_raw @ np.linalg.inv(curvature) @ to_raw.T
        errors = np.sqrt(np.diag(covariance)).tolist()
        return Coefficients(self.label, ["intercept", *self.x], (to_raw @ beta).tolist(), errors)


def _sums(answer: Answer) -> tuple[Column, Matrix]:
    if not isinstance(answer.estimate, Table):
        raise RunFailed("gradient and curvature are a table")
    cells = np.array(answer.estimate.cells)
    return cells[:, 0], cells[:, 1:]


def _is_unsettled(move: Column, deviations: Column) -> bool:
    """Whether more steps would move coefficients by more than the noise of the last one does.

    The curvature changes by a factor of e^r at most where no record's score moves by more than r,
    which is the 1-norm of the move for columns within [−1, 1]. So r/2 of a step is left, to first
    order."""
    left = np.abs(move) * np.abs(move).sum() / 2
    return bool((left > np.maximum(deviations, SETTLED)).any())


def _inverse(curvature: Matrix, noise: float, records: int) -> tuple[Matrix, int]:
    """Of the curvature, which is taken to be what noise alone shows where it is less: about 2s√m
    for a symmetric matrix of noises of deviation s. Without noise there still is rounding to the
    grid, of deviation √(n/12) steps; four times that, since it is no noise of its own."""
    values, directions = np.linalg.eigh(curvature)
    rounding = math.sqrt(records / 12) / STEPS
    least = 2 * math.sqrt(len(values)) * max(noise, 4 * rounding)
    weak = int(np.count_nonzero(values < least))
    found: Matrix = (directions / np.maximum(values, least)) @ directions.T
    return found, weak
