"""The process that keeps the members of a metered program, and tells what each took.

It runs as a file of its own and imports nothing but the standard library. Standard input has one
JSON object (`KeeperTask`), whose numbers are file descriptors that are open here.

    outer    watches the lifeline, which ends with whoever meters; removes the cgroup
    first    with root the first process of a PID namespace: whatever is in there ends with it
    holder   one for each member; orphans of its member become its children, and are accounted for
    command

With root nothing here can be left behind: without the lifeline the outer process kills the first;
each process that loses its parent is killed by the kernel. Without root a member may kill the outer
process, and what it detached before is left.
"""

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any, NoReturn, TypedDict

CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWPID = 0x00020000, 0x40000000, 0x20000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36
HOLDER = "holder-"
CANNOT_START = 127


class KeptMember(TypedDict):
    """`namespace` is one of the network, or -1; `output` is where it writes. A service is
    stopped when all others have ended."""

    command: list[str]
    environment: dict[str, str]
    directory: str
    after: float
    service: bool
    namespace: int
    output: int


class KeeperTask(TypedDict):
    """`grace` is how long, in seconds, what a member left behind may go on, and a service may take
    to end. `cgroup` is a folder, or empty; `processes` bounds what one user without root has."""

    members: list[KeptMember]
    isolated: bool
    cgroup: str
    processes: int
    grace: float
    lifeline: int
    reports: int


def _libc(name: str, *arguments: Any) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _dies_with_its_parent() -> None:
    _libc("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)


def keep(task: KeeperTask) -> int:
    """The outer process: until all members have ended, or whoever meters has."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _libc("prctl", PR_SET_CHILD_SUBREAPER, 1)
    if task["isolated"]:
        _libc("unshare", CLONE_NEWPID | CLONE_NEWNS)
    first = os.fork()
    if first == 0:
        _dies_with_its_parent()
        with _exits():
            _first(task)
    ended = os.pidfd_open(first)
    watched = select.poll()
    watched.register(ended, select.POLLIN)
    watched.register(task["lifeline"], select.POLLIN | select.POLLHUP)
    happened = {number for number, _ in watched.poll()}
    if ended not in happened:
        os.kill(first, signal.SIGKILL)
    kill_all()
    if task["cgroup"]:
        with contextlib.suppress(OSError):
            os.rmdir(task["cgroup"])
    return 0


@contextlib.contextmanager
def _exits() -> Iterator[None]:
    """The end of a forked process, which never returns into its parent's code."""
    try:
        yield
    except BaseException as error:
        print(f"the keeper failed: {error!r}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def _first(task: KeeperTask) -> None:
    if task["cgroup"]:
        with open(f"{task['cgroup']}/cgroup.procs", "w") as joined:
            joined.write("0")  # this process, and what it starts
    if task["isolated"]:
        _libc("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
        _libc("mount", b"proc", b"/proc", b"proc", 0, None)
    _libc("prctl", PR_SET_CHILD_SUBREAPER, 1)
    begun = time.monotonic()
    working: dict[int, int] = {}
    services: dict[int, int] = {}
    stopping, stop = os.pipe()
    for number, member in enumerate(task["members"]):
        time.sleep(max(0.0, begun + member["after"] - time.monotonic()))
        if (pid := os.fork()) == 0:
            _dies_with_its_parent()
            os.close(stop)
            with _exits():
                _hold(number, member, task, stopping)
        (services if member["service"] else working)[pid] = number
    os.close(stopping)
    while working:
        working.pop(os.wait()[0], None)
    os.close(stop)  # services hear it
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _hold(number: int, member: KeptMember, task: KeeperTask, stopping: int) -> None:
    """Starts the member, waits for it and for what it leaves behind, and reports."""
    _libc("prctl", PR_SET_NAME, f"{HOLDER}{number}".encode())
    _libc("prctl", PR_SET_CHILD_SUBREAPER, 1)
    os.setsid()
    why, said = os.pipe2(os.O_CLOEXEC)
    began = time.monotonic()
    main = os.fork()
    if main == 0:
        _dies_with_its_parent()
        _become(member, task, said)
    os.close(said)
    failed = os.read(why, 4096).decode()
    main_ended = os.pidfd_open(main)
    watched = select.poll()
    watched.register(main_ended, select.POLLIN)
    if member["service"]:
        watched.register(stopping, select.POLLHUP)
    happened = {found for found, _ in watched.poll()}
    if main_ended not in happened:
        os.kill(main, signal.SIGTERM)
        select.select([main_ended], [], [], task["grace"])
    with contextlib.suppress(ProcessLookupError):
        if not select.select([main_ended], [], [], 0)[0]:
            os.kill(main, signal.SIGKILL)
    status = os.waitpid(main, 0)[1]
    ended = time.monotonic()
    _wait_for_others(task["grace"])
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    report = {
        "member": number,
        "began": began,
        "ended": ended,
        "exit": os.waitstatus_to_exitcode(status),
        "stopped": main_ended not in happened,
        "failed": failed,
        "user_seconds": used.ru_utime,
        "system_seconds": used.ru_stime,
        "peak_bytes": used.ru_maxrss * 1024,
    }
    os.write(task["reports"], json.dumps(report).encode() + b"\n")


def _become(member: KeptMember, task: KeeperTask, said: int) -> NoReturn:
    """The command. What is in its way is said to the holder."""
    try:
        if member["namespace"] >= 0:
            _libc("setns", member["namespace"], CLONE_NEWNET)
        if os.geteuid() != 0 and task["processes"]:
            most = task["processes"]
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(member["output"], 1)
        os.dup2(member["output"], 2)
        os.chdir(member["directory"])
        os.closerange(3, said)
        os.closerange(said + 1, 1 << 16)
        os.execvpe(member["command"][0], member["command"], member["environment"])
    except BaseException as error:
        reason = error.strerror if isinstance(error, OSError) else repr(error)
        os.write(said, f"{reason}".encode()[:4000])
    os._exit(CANNOT_START)


def _wait_for_others(grace: float) -> None:
    """What a command left behind: for so long, then it is killed."""
    until = time.monotonic() + grace
    while time.monotonic() < until:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.02)
        except ChildProcessError:
            return
    kill_all()


def kill_all() -> None:
    """Every descendant of this process, however many there come to be meanwhile."""
    while True:
        for pid in _descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


def _descendants(ancestor: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/stat") as stat:
                parent = int(stat.read().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry))
    found, left = [], [ancestor]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found


if __name__ == "__main__":
    sys.exit(keep(json.load(sys.stdin)))
