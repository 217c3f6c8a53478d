"""The Ray cluster that a simulation runs on: one that is there, or one of this machine alone.

Ray asks nobody who they are: who reaches its ports runs programs there. A cluster of our own
listens on the loopback.
"""

import os
from typing import Any

from tallyroom.protocols.errors import LocalError

ADDRESS = "RAY_ADDRESS"
"""The environment variable that names a cluster, which Ray's own tools read as well."""
STORE_BYTES = 512 << 20
"""Memory for what travels, of a cluster of our own; Ray writes to disk what does not fit."""


def the_engine() -> Any:
    """The module `ray`. Raises `LocalError` where it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise LocalError("Ray is not installed: pip install 'tallyroom[ray]'") from None
    return ray


def connect() -> bool:
    """Whether the cluster is ours to take down (`disconnect`). Raises `LocalError`."""
    ray = the_engine()
    if ray.is_initialized():
        return False
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    address = os.environ.get(ADDRESS)
    try:
        if address:
            ray.init(address=address, **quiet)
        else:
            ray.init(
                num_cpus=len(os.sched_getaffinity(0)),
                object_store_memory=STORE_BYTES,
                include_dashboard=False,
                _node_ip_address="127.0.0.1",
                **quiet,
            )
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise LocalError(f"no Ray cluster at {address or 'this machine'}: {reason}") from None
    return True


def disconnect() -> None:
    the_engine().shutdown()
