"""Meters on the wire."""

import numpy as np

from protocols.errors import PeerError
from protocols.messages import Phase, Role
from protocols.meter import Account, Direction, Link, Meter
from protos import tally_pb2 as pb


def accounts_to_wire(meter: Meter) -> pb.AccountList:
    return pb.AccountList(
        accounts=[
            pb.AccountEntry(
                direction=direction,
                phase=link.phase,
                round=link.round,
                sender_role=link.sender,
                receiver_role=link.receiver,
                station=link.station,
                bytes_by_party=account.bytes.astype("<i8").tobytes(),
                messages_by_party=account.messages.astype("<i8").tobytes(),
                wire_bytes=account.wire_bytes,
            )
            for (direction, link), account in meter.accounts.items()
        ]
    )


def accounts_from_wire(accounts: pb.AccountList, peer: str) -> Meter:
    """Raises `PeerError` on accounts that make no sense."""
    meter = Meter()
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
            sizes = np.frombuffer(entry.bytes_by_party, dtype="<i8")
            counts = np.frombuffer(entry.messages_by_party, dtype="<i8")
        except ValueError as error:
            raise PeerError(peer, f"malformed accounts: {error}") from None
        if sizes.shape != counts.shape:
            raise PeerError(peer, "malformed accounts: bytes and messages differ in length")
        meter.accounts[key] = Account(sizes, counts, entry.wire_bytes)
    return meter
