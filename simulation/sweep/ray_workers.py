"""Tasks of a Ray cluster: a task that is lost with its node is done again on another."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Generic, TypeVar

from tallyroom.protocols.errors import RunFailed
from tallyroom.simulation.runtimes.cluster import connect, disconnect, the_engine

Task = TypeVar("Task")
Answer = TypeVar("Answer")

MOST_RETRIES = 5
AHEAD = 2
"""How many tasks are handed out per worker, so that no worker waits for the next."""


class RayWorkers(Generic[Task, Answer]):
    """`work` is a module-level function, which every worker imports. `nodes` counts the tasks that
    each node of the cluster has done."""

    def __init__(self, work: Callable[[Task], Answer], most: int | None = None) -> None:
        self._work = work
        self._most = most
        self.nodes: Counter[str] = Counter()

    def done(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Answer]]:
        """Yields tasks with their answers, as they come. Raises what a task raises.

        Raises `LocalError` if there is no cluster, and `RunFailed` if a task is lost too often.
        """
        ray = the_engine()
        ours = connect()
        waiting = iter(tasks)
        under_way: dict[Any, Task] = {}
        try:
            ahead = self._most or AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
            worker = ray.remote(_noted).options(
                num_cpus=1, max_retries=MOST_RETRIES, scheduling_strategy="SPREAD"
            )
            while True:
                for task in islice(waiting, ahead - len(under_way)):
                    under_way[worker.remote(self._work, task)] = task
                if not under_way:
                    return
                (reference,), _ = ray.wait(list(under_way), num_returns=1)
                try:
                    node, answer = ray.get(reference)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from None
                except ray.exceptions.RayError as error:
                    reason = str(error).strip().splitlines()[0]
                    raise RunFailed(f"a task was lost {MOST_RETRIES} times: {reason}") from None
                self.nodes[node] += 1
                yield under_way.pop(reference), answer
        finally:
            for reference in under_way:
                ray.cancel(reference, force=True)
            if ours:
                disconnect()


def _noted(work: Callable[[Any], Any], task: Any) -> tuple[str, Any]:
    """Returns the answer with the node that computed it."""
    return str(the_engine().get_runtime_context().get_node_id()), work(task)
