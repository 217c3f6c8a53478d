"""A real cluster of two nodes on the loopback, of which tests may lose the second."""

import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

STORE_BYTES = 100 << 20
HEAD, SECOND = "127.0.0.2", "127.0.0.3"
"""Of 127.0.0.1, Ray makes the machine's address in its network."""
QUICK_TO_NOTICE = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 5000,
    "health_check_failure_threshold": 4,
}


class TwoNodes:
    """`second` is there whenever a test begins."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 1,
                "object_store_memory": STORE_BYTES,
                "node_ip_address": HEAD,
                "include_dashboard": False,
                "_system_config": QUICK_TO_NOTICE,
            },
        )
        self.address = self._cluster.address
        self.second: Any = None
        self.restore()

    def restore(self) -> None:
        if self.second is None:
            self.second = self._cluster.add_node(
                num_cpus=1, object_store_memory=STORE_BYTES, node_ip_address=SECOND
            )

    @property
    def second_id(self) -> str:
        return str(self.second.node_id)

    def lose(self) -> None:
        """Its processes are killed, all at once."""
        node, self.second = self.second, None
        self._cluster.remove_node(node, allow_graceful=False)

    def stop(self) -> None:
        self._cluster.shutdown()  # type: ignore[no-untyped-call]


@pytest.fixture(scope="session")
def cluster() -> Iterator[TwoNodes]:
    import ray

    nodes = TwoNodes()
    try:
        ray.init(address=nodes.address, log_to_driver=False, logging_level=logging.ERROR)
        yield nodes
    finally:
        ray.shutdown()
        nodes.stop()


@pytest.fixture
def two_nodes(cluster: TwoNodes) -> TwoNodes:
    cluster.restore()
    return cluster
