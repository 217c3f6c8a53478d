"""Messages between participants, and their one strict byte codec.

A message goes from a block of senders to a block of receivers, with one row per link. A batch of K
rows means exactly K messages of one row (`Message.split`), and each link is charged what a message
of one row costs on the wire (`charge`). So a simulation that computes parties in blocks bills them
as a deployment would.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import PeerError

NONCE_BYTES = 8
DIGEST_BYTES = 20
RUN_BYTES = NONCE_BYTES + DIGEST_BYTES
"""A run's name ends in a digest of its query (`protocols.query.run_name`), so that every
message is bound to what was asked."""
VERSION = 2
MAX_WIRE_BYTES = 4 << 20
"""The largest encoded message; larger blocks are sent as several messages (`Message.chunks`)."""
MAX_ROW = MAX_WIRE_BYTES - 512
"""The longest row of one link: it cannot be split, and travels with a header and a receipt."""
MAX_MEMBERS = 1 << 24
"""Indices are below this. Meters keep arrays by party, which a huge index must not inflate."""
MAX_ROUND = 1 << 15
"""The answer's round is one higher than its question's, and must still fit two bytes."""

_HEADER = struct.Struct(f"<BBBHB{RUN_BYTES}sIII")
SINGLE_BYTES = _HEADER.size + 8
"""What the wire adds to the body of a message from one sender to one receiver."""
_ROLES = 16
"""Both roles share a byte, because every party pays for a header to every server."""
_SHARED = 1


class Role(IntEnum):
    PARTY = 1
    SERVER = 2
    COORDINATOR = 3
    ANALYST = 4
    REGISTRAR = 5  # enrols parties; has no part in any run

    def named(self, index: int) -> str:
        """The first analyst is `analyst`, and others are numbered from 1."""
        numbered = self in (Role.PARTY, Role.SERVER) or (self is Role.ANALYST and index > 0)
        return f"{self.label}-{index}" if numbered else self.label

    @property
    def label(self) -> str:
        return self.name.lower()


class Phase(IntEnum):
    """What a message is for. The bill is kept by phase."""

    QUERY = 1  # coordinator -> server, party: what is asked
    SUBMIT = 2  # party -> server: shares or keys
    ROSTER = 3  # server -> coordinator: whose submissions it holds
    EXCUSE = 4  # coordinator -> server: parties not to wait for any more
    RELEASE = 5  # coordinator -> server: open the sum over these parties
    SHARE = 6  # server -> coordinator: its noisy share of the answer
    ASK = 7  # coordinator -> server: counts at these points, from keys that are there already
    KEYS = 8  # public keys, from whoever made them to whoever needs them
    DEAL = 9  # party -> server -> party: sealed shares of secrets, for other parties to keep
    CHECK = 10  # party -> server -> party: that all were told the same
    UNMASK = 11  # server -> party: whose masks to help remove; party -> server: the shares for it
    VERIFY = 12  # coordinator <-> server: whether submissions are what they must be
    PAIRING = 13  # coordinator -> party: whom to meet
    PAIR = 14  # party <-> party: a computation between two of them
    PAIRED = 15  # party -> coordinator: which pairs are done
    GIVE_UP = 16  # server -> coordinator: why it cannot go on
    REFUSE = 17  # party -> coordinator: why it does not take part
    PREPARE = 18  # server <-> server: what they compute together ahead of the data
    TOGETHER = 19  # server <-> server: what they compute together on what they share

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """`body` has one row per link, or a single row shared by all links.

    Links pair senders with receivers: K with 1, 1 with K, or K with K. Between parties they are
    always K with K: a party may be in several links, but each pair is in one link only.
    """

    run: bytes
    phase: Phase
    sender_role: Role
    receiver_role: Role
    senders: NDArray[np.uint32]
    receivers: NDArray[np.uint32]
    body: NDArray[np.uint8]
    round: int = 0

    def __repr__(self) -> str:
        """Bodies are shares and keys: they never show in a log line."""
        return f"<{self.phase.label} {self.sender}->{self.receiver} {self.links}x{self.width} B>"

    @property
    def between_parties(self) -> bool:
        return self.sender_role is self.receiver_role is Role.PARTY

    @property
    def between_servers(self) -> bool:
        return self.sender_role is self.receiver_role is Role.SERVER

    @property
    def links(self) -> int:
        return max(len(self.senders), len(self.receivers))

    @property
    def width(self) -> int:
        return int(self.body.shape[1])

    @property
    def sender(self) -> str:
        return name_block(self.sender_role, self.senders)

    @property
    def receiver(self) -> str:
        return name_block(self.receiver_role, self.receivers)

    @property
    def charge(self) -> int:
        """Bytes billed to each link: the encoded size of a message with this one link."""
        return SINGLE_BYTES + self.width

    @property
    def wire_bytes(self) -> int:
        return _HEADER.size + 4 * (len(self.senders) + len(self.receivers)) + self.body.size

    def rows(self) -> NDArray[np.uint8]:
        """The body with one row for every link."""
        return np.broadcast_to(self.body, (self.links, self.width))

    def select(self, links: slice | NDArray[np.intp]) -> "Message":
        """The same message restricted to some of its links."""
        return replace(
            self,
            senders=self.senders[links] if len(self.senders) == self.links else self.senders,
            receivers=self.receivers[links]
            if len(self.receivers) == self.links
            else self.receivers,
            body=self.body[links] if len(self.body) == self.links else self.body,
        )

    def split(self) -> Iterator["Message"]:
        """This message as messages of one link each."""
        return (self.select(slice(i, i + 1)) for i in range(self.links))

    def chunks(self, limit: int = MAX_WIRE_BYTES) -> Iterator["Message"]:
        """The same links in messages of at most `limit` encoded bytes each."""
        shared = self.width if len(self.body) < self.links else 0
        row = 8 + (0 if shared else self.width)
        rows = max(1, (limit - _HEADER.size - 4 - shared) // row)
        return (self.select(slice(i, i + rows)) for i in range(0, self.links, rows))

    def encode(self) -> bytes:
        shared = _SHARED if len(self.body) == 1 and self.links > 1 else 0
        header = _HEADER.pack(
            VERSION,
            self.phase,
            self.sender_role * _ROLES + self.receiver_role,
            self.round,
            shared,
            self.run,
            len(self.senders),
            len(self.receivers),
            self.width,
        )
        parts = (
            header,
            np.ascontiguousarray(self.senders, dtype="<u4").data,
            np.ascontiguousarray(self.receivers, dtype="<u4").data,
            np.ascontiguousarray(self.body).data,
        )
        return b"".join(parts)


def are_distinct(ids: NDArray[np.uint32]) -> bool:
    """Whether no id occurs twice. Takes linear time if ids are sorted, as those of a host are."""
    return bool((ids[1:] > ids[:-1]).all()) or len(np.unique(ids)) == len(ids)


def name_block(role: Role, ids: NDArray[np.uint32]) -> str:
    if len(ids) == 1:
        return role.named(int(ids[0]))
    return f"{len(ids)} {role.label} members"


def address(*ids: int) -> NDArray[np.uint32]:
    return np.array(ids, dtype=np.uint32)


def body_of(data: bytes) -> NDArray[np.uint8]:
    """One row that every link shares."""
    return np.frombuffer(data, dtype=np.uint8).reshape(1, -1)


def decode(data: bytes, peer: str) -> Message:
    """Parses what `peer` sent. Raises `PeerError` on anything but exactly one valid message."""

    def refuse(reason: str) -> PeerError:
        return PeerError(peer, f"malformed message: {reason}")

    if len(data) < _HEADER.size:
        raise refuse(f"{len(data)} bytes is shorter than a header")
    version, phase, roles, round_, flags, run, senders, receivers, width = _HEADER.unpack_from(data)
    sender_role, receiver_role = divmod(roles, _ROLES)
    if version != VERSION:
        raise refuse(f"version {version}, expected {VERSION}")
    try:
        phase, sender_role, receiver_role = Phase(phase), Role(sender_role), Role(receiver_role)
    except ValueError as error:
        raise refuse(str(error)) from None
    if Role.REGISTRAR in (sender_role, receiver_role):
        raise refuse("a registrar has no part in a run")
    if round_ > MAX_ROUND:
        raise refuse(f"round {round_} is past {MAX_ROUND}")
    links = max(senders, receivers)
    if links == 0 or min(senders, receivers) not in (1, links):
        raise refuse(f"{senders} senders cannot pair with {receivers} receivers")
    if flags not in (0, _SHARED) or (flags and links == 1):
        raise refuse(f"unknown flags {flags}")
    rows = 1 if flags else links
    expected = _HEADER.size + 4 * (senders + receivers) + rows * width
    if len(data) != expected:
        raise refuse(f"{len(data)} bytes where its header promises {expected}")
    ids = np.frombuffer(data, dtype="<u4", count=senders + receivers, offset=_HEADER.size)
    if int(ids.max()) >= MAX_MEMBERS:
        raise refuse(f"index {ids.max()} is past {MAX_MEMBERS}")
    if sender_role is receiver_role is Role.PARTY:
        if senders != receivers:
            raise refuse(f"{senders} parties cannot pair with {receivers}")
        pairs = ids[:senders].astype(np.uint64) * MAX_MEMBERS + ids[senders:]
        if len(np.unique(pairs)) < links:
            raise refuse("a pair appears twice")
    elif not (are_distinct(ids[:senders]) and are_distinct(ids[senders:])):
        raise refuse("a member appears twice")
    body = np.frombuffer(data, dtype=np.uint8, offset=_HEADER.size + ids.nbytes)
    return Message(
        run,
        phase,
        sender_role,
        receiver_role,
        ids[:senders],
        ids[senders:],
        body.reshape(rows, width),
        round_,
    )


# --- numbers of runs: the nonce of a run is its number, in big-endian order ---

TELLING_BITS = 20
"""The first 44 bits of a number are a time and grow from run to run, the other 20 tell runs of one
time apart. A coordinator goes by its clock, in milliseconds, so that one that lost its store goes
on. Under a seed, runs are named for their keys instead: an answer does not depend on what was asked
before."""


def number(time: int, telling: int) -> bytes:
    """The nonce of a run of this time, and what tells it from others of the same."""
    low = telling % (1 << TELLING_BITS)
    return (time << TELLING_BITS | low).to_bytes(NONCE_BYTES, "big")


def time_of(nonce: bytes) -> int:
    return int.from_bytes(nonce, "big") >> TELLING_BITS


def milliseconds(seconds: float) -> int:
    """The time of a run that begins then."""
    return int(seconds * 1000)


def last_number(seconds: float) -> bytes:
    """The largest number of that time."""
    return number(milliseconds(seconds), -1)
