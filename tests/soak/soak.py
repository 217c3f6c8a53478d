"""`python -m tests.soak.soak MINUTES`: a federation that is asked, and troubled, for so long.

While there is trouble a run may fail, but no answer may be wrong, nor may one come whose proof does
not hold. Afterwards every kind of question
must be answered again, every process must be within its bounds, and no ledger may hold less than
was answered, nor more than was asked.
"""

import random
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tallyroom.protocols.errors import AnswerRefused, TallyError
from tallyroom.storage.answers import MOST_ANSWERS
from tests.soak.questions import Kind
from tests.soak.room import Room, Usage
from tests.soak.trouble import Trouble

RECOVERY_SECONDS = 60.0
MEGABYTES = 250.0
DESCRIPTORS = 200
THREADS = 64
STORE_BYTES = 24 << 20
FILES = MOST_ANSWERS + 100
"""Bounds of every process, however long the soak: nothing in them counts questions."""


@dataclass
class Report:
    answers: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    trouble: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    usage: dict[str, Usage] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [
            f"{sum(self.answers.values())} answers of {len(self.answers)} kinds, "
            f"{sum(self.failures.values())} runs failed, trouble: {dict(self.trouble)}"
        ]
        lines += [f"  {count} × {reason}" for reason, count in self.failures.most_common(12)]
        for name, took in self.usage.items():
            lines.append(
                f"  {name}: {took.megabytes:.0f} MB, {took.descriptors} descriptors, "
                f"{took.threads} threads, {took.store_bytes / 1e6:.2f} MB in {took.files} files"
            )
        return "\n".join([*lines, *(f"FAULT {fault}" for fault in self.faults)])


def soak(seconds: float, folder: Path, seed: int = 1, pause: float = 5.0) -> Report:
    """Two rooms, one with two servers and one with a single one, asked at the same time."""
    report = Report()
    with ExitStack() as opened:
        rooms = [opened.enter_context(Room(m, folder / f"room-{m}")) for m in (2, 1)]
        trouble = Trouble(rooms, random.Random(seed), pause)
        end = time.monotonic() + seconds
        trouble.start()
        asking = [
            threading.Thread(target=_ask_until, args=(end, room, random.Random(seed + i), report))
            for i, room in enumerate(rooms)
        ]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        trouble.stop()
        report.trouble = trouble.made
        recovering = [threading.Thread(target=_recover, args=(room, report)) for room in rooms]
        for thread in recovering:
            thread.start()
        for thread in recovering:
            thread.join()
        for room in rooms:
            _hold_to_bounds(room, report)
    return report


def _ask_until(end: float, room: Room, dice: random.Random, report: Report) -> None:
    while time.monotonic() < end:
        kind = dice.choice(room.kinds)
        exact = dice.random() < 0.5
        if not _ask(room, kind, exact, report):
            time.sleep(0.1)


def _ask(room: Room, kind: Kind, exact: bool, report: Report) -> bool:
    """Whether it was answered."""
    try:
        right = room.ask(kind, exact)
    except AnswerRefused as error:
        report.faults.append(f"{kind.name}: {error}")
        return False
    except TallyError as error:
        report.failures[f"{type(error).__name__} of {kind.name}: {error}"[:160]] += 1
        return False
    report.answers[kind.name] += 1
    if not right:
        report.faults.append(f"{kind.name} is wrong")
    return True


def _recover(room: Room, report: Report) -> None:
    """Every kind must be answered exactly, now that nothing is in the way."""
    end = time.monotonic() + RECOVERY_SECONDS
    for kind in room.kinds:
        while not _ask(room, kind, True, report):
            if time.monotonic() > end:
                report.faults.append(f"{kind.name} is not answered after the trouble")
                break


def _hold_to_bounds(room: Room, report: Report) -> None:
    for keeper in room.keepers():
        spent = room.spent(keeper)
        if not room.paid_for <= spent <= room.asked:
            report.faults.append(
                f"{keeper} spent {spent:g}; {room.asked} questions had a price, and "
                f"{room.paid_for} at least were answered"
            )
    for name, took in room.usage().items():
        name = f"{name} of {room.servers}"
        report.usage[name] = took
        bounds = (
            (took.megabytes, MEGABYTES, "MB"),
            (took.descriptors, DESCRIPTORS, "descriptors"),
            (took.threads, THREADS, "threads"),
            (took.store_bytes, STORE_BYTES, "bytes in its store"),
            (took.files, FILES, "files in its store"),
        )
        report.faults += [
            f"{name} has {found:.0f} {what}, more than {most:.0f}"
            for found, most, what in bounds
            if found > most
        ]


def main() -> None:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    with tempfile.TemporaryDirectory() as folder:
        report = soak(60 * minutes, Path(folder))
    print(report)
    sys.exit(bool(report.faults))


if __name__ == "__main__":
    main()
