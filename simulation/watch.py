"""What a run leaves in its folder while it goes on: `progress.json`, for whoever looks on.

The file is replaced whole, so that nobody reads half of it. A lock on `.running`, which the system
takes back when a process dies in whatever way, tells whether somebody still works on it.
"""

import contextlib
import fcntl
import json
import os
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tallyroom.protocols.run.party_states import PartyProgress
from tallyroom.simulation.runtimes.contract import Progress, Report

PROGRESS, LOCK = "progress.json", ".running"
MOST_EVENTS = 40
WRITE_SECONDS = 0.2


def runs_of(states: "np.typing.NDArray[np.uint8]") -> list[list[int]]:
    """Pairs of a state and how many neighbours share it."""
    if not len(states):
        return []
    starts = np.flatnonzero(np.diff(states, prepend=states[:1] + 1))
    lengths = np.diff(starts, append=len(states))
    return [[int(state), int(size)] for state, size in zip(states[starts], lengths, strict=True)]


def is_running(folder: Path) -> bool:
    """Whether a living process holds the lock."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def hold(folder: Path) -> int:
    """A descriptor whose lock lasts as long as any process has it open."""
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


@contextmanager
def at_work(folder: Path | None) -> Iterator[None]:
    """Whoever looks on takes the run for one that goes on until this ends: its answer may be there
    before its files are. Leaves no lock behind, and no folder that nothing was written to."""
    if folder is None:
        yield
        return
    lock, made, ours = None, not folder.exists(), not (folder / LOCK).exists()
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        lock = hold(folder)
    try:
        yield
    finally:
        if lock is not None:
            with contextlib.suppress(OSError):
                if ours:  # else whoever started this looks after it
                    (folder / LOCK).unlink()
                if made:
                    folder.rmdir()
            os.close(lock)


class Watch:
    """Writes nothing before the first report: a question that is refused leaves no trace."""

    def __init__(self, folder: Path, about: Mapping[str, object], pass_on: Report) -> None:
        self._folder = folder
        self._about = dict(about)
        self._pass_on = pass_on
        self._events: deque[dict[str, object]] = deque(maxlen=MOST_EVENTS)
        self._shown: dict[str, object] = {}
        self._phase = ""
        self._begun = self._phase_begun = time.time()
        self._last = 0.0
        self._lock: int | None = None

    def report(self, progress: Progress) -> None:
        self._pass_on(progress)
        phase = " ".join(filter(None, (progress.question, progress.phase)))
        if new := phase != self._phase:
            self._phase, self._phase_begun = phase, time.time()
            self._events.append({"at": self._phase_begun, "text": f"phase {phase}"})
        if not new and time.monotonic() - self._last < WRITE_SECONDS:
            return
        shown: dict[str, object] = {
            "phase": phase,
            "phase_begun": self._phase_begun,
            "parties": progress.parties,
            "enrolled": progress.enrolled,
            "submissions": progress.submissions,
        }
        if progress.links:
            shown["links"] = {name: each.as_json() for name, each in progress.links.items()}
        if len(progress.states):
            shown["states"] = runs_of(progress.states)
            counts = np.bincount(progress.states, minlength=len(PartyProgress))
            shown["standing"] = {each.label: int(counts[each]) for each in PartyProgress}
        self._shown |= shown
        self._write("running")

    def end(self, state: str, reason: str = "") -> None:
        """Says how it ended, if it ever began; lets go of its lock."""
        if self._lock is None:
            return
        self._events.append({"at": time.time(), "text": reason or state})
        self._write(state, reason)
        os.close(self._lock)
        self._lock = None

    def _write(self, state: str, reason: str = "") -> None:
        """A disk that is full must not end a run for which others have paid."""
        self._last = time.monotonic()
        document: dict[str, Any] = {
            "schema": 1,
            "state": state,
            "begun": self._begun,
            "updated": time.time(),
            **({"reason": reason} if reason else {}),
            **self._about,
            **self._shown,
            "events": list(self._events),
        }
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if self._lock is None:
                self._lock = hold(self._folder)
            path = self._folder / f".{PROGRESS}"
            path.write_text(json.dumps(document))
            path.replace(self._folder / PROGRESS)
        except OSError:
            pass


@contextmanager
def watched(folder: Path | None, about: Mapping[str, object], pass_on: Report) -> Iterator[Report]:
    """Reports to `pass_on`, and to those who look into the folder, if there is one."""
    if folder is None:
        yield pass_on
        return
    watch = Watch(folder, about, pass_on)
    try:
        yield watch.report
    except KeyboardInterrupt:
        watch.end("failed", "interrupted")
        raise
    except Exception as error:
        watch.end("failed", str(error) or type(error).__name__)
        raise
    watch.end("done")
