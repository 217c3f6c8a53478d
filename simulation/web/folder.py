"""Past and running runs in a folder: one subfolder each, as `--out` makes them."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tallyroom.protocols.run.party_states import MOST_SHOWN, PartyProgress
from tallyroom.simulation.watch import PROGRESS, is_running, runs_of
from tallyroom.simulation.web.documents import document, is_plain_file, read

RESULT, COMPARISON, JOB, LOG = "result.json", "comparison.json", "job.json", "job.log"
MARKS = (RESULT, COMPARISON, PROGRESS, JOB)
FILES = {
    "estimate.png": "image/png",
    "communication.png": "image/png",
    "comparison.png": "image/png",
    "report.html": "text/html; charset=utf-8",
    "comparison.html": "text/html; charset=utf-8",
    "result.json": "application/json",
    "comparison.json": "application/json",
    "estimate.csv": "text/csv; charset=utf-8",
    "communication.csv": "text/csv; charset=utf-8",
    "comparison.csv": "text/csv; charset=utf-8",
}
"""The only files that are served, whatever else is in the folder."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")
MOST_RUNS = 500
MOST_BRIEF = 200
LOG_BYTES = 4000
KEPT_OUT = ("receipts", "questions")
"""Long fields, which are left to the file."""


@dataclass(frozen=True)
class Seen:
    """A run as found in the folder."""

    name: str
    changed: float
    state: str
    reason: str
    progress: dict[str, Any]
    job: dict[str, Any]
    result: dict[str, Any] | None
    comparison: dict[str, Any] | None
    files: tuple[str, ...]

    def summary(self) -> dict[str, object]:
        """The run's line in the list."""
        known = self.progress or self.job
        found: dict[str, Any] = self.result or self.comparison or {}
        federation = found.get("federation", {})
        privacy = found.get("privacy", {})
        line = {
            "name": self.name,
            "changed": self.changed,
            "state": self.state,
            "kind": "compare" if self.comparison or self.job.get("action") == "compare" else "run",
            "statistic": found.get("statistic") or known.get("statistic", "?"),
            "aggregator": _part(federation, "aggregator") or known.get("aggregator", ""),
            "parties": _part(federation, "parties") or self.progress.get("parties"),
            "epsilon": _part(privacy, "epsilon")
            or found.get("epsilon")
            or known.get("epsilon", ""),
            "phase": self.progress.get("phase", ""),
            "submissions": self.progress.get("submissions", 0),
        }
        return {key: _brief(value) for key, value in line.items()} | {"reason": self.reason}

    def detail(self) -> dict[str, object]:
        return self.summary() | {
            "progress": self.progress,
            "job": {key: self.job[key] for key in ("command", "begun") if key in self.job},
            "result": self.result,
            "comparison": self.comparison,
            "files": list(self.files),
        }


def _part(value: object, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def _brief(value: object) -> object:
    """Returns a number or a short text; None if the file has something else in its place."""
    if isinstance(value, str):
        return value[:MOST_BRIEF]
    return value if isinstance(value, int | float) else None


def is_name(name: str) -> bool:
    return NAME.fullmatch(name) is not None


class RunFolder:
    """Reads files again only when they have changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[Path, tuple[tuple[int, int, int], dict[str, Any] | None]] = {}

    def all(self) -> list[Seen]:
        """Newest first."""
        try:
            entries = [entry for entry in os.scandir(self.folder) if _is_run(entry)]
        except OSError:
            return []
        entries.sort(key=lambda entry: _changed(Path(entry.path)), reverse=True)
        names = {entry.name for entry in entries[:MOST_RUNS]}
        self._read = {path: kept for path, kept in self._read.items() if path.parent.name in names}
        return [self._seen(entry.name) for entry in entries[:MOST_RUNS]]

    def one(self, name: str) -> Seen | None:
        path = self.folder / name
        there = is_name(name) and path.is_dir() and not path.is_symlink()
        return self._seen(name) if there and any((path / mark).exists() for mark in MARKS) else None

    def file(self, name: str, file: str) -> Path | None:
        path = self.folder / name / file
        if not is_name(name) or file not in FILES or (self.folder / name).is_symlink():
            return None
        return path if is_plain_file(path) else None

    def _seen(self, name: str) -> Seen:
        path = self.folder / name
        running = is_running(path)
        progress = self._document(path / PROGRESS) or {}
        job = self._document(path / JOB) or {}
        result = self._document(path / RESULT)
        comparison = self._document(path / COMPARISON)
        progress = _with_caught(progress, result)
        state, reason = _state(path, running, progress, job, bool(result or comparison))
        files = tuple(file for file in FILES if is_plain_file(path / file))
        return Seen(name, _changed(path), state, reason, progress, job, result, comparison, files)

    def _document(self, path: Path) -> dict[str, Any] | None:
        try:
            stat = path.lstat()
            mark = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if path in self._read and self._read[path][0] == mark:
                return self._read[path][1]
            found = document(path)
        except OSError:
            return None
        if found is not None:
            charges = _charges(found.get("receipts"))
            found = {key: value for key, value in found.items() if key not in KEPT_OUT} | charges
        self._read[path] = mark, found
        return found


def _is_run(entry: os.DirEntry[str]) -> bool:
    if not is_name(entry.name) or not entry.is_dir(follow_symlinks=False):
        return False
    return any(os.path.exists(os.path.join(entry.path, mark)) for mark in MARKS)


def _changed(path: Path) -> float:
    times = []
    for mark in MARKS:
        try:
            times.append((path / mark).stat().st_mtime)
        except OSError:
            continue
    return max(times, default=0.0)


def _state(
    path: Path, running: bool, progress: dict[str, Any], job: dict[str, Any], answered: bool
) -> tuple[str, str]:
    if running:
        return "running", ""
    if progress.get("state") == "failed":
        return "failed", str(progress.get("reason", ""))[:1000]
    if answered:
        return "done", ""
    said = _last_line(path / LOG) if job else ""
    return "failed", said or "it ended without a message: it was killed, or its machine stopped"


def _with_caught(progress: dict[str, Any], result: dict[str, Any] | None) -> dict[str, Any]:
    """Marks parties whose submissions were refused, for the picture. Anybody may have written the
    files, so values that a run would not write are left alone."""
    caught, states = _part(result, "caught"), progress.get("states")
    if not isinstance(caught, list) or not isinstance(states, list) or not caught:
        return progress
    try:
        known = all(
            0 <= kind < len(PartyProgress) and 0 < size <= MOST_SHOWN for kind, size in states
        )
        if not known or sum(size for _, size in states) > MOST_SHOWN:
            return progress
        each = np.repeat(*np.array(states, dtype=np.int64).T).astype(np.uint8)
        for entry in caught:
            if named := _NUMBERED.fullmatch(entry["party"]):
                each[int(named[1])] = PartyProgress.REFUSED
    except (TypeError, ValueError, KeyError, IndexError, OverflowError):
        return progress
    counts = np.bincount(each, minlength=len(PartyProgress))
    standing = {one.label: int(counts[one]) for one in PartyProgress}
    return progress | {"states": runs_of(each), "standing": standing}


_NUMBERED = re.compile(r"party-(\d{1,9})")


def _last_line(path: Path) -> str:
    try:
        lines = read(path, LOG_BYTES, end=True).decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:1000] if lines else ""


def _charges(receipts: object) -> dict[str, Any]:
    """The charge that each server signed."""
    if not isinstance(receipts, list):
        return {}
    charged = [
        {key: each[key] for key in ("server", "epsilon", "rho", "delta") if key in each}
        for each in receipts[:100]
        if isinstance(each, dict)
    ]
    return {"charges": charged}
