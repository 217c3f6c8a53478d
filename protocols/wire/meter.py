"""The meter: what every link carried, by phase and round, party by party.

Each participant meters what it sends and receives. A server or the coordinator is at one end of
every message except those between parties. So the bill of a run is made from their accounts, and
from the accounts that party hosts hand in of messages between parties.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.wire.messages import Message, Phase, Role

SEALING_BYTES = 24
"""Bytes that sealing adds to a message between parties that the coordinator relays."""

NOTHING = np.zeros(0, dtype=np.int64)


class Direction(IntEnum):
    SENT = 1
    RECEIVED = 2


@dataclass(frozen=True, order=True)
class Link:
    """All messages of one phase and round between two roles, one of them at one *station*, that is
    a server or the coordinator; or all messages of that phase and round between parties.

    `station` is the index of the end that is not a party. Between coordinator and server it is the
    server's index, between servers the sender's, and between parties 0.
    """

    phase: Phase
    round: int
    sender: Role
    receiver: Role
    station: int

    @property
    def label(self) -> str:
        return f"{self.sender.label}->{self.receiver.label}"

    @property
    def with_party(self) -> bool:
        return Role.PARTY in (self.sender, self.receiver)

    @property
    def between_parties(self) -> bool:
        return self.sender is self.receiver is Role.PARTY

    def ends(self, party: int) -> tuple[str, str]:
        """The names of sender and receiver."""
        if self.between_parties:
            return Role.PARTY.named(party), "other parties"
        if self.sender is Role.PARTY:
            return Role.PARTY.named(party), self.receiver.named(self.station)
        if self.sender is self.receiver is Role.SERVER:
            return Role.SERVER.named(self.station), "the other server"
        other = party if self.with_party else self.station
        return self.sender.named(self.station), self.receiver.named(other)


@dataclass
class Account:
    """Charged bytes and messages of a link by party id (id 0 if no party is at either end).

    `wire_bytes` is the actual size of the encoded messages. It is less than the charge where
    parties were sent as a block.
    """

    bytes: NDArray[np.int64] = field(default_factory=NOTHING.copy)
    messages: NDArray[np.int64] = field(default_factory=NOTHING.copy)
    wire_bytes: int = 0

    def add(self, ids: NDArray[np.uint32], charge: int, wire_bytes: int) -> None:
        size = int(ids.max()) + 1
        if size > len(self.bytes):
            grown = max(size, 2 * len(self.bytes)) - len(self.bytes)
            self.bytes = np.pad(self.bytes, (0, grown))
            self.messages = np.pad(self.messages, (0, grown))
        np.add.at(self.bytes, ids, charge)
        np.add.at(self.messages, ids, 1)
        self.wire_bytes += wire_bytes

    def __add__(self, other: "Account") -> "Account":
        size = max(len(self.bytes), len(other.bytes))
        return Account(
            _padded(self.bytes, size) + _padded(other.bytes, size),
            _padded(self.messages, size) + _padded(other.messages, size),
            self.wire_bytes + other.wire_bytes,
        )

    def sealed(self) -> "Account":
        """The account of the same messages if each is sealed by itself."""
        sealing = SEALING_BYTES * self.messages
        return Account(self.bytes + sealing, self.messages, self.wire_bytes + int(sealing.sum()))


def _padded(values: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    return np.pad(values, (0, size - len(values)))


class Meter:
    """One participant's accounts of one run.

    Messages between parties are entered by sender where they are sent, and by receiver where they
    are received.
    """

    def __init__(self) -> None:
        self.accounts: dict[tuple[Direction, Link], Account] = {}

    def record(self, direction: Direction, message: Message) -> None:
        if message.between_parties:
            ids = message.senders if direction is Direction.SENT else message.receivers
            station = 0
        elif message.sender_role is Role.PARTY:
            ids, station = message.senders, int(message.receivers[0])
        elif message.receiver_role is Role.PARTY:
            ids, station = message.receivers, int(message.senders[0])
        elif message.between_servers:
            ids, station = np.zeros(1, dtype=np.uint32), int(message.senders[0])
        else:
            ids = np.zeros(1, dtype=np.uint32)
            station = max(int(message.senders[0]), int(message.receivers[0]))
        link = Link(
            message.phase, message.round, message.sender_role, message.receiver_role, station
        )
        account = self.accounts.setdefault((direction, link), Account())
        account.add(ids, message.charge, message.wire_bytes)

    def submitted(self, parties: int) -> NDArray[np.bool_]:
        """Which of the first `parties` parties have submitted here."""
        submitted = np.zeros(parties, dtype=bool)
        for (direction, link), account in self.accounts.items():
            if direction is Direction.RECEIVED and link.phase is Phase.SUBMIT:
                sent = account.messages[:parties] > 0
                submitted[: len(sent)] |= sent
        return submitted

    def between_parties(self) -> "Meter":
        """The accounts of messages between parties."""
        part = Meter()
        for (direction, link), account in self.accounts.items():
            if link.between_parties:
                part.accounts[direction, link] = account
        return part


def relayed(meter: Meter) -> Meter:
    """What the coordinator would have metered if it had relayed a host's messages between parties.

    A relayed message travels twice, sealed: from its sender to the coordinator, and on to its
    receiver. If the hosts at both ends hand in their accounts, these add up to both legs.
    """
    legs = Meter()
    for (direction, link), account in meter.between_parties().accounts.items():
        if direction is Direction.SENT:
            leg = (Direction.RECEIVED, replace(link, receiver=Role.COORDINATOR))
        else:
            leg = (Direction.SENT, replace(link, sender=Role.COORDINATOR))
        legs.accounts[leg] = account.sealed()
    return legs


@dataclass(frozen=True)
class Tally:
    bytes: int = 0
    messages: int = 0

    def with_account(self, account: Account) -> "Tally":
        """Counts a link more."""
        sent, messages = int(account.bytes.sum()), int(account.messages.sum())
        return Tally(self.bytes + sent, self.messages + messages)

    def as_json(self) -> dict[str, int]:
        return {"bytes": self.bytes, "messages": self.messages}


class Bill:
    """Counts every message of a run once: what the stations sent, what they received from parties,
    and what parties sent each other.

    `meters` are the meters of the stations, and from party hosts those of messages
    `between_parties` (or the same `relayed`). Several accounts of one link are added up.
    """

    def __init__(self, meters: Iterable[Meter], parties: int) -> None:
        self.parties = parties
        self.accounts: dict[Link, Account] = {}
        self._heard_from_parties: dict[Link, Account] = {}
        for meter in meters:
            for (direction, link), account in meter.accounts.items():
                if direction is Direction.SENT or link.sender is Role.PARTY:
                    heard = direction is Direction.RECEIVED and link.receiver is Role.PARTY
                    _enter(self._heard_from_parties if heard else self.accounts, link, account)

    @classmethod
    def in_sequence(cls, bills: "Sequence[Bill]") -> "Bill":
        """One bill for consecutive runs: the rounds of each come after those of the one before."""
        whole = cls([], max(bill.parties for bill in bills))
        before = 0
        for bill in bills:
            first = min((link.round for link in bill.accounts), default=1)
            for link, account in bill.accounts.items():
                later = replace(link, round=link.round - first + 1 + before)
                _enter(whole.accounts, later, account)
            for link, account in bill._heard_from_parties.items():
                later = replace(link, round=link.round - first + 1 + before)
                _enter(whole._heard_from_parties, later, account)
            before += bill.rounds
        return whole

    @property
    def total(self) -> Tally:
        whole = Tally()
        for account in self.accounts.values():
            whole = whole.with_account(account)
        return whole

    @property
    def wire_bytes(self) -> int:
        return sum(account.wire_bytes for account in self.accounts.values())

    @property
    def rounds(self) -> int:
        """Rounds from the first message to the last. A question about a stored tree does not start
        at round 1."""
        rounds = list(map(attrgetter("round"), self.accounts))
        return max(rounds) - min(rounds) + 1 if rounds else 0

    def party_bytes(self) -> NDArray[np.int64]:
        """Bytes sent and received by each party."""
        total = np.zeros(self.parties, dtype=np.int64)
        for link, account in (*self.accounts.items(), *self._heard_from_parties.items()):
            if link.with_party:
                charged = account.bytes[: self.parties]
                total[: len(charged)] += charged
        return total

    def by_phase(self) -> dict[str, Tally]:
        return self._grouped(attrgetter("phase.label"))

    def by_link(self) -> dict[str, Tally]:
        return self._grouped(attrgetter("label"))

    def as_json(self) -> dict[str, object]:
        """The `communication` object of a result."""
        party = self.party_bytes()
        return {
            "total_bytes": self.total.bytes,
            "messages": self.total.messages,
            "rounds": self.rounds,
            "party_bytes": {"mean": float(party.mean()), "max": int(party.max())},
            "phases": {name: tally.as_json() for name, tally in self.by_phase().items()},
            "links": {name: tally.as_json() for name, tally in self.by_link().items()},
        }

    def rows(self) -> Iterable[tuple[str, int, str, str, int, int]]:
        """(phase, round, sender, receiver, bytes, messages): one row for every pair of participants
        that exchanged messages, and one for each party that sent messages to other parties."""
        for link in sorted(self.accounts):
            account = self.accounts[link]
            for party in np.flatnonzero(account.messages).tolist():
                yield (
                    link.phase.label,
                    link.round,
                    *link.ends(party),
                    int(account.bytes[party]),
                    int(account.messages[party]),
                )

    def rows_of_roles(self) -> Iterable[tuple[str, int, str, str, int, int]]:
        """Like `rows`, but with all parties in one row."""
        for link in sorted(self.accounts):
            account = self.accounts[link]
            if not (spoke := np.flatnonzero(account.messages)).size:
                continue
            everyone = f"{len(spoke)} parties"
            party = Role.PARTY.named(int(spoke[0]))
            sender, receiver = (everyone if end == party else end for end in link.ends(spoke[0]))
            total = Tally().with_account(account)
            yield link.phase.label, link.round, sender, receiver, total.bytes, total.messages

    def _grouped(self, name_of: Callable[[Link], str]) -> dict[str, Tally]:
        groups: dict[str, Tally] = {}
        for link in sorted(self.accounts):
            name = name_of(link)
            groups[name] = groups.get(name, Tally()).with_account(self.accounts[link])
        return groups


def _enter(accounts: dict[Link, Account], link: Link, account: Account) -> None:
    """Adds to the link's account: several hosts may have been at one end of it."""
    accounts[link] = accounts[link] + account if link in accounts else account
