"""What the processes of a local federation run. The fork server imports this module first.

Nothing heavy belongs here: every import is in the memory of every party process.
"""

import asyncio
import datetime as dt
import gc
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection

import numpy as np

from tallyroom.parties.process import PartyConfig, run_party
from tallyroom.protocols import aggregation, statistics
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.identity.certificates import Authority, Identity
from tallyroom.protocols.randomness import KEY_BYTES, Randomness
from tallyroom.protocols.wire.messages import Role
from tallyroom.servers.coordinator_process import run_coordinator
from tallyroom.servers.coordinator_service import CoordinatorConfig
from tallyroom.servers.process import ServerConfig, run_server
from tallyroom.simulation.misbehaviour import Misbehaviour, ScriptedBlock
from tallyroom.simulation.networks.emulation import LineAccess
from tallyroom.storage.store import keep_private


def preload() -> None:
    """Loads what every child needs, and keeps the collector from touching those pages again.

    Called in the fork server before it forks: untouched pages stay shared between all children.
    """
    aggregation.aggregators()
    logging.getLogger().addHandler(logging.NullHandler())  # a failed run says why in one line
    np.unique(np.zeros(1))  # loads numpy.ma, which every child would otherwise load for itself
    statistics.statistics()
    # OpenSSL looks its ciphers and curves up when they are first used: here, once for all.
    Randomness(bytes(KEY_BYTES)).bytes(1)
    now, day = dt.datetime.now(dt.UTC), dt.timedelta(days=1)
    Authority.create("nobody's", now, day).issue(Identity(Role.PARTY), now, day).signer()
    gc.collect()
    gc.freeze()


def behind(outlet: LineAccess, program: Callable[..., None], *arguments: object) -> None:
    """A program whose process has a line of its own."""
    outlet.plug_in()
    program(*arguments)


def serve(config: ServerConfig, report: Connection) -> None:
    keep_private()
    _report_errors(run_server(config, report.send), report)


def coordinate(config: CoordinatorConfig, report: Connection) -> None:
    keep_private()
    _report_errors(run_coordinator(config, report.send), report)


def host(config: PartyConfig) -> None:
    keep_private()
    asyncio.run(run_party(config))


def scripted_host(misbehaviour: Misbehaviour, config: PartyConfig) -> None:
    keep_private()
    asyncio.run(run_party(config, partial(ScriptedBlock, misbehaviour=misbehaviour)))


def _report_errors(work: Coroutine[None, None, None], report: Connection) -> None:
    try:
        asyncio.run(work)
    except (OSError, LocalError) as error:
        with suppress(BrokenPipeError):  # whoever started it is gone
            report.send(str(error))
