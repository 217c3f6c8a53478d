"""One run at the coordinator, its stored form, and the register of unfinished runs."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tallyroom.protocols.aggregation.contract import Records
from tallyroom.protocols.query import Query
from tallyroom.protocols.wire.machine import Done, Failed
from tallyroom.protos import tally_pb2 as pb

MOST_HINDRANCES = 100


@dataclass
class Run:
    """`name` identifies the question, by its key; `data` identifies the data that it is asked of.
    `run` is the machines' name: the query's own run, or that of the stored tree it asks again.

    `ended` says how the machines ended, and `over` what the analyst is told once that is stored.
    `asked` is done once all servers know the run and the parties have been asked.
    `hindrances` says what kept party hosts from answering, by their names.
    `analyst` is who asked it first.
    `stalled` says why an answer that is already paid for has not arrived yet.
    """

    name: bytes
    question: str
    query: Query
    data: bytes
    run: bytes
    analyst: str = "analyst"
    ended: asyncio.Future[Done | Failed] = field(default_factory=asyncio.Future)
    over: asyncio.Future[Sequence[pb.Event]] = field(default_factory=asyncio.Future)
    phase: str = "submit"
    asked: asyncio.Future[None] = field(default_factory=asyncio.Future)
    stalled: str = ""
    hindrances: dict[str, str] = field(default_factory=dict)
    began: float = field(default_factory=time.perf_counter)
    released: float = 0.0
    finished: float = 0.0

    @property
    def asks_again(self) -> bool:
        """Whether it asks a stored tree again, under that run's name: parties take no part."""
        return self.run != self.query.run

    def hinder(self, host: str, reason: str) -> None:
        if host in self.hindrances or len(self.hindrances) < MOST_HINDRANCES:
            self.hindrances[host] = reason

    @property
    def hindered(self) -> str:
        """Who was hindered and how, in one line."""
        shown = [f"{host}: {reason}" for host, reason in list(self.hindrances.items())[:5]]
        more = len(self.hindrances) - len(shown)
        return "; ".join([*shown, f"{more} more are hindered"] if more else shown)

    def ask(self) -> None:
        if not self.asked.done():
            self.asked.set_result(None)

    def end(self, finished: Done | Failed) -> None:
        if not self.ended.done():
            self.finished = time.perf_counter()
            self.ended.set_result(finished)

    def kept(self, events: Sequence[pb.Event] = ()) -> pb.Kept:
        return pb.Kept(
            run=self.run,
            data=self.data,
            question=self.question,
            query=self.query.encode(),
            events=events,
            analyst=self.analyst,
        )


class LiveRuns:
    """Unfinished runs, by the names of their questions and of their machines."""

    def __init__(self) -> None:
        self._runs: dict[bytes, Run] = {}

    def add(self, run: Run) -> None:
        self._runs[run.name] = run

    def remove(self, run: Run) -> None:
        self._runs.pop(run.name, None)

    def all(self) -> list[Run]:
        return list(self._runs.values())

    def asked(self, name: bytes) -> Run | None:
        """The run that answers the question of this name."""
        return self._runs.get(name)

    def of(self, run: bytes) -> Run | None:
        """The run whose machines have this name."""
        return next((one for one in self._runs.values() if one.run == run), None)


def beginning(kept: pb.Kept, records: Records) -> bytes:
    """Encodes how a run began, for the journal."""
    counts = records.astype("<i8").tobytes()
    return len(counts).to_bytes(4, "little") + counts + kept.SerializeToString()


def analyst_of(kept: pb.Kept) -> str:
    """Who asked it: there was one analyst when this was not written down."""
    return kept.analyst or "analyst"


def begun(data: bytes) -> tuple[pb.Kept, Records]:
    """Decodes the output of `beginning`."""
    size = int.from_bytes(data[:4], "little")
    counts = np.frombuffer(data, dtype="<i8", count=size // 8, offset=4).astype(np.int64)
    return pb.Kept.FromString(data[4 + size :]), counts
