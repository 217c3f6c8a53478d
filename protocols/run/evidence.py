"""What an answer is made of: the query, the servers' shares and receipts, to be checked by anybody.

A coordinator hands it on with its answer. The analyst's side adds the shares up for itself and
holds the receipts against its question, so that a coordinator that lied to somebody, or lies about
the total, is found out (`check`, `total`).
"""

from dataclasses import dataclass, field, replace
from operator import attrgetter

import numpy as np

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.collector import Collector
from tallyroom.protocols.aggregation.contract import Ids
from tallyroom.protocols.aggregation.rosters import members_of, points_body
from tallyroom.protocols.aggregation.stream import HEAD, MOST_SHARES
from tallyroom.protocols.algebra.ring import Vector, add_shares, signed
from tallyroom.protocols.errors import LocalError, PeerError, TallyError
from tallyroom.protocols.plans.contract import Points
from tallyroom.protocols.plans.stream import Stream
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.query import Query, decode_query
from tallyroom.protocols.randomness import KEY_BYTES, Randomness
from tallyroom.protocols.run.machines import collector_machine
from tallyroom.protocols.run.receipts import decode_receipt, request_digest, share_digest
from tallyroom.protocols.wire.messages import Role

MAX_ANSWERS = MOST_SHARES
"""Shares of one answer: of all servers, for all points that were asked one after another."""

COORDINATOR = Role.COORDINATOR.label


@dataclass(frozen=True)
class Answered:
    """A server's share of one opening, with its receipt and the certificate that goes with it.

    The share is empty where only the coordinator can open it.
    """

    server: int
    share: bytes = field(repr=False)
    receipt: bytes
    certificate: bytes = b""


@dataclass(frozen=True)
class Opening:
    """What servers answered together: to the release, or to `ask`, points asked after it."""

    answers: tuple[Answered, ...] = ()
    ask: bytes = b""


@dataclass(frozen=True)
class Evidence:
    """`release` is what servers were told to release over: the parties, and of pairs which."""

    run: bytes
    query: bytes
    release: bytes = b""
    openings: tuple[Opening, ...] = ()

    # --- how it comes about ---

    def released(self, release: bytes) -> "Evidence":
        """Servers were told to release over these parties."""
        return replace(self, release=release, openings=(Opening(),))

    def asked(self, ask: bytes) -> "Evidence":
        """Servers were asked at these points; a release that was not answered by itself is none."""
        if self.openings and self.openings[-1] == Opening((), ask):
            return self  # the same, to the next server
        kept = tuple(opening for opening in self.openings if opening.answers)
        return replace(self, openings=(*kept, Opening((), ask)))

    def answered(self, answer: Answered) -> "Evidence":
        """A server's share; further parts of one that came in several say nothing new."""
        if not self.openings:
            return self
        *others, last = self.openings
        if answer.server in map(attrgetter("server"), last.answers):
            return self
        grown = replace(last, answers=(*last.answers, answer))
        return replace(self, openings=(*others, grown))

    def is_stale(self, request: bytes) -> bool:
        """Whether a receipt's request is of other points than were asked last. A run has one
        release, but a stored tree is asked many times, and a server that was restarted says again
        all that it said."""
        ask = self.openings[-1].ask if self.openings else b""
        return bool(ask) and request != request_digest(self.release, ask)

    @property
    def asked_query(self) -> Query:
        """The query that was answered."""
        return decode_query(self.run, self.query, COORDINATOR)

    # --- how it is checked ---

    def check(self, authority: bytes) -> Query:
        """The query that all servers say they answered, over the same parties and for its ε and δ.

        Raises `PeerError`, which names who is to be believed no more.
        """
        query = self.asked_query
        try:
            spend = aggregator_named(query.aggregator).mechanism(query).spend
            collector = _collector(query)
        except LocalError as error:
            raise PeerError(COORDINATOR, str(error)) from None
        if len(self.openings) * query.servers > MAX_ANSWERS or not self.openings:
            raise PeerError(COORDINATOR, f"an answer in {len(self.openings)} openings")
        servers = set(map(attrgetter("server"), self.openings[0].answers))
        for opening in self.openings:
            for answer in opening.answers:
                self._check_answer(query, opening, answer, authority, spend.loss)
            here = set(map(attrgetter("server"), opening.answers))
            if len(here) < len(opening.answers) or here != servers:
                raise PeerError(COORDINATOR, "its shares are not one of each server")
        if len(servers) < collector.needed:
            reason = f"receipts of {len(servers)} servers, where {collector.needed} are needed"
            raise PeerError(COORDINATOR, reason)
        return query

    def _check_answer(
        self,
        query: Query,
        opening: Opening,
        answer: Answered,
        authority: bytes,
        cost: PrivacyLoss,
    ) -> None:
        receipt = decode_receipt(self.run, answer.server, answer.receipt)
        name = Role.SERVER.named(answer.server)
        receipt.check_signature(answer.certificate, authority)
        if answer.server >= query.servers:
            raise PeerError(name, f"it is not among the query's {query.servers} servers")
        if receipt.request != request_digest(self.release, opening.ask):
            raise PeerError(name, "it released over other parties, or at other points")
        if answer.share and receipt.share != share_digest([answer.share]):
            raise PeerError(name, "its share is not the one that it signed")
        if receipt.loss != cost:
            raise PeerError(name, f"it charged {receipt.loss}, where the query costs {cost}")

    def check_contributors(self, query: Query, contributors: Ids, records: int) -> None:
        """That the servers released over these parties, which can hold so many records.

        Raises `PeerError`. Of pairs, and where reports are counted, `records` are those: there are
        no more than can be.
        """
        members = np.zeros(query.parties, dtype=bool)
        if len(contributors) and int(contributors.max()) >= query.parties:
            raise PeerError(COORDINATOR, f"contributors that are none of {query.parties} parties")
        members[contributors] = True
        bitmap = np.packbits(members).tobytes()
        streamed = isinstance(query.plan, Stream)
        if (self._in_stream(query) if streamed else self.release[: len(bitmap)]) != bitmap:
            raise PeerError(COORDINATOR, "it names other contributors than the servers")
        beyond = self.release[len(bitmap) :]
        pairs = query.plan.pairs
        counted = None if pairs is None else pairs.counted(beyond)
        if beyond and counted is None:
            raise PeerError(COORDINATOR, "a release over more than parties")
        if counted is not None:
            least = most = counted
        else:
            absent = query.parties - len(contributors)
            most = query.records - absent
            least = max(len(contributors), query.records - absent * query.max_records_per_party)
            if not _collector(query).public:  # it counts reports: of those that could be used
                least, most = 1, len(contributors) * query.max_records_per_party
        if not least <= records <= most:
            raise PeerError(
                COORDINATOR, f"{records} records in the sum, where it can have {least} to {most}"
            )

    def _in_stream(self, query: Query) -> bytes:
        """The parties that are in some batch of a stream. Raises `PeerError` unless its batches
        were asked for one after another, each over some parties."""
        assert isinstance(query.plan, Stream)
        everybody = np.zeros(query.parties, dtype=bool)
        for batch, opening in enumerate(self.openings):
            members = members_of(np.frombuffer(opening.ask[HEAD:], np.uint8), query.parties)
            if opening.ask[:HEAD] != batch.to_bytes(HEAD, "little") or members is None:
                raise PeerError(COORDINATOR, "it asked for other batches than the stream has")
            everybody |= members
        if len(self.openings) != query.plan.batches:
            raise PeerError(COORDINATOR, "it asked for fewer batches than the stream has")
        return np.packbits(everybody).tobytes()

    def _streamed(self, query: Query) -> Vector:
        """What the shares of all batches add up to."""
        assert isinstance(query.plan, Stream)
        self._in_stream(query)
        opened = []
        for batch, opening in enumerate(self.openings):
            head = batch.to_bytes(HEAD, "little")
            width = 8 * query.plan.released_at(batch, query.noise_law is None)
            for answer in opening.answers:
                if answer.share[:HEAD] != head or len(answer.share) != HEAD + width:
                    raise PeerError(Role.SERVER.named(answer.server), f"no share of batch {batch}")
            shares = [np.frombuffer(each.share[HEAD:], dtype="<u8") for each in opening.answers]
            opened.append(add_shares(shares))
        return query.plan.in_order(opened)

    def total(self, query: Query, points: Points | None, records: int) -> Vector | None:
        """The sum that the shares add up to; None where only the coordinator can open them.

        Points that were asked one after another must be those that `points` asks for, a plan
        like the query's with a search of its own. Raises `PeerError`.
        """
        if isinstance(query.plan, Stream):
            return self._streamed(query)
        collector = _collector(query)
        if points is None and len(self.openings) > 1:
            raise PeerError(COORDINATOR, "more than one release of a run")
        if not collector.public:
            return None
        known: dict[int, float] = {}
        opened: list[Vector] = []
        for opening in self.openings:
            asked = [] if points is None else points.next(known)
            if opening.ask != points_body(asked):
                raise PeerError(COORDINATOR, "it asked for other points than the statistic needs")
            width = 8 * len(asked) if asked else collector.share_bytes
            shares = {}
            for answer in opening.answers:
                share = np.frombuffer(answer.share, dtype=np.uint8)
                if share.size != width:
                    name = Role.SERVER.named(answer.server)
                    raise PeerError(name, f"a share of {share.size} bytes, not {width}")
                shares[answer.server] = share
            try:
                counts = collector.open(shares)
            except (ValueError, LookupError, ArithmeticError, TallyError):
                raise PeerError(COORDINATOR, "the servers' shares do not open") from None
            opened.append(counts)
            known |= dict(zip(asked, (signed(counts) / records).tolist(), strict=False))
        if not opened or (points is not None and points.next(known)):
            raise PeerError(COORDINATOR, "it asked for fewer points than the statistic needs")
        return np.concatenate(opened)


def _collector(query: Query) -> Collector:
    """The coordinator's machine, for what anybody can do with shares."""
    machine = collector_machine(
        query, np.ones(query.parties, dtype=np.int64), Randomness(bytes(KEY_BYTES))
    )
    if not isinstance(machine, Collector):
        raise LocalError(
            f"{query.aggregator} has a collector of its own: its shares cannot be checked"
        )
    return machine
