"""Does harm at a random moment of a run, makes it good, and compares the answer.

A process is killed or told to stop, and restarted, or it stands still for a while; a disk is full,
or a ledger held by another process; or a party sends what is refused. The same seed in one process,
where nothing fails, says what every answer must be: were anything lost, counted twice or drawn
anew, the noisy estimate would differ. `python -m tests.e2e.chaos 200`, or of some kinds alone:
`python -m tests.e2e.chaos 200 heavy study`.
"""

import math
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from pathlib import Path

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.shamir import Shamir
from tallyroom.protocols.errors import RunFailed
from tallyroom.protocols.identity.certificates import Identity
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.choices import Mode
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.statistics.of_pairs import Gini
from tallyroom.protocols.statistics.running_sum import RunningSum
from tallyroom.protocols.studies import Study
from tallyroom.protocols.studies.quantile_search import QuantileSearchStudy
from tallyroom.protocols.wire.messages import Phase, Role
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.channel import open_blocking_channel
from tallyroom.protos.tally_pb2_grpc import MessagesStub
from tallyroom.simulation import Federation, Result
from tallyroom.simulation.runtimes.processes import Processes
from tallyroom.storage.ledger import Ledger
from tests.e2e.disks import full, locked
from tests.samples import a_message

PARTIES, HOSTS = 6, 3
LEDGER = "ledger.sqlite"
DELTA = 1e-6  # used by aggregators that need one
LONGEST_DELAY = 0.5
KILL, TERM, STOP, FILL, LOCK, REFUSE = HARMS = ("kill", "term", "stop", "fill", "lock", "refuse")
LONGEST_HARM = 3.0
"""How many seconds a process stands still, a disk is full or a ledger is held at most: longer than
either is waited for at once."""
DEADLINE = 30.0
PAIRS_DEADLINE = 5.0  # who waits for a party that was killed does so for all of it
NO_ROOM = "the coordinator cannot store a run"
"""The one way in which a full disk may end a run: before anybody has heard of it."""


@dataclass
class Tally:
    """`failed` counts runs that a full disk ended, `lost` those that went on with fewer pairs."""

    rounds: int = 0
    killed: Counter[str] = field(default_factory=Counter)
    harms: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)
    failed: int = 0
    lost: int = 0


@dataclass(frozen=True)
class Kind:
    """What is asked in every round, given its number; a study is `questions` of them."""

    aggregator: str
    question: Callable[[int], Statistic | Study] = lambda _: Mean(value="score")
    noise: str | None = None
    questions: int = 1
    servers: int | None = None
    deadline: float = DEADLINE


def curve(number: int) -> Statistic:
    """Of another size each time, for one that was released is not released again."""
    return Ecdf(value="score", thresholds=2 + number)


def pairs(meet: str) -> Callable[[int], Statistic]:
    return lambda _: Gini(value="score", bits=8, pairs_per_party="1", meet=meet)


def search(_: int) -> Study:
    return QuantileSearchStudy(value="score", halvings=3)


def heavy(_: int) -> Statistic:
    return Histogram(value="score", lower=0.0, upper=1.0, bins=50_000)


def stream(_: int) -> Statistic:
    return RunningSum(steps=24, stream=True)


PAIRS = "pairs"
STREAM = "stream"
KINDS = {
    "additive": Kind("additive"),
    "fss": Kind("fss", curve),
    "keys that nobody checks": Kind("fss?verified=no", curve),
    "masking": Kind("masking"),
    "prio3": Kind("prio3"),
    "shamir": Kind("shamir"),
    "shuffle": Kind("shuffle"),
    "local": Kind("local"),
    "joint noise": Kind("additive", noise="joint"),
    PAIRS: Kind("additive", pairs("parties"), deadline=PAIRS_DEADLINE),
    "pairs by servers": Kind("additive", pairs("servers")),
    "choice": Kind("additive", lambda _: Mode(value="score", bins=4)),
    "heavy": Kind("additive", heavy),
    "three servers": Kind("additive", servers=3),
    "shamir at three servers": Kind("shamir", servers=3),
    "study": Kind("additive", search, questions=3),
    STREAM: Kind("additive", stream),
}


def chaos(
    kind: str,
    rounds: int,
    folder: Path,
    seed: int,
    victims: str = "",
    longest: float = LONGEST_DELAY,
    harms: tuple[str, ...] = (KILL,),
) -> Tally:
    """One of `KINDS`. Does harm to a process whose name begins with `victims`, at
    most `longest` seconds into a run.

    Raises whatever a run raises; differences and ledger faults are in the tally.
    """
    dice = random.Random(seed)
    tally = Tally()
    asked = KINDS[kind]
    common = {"parties": PARTIES, "aggregator": asked.aggregator, "seed": seed}
    if asked.servers is not None:
        common["servers"] = asked.servers
    if kind.startswith(PAIRS):
        common["data"] = "synthetic:scores?n=12"
    if kind == STREAM:
        common["data"] = "synthetic:stream?n=24"
    with (
        Federation(**common, runtime="inprocess") as calm,  # type: ignore[arg-type]
        Federation(**common, runtime="processes", hosts=HOSTS, store=folder) as stormy,  # type: ignore[arg-type]
    ):
        stormy.start()
        runtime = stormy.runtime
        assert isinstance(runtime, Processes)
        for number in range(rounds):
            statistic = asked.question(number)
            expected = calm.run(statistic, 1.0, asked.noise, delta=DELTA)
            harm = harms[(number + seed) % len(harms)]  # not the same first in every kind
            children = [name for name in runtime.children if name.startswith(victims)]
            if harm == LOCK:
                children = [name for name in children if (folder / name / LEDGER).exists()]
            victim, seconds = dice.choice(children), dice.uniform(0.2, LONGEST_HARM)
            act = {
                KILL: partial(_end, runtime, victim, signal.SIGKILL),
                TERM: partial(_end, runtime, victim, signal.SIGTERM),
                STOP: partial(_stand_still, runtime, victim, seconds),
                FILL: partial(_fill, runtime, victim, seconds),
                LOCK: partial(_lock, folder / victim / LEDGER, seconds),
                REFUSE: partial(_refuse, runtime, folder),
            }[harm]
            found = _run_amid(stormy, asked, statistic, act, dice.uniform(0, longest))
            tally.rounds += 1
            tally.harms[harm] += 1
            if harm in (KILL, TERM):
                tally.killed[victim.split("-")[0]] += 1
            _judge(tally, found, expected, f"round {number}, {harm} {victim}")
    _audit(tally, asked, folder, stormy.servers)
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


def _audit(tally: Tally, asked: Kind, folder: Path, servers: int) -> None:
    """Every question is paid for once by each that released. A sum that can do without a server may
    have done: that one neither released nor paid."""
    names = [f"server-{i}" for i in range(servers)]
    entries = {}
    for keeper in ("coordinator", *names):
        ledger = Ledger(folder / keeper / LEDGER)
        entries[keeper] = len(ledger.rows())
        paid, due = ledger.totals().noisy.size, Fraction(entries[keeper], asked.questions)
        if not math.isclose(paid, due, rel_tol=1e-9):
            tally.differences.append(f"{keeper} paid {paid} for {entries[keeper]} questions")
        ledger.close()
    least, most = (asked.questions * n for n in (tally.rounds - tally.failed, tally.rounds))
    aggregator = aggregator_named(asked.aggregator)
    for keeper, spends in entries.items():
        spared = isinstance(aggregator, Shamir) and keeper != "coordinator"
        if spends > most or (spends < least and not spared):
            tally.differences.append(f"{keeper} wrote {spends} spends in {tally.rounds} rounds")
    if isinstance(aggregator, Shamir):
        written = sum(entries[name] for name in names)
        if written < aggregator.needed(servers) * least:
            tally.differences.append(f"servers wrote {written} spends in {tally.rounds} rounds")


def _end(runtime: Processes, victim: str, number: int) -> None:
    _signal(runtime, victim, number)
    runtime.restart(victim)


def _stand_still(runtime: Processes, victim: str, seconds: float) -> None:
    _signal(runtime, victim, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        _signal(runtime, victim, signal.SIGCONT)


def _signal(runtime: Processes, victim: str, number: int) -> None:
    pid = runtime.children[victim].pid
    assert pid is not None
    os.kill(pid, number)


def _fill(runtime: Processes, victim: str, seconds: float) -> None:
    """No file of the victim's grows for a while."""
    with full(runtime, victim, 10):
        time.sleep(seconds)


def _lock(ledger: Path, seconds: float) -> None:
    """Waits for whoever is writing."""
    with locked(ledger):
        time.sleep(seconds)


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
    federation: Federation,
    asked: Kind,
    statistic: Statistic | Study,
    harm: Callable[[], None],
    delay: float,
) -> Result | Exception:
    answers: list[Result | Exception] = []

    def ask() -> None:
        try:
            found = federation.run(
                statistic, 1.0, asked.noise, deadline=asked.deadline, delta=DELTA
            )
            answers.append(found)
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
    only, failed = sys.argv[2:], False
    for seed, kind in enumerate(KINDS, rounds):
        if only and kind not in only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            tally = chaos(kind, -(-rounds // len(KINDS)), Path(folder), seed, harms=HARMS)
        print(
            f"{kind}: {tally.rounds} rounds, {dict(tally.harms)}, killed {dict(tally.killed)}, "
            f"{tally.failed} without room, {tally.lost} with pairs left out",
            flush=True,
        )
        for difference in tally.differences:
            failed = True
            print(f"  {difference}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
