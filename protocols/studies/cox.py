"""Cox's proportional hazards by Newton steps on the partial likelihood over public bins of time.

Each step releases sums over the risk sets of the bins (`cox_step`) for an even share of ε. Events
of one bin are ties, by Efron's formula: without noise and with every time in a bin of its own, this
is the fit of survival packages. The noise of the last step moves the coefficients by I⁻¹ times what
it moves the score; that is found by drawing it anew, seeded with the release.
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
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.bounded import clipped_records, finite_column
from tallyroom.protocols.statistics.coefficients import Coefficients, normal_p_values
from tallyroom.protocols.statistics.contract import Bounds
from tallyroom.protocols.statistics.cox_step import MAX_COEFFICIENT, CoxStep
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Cells, Estimate, Heads, Table
from tallyroom.protocols.statistics.labels import positives_of
from tallyroom.protocols.statistics.option import SURVIVAL, option, role
from tallyroom.protocols.studies.contract import Answer, Ask, Finding, Steps, Study

Matrix = NDArray[np.float64]

DEFAULT_STEPS = 2
MAX_STEPS = 100
LONGEST = 2.0
"""The longest step on scaled terms."""
FAR = 4.0
"""Where a risk set is not so many deviations above noise, that of the time before stands in."""
DRAWS = 200
SETTLED = 1e-6
MANY = 64
"""Under noise, more ties than that are summed over so many points."""
HIDDEN = (
    "noise hides how the risk sets vary: coefficients lie closer to 0 than they should, nobody "
    "knows by how much; use a larger --epsilon, fewer terms or narrower bounds"
)
UNSETTLED = "the steps have not settled: too few --newton-steps, too much noise, or a hazard of 0"


@dataclass(frozen=True)
class HazardRatios(Coefficients):
    """Coefficients of a log hazard: it has no intercept."""

    @property
    def ratios(self) -> list[float]:
        found: list[float] = np.exp(self.coefficients).tolist()
        return found

    def table(self) -> tuple[Heads, Cells]:
        heads, rows = super().table()
        told = zip(rows, self.ratios, strict=True)
        return [*heads[:2], "hazard ratio", *heads[2:]], [
            [*row[:2], ratio, *row[2:]] for row, ratio in told
        ]

    def __str__(self) -> str:
        told = zip(self.terms, self.ratios, strict=True)
        return "hazard ratios: " + ", ".join(f"{term} {ratio:.4g}" for term, ratio in told)


@dataclass(frozen=True)
class Cox(Study):
    """Hazard ratios by Cox's proportional hazards, with errors and p-values."""

    x: tuple[str, ...] = role(
        ("x",), "A column that the hazard depends on, C(COLUMN) for names; repeat it for more."
    )
    time: str = role("time", "The column of times until the event or the censoring.")
    event: str = role("event", "The column that is 1 where the event happened, 0 where censored.")
    positive: float | None = option(None, "The mark of an event, if it is not 1.")
    ranges: tuple[str, ...] = option(
        (), "Public bounds of a column, as COLUMN=LOWER:UPPER; repeat.", flag="--range"
    )
    upper: float | None = option(None, "Public last time; who is followed longer is censored.")
    thresholds: int = option(8, "How many bins of time; events of one bin are ties.")
    newton_steps: int = option(
        DEFAULT_STEPS, "How many Newton steps, which share ε evenly.", flag="--newton-steps"
    )

    name: ClassVar[str] = "cox"
    topic: ClassVar[str] = SURVIVAL
    style: ClassVar[Style] = Style("marks", "coefficient", "")

    def __post_init__(self) -> None:
        if not 1 <= self.newton_steps <= MAX_STEPS:
            raise LocalError(f"--newton-steps is from 1 to {MAX_STEPS}, not {self.newton_steps}")
        _ = self._first

    def _step(self, at: Column) -> CoxStep:
        if self.upper is None:
            raise LocalError("cox needs a public last time: give --upper")
        return dataclasses.replace(self._first, upper=self.upper, at=tuple(at.tolist()))

    @cached_property
    def _first(self) -> CoxStep:
        """With any coefficients, and any last time where none is known yet."""
        last = 1.0 if self.upper is None else self.upper
        return CoxStep(
            self.ranges, self.x, self.time, self.event, self.positive, last, self.thresholds
        )

    @property
    def columns(self) -> tuple[str, ...]:
        return self._first.columns

    @property
    def named_columns(self) -> tuple[str, ...]:
        return self._first.named_columns

    def with_names(self, known: Mapping[str, str]) -> Self:
        return dataclasses.replace(self, x=self._first.with_names(known).x)

    def with_bounds(self, published: Mapping[str, Bounds]) -> Self:
        upper = published[self.time][1] if self.time in published else None
        return dataclasses.replace(
            self,
            ranges=self._first.with_bounds(published).ranges,
            upper=upper if self.upper is None else self.upper,
        )

    def shares(self) -> tuple[Fraction, ...]:
        return (Fraction(1, self.newton_steps),) * self.newton_steps

    def may_ask(self) -> tuple[Ask, ...]:
        return (Ask(self._step(np.zeros(len(self._first.design))), self.shares()[0]),)

    def clipped(self, holdings: Holdings) -> int:
        return clipped_records(self._first, holdings)

    def steps(self) -> Steps:
        beta = np.zeros(len(self._first.design))
        for share in self.shares():
            answer = yield Ask(self._step(beta), share)
            risk = RiskTable.of(answer, len(beta))
            score, information = risk.derivatives()
            drawn = risk.noise_of_score()
            inverse, weak = _inverse(information, float(np.sqrt(drawn.max(initial=0.0))))
            move = inverse @ score
            move *= min(1.0, LONGEST / max(float(np.linalg.norm(move)), 1e-300))
            beta = np.clip(beta + move, -MAX_COEFFICIENT, MAX_COEFFICIENT)
        half = np.array([each.half for each in self._first.design])
        errors = np.sqrt(np.diag(inverse)) / half
        noise = np.sqrt(np.diag(inverse @ drawn @ inverse)) / half
        left = np.abs(move) * np.abs(move).sum() / 2
        unsettled = bool((left > np.maximum(noise * half, SETTLED)).any())
        known = not (weak or unsettled)
        values = beta / half
        estimate = HazardRatios(
            self.time,
            self._first.terms[1:],
            values.tolist(),
            [math.nan] * len(errors) if weak else errors.tolist(),
            weak=weak,
            p_values=normal_p_values(values, np.hypot(errors, noise)) if known else [],
        )
        notes = ((HIDDEN,) if weak else ()) + ((UNSETTLED,) if unsettled and not weak else ())
        return Finding(estimate, notes, noise if known else None)

    def reference(self, holdings: Holdings) -> Estimate | None:
        """The fit to the raw times, without bins, by Newton steps to the last digit; None where
        they do not converge."""
        raw = np.stack(list(self._first.raw(holdings).values()), axis=1)
        happened = positives_of(holdings.column(self.event), self.event, self.positive)
        times, places = np.unique(finite_column(holdings, self.time), return_inverse=True)
        scale = np.maximum(raw.std(axis=0), 1e-300)
        z = (raw - raw.mean(axis=0)) / scale
        rows, columns = np.triu_indices(z.shape[1])
        beta = np.zeros(z.shape[1])
        for _ in range(MAX_STEPS):
            weight = np.exp(z @ beta)[:, None]
            sums = np.concatenate([weight, weight * z, weight * z[:, rows] * z[:, columns]], axis=1)
            at, of = (np.zeros((len(times), sums.shape[1])) for _ in range(2))
            np.add.at(at, places, sums)
            np.add.at(of, places[happened], sums[happened])
            counts = np.bincount(places[happened], minlength=len(times)).astype(float)
            table = RiskTable(at, of, counts, z[happened].sum(axis=0), 0.0)
            score, information = table.derivatives()
            if not np.isfinite(information).all() or np.linalg.eigvalsh(information)[0] < 1e-9:
                return None
            move = np.linalg.solve(information, score)
            beta = beta + move
            if np.abs(move).max() < 1e-10:
                break
        else:
            return None
        values, errors = beta / scale, np.sqrt(np.diag(np.linalg.inv(information))) / scale
        return HazardRatios(
            self.time,
            self._first.terms[1:],
            values.tolist(),
            errors.tolist(),
            p_values=normal_p_values(values, errors),
        )


@dataclass(frozen=True)
class RiskTable:
    """For each bin of time the sums of all who leave in it, those of its events, and how many
    events; and the sums of z of all events. `noise` is the deviation in each released number."""

    leaving: Matrix
    events: Matrix
    counts: Column
    of_events: Column
    noise: float

    @classmethod
    def of(cls, answer: Answer, terms: int) -> "RiskTable":
        if not isinstance(answer.estimate, Table):
            raise RunFailed("sums over risk sets came back as another shape than a table")
        *bins, last = np.array(answer.estimate.cells)
        censored, events, counts = np.split(np.array(bins), [len(last) // 2, len(last) - 1], axis=1)
        noise = float(np.max(answer.deviations))
        return cls(censored + events, events, counts[:, 0], last[:terms], noise)

    def derivatives(self) -> tuple[Column, Matrix]:
        """The score and the information of Efron's partial likelihood."""
        p = len(self.of_events)
        at_risk = np.cumsum(self.leaving[::-1], axis=0)[::-1]
        least = FAR * self.noise * np.sqrt(2 * np.arange(len(at_risk), 0, -1))
        score, information = self.of_events.copy(), np.zeros((p, p))
        mean, square = np.zeros(p), np.zeros((p, p))
        for at, count in enumerate(self.counts):
            events = max(round(float(count)), 0)
            if events and at_risk[at, 0] > least[at]:
                mean, square = self._of_risk_set(at_risk[at], self.events[at], events)
            score -= events * mean
            information += events * square
        return score, information

    def _of_risk_set(self, whole: Column, tied: Column, events: int) -> tuple[Column, Matrix]:
        """The mean of z and its covariance, over those at risk, while the tied leave one by one."""
        p = len(self.of_events)
        kept = min(max(tied[0], 0.0), whole[0]) / tied[0] if tied[0] else 0.0
        points = min(events, MANY) if self.noise else events
        share = (np.arange(points) + (0.5 if points < events else 0.0)) / points
        sums = whole - share[:, None] * (kept * tied)
        means = sums[:, 1 : p + 1] / sums[:, :1]
        square = np.zeros((p, p))
        square[np.triu_indices(p)] = (sums[:, p + 1 :] / sums[:, :1]).mean(axis=0)
        square = square + np.triu(square, 1).T - means.T @ means / points
        return means.mean(axis=0), square

    def noise_of_score(self) -> Matrix:
        """The covariance of the score by the noise, drawn anew around what was released."""
        p = len(self.of_events)
        if not self.noise:
            return np.zeros((p, p))
        released = self.leaving, self.events, self.counts, self.of_events
        seed = np.concatenate([each.ravel() for each in released]).view(np.uint64)
        generator, found = np.random.default_rng(seed), []
        for _ in range(DRAWS):
            censored, events, counts, of_events = (
                self.noise * generator.normal(size=each.shape) for each in released
            )
            moved = RiskTable(
                self.leaving + censored + events,
                self.events + events,
                self.counts + counts,
                self.of_events + of_events,
                self.noise,
            )
            found.append(moved.derivatives()[0])
        return np.atleast_2d(np.cov(np.array(found).T))


def _inverse(information: Matrix, deviation: float) -> tuple[Matrix, int]:
    """The inverse of the information; directions with less than noise may show have that much."""
    values, directions = np.linalg.eigh(information)
    least = max(2 * deviation * math.sqrt(len(values)), 1e-9)
    weak = int(np.count_nonzero(values < least))
    found: Matrix = (directions / np.maximum(values, least)) @ directions.T
    return found, weak
