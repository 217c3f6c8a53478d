"""Does harm at a random moment of a run, makes it good, and compares the answer.

A process is killed and restarted, a disk is full for a while, or a party sends what is refused. The
same seed in one process, where nothing fails, says what every answer must be: were anything lost,
counted twice or drawn anew, the noisy estimate would differ. `python -m tests.e2e.chaos 200`.
"""

import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from protocols.aggregation import aggregator_named
from protocols.aggregation.shamir import Shamir
from protocols.errors import RunFailed
from protocols.identity.certificates import Identity
from protocols.run.messages import Phase, Role
from protocols.statistics import Statistic
from protocols.statistics.choices import Mode
from protocols.statistics.ecdf import Ecdf
from protocols.statistics.histogram import Histogram
from protocols.statistics.moments import Mean
from protocols.statistics.of_pairs import Gini
from protocols.studies import Study
from protocols.studies.private_bounds import PrivateBounds
from protos import tally_pb2 as pb
from protos.channel import open_blocking_channel
from protos.tally_pb2_grpc import MessagesStub
from simulation import Federation, Result
from simulation.runtimes.processes import Processes
from storage.ledger import Ledger
from tests.e2e.disks import full
from tests.samples import a_message

PARTIES, HOSTS = 6, 3
DELTA = 1e-6  # used by aggregators that need one
LONGEST_DELAY = 0.5
PAIRS, STUDY, JOINT, CHOICE = "pairs", "study", "joint", "choice"
VERIFIED = "fss?verified=yes"
KINDS = (
    *("additive", "fss", "masking", "prio3", "shamir", "shuffle", "local"),
    *(VERIFIED, PAIRS, STUDY, JOINT, CHOICE),
)
"""Aggregators, and what is put to `additive` that has machines or questions of its own."""
KILL, FILL, REFUSE = HARMS = ("kill", "fill", "refuse")
FULL_SECONDS = 0.5
DEADLINE = 30.0
PAIRS_DEADLINE = 5.0  # who waits for a party that was killed does so for all of it
NO_ROOM = "the ledger cannot be written"
"""The one way in which a full disk may end a run: servers that have not paid release nothing."""


@dataclass
class Tally:
    """`failed` counts runs that a full disk ended, `lost` those that went on with fewer pairs."""

    rounds: int = 0
    killed: Counter[str] = field(default_factory=Counter)
    harms: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)
    failed: int = 0
    lost: int = 0


def question(kind: str, number: int) -> Statistic | Study:
    """A curve of another size each time, for one that was released is not released again."""
    match kind:
        case "fss" | "fss?verified=yes":
            return Ecdf(value="score", thresholds=2 + number)
        case "pairs":
            return Gini(value="score", bits=8, pairs_per_party="1")
        case "study":
            return PrivateBounds(Mean(value="score"))
        case "local" | "joint":
            return Histogram(value="score", bins=4)
        case "choice":
            return Mode(value="score", bins=4)
    return Mean(value="score")


def aggregator_of(kind: str) -> str:
    return "additive" if kind in (PAIRS, STUDY, JOINT, CHOICE) else kind


def price(kind: str) -> tuple[float, int]:
    """ε of a round, and in how many releases. A study's has to tell counts from noise."""
    return (8.0, 2) if kind == STUDY else (1.0, 1)


def chaos(
    kind: str,
    rounds: int,
    folder: Path,
    seed: int,
    victims: str = "",
    longest: float = LONGEST_DELAY,
    harms: tuple[str, ...] = (KILL,),
) -> Tally:
    """Of one of `KINDS`. Does harm to a process whose name begins with `victims`, at
    most `longest` seconds into a run.

    Raises whatever a run raises; differences and ledger faults are in the tally.
    """
    dice = random.Random(seed)
    tally = Tally()
    common = {"parties": PARTIES, "aggregator": aggregator_of(kind), "seed": seed}
    asked: dict[str, Any] = {"epsilon": price(kind)[0], "delta": DELTA}
    if kind == JOINT:
        asked["noise"] = "joint"
    if kind == PAIRS:
        common["data"] = "synthetic:scores?n=12"
    with (
        Federation(**common, runtime="inprocess") as calm,  # type: ignore[arg-type]
        Federation(**common, runtime="processes", hosts=HOSTS, store=folder) as stormy,  # type: ignore[arg-type]
    ):
        stormy.start()
        runtime = stormy.runtime
        assert isinstance(runtime, Processes)
        for number in range(rounds):
            statistic = question(kind, number)
            expected = calm.run(statistic, **asked)
            harm = dice.choice(harms)
            begins = "server" if harm == FILL else victims
            children = [name for name in runtime.children if name.startswith(begins)]
            victim = dice.choice(children)
            act = {
                KILL: partial(_kill, runtime, victim),
                FILL: partial(_fill, runtime, victim),
                REFUSE: partial(_refuse, runtime, folder),
            }[harm]
            asked["deadline"] = PAIRS_DEADLINE if kind == PAIRS else DEADLINE
            run = partial(stormy.run, statistic, **asked)
            found = _run_amid(run, act, dice.uniform(0, longest))
            tally.rounds += 1
            tally.harms[harm] += 1
            if harm == KILL:
                tally.killed[victim.split("-")[0]] += 1
            _judge(tally, found, expected, f"round {number}, {harm} {victim}")
    _audit(tally, kind, folder, stormy.servers)
    return tally


def _judge(tally: Tally, found: Result | Exception, expected: Result, what: str) -> None:
    """Pairs may be lost with a party, if the result says so."""
    if isinstance(found, RunFailed) and NO_ROOM in str(found):
        tally.failed += 1
    elif isinstance(found, Result) and found.lost_pairs:
        tally.lost += 1
    elif not isinstance(found, Result) or found.estimate != expected.estimate:
        shown = found.estimate if isinstance(found, Result) else found
        tally.differences.append(f"{what}: {shown} is not {expected.estimate}")


def _audit(tally: Tally, kind: str, folder: Path, servers: int) -> None:
    """Every run is paid for once by each that released. A sum that can do without a server may have
    done: that one neither released nor paid."""
    names = [f"server-{i}" for i in range(servers)]
    epsilon, releases = price(kind)
    entries = {}
    for keeper in ("coordinator", *names):
        ledger = Ledger(folder / keeper / "ledger.sqlite", None)
        entries[keeper] = len(ledger.rows()) / releases
        paid = float(ledger.spent()) / epsilon
        if paid > tally.rounds or (paid != entries[keeper] and not tally.failed):
            tally.differences.append(f"{keeper} paid {paid} times for {entries[keeper]} runs")
        ledger.close()
    least = tally.rounds - tally.failed
    aggregator = aggregator_named(aggregator_of(kind))
    for keeper, spends in entries.items():
        spared = isinstance(aggregator, Shamir) and keeper != "coordinator"
        if spends > tally.rounds or (spends < least and not spared):
            tally.differences.append(f"{keeper} wrote {spends} spends in {tally.rounds} rounds")
    if isinstance(aggregator, Shamir):
        paid = sum(entries[name] for name in names)
        if paid < aggregator.needed(servers) * least:
            tally.differences.append(f"servers wrote {paid} spends in {tally.rounds} rounds")


def _kill(runtime: Processes, victim: str) -> None:
    runtime.children[victim].kill()
    runtime.restart(victim)


def _fill(runtime: Processes, victim: str) -> None:
    """No file of the victim's grows for a while."""
    with full(runtime, victim, 10):
        time.sleep(FULL_SECONDS)


def _refuse(runtime: Processes, folder: Path) -> None:
    """The first host submits rubbish to the first server, for whatever run that knows of."""
    block = runtime._blocks[0]
    identity = Identity(Role.PARTY, int(block.ids[0]), int(block.ids[-1]))
    expected = Identity(Role.SERVER, 0, 0)
    target = runtime.address_of("server-0", int(runtime._listen["server-0"].rpartition(":")[2]))
    with open_blocking_channel(target, expected, runtime._credentials(identity)) as channel:
        for path in (folder / "server-0" / "runs").glob("*.log"):
            for size in (1, 9):
                rubbish = a_message(
                    Phase.SUBMIT,
                    Role.PARTY,
                    Role.SERVER,
                    (int(block.ids[0]),),
                    body=b"\xff" * size,
                    run=bytes.fromhex(path.stem),
                    round_=2,
                )
                receipt = MessagesStub(channel).Send(
                    pb.Parcel(message=rubbish.encode()), timeout=10
                )
                assert receipt.refused, "rubbish was taken"


def _run_amid(
    run: Callable[[], Result], harm: Callable[[], None], delay: float
) -> Result | Exception:
    answers: list[Result | Exception] = []

    def ask() -> None:
        try:
            answers.append(run())
        except Exception as error:
            answers.append(error)

    with ExitStack() as joined:
        asking = threading.Thread(target=ask)
        asking.start()
        joined.callback(asking.join, timeout=120)
        time.sleep(delay)
        harm()
    return answers[0] if answers else TimeoutError("no answer within two minutes")


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    each = max(1, rounds // len(KINDS))
    failed = False
    for place, kind in enumerate(KINDS):
        with tempfile.TemporaryDirectory() as folder:
            tally = chaos(kind, each, Path(folder), seed=rounds + place, harms=HARMS)
        print(
            f"{kind}: {tally.rounds} rounds, {dict(tally.harms)}, killed {dict(tally.killed)}, "
            f"{tally.failed} without room, {tally.lost} with pairs left out"
        )
        for difference in tally.differences:
            failed = True
            print(f"  {difference}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
