"""Logistic regression without a curator in a few releases, or by a curator in one.

- `whitened`: second moments of the columns and the label tell how to whiten the columns and where
  to start (`gaussian_start`); Newton steps on whitened columns follow, in which far records weigh
  less (`whitened_step`). Without noise, Newton steps on the columns as they are.
- `newton`: Newton steps on the columns as they are, from 0.
- `objective`: a curator's objective perturbation (`logistic_objective`).
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.offers import Offers
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.registry import look_up
from tallyroom.protocols.statistics.bounded import clipped_records
from tallyroom.protocols.statistics.by_objective import CERTAIN
from tallyroom.protocols.statistics.coefficients import Coefficients, normal_p_values
from tallyroom.protocols.statistics.contract import Bounds, Statistic
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Estimate, Table
from tallyroom.protocols.statistics.gaussian_start import GaussianStart, mean_curvature
from tallyroom.protocols.statistics.labels import positives_of
from tallyroom.protocols.statistics.logistic_moments import LogisticMoments
from tallyroom.protocols.statistics.logistic_objective import LogisticObjective
from tallyroom.protocols.statistics.logistic_step import MAX_COEFFICIENT, STEPS, LogisticStep
from tallyroom.protocols.statistics.option import RELATIONS, option, role
from tallyroom.protocols.statistics.terms import FORMULA, take_formula
from tallyroom.protocols.statistics.whitened_step import Reach, WhitenedStep
from tallyroom.protocols.studies.contract import Answer, Ask, Finding, Steps, Study

Matrix = NDArray[np.float64]

METHODS = ("whitened", "newton", "objective")
MOMENTS_SHARE = Fraction(2, 5)
"""Of ε, for the second moments; the steps share the rest evenly."""
WHITENED_STEPS = 2
NEWTON_STEPS = 6
EXACT_STEPS = 8
"""Newton steps after the moments where there is no noise."""
MOST_NOISE = 0.1
"""Of moments within ±1: under more, they do not tell how to whiten, and steps are plain."""
LONGEST_WHITENED = 2.0
"""The longest step on whitened columns."""
MAX_STEPS = 100
LONGEST = 4.0
"""The longest step."""
SETTLED = 1e-6
"""Without noise, the fit has settled when less than this is left to go."""
UNSETTLED = (
    "the steps have not settled: too few --newton-steps, too much noise, or classes that are "
    "separable"
)
UNTOLD = (
    "some coefficients are anybody's guess: columns are collinear, one has a single value within "
    "its bounds, or the classes are separable"
)
FAR_RECORDS = (
    "records far from the others weigh less, whatever their label; intervals are around the fit "
    "with those weights"
)


@dataclass(frozen=True)
class LogisticRegression(Study):
    """Coefficients of a logistic model of a label on the columns x."""

    x: tuple[str, ...] = role(
        ("x",), "A column that predicts, C(COLUMN) for names; repeat it for more."
    )
    label: str = role("label", "The column of labels, 0 or 1.")
    positive: float | None = option(None, "The label of positive records, if it is not 1.")
    ranges: tuple[str, ...] = option(
        (), "Public bounds of a column, as COLUMN=LOWER:UPPER; repeat.", flag="--range"
    )
    newton_steps: int | None = option(
        None,
        "How many Newton steps, which share ε evenly: 2 on whitened columns, else 6.",
        flag="--newton-steps",
    )
    method: str = option(
        "whitened",
        "By Newton steps on whitened columns, on columns as they are, or a curator's objective "
        "perturbation.",
        choices=METHODS,
    )
    penalty: float = option(
        0.0, "Least penalty on squared coefficients, per record; for --method objective."
    )

    formula: str = option("", FORMULA)

    name: ClassVar[str] = "logistic-regression"
    topic: ClassVar[str] = RELATIONS
    style: ClassVar[Style] = Style("marks", "coefficient", "")

    def __post_init__(self) -> None:
        if self.newton_steps is not None and not 1 <= self.newton_steps <= MAX_STEPS:
            raise LocalError(f"--newton-steps is from 1 to {MAX_STEPS}, not {self.newton_steps}")
        look_up("method", self.method, dict.fromkeys(METHODS))
        if self.penalty and self.method != "objective":
            raise LocalError("--penalty applies only to --method objective")
        take_formula(self, "label")
        self._objective()

    def asked_of(self, offers: Offers) -> "Study | Statistic":
        """Objective perturbation takes one question, so it is asked as a statistic."""
        return self._objective() if self.method == "objective" else self

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
        return dataclasses.replace(self, ranges=self._objective().with_bounds(published).ranges)

    def with_names(self, known: Mapping[str, str]) -> Self:
        return dataclasses.replace(self, x=self._objective().with_names(known).x)

    @property
    def columns(self) -> tuple[str, ...]:
        return self._objective().columns

    @property
    def named_columns(self) -> tuple[str, ...]:
        return self._objective().named_columns

    @cached_property
    def _terms(self) -> list[str]:
        return self._objective().terms

    def shares(self) -> tuple[Fraction, ...]:
        if self.method == "whitened":
            return (MOMENTS_SHARE, *self._shares_of_steps(EXACT_STEPS))
        return self._shares_of_steps(NEWTON_STEPS)

    def _shares_of_steps(self, unless_asked: int) -> tuple[Fraction, ...]:
        """The share of each step, if it is so many unless the user asks for another number."""
        steps = self.newton_steps or unless_asked
        left = 1 - MOMENTS_SHARE if self.method == "whitened" else Fraction(1)
        return (left / steps,) * steps

    def may_ask(self) -> tuple[Ask, ...]:
        plain = Ask(self._step(np.zeros(len(self._terms))), self.shares()[-1])
        if self.method != "whitened":
            return (plain,)
        d = len(self._terms) - 1
        start = GaussianStart(np.zeros(d), np.eye(d), np.zeros(d + 1))
        share = self._shares_of_steps(WHITENED_STEPS)[0]
        whitened = Ask(self._whitened_step(start, start.at), share)
        few = Ask(plain.statistic, share)
        return (Ask(self._moments(), MOMENTS_SHARE), whitened, plain, few)

    def _moments(self) -> LogisticMoments:
        return LogisticMoments(self.ranges, self.x, self.label, self.positive)

    def _whitened_step(self, start: GaussianStart, at: Column) -> WhitenedStep:
        return WhitenedStep(
            self.ranges,
            self.x,
            self.label,
            self.positive,
            tuple(start.centre.tolist()),
            tuple(np.clip(start.whitening, -MAX_COEFFICIENT, MAX_COEFFICIENT).ravel().tolist()),
            tuple(at.tolist()),
        )

    def clipped(self, holdings: Holdings) -> int:
        return clipped_records(self._objective(), holdings)

    def steps(self) -> Steps:
        zero = np.zeros(len(self._terms))
        if self.method == "newton":
            return (yield from self._newton(zero, self.shares()))
        moments = yield Ask(self._moments(), MOMENTS_SHARE)
        if not moments.deviations.any():
            return (yield from self._newton(zero, self._shares_of_steps(EXACT_STEPS)))
        if float(np.max(moments.deviations)) > MOST_NOISE * moments.records:
            return (yield from self._newton(zero, self._shares_of_steps(WHITENED_STEPS)))
        return (yield from self._whitened(moments))

    def _whitened(self, moments: Answer) -> Steps:
        start = GaussianStart.of(_cells(moments), float(np.max(moments.deviations)))
        bend = Reach(len(start.at)).curvature_weight
        theta = start.at
        for share in self._shares_of_steps(WHITENED_STEPS):
            answer = yield Ask(self._whitened_step(start, theta), share)
            gradient, curvature = _sums(answer)
            noise = float(np.max(answer.deviations))
            expected = answer.records * mean_curvature(theta)
            inverse, weak = _inverse(curvature / bend, noise / bend, answer.records)
            if _least_curvature(len(theta), noise / bend, answer.records) >= expected:
                inverse, weak = np.eye(len(theta)) / expected, len(theta)
                gradient = _shrunk(gradient, noise)
            move = -inverse @ gradient
            move *= min(1.0, LONGEST_WHITENED / max(float(np.linalg.norm(move)), 1e-300))
            theta = np.clip(theta + move, -CERTAIN, CERTAIN)
        drawn = noise**2 * inverse @ _noise_of_step(move, bend) @ inverse
        unsettled = bool((np.abs(move) * np.linalg.norm(move) > np.sqrt(np.diag(drawn))).any())
        from_scaled = np.eye(len(theta))
        from_scaled[1:, 1:] = start.whitening
        from_scaled[0, 1:] = -start.whitening.T @ start.centre
        to_raw = self._to_raw() @ from_scaled
        notes = [FAR_RECORDS]
        if weak:
            notes.append(_hidden(weak))
        elif unsettled:
            notes.append(UNSETTLED)
        known = not (weak or unsettled)
        deviations = np.sqrt(np.diag(to_raw @ drawn @ to_raw.T))
        estimate = self._told(to_raw, theta, inverse, weak, deviations if known else None)
        return Finding(estimate, tuple(notes), deviations if known else None)

    def _newton(self, beta: Column, shares: tuple[Fraction, ...]) -> Steps:
        weak, farther, unsettled = 0, False, False
        inverse, noise = np.eye(len(beta)), 0.0
        for share in shares:
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
            notes.append(UNSETTLED)
        if weak:
            notes.append(_hidden(weak) if noise else UNTOLD)
        to_raw = self._to_raw()
        deviations = noise * np.sqrt(np.diag(to_raw @ inverse @ inverse @ to_raw.T))
        known = not (weak or farther or unsettled)
        estimate = self._told(to_raw, beta, inverse, weak, deviations if known else None)
        return Finding(estimate, tuple(notes), deviations if known else None)

    def _told(
        self, to_raw: Matrix, fitted: Column, inverse: Matrix, weak: int, noise: Column | None
    ) -> Coefficients:
        """`noise` are the deviations of the noise, None where nobody knows them."""
        errors = np.sqrt(np.diag(to_raw @ inverse @ to_raw.T))
        values = to_raw @ fitted
        return Coefficients(
            self.label,
            self._terms,
            values.tolist(),
            [math.nan] * len(errors) if weak else errors.tolist(),
            weak=weak,
            p_values=[] if noise is None else normal_p_values(values, np.hypot(errors, noise)),
        )

    def _to_raw(self) -> Matrix:
        """Maps coefficients of scaled columns to those of unscaled columns."""
        middle, half = self._objective().scaling
        found = np.diag(np.append(1.0, 1 / half))
        found[0, 1:] = -middle / half
        return found

    def reference(self, holdings: Holdings) -> Estimate | None:
        """The coefficients by Newton's method on the raw columns, to the last digit; None if it
        does not converge, as for separable classes."""
        labels = positives_of(holdings.column(self.label), self.label, self.positive)
        raw = np.stack(list(self._objective().raw(holdings).values()), axis=1)
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
        errors, values = np.sqrt(np.diag(covariance)), to_raw @ beta
        return Coefficients(
            self.label,
            self._terms,
            values.tolist(),
            errors.tolist(),
            p_values=normal_p_values(values, errors),
        )


def _cells(answer: Answer) -> Matrix:
    if not isinstance(answer.estimate, Table):
        raise RunFailed("sums over the records came back as another shape than a table")
    return np.array(answer.estimate.cells)


def _sums(answer: Answer) -> tuple[Column, Matrix]:
    cells = _cells(answer)
    return cells[:, 0], cells[:, 1:]


def _hidden(weak: int) -> str:
    hidden = "1 direction" if weak == 1 else f"{weak} directions"
    return (
        f"noise hides the curvature in {hidden}: steps there are short, and coefficients "
        "lie closer to 0 than they should, nobody knows by how much: they have no interval"
    )


def _shrunk(gradient: Column, noise: float) -> Column:
    """The gradient, less what noise adds to its square: a step that is noise is not taken."""
    kept = max(0.0, 1 - len(gradient) * noise**2 / max(float(gradient @ gradient), 1e-300))
    return kept * gradient


def _noise_of_step(move: Column, bend: float) -> Matrix:
    """The covariance of e + E·move for noises of variance 1 in e, and of 1/bend² in the symmetric
    E, whose entries i and j of the product share E_ij."""
    shared = np.outer(move, move)
    np.fill_diagonal(shared, float(move @ move))
    found: Matrix = np.eye(len(move)) + shared / bend**2
    return found


def _is_unsettled(move: Column, deviations: Column) -> bool:
    """Whether more steps would move coefficients by more than the noise of the last one does.

    The curvature changes by a factor of e^r at most where no record's score moves by more than r,
    which is the 1-norm of the move for columns within [−1, 1]. So r/2 of a step is left, to first
    order."""
    left = np.abs(move) * np.abs(move).sum() / 2
    return bool((left > np.maximum(deviations, SETTLED)).any())


def _inverse(curvature: Matrix, noise: float, records: int) -> tuple[Matrix, int]:
    """The inverse of the curvature. Where the curvature is less than noise alone may show, it is
    raised to that: about 2s√m for a symmetric matrix of noises of deviation s. Without noise there
    still is rounding to the grid, of deviation √(n/12) steps; four times that is taken, since
    rounding is not independent noise."""
    values, directions = np.linalg.eigh(curvature)
    least = _least_curvature(len(values), noise, records)
    weak = int(np.count_nonzero(values < least))
    found: Matrix = (directions / np.maximum(values, least)) @ directions.T
    return found, weak


def _least_curvature(terms: int, noise: float, records: int) -> float:
    rounding = math.sqrt(records / 12) / STEPS
    return 2 * math.sqrt(terms) * max(noise, 4 * rounding)
