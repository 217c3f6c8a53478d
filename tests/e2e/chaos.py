"""Kills a random process at a random moment of a run, restarts it, and compares the answer.

The same seed in one process, where nothing fails, says what every answer must be: were anything
lost, counted twice or drawn anew, the noisy estimate would differ. `python -m tests.e2e.chaos 200`.
"""

import random
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from protocols.statistics import Ecdf, Estimate, Mean, Statistic
from simulation import Federation
from simulation.runtimes.processes import Processes
from storage.ledger import Ledger

PARTIES, HOSTS = 6, 3
DELTA = 1e-6  # used by aggregators that need one
LONGEST_DELAY = 0.5


@dataclass
class Tally:
    rounds: int = 0
    killed: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


def question(aggregator: str, number: int) -> Statistic:
    """A curve of another size each time, for one that was released is not released again."""
    if aggregator == "fss":
        return Ecdf(value="score", thresholds=2 + number)
    return Mean(value="score")


def chaos(
    aggregator: str,
    rounds: int,
    folder: Path,
    seed: int,
    victims: str = "",
    longest: float = LONGEST_DELAY,
) -> Tally:
    """Kills a process whose name begins with `victims`, at most `longest` seconds into a run.

    Raises whatever a run raises; differences and ledger faults are in the tally.
    """
    dice = random.Random(seed)
    tally = Tally()
    common = {"parties": PARTIES, "aggregator": aggregator, "seed": seed}
    with (
        Federation(**common, runtime="inprocess") as calm,  # type: ignore[arg-type]
        Federation(**common, runtime="processes", hosts=HOSTS, store=folder) as stormy,  # type: ignore[arg-type]
    ):
        stormy.start()
        assert isinstance(stormy.runtime, Processes)
        for number in range(rounds):
            statistic = question(aggregator, number)
            expected = calm.run(statistic, 1.0, delta=DELTA).estimate
            children = [name for name in stormy.runtime.children if name.startswith(victims)]
            victim = dice.choice(children)
            found = _run_and_kill(stormy, statistic, victim, dice.uniform(0, longest))
            tally.rounds += 1
            tally.killed[victim.split("-")[0]] += 1
            if found != expected:
                tally.differences.append(f"round {number}, {victim}: {found} is not {expected}")
    for keeper in ("coordinator", *(f"server-{i}" for i in range(stormy.servers))):
        ledger = Ledger(folder / keeper / "ledger.sqlite", None)
        if (entries := len(ledger.rows())) != rounds or ledger.spent() != rounds:
            tally.differences.append(f"{keeper} wrote {entries} spends in {rounds} rounds")
        ledger.close()
    return tally


def _run_and_kill(
    federation: Federation, statistic: Statistic, victim: str, delay: float
) -> Estimate | Exception:
    answers: list[Estimate | Exception] = []

    def ask() -> None:
        try:
            answers.append(federation.run(statistic, 1.0, delta=DELTA).estimate)
        except Exception as error:
            answers.append(error)

    runtime = federation.runtime
    assert isinstance(runtime, Processes)
    asking = threading.Thread(target=ask)
    asking.start()
    time.sleep(delay)
    runtime.children[victim].kill()
    runtime.restart(victim)
    asking.join(timeout=120)
    return answers[0] if answers else TimeoutError("no answer within two minutes")


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    failed = False
    aggregators = ("additive", "fss", "masking", "prio3", "shamir", "shuffle")
    for aggregator in aggregators:
        with tempfile.TemporaryDirectory() as folder:
            tally = chaos(aggregator, rounds // len(aggregators), Path(folder), seed=rounds)
        print(f"{aggregator}: {tally.rounds} rounds, killed {dict(tally.killed)}")
        for difference in tally.differences:
            failed = True
            print(f"  {difference}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
