"""Worker processes, each doing one run at a time. If the parent is killed, they finish and end."""

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, Protocol, TypeVar

from tallyroom.protocols.errors import RunFailed
from tallyroom.simulation.runtimes.processes import fork_server, no_main_module

Task = TypeVar("Task")
Answer = TypeVar("Answer")
Given = TypeVar("Given", covariant=True)
STOP_SECONDS = 10.0


class Pool(Protocol[Task, Given]):
    """Does tasks, on processes of this machine or on a cluster."""

    def done(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Given]]:
        """Yields tasks with their answers, as they come. Raises what a task raises."""


class Workers(Generic[Task, Answer]):
    """`work` is a module-level function, which every worker imports."""

    def __init__(self, work: Callable[[Task], Answer], count: int) -> None:
        self._work = work
        self._count = count

    def done(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Answer]]:
        """Yields tasks with their answers, as they come. Raises what a task raises.

        Raises `RunFailed` if a worker dies. However this generator ends, all workers end with it.
        """
        context = fork_server()
        waiting = iter(tasks)
        busy: dict[Connection, Task] = {}
        processes: dict[Connection, Any] = {}
        try:
            for _, task in zip(range(self._count), waiting, strict=False):
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(self._work, theirs))
                with no_main_module():
                    process.start()
                theirs.close()
                processes[ours] = process
                busy[ours] = task
                ours.send(task)
            while busy:
                for ready in wait(list(busy)):
                    assert isinstance(ready, Connection)
                    try:
                        answer = ready.recv()
                    except EOFError:
                        raise RunFailed("a worker died: out of memory, or killed") from None
                    task = busy.pop(ready)
                    if isinstance(answer, BaseException):
                        raise answer
                    for following in waiting:
                        busy[ready] = following
                        ready.send(following)
                        break
                    yield task, answer
        finally:
            for connection, process in processes.items():
                connection.close()
                if connection in busy:
                    process.terminate()
            for process in processes.values():
                process.join(STOP_SECONDS)
                if process.is_alive():
                    process.kill()
                    process.join()


def _serve(work: Callable[[Any], Any], parent: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent receives it too, and ends this worker
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            task = parent.recv()
            try:
                answer = work(task)
            except Exception as error:
                answer = error
            parent.send(answer)
