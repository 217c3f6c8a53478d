"""Plans a question: its cost and its error, before any ε is spent.

The cost is the bill of a rehearsal: the whole protocol runs, in one process, on public records, so
the same machines send the same messages. Large federations, and many meetings of parties, are
rehearsed at smaller sizes, and the bill is extrapolated.

The error is that of the answer against the truth. Where noise is added to an exact sum it is drawn
in the clear, at the full size; elsewhere it is that of several rehearsals.
"""

import dataclasses
import math
import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from tallyroom.protocols.errors import LocalError, TallyError
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.simulation.networks.network import network_of
from tallyroom.simulation.networks.prediction import network_seconds, server_bytes
from tallyroom.simulation.networks.profile import PROFILES
from tallyroom.simulation.planning.rehearsal import FEW, Part, Rehearsal
from tallyroom.simulation.result import Result

BYTES_WITHIN = 0.15
"""How far a run's bytes may differ from its plan, as a share: pairs are drawn anew, and a search
follows the data. Everything else is planned to the byte."""
ROUNDING = 1e-12
MECHANISM = "mechanism"
DRAWN = "draws of noise on the rehearsal's records"
DRAWN_PAIRS = "mechanism, and draws of pairs of the rehearsal's records"
REHEARSALS, SLOW_REHEARSALS = 64, 8
"""How many rehearsals measure the error where it cannot be drawn in the clear: 64 find it within
18 % in 19 of 20 cases."""
SLOW = 0.5
"""Seconds of a rehearsal that is not repeated so often."""
LEAST_EPSILON, MOST_EPSILON = 1e-4, 1e3
STEPS = 12
CLOSE = 0.01


@dataclass(frozen=True)
class Planned:
    """`error` is the root mean square error of the answer against the truth, `noise_error` what the
    noise alone makes of it, and `basis` says how they are known; None if they cannot be known.
    `server_bytes` are those of the busiest server. If the number of `thresholds` was searched too,
    `error` is that of the noise, and `between` the error of reading between them."""

    aggregator: str
    servers: int
    loss: PrivacyLoss
    mechanism: str
    error: float | None
    noise_error: float | None
    basis: str
    party_bytes: float
    server_bytes: float
    total_bytes: float
    rounds: int
    seconds: dict[str, float]
    memory: int
    thresholds: int | None = None
    between: float = 0.0

    @property
    def epsilon(self) -> float | None:
        """None without noise."""
        return self.loss.size if self.loss.bounded else None

    @property
    def whole_error(self) -> float | None:
        return None if self.error is None else math.hypot(self.error, self.between)

    def as_json(self) -> dict[str, object]:
        told: dict[str, object] = {}
        for each in dataclasses.fields(self):
            if each.name == "loss":
                told |= self.loss.as_json()
            else:
                told[each.name] = getattr(self, each.name)
        return told


CARRIED_WITHIN = 0.05
"""How far extrapolated bytes and errors may be from the true ones, as a share."""


def noise_of(result: Result) -> float | None:
    """The expected error as the mechanism tells it."""
    if not result.privacy.loss.bounded:
        return 0.0
    mean = float(np.mean(result.deviations**2)) if len(result.deviations) else math.nan
    return math.sqrt(mean) if math.isfinite(mean) and mean > 0 else None


def settled(result: Result) -> bool:
    """Whether the mechanism states the same error for all data. A study's error depends on its
    answers, and a rounding error alone says nothing."""
    return result.foretold and (noise_of(result) or 0.0) >= ROUNDING


@dataclass(frozen=True)
class Expected:
    """None where it cannot be known."""

    error: float | None
    noise: float | None
    basis: str


def expected(rehearse: Rehearsal, spec: str, epsilon: float | str) -> Expected:
    """The error of an answer and how it is known. Raises as a run does."""
    drawn = rehearse.outcomes(spec, epsilon)
    if drawn is not None:
        error = drawn.error if rehearse.against_truth else drawn.noise
        sampled = len(rehearse.size(spec, epsilon, rehearse.whole)) > 2
        basis = (DRAWN_PAIRS if sampled else MECHANISM) if drawn.foretold else DRAWN
        return Expected(error, drawn.noise, basis)
    if rehearse.on_paper is not None:
        return _on_paper(rehearse, spec, epsilon)
    part, *smaller = rehearse.parts(spec, epsilon)
    whole = _rehearsed(rehearse, spec, epsilon, part)
    if not smaller or not whole.error or not whole.noise:
        return whole
    less = _rehearsed(rehearse, spec, epsilon, smaller[0])
    doublings = math.log2(rehearse.whole.rows / part.rows)
    shrunk = _per_doubling(whole.error, less.error) ** doublings
    basis = f"{whole.basis}, extrapolated from smaller federations"
    return Expected(whole.error * shrunk, whole.noise * shrunk, basis)


def _on_paper(rehearse: Rehearsal, spec: str, epsilon: float | str) -> Expected:
    """The error of the noise, where the mechanism states it: it goes by a power of the number of
    records. What the answer errs by besides does not follow from smaller federations."""
    parts = [Part(2 * FEW, 2 * FEW), Part(FEW, FEW)]
    results = [rehearse(spec, epsilon, 0, part) for part in parts]
    more, less = (noise_of(each) if settled(each) else None for each in results)
    if not more or not less:
        return Expected(None, None, "mechanism for the data at hand alone: unknown on paper")
    noise = more * (rehearse.whole.rows / parts[0].rows) ** math.log2(more / less)
    return Expected(noise, noise, "mechanism: that of the noise, on paper")


def _per_doubling(error: float, half: float | None) -> float:
    """What remains of an error when the federation doubles: from a half, for noise on a sum, to
    1/√2, for noise of every party."""
    return float(np.clip(error / half, 0.5, math.sqrt(0.5))) if half else 0.5


def _rehearsed(rehearse: Rehearsal, spec: str, epsilon: float | str, part: Part) -> Expected:
    first = rehearse(spec, epsilon, 0, part)
    if settled(first) and not rehearse.against_truth:
        return Expected(noise_of(first), noise_of(first), MECHANISM)
    many = REHEARSALS if sum(first.seconds.values()) < SLOW else SLOW_REHEARSALS
    results = [first, *(rehearse(spec, epsilon, seed, part) for seed in range(1, many))]
    errors = [_rms([each.error for each in results]), _rms([each.noise_error for each in results])]
    whole, noise = errors if rehearse.against_truth else (errors[1], errors[1])
    return Expected(whole, noise, f"{many} rehearsals")


def _rms(errors: "list[dict[str, float] | None]") -> float | None:
    found = [(each or {}).get("rmse", math.nan) for each in errors]
    mean = math.sqrt(float(np.mean(np.square(found))))
    return mean if math.isfinite(mean) else None


def plan(rehearse: Rehearsal, spec: str, epsilon: float | str) -> Planned:
    """Raises as a run does."""
    parts = rehearse.parts(spec, epsilon)
    results = [rehearse(spec, epsilon, 0, part) for part in parts]
    tracemalloc.start()  # in a rehearsal of its own, because tracing is slow
    try:
        rehearse(spec, epsilon, 0, parts[-1])
        memory = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    sizes = [
        rehearse.size(spec, epsilon, part, result)
        for part, result in zip(parts, results, strict=True)
    ]
    numbers = _extrapolated(
        sizes, [_numbers(each) for each in results], rehearse.size(spec, epsilon, rehearse.whole)
    )
    found, result = expected(rehearse, spec, epsilon), results[0]
    servers = result.federation["servers"]
    return Planned(
        spec if result.questions else str(result.federation["aggregator"]),
        servers if isinstance(servers, int) else 1,
        result.privacy.loss,
        result.privacy.mechanism,
        found.error,
        found.noise,
        found.basis,
        numbers["party"],
        numbers["server"],
        numbers["total"],
        result.bill.rounds,
        {name: numbers["computing"] + numbers[name] for name in PROFILES},
        int(memory * rehearse.whole.rows / parts[-1].rows),
    )


def _extrapolated(
    sizes: "list[tuple[float, ...]]", numbers: list[dict[str, float]], whole: tuple[float, ...]
) -> dict[str, float]:
    """Numbers that are linear in the size; one of them is for one party of all."""
    if len(sizes) == 1:
        return numbers[0]
    design = np.array(sizes)
    found = {}
    for name in numbers[0]:
        per = design[:, 1] if name == "party" else np.ones(len(sizes))
        values = np.array([each[name] for each in numbers]) * per
        slopes = np.linalg.lstsq(design, values, rcond=None)[0]
        found[name] = float(np.dot(whole, slopes)) / (whole[1] if name == "party" else 1.0)
    return found


def _numbers(result: Result) -> dict[str, float]:
    bill = result.bill
    return {
        "party": float(bill.party_bytes().mean()),
        "server": float(server_bytes(bill)),
        "total": float(bill.total.bytes),
        "computing": sum(v for k, v in result.seconds.items() if k != "start"),
        **{name: network_seconds(bill, network_of(name), True) for name in PROFILES},
    }


def least_epsilon(rehearse: Rehearsal, spec: str, target: float) -> Planned:
    """Finds the plan with the least ε, within 1 %, whose expected error is at most `target`.

    Raises `LocalError` if no ε from 0.0001 to 1000 suffices.
    """
    low, high = math.log(LEAST_EPSILON), math.log(MOST_EPSILON)

    def error(log_epsilon: float) -> float:
        found = expected(rehearse, spec, _rounded(math.exp(log_epsilon))).error
        if found is None:
            raise LocalError(f"{spec}: its error cannot be predicted")
        return found

    if error(high) > target:
        raise LocalError(f"{spec}: no ε up to {MOST_EPSILON:g} has an error of at most {target:g}")
    at, step = 0.0, 0
    while high - low > CLOSE and step < STEPS:
        found, step = error(at), step + 1
        low, high = (low, at) if found <= target else (at, high)
        # Noise shrinks about as 1/ε: aim a little past the target; bisect if that is out of range.
        aim = (
            at
            + math.log(max(found, 1e-300) / target)
            + (CLOSE / 2 if found > target else -CLOSE / 2)
        )
        at = aim if low < aim < high else (low + high) / 2
    return plan(rehearse, spec, _rounded(math.exp(high)))


def _rounded(epsilon: float) -> str:
    """Rounds up to four digits, as a person would write it."""
    digits = 3 - math.floor(math.log10(epsilon))
    return f"{math.ceil(epsilon * 10**digits) / 10**digits:.{max(digits, 0)}f}"


Planning = Callable[[str], Planned]
"""Plans one aggregator. Raises as a run does."""


def search(
    planning: Planning, specs: Iterable[str], by_epsilon: bool, target_bytes: float | None
) -> tuple[list[Planned], list[tuple[str, str]]]:
    """Returns plans, the cheapest first, and the aggregators that cannot serve, with the reason.

    The cheapest plan has the least ε if that was searched, otherwise the least error; ties go to
    the fewest bytes per party. Plans with more bytes per party than the target are left out.
    """
    plans, unable = [], []
    for spec in specs:
        try:
            found = planning(spec)
        except TallyError as error:
            unable.append((spec, str(error).removeprefix(f"{spec}: ")))
            continue
        if target_bytes is not None and found.party_bytes > target_bytes:
            unable.append((spec, too_many(found)))
            continue
        plans.append(found)
    return sorted(plans, key=cost_of(by_epsilon)), unable


def too_many(found: Planned) -> str:
    return f"a party sends and receives {found.party_bytes:,.0f} bytes"


def cost_of(by_epsilon: bool) -> Callable[[Planned], tuple[float, float]]:
    def cost(found: Planned) -> tuple[float, float]:
        first = found.loss.size if by_epsilon else found.whole_error
        return (math.inf if first is None else round(first, 9), found.party_bytes)

    return cost
