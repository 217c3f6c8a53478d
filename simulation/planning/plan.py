"""A question rehearsed: the protocol runs whole, in one process, on public records.

The same machines send the same messages, so the bill is that of the run to come. The expected error
is what the mechanism says of its noise; where it says nothing, that of several rehearsals. Of a
large federation two smaller ones are rehearsed, and what they show is carried on: bytes and
seconds along a line, errors along a power of the size.
"""

import dataclasses
import math
import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from tallyroom.protocols.errors import LocalError, TallyError
from tallyroom.simulation.networks.network import NAMED
from tallyroom.simulation.networks.prediction import server_bytes, waiting_seconds
from tallyroom.simulation.result import Result

BYTES_WITHIN = 0.15
"""How far the bytes of a run may be from its plan's, as a share of them: pairs are drawn anew, and
a search goes where the data leads. All else is planned to the byte."""
ROUNDING = 1e-12
MECHANISM = "mechanism"
GIVEN_DATA = "mechanism, which depends on the data: as on the records of the rehearsal"
REHEARSALS = 8
"""Where the mechanism tells no error."""
LEAST_EPSILON, MOST_EPSILON = 1e-4, 1e3
STEPS = 12
CLOSE = 0.01


@dataclass(frozen=True)
class Planned:
    """`error` is the root mean square of what noise will do, `basis` how that is known; None where
    there is no telling. `server_bytes` are those of the busiest server. Where the number of
    `thresholds` was searched too, `between` is the error of reading between them."""

    aggregator: str
    servers: int
    epsilon: float | None
    delta: float
    mechanism: str
    error: float | None
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
    def whole_error(self) -> float | None:
        return None if self.error is None else math.hypot(self.error, self.between)

    def as_json(self) -> dict[str, object]:
        found = dataclasses.asdict(self)
        return found | {"epsilon": "inf" if self.epsilon is None else self.epsilon}


CARRIED_WITHIN = 0.05
"""How far bytes and errors that were carried on may be from those of the whole, as a share."""
Rehearse = Callable[[str, float | str, int, float], Result]
"""The answer on public records: of an aggregator, at an ε, under a seed, at a share of the size."""


def noise_of(result: Result) -> float | None:
    """The expected error as the mechanism tells it."""
    if result.privacy.epsilon is None:
        return 0.0
    mean = float(np.mean(result.deviations**2)) if len(result.deviations) else math.nan
    return math.sqrt(mean) if math.isfinite(mean) and mean > 0 else None


def settled(result: Result) -> bool:
    """Whether the mechanism tells the same error whatever the data. That of a study depends on its
    answers, and an error of rounding alone tells nothing."""
    return result.foretold and (noise_of(result) or 0.0) >= ROUNDING


def error_at(
    rehearse: Rehearse, spec: str, epsilon: float | str, share: float
) -> tuple[Result, float | None, str]:
    """A rehearsal with the expected error and how it is known."""
    result = rehearse(spec, epsilon, 0, share)
    if (stated := noise_of(result)) is not None:
        return result, stated, MECHANISM
    others = [rehearse(spec, epsilon, seed, share) for seed in range(1, REHEARSALS)]
    found = [(each.noise_error or {}).get("rmse", math.nan) for each in (result, *others)]
    simulated = math.sqrt(float(np.mean(np.square(found))))
    return result, simulated if math.isfinite(simulated) else None, "simulation"


def plan(rehearse: Rehearse, spec: str, epsilon: float | str, share: float = 1.0) -> Planned:
    """`share` is below 1 for a federation too large to rehearse. Raises as a run does."""
    result, error, basis = error_at(rehearse, spec, epsilon, share)
    tracemalloc.start()  # in a rehearsal of its own: it takes time
    try:
        rehearse(spec, epsilon, 0, share)
        memory = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if basis == MECHANISM and not settled(result):
        basis = GIVEN_DATA
    numbers = _numbers(result)
    if share < 1:
        half, less, _ = error_at(rehearse, spec, epsilon, share / 2)
        smaller = _numbers(half)
        numbers = {
            name: value + (value - smaller[name]) * (1 / share - 1) * 2
            for name, value in numbers.items()
        }
        if error and less:
            error *= (error / less) ** math.log2(1 / share)
        memory = int(memory / share)
        basis += ", carried on from smaller federations"
    computing = sum(v for k, v in result.seconds.items() if k != "start") / share
    servers = result.federation["servers"]
    return Planned(
        spec if result.questions else str(result.federation["aggregator"]),
        servers if isinstance(servers, int) else 1,
        result.privacy.epsilon,
        result.privacy.delta,
        result.privacy.mechanism,
        error,
        basis,
        numbers["party"],
        numbers["server"],
        numbers["total"],
        result.bill.rounds,
        {name: computing + numbers[name] for name in NAMED},
        memory,
    )


def _numbers(result: Result) -> dict[str, float]:
    bill = result.bill
    return {
        "party": float(bill.party_bytes().mean()),
        "server": float(server_bytes(bill)),
        "total": float(bill.total.bytes),
        **{name: waiting_seconds(bill, network, True) for name, network in NAMED.items()},
    }


def least_epsilon(rehearse: Rehearse, spec: str, target: float, share: float = 1.0) -> Planned:
    """The plan with the least ε, within 1 %, whose expected error is at most `target`.

    Raises `LocalError` where no ε from 0.0001 to 1000 does.
    """
    low, high = math.log(LEAST_EPSILON), math.log(MOST_EPSILON)

    def error(log_epsilon: float) -> float:
        if share < 1:
            found = plan(rehearse, spec, _rounded(math.exp(log_epsilon)), share).error
        else:
            found = error_at(rehearse, spec, _rounded(math.exp(log_epsilon)), share)[1]
        if found is None:
            raise LocalError(f"{spec}: its error cannot be told beforehand")
        return found

    if error(high) > target:
        raise LocalError(f"{spec}: no ε up to {MOST_EPSILON:g} has an error of {target:g}")
    at, step = 0.0, 0
    while high - low > CLOSE and step < STEPS:
        found, step = error(at), step + 1
        low, high = (low, at) if found <= target else (at, high)
        # Noise shrinks about as 1/ε: aim a little past the target, and halve where that is outside.
        aim = (
            at
            + math.log(max(found, 1e-300) / target)
            + (CLOSE / 2 if found > target else -CLOSE / 2)
        )
        at = aim if low < aim < high else (low + high) / 2
    return plan(rehearse, spec, _rounded(math.exp(high)), share)


def _rounded(epsilon: float) -> str:
    """Up, to four digits, as somebody would write it."""
    digits = 3 - math.floor(math.log10(epsilon))
    return f"{math.ceil(epsilon * 10**digits) / 10**digits:.{max(digits, 0)}f}"


Planning = Callable[[str], Planned]
"""The plan of an aggregator. Raises as a run does."""


def search(
    planning: Planning, specs: Iterable[str], by_epsilon: bool, target_bytes: float | None
) -> tuple[list[Planned], list[tuple[str, str]]]:
    """Plans, the cheapest first, and the aggregators that cannot, with the reason.

    The cheapest has the least ε, where that was searched, else the least error; then come the
    fewest bytes of a party. Those with more bytes of a party than the target are left out.
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
        first = found.epsilon if by_epsilon else found.whole_error
        return (math.inf if first is None else round(first, 9), found.party_bytes)

    return cost
