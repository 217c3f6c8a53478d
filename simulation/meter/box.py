"""Members of a program, started by a keeper and bounded in time, number and memory.

With root they are in a PID namespace of their own, and nothing of them outlives this: not when one
of them forks without end or detaches itself, and not when this process is killed. Without root that
holds but for a member that kills the keeper: what it detached before goes on.
"""

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any

from tallyroom.protocols.errors import RunFailed
from tallyroom.simulation.meter import keeper

GRACE_SECONDS = 5.0
LONGEST_LINE = 1 << 16
KEEPERS_OWN = 8
"""Processes of the keeper's, beside one for each member."""

Hear = Callable[[int, bytes], None]
"""The number of a member, and a line that it wrote."""


@dataclass(frozen=True)
class Limits:
    """`seconds` of wall time, `processes` and resident `memory` in bytes of all members at once."""

    seconds: float = 3600.0
    processes: int = 1024
    memory: int = 1 << 34


@dataclass(frozen=True)
class BoxMember:
    """`namespace` is a descriptor of one of the network; None for that of this process."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    directory: str = "."
    after: float = 0.0
    service: bool = False
    namespace: int | None = None


@dataclass(frozen=True)
class MemberUse:
    """What the kernel says of a member and of all that it started, when they had ended.
    `peak_bytes` is the most memory that one of its processes had."""

    began: float
    ended: float
    exit: int
    stopped: bool
    failed: str
    user_seconds: float
    system_seconds: float
    peak_bytes: int

    @property
    def cpu_seconds(self) -> float:
        return self.user_seconds + self.system_seconds


class Box:
    """`hear` is given every line that members write; `look` is called several times a second with
    the keeper's process id and says when to be called again, or raises `RunFailed`."""

    def __init__(self, limits: Limits, hear: Hear, look: Callable[[int], float]) -> None:
        self._limits = limits
        self._hear = hear
        self._look = look
        self._rests: dict[int, bytes] = {}
        self.bounded = ""
        """Why their number is bounded by this process alone; empty where the kernel does it."""

    def run(self, members: Sequence[BoxMember]) -> list[MemberUse]:
        """Until all have ended. Raises `RunFailed` for what cannot be started, ends with another
        code than 0, or is beyond the limits: then all are stopped."""
        with contextlib.ExitStack() as undo:
            lifeline, held = _pipe(undo)
            reports, reporting = _pipe(undo)
            outlets = [_pipe(undo) for _ in members]
            cgroup = self._cgroup(len(members), undo)
            root = os.geteuid() == 0
            task: keeper.KeeperTask = {
                "members": [_kept(*each) for each in zip(members, outlets, strict=True)],
                "isolated": root,
                "cgroup": cgroup,
                "processes": 0 if root else _of_this_user() + self._limits.processes,
                "grace": GRACE_SECONDS,
                "lifeline": lifeline.fileno(),
                "reports": reporting.fileno(),
            }
            theirs = [lifeline, reporting, *(far for _, far in outlets)]
            passed = {each.fileno() for each in theirs}
            passed |= {m.namespace for m in members if m.namespace is not None}
            process = _started(task, sorted(passed))
            undo.callback(process.wait)
            undo.callback(held.close)
            for each in theirs:
                each.close()
            streams = {near.fileno(): number for number, (near, _) in enumerate(outlets)}
            told = self._watch(process, reports.fileno(), streams)
        return self._uses(members, told)

    def _watch(
        self, process: "subprocess.Popen[bytes]", reports: int, streams: dict[int, int]
    ) -> bytes:
        """What the keeper reported, when it has ended."""
        told = b""
        ends = time.monotonic() + self._limits.seconds
        looks = time.monotonic()
        with selectors.DefaultSelector() as selector:
            for each in (reports, *streams):
                selector.register(each, selectors.EVENT_READ)
            while selector.get_map():
                now = time.monotonic()
                if now >= ends:
                    raise RunFailed(f"it took more than {self._limits.seconds:g} s and was stopped")
                if now >= looks:
                    looks = now + self._look(process.pid)
                for key, _ in selector.select(max(0.0, min(looks, ends) - time.monotonic())):
                    data = os.read(key.fd, LONGEST_LINE)
                    if not data:
                        selector.unregister(key.fd)
                    if key.fd == reports:
                        told += data
                    else:
                        self._lines(streams[key.fd], data)
        return told

    def _lines(self, member: int, data: bytes) -> None:
        *whole, rest = (self._rests.get(member, b"") + data).split(b"\n")
        if len(rest) > LONGEST_LINE or (not data and rest):
            whole, rest = [*whole, rest], b""
        self._rests[member] = rest
        for line in whole:
            self._hear(member, line)

    def _uses(self, members: Sequence[BoxMember], told: bytes) -> list[MemberUse]:
        found: dict[int, MemberUse] = {}
        for line in told.splitlines():
            report: dict[str, Any] = json.loads(line)
            number = report.pop("member")
            found[number] = MemberUse(**report)
        for number, member in enumerate(members):
            if number not in found:
                raise RunFailed(f"{member.name} was lost: its keeper was killed")
            use = found[number]
            if use.failed:
                raise RunFailed(f"{member.name} could not be started: {use.failed}")
            if use.exit and not use.stopped:
                how = f"signal {-use.exit}" if use.exit < 0 else f"exit code {use.exit}"
                raise RunFailed(f"{member.name} ended with {how}")
        return [found[number] for number in range(len(members))]

    def _cgroup(self, members: int, undo: contextlib.ExitStack) -> str:
        try:
            folder = made_cgroup(self._limits.processes + members + KEEPERS_OWN)
        except OSError as error:
            self.bounded = error.strerror or "there is no cgroup"
            return ""
        undo.callback(_remove, folder)
        return str(folder)


def _remove(folder: Path) -> None:
    """Waits a little for members that are being killed: the kernel keeps the folder until then."""
    for _ in range(100):
        with contextlib.suppress(OSError):
            folder.rmdir()
        if not folder.exists():
            break
        time.sleep(0.02)


def _pipe(undo: contextlib.ExitStack) -> tuple[FileIO, FileIO]:
    try:
        near, far = os.pipe2(os.O_CLOEXEC)
    except OSError as error:
        raise RunFailed(f"cannot start so many members: {error.strerror}") from None
    return undo.enter_context(FileIO(near, "r")), undo.enter_context(FileIO(far, "w"))


def _kept(member: BoxMember, outlet: tuple[FileIO, FileIO]) -> keeper.KeptMember:
    return {
        "command": list(member.command),
        "environment": member.environment,
        "directory": member.directory,
        "after": member.after,
        "service": member.service,
        "namespace": -1 if member.namespace is None else member.namespace,
        "output": outlet[1].fileno(),
    }


def _started(task: keeper.KeeperTask, passed: list[int]) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", keeper.__file__],
        stdin=subprocess.PIPE,
        pass_fds=passed,
        start_new_session=True,
    )
    assert process.stdin is not None
    with process.stdin as told:
        told.write(json.dumps(task).encode())
    return process


def _of_this_user() -> int:
    """Threads that the user has now, which a limit on them counts too."""
    found = 0
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == os.getuid():
                found += len(list((entry / "task").iterdir()))
    return found


def made_cgroup(processes: int) -> Path:
    """A cgroup below this process's own that has at most so many processes. Raises `OSError`."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "pids" in controllers.split(",") or not controllers:
            mounted = _mounted("pids" if controllers else "")
            if mounted is None:
                continue
            folder = Path(f"{mounted}{path}") / f"tally-meter-{os.getpid()}"
            folder.mkdir(exist_ok=True)
            try:
                (folder / "pids.max").write_text(str(processes))
            except OSError:
                folder.rmdir()
                continue
            return folder
    raise OSError(0, "no cgroup bounds the number of processes here")


def _mounted(controller: str) -> str | None:
    """Where the hierarchy of that controller is; without a name, the unified one."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == ("cgroup" if controller else "cgroup2") and (
            not controller or controller in options.split(",")
        ):
            return where
    return None
