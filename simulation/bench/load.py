"""Many analysts at once: how long each waits, and how many cores are at work meanwhile.

Two servers, a coordinator and two hosts of parties are processes of their own with stores, as they
are deployed. Each analyst has a connection and asks one question after another. `p50_over_one` and
`p99_over_one` compare with a single analyst. Where questions share nothing but the machine, n
analysts on c cores wait n·w/(c·t) times as long, if one question takes t seconds and w of CPU:
`p50_over_fair` compares with that, and with one where the cores are not the limit. `cores` says how
many were busy.
"""

import os
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.simulation.analyst import Analyst
from tallyroom.simulation.bench.row import Row
from tallyroom.simulation.proc import cpu_seconds
from tallyroom.simulation.runtimes import Layout
from tallyroom.simulation.runtimes.contract import silent
from tallyroom.simulation.runtimes.processes import Processes

PARTIES = 1000
HOSTS = 2
SERVERS = 2
ANALYSTS = 20
EACH = 6
"""Questions of every analyst; one alone asks `ALONE`."""
ALONE = 30
JOIN_SECONDS = 60.0
DEADLINE = 120.0
KINDS: dict[str, tuple[Statistic, str]] = {
    "analysts": (Mean(value="value", lower=0.0, upper=1.0), "additive"),
    "analysts-curve": (Ecdf(value="value", lower=0.0, upper=1.0, thresholds=256), "fss"),
}


@dataclass(frozen=True)
class Load:
    """What some analysts measured: the seconds of each answer, all of them, and CPU seconds."""

    analysts: int
    seconds: list[float]
    wall: float
    cpu: float

    @property
    def rate(self) -> float:
        return len(self.seconds) / self.wall

    def quantile(self, level: float) -> float:
        return float(np.quantile(self.seconds, level))

    def fair(self, alone: "Load", cores: int) -> float:
        """How many times as long as one analyst each has to wait, where the machine alone is
        shared."""
        work = self.cpu / len(self.seconds)
        return max(1.0, self.analysts * work / (cores * alone.quantile(0.5)))


def rows(parties: int = PARTIES, analysts: int = ANALYSTS, each: int = EACH) -> list[Row]:
    return [row for name in KINDS for row in _rows(name, parties, analysts, each)]


def _rows(name: str, parties: int, analysts: int, each: int) -> list[Row]:
    statistic, aggregator = KINDS[name]
    with tempfile.TemporaryDirectory() as folder:
        runtime = Processes(
            Layout(_uniform(parties), servers=SERVERS, hosts=HOSTS, store=Path(folder))
        )
        with runtime:
            while runtime.present() < parties:
                time.sleep(0.1)
            question = Question(
                statistic,
                aggregator,
                Fraction(1),
                Placement.EACH_SERVER,
                deadline=DEADLINE,
                fresh=True,
            )
            load(runtime, question, 1, 2)  # what connects, loads and grows the first time
            alone = load(runtime, question, 1, min(ALONE, analysts * each))
            many = load(runtime, question, analysts, each)
    cores = len(os.sched_getaffinity(0))
    over = many.quantile(0.5) / alone.quantile(0.5)
    details = {
        "p50": many.quantile(0.5),
        "p99": many.quantile(0.99),
        "p50_over_one": over,
        "p99_over_one": many.quantile(0.99) / alone.quantile(0.99),
        "p50_over_fair": over / many.fair(alone, cores),
        "cores": many.cpu / many.wall,
        "of_cores": float(cores),
        "cpu_s_each": many.cpu / len(many.seconds),
    }
    one = {
        "p50": alone.quantile(0.5),
        "p99": alone.quantile(0.99),
        "cores": alone.cpu / alone.wall,
        "cpu_s_each": alone.cpu / len(alone.seconds),
    }
    unit = "questions/s"
    faster = {"one-analyst": many.rate / alone.rate}
    return [
        Row(f"{name}-1", alone.rate, unit, {}, one),
        Row(f"{name}-{analysts}", many.rate, unit, faster, details),
    ]


def load(runtime: Processes, question: Question, analysts: int, each: int) -> Load:
    """As many analysts, each of whom asks `each` questions, one after another; all begin at
    once."""
    ready = threading.Barrier(analysts + 1)

    def ask() -> list[float]:
        analyst = runtime.another_analyst()
        analyst.describe(JOIN_SECONDS)
        ready.wait()
        try:
            return [_timed(analyst, question) for _ in range(each)]
        finally:
            analyst.close()

    pids = [process.pid for process in runtime.children.values()]
    with ThreadPoolExecutor(analysts) as pool:
        asking = [pool.submit(ask) for _ in range(analysts)]
        ready.wait()
        begun, before = time.perf_counter(), sum(map(cpu_seconds, pids))
        seconds = [taken for each_one in asking for taken in each_one.result()]
        wall = time.perf_counter() - begun
    return Load(analysts, seconds, wall, sum(map(cpu_seconds, pids)) - before)


def _timed(analyst: Analyst, question: Question) -> float:
    begun = time.perf_counter()
    analyst.ask(question, silent)
    return time.perf_counter() - begun


def _uniform(parties: int) -> Holdings:
    ids = np.arange(parties, dtype=np.uint32)
    return Holdings(ids, np.arange(parties), {"value": np.random.default_rng(0).random(parties)})
