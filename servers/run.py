"""One run at the coordinator, as it is waited for and as it is kept, and those that live."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tallyroom.protocols.aggregation.contract import Records
from tallyroom.protocols.query import Query
from tallyroom.protocols.wire.machine import Done, Failed
from tallyroom.protos import tally_pb2 as pb


@dataclass
class Run:
    """`name` is what its question is called, by its key; `data` names what it is asked of.
    `run` is what its machines call it: the query's own run, or that of the tree it asks again.

    `ended` is how the machines ended, `over` what the analyst is told then, once that is kept.
    `asked` is done once all servers know of it, and parties are asked.
    `stalled` says why the answer, which is paid for, is not here yet.
    """

    name: bytes
    question: str
    query: Query
    data: bytes
    run: bytes
    ended: asyncio.Future[Done | Failed] = field(default_factory=asyncio.Future)
    over: asyncio.Future[Sequence[pb.Event]] = field(default_factory=asyncio.Future)
    phase: str = "submit"
    asked: asyncio.Future[None] = field(default_factory=asyncio.Future)
    stalled: str = ""
    began: float = field(default_factory=time.perf_counter)
    released: float = 0.0
    finished: float = 0.0

    @property
    def asks_again(self) -> bool:
        """Whether it asks a stored tree, under that one's name: parties have no part in it."""
        return self.run != self.query.run

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
        )


class LiveRuns:
    """Runs that are not over, by what their questions and their machines are called."""

    def __init__(self) -> None:
        self._runs: dict[bytes, Run] = {}

    def add(self, run: Run) -> None:
        self._runs[run.name] = run

    def remove(self, run: Run) -> None:
        self._runs.pop(run.name, None)

    def all(self) -> list[Run]:
        return list(self._runs.values())

    def asked(self, name: bytes) -> Run | None:
        """The one that answers the question of this name."""
        return self._runs.get(name)

    def of(self, run: bytes) -> Run | None:
        """The one whose machines are called so."""
        return next((one for one in self._runs.values() if one.run == run), None)


def beginning(kept: pb.Kept, records: Records) -> bytes:
    """What the journal keeps of a run's beginning."""
    counts = records.astype("<i8").tobytes()
    return len(counts).to_bytes(4, "little") + counts + kept.SerializeToString()


def begun(data: bytes) -> tuple[pb.Kept, Records]:
    """Reads `beginning` back."""
    size = int.from_bytes(data[:4], "little")
    counts = np.frombuffer(data, dtype="<i8", count=size // 8, offset=4).astype(np.int64)
    return pb.Kept.FromString(data[4 + size :]), counts
