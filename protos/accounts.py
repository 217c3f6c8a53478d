"""Meters on the wire."""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.query import MAX_PARTIES
from tallyroom.protocols.wire.messages import Phase, Role
from tallyroom.protocols.wire.meter import Account, Direction, Link, Meter
from tallyroom.protos import tally_pb2 as pb

MAX_VALUES = 4 * MAX_PARTIES
"""All accounts of a station together: a few bytes stand for a long run, and many for many."""


def _to_runs(values: NDArray[np.int64]) -> bytes:
    """Most parties cost the same, so runs of equal values are short where arrays are long."""
    starts = np.flatnonzero(np.diff(values, prepend=values[:1] + 1))
    lengths = np.diff(starts, append=len(values))
    return np.stack([lengths, values[starts]], axis=1).astype("<i8").tobytes()


def _from_runs(data: bytes, most: int) -> NDArray[np.int64]:
    lengths, values = np.frombuffer(data, dtype="<i8").reshape(-1, 2).T
    impossible = ((lengths < 0) | (lengths > MAX_PARTIES)).any()  # before a sum that could wrap
    if impossible or int(lengths.sum()) > min(MAX_PARTIES, most):
        raise ValueError("runs of impossible length")
    return np.repeat(values, lengths)


def accounts_to_wire(
    meter: Meter,
    cpu_seconds: float = 0.0,
    prepare_cpu_seconds: float = 0.0,
    waiting_seconds: float = 0.0,
) -> pb.AccountList:
    return pb.AccountList(
        cpu_seconds=cpu_seconds,
        prepare_cpu_seconds=prepare_cpu_seconds,
        waiting_seconds=waiting_seconds,
        accounts=[
            pb.AccountEntry(
                direction=direction,
                phase=link.phase,
                round=link.round,
                sender_role=link.sender,
                receiver_role=link.receiver,
                station=link.station,
                bytes_by_party=_to_runs(account.bytes),
                messages_by_party=_to_runs(account.messages),
                wire_bytes=account.wire_bytes,
            )
            for (direction, link), account in meter.accounts.items()
        ],
    )


def cpu_seconds_from_wire(accounts: pb.AccountList, peer: str) -> float:
    """Raises `PeerError` on a time that cannot be."""
    return checked_seconds(accounts.cpu_seconds, peer)


def prepare_seconds_from_wire(accounts: pb.AccountList, peer: str) -> float:
    """Raises `PeerError` on a time that cannot be."""
    return checked_seconds(accounts.prepare_cpu_seconds, peer)


def longest_wait(stations: Iterable[pb.AccountList]) -> float:
    """The longest that one of them waited for others that did not answer: they all waited at the
    same time. A time that cannot be counts for nothing."""
    waits = (each.waiting_seconds for each in stations)
    return max((wait for wait in waits if 0 <= wait < math.inf), default=0.0)


def checked_seconds(value: float, peer: str) -> float:
    """Raises `PeerError` on a time that cannot be."""
    if not 0 <= value < math.inf:
        raise PeerError(peer, f"malformed accounts: {value} seconds")
    return float(value)


def accounts_from_wire(accounts: pb.AccountList, peer: str) -> Meter:
    """Raises `PeerError` on accounts that make no sense."""
    meter = Meter()
    left = MAX_VALUES
    for entry in accounts.accounts:
        try:
            link = Link(
                Phase(entry.phase),
                entry.round,
                Role(entry.sender_role),
                Role(entry.receiver_role),
                entry.station,
            )
            key = (Direction(entry.direction), link)
            sizes = _from_runs(entry.bytes_by_party, left)
            counts = _from_runs(entry.messages_by_party, left - sizes.size)
            left -= sizes.size + counts.size
        except ValueError as error:
            raise PeerError(peer, f"malformed accounts: {error}") from None
        if sizes.shape != counts.shape:
            raise PeerError(peer, "malformed accounts: bytes and messages differ in length")
        meter.accounts[key] = Account(sizes, counts, entry.wire_bytes)
    return meter
