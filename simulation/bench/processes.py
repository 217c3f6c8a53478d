"""The cost of a party that is a process of its own."""

import time

import numpy as np

from tallyroom.protocols.errors import RunFailed
from tallyroom.protocols.records import Holdings
from tallyroom.simulation.bench.row import Row
from tallyroom.simulation.proc import cpu_seconds_of_threads, proportional_bytes
from tallyroom.simulation.runtimes import Layout
from tallyroom.simulation.runtimes.processes import Processes

PARTIES = 500
MOST_SECONDS = 300.0


def rows() -> list[Row]:
    """Memory and CPU are read when every party has joined over TLS and none has been asked yet: the
    work for a first question, with its connections to the servers, is not part of starting.
    """
    ids = np.arange(PARTIES, dtype=np.uint32)
    holdings = Holdings(ids, np.arange(PARTIES), {"value": np.linspace(0, 1, PARTIES)})
    begun = time.perf_counter()
    with Processes(Layout(holdings, servers=2, hosts=PARTIES)) as runtime:
        while runtime.present() < PARTIES:
            if time.perf_counter() > begun + MOST_SECONDS:
                raise RunFailed(f"{PARTIES} parties did not join within {MOST_SECONDS:g} seconds")
            time.sleep(0.1)
        seconds = time.perf_counter() - begun
        hosts = [p.pid for name, p in runtime.children.items() if name.startswith("host-")]
        pids = [pid for pid in hosts if pid is not None]
        figures = {
            "seconds": seconds,
            "cpu_ms_per_party": 1e3 * sum(map(cpu_seconds_of_threads, pids)) / PARTIES,
            "pss_mb_per_party": sum(map(proportional_bytes, pids)) / PARTIES / 1e6,
        }
    return [Row(f"processes-{PARTIES}", PARTIES / seconds, "parties/s", {}, figures)]
