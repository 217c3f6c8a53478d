"""The server of a masked sum: relays messages, collects masked vectors, and unmasks their sum."""

from enum import IntEnum, auto

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.contract import Bulk
from tallyroom.protocols.aggregation.masking.graph import MaskingGraph, Members, given
from tallyroom.protocols.aggregation.masking.keys import (
    CONFIRMATION_BYTES,
    KEYS_BYTES,
    PUBLIC_BYTES,
    SEALED_BYTES,
    SIGNED_KEYS_BYTES,
    keys_statement,
    low_order,
)
from tallyroom.protocols.aggregation.masking.removal import KeyMismatch, held_shares, remove_masks
from tallyroom.protocols.aggregation.one_round import ServerState, SummingServer, out_of_turn
from tallyroom.protocols.aggregation.rosters import Fault, parse_members, roster
from tallyroom.protocols.algebra.field import FIELD128
from tallyroom.protocols.algebra.ring import Vector, add_rows
from tallyroom.protocols.algebra.sharing import ELEMENT_BYTES
from tallyroom.protocols.identity.vouchers import Vouchers
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.wire.machine import Continue, Failed, Rejected, Step
from tallyroom.protocols.wire.messages import Message, Phase, Role, address


class Stage(IntEnum):
    """What the server waits for: a message from every party still in the run, then the release."""

    KEYS = auto()
    DEAL = auto()
    SUBMIT = auto()
    CHECK = auto()
    UNMASK = auto()
    OPEN = auto()

    @property
    def phase(self) -> Phase:
        return Phase[self.name]


_WAITS = tuple(stage for stage in Stage if stage is not Stage.OPEN)

STAGE_ACCEPTS: dict[tuple[Stage, Phase], Role] = {
    **{(now, past.phase): Role.PARTY for now in Stage for past in _WAITS if past <= now},
    **{(now, Phase.EXCUSE): Role.COORDINATOR for now in Stage},
    (Stage.OPEN, Phase.RELEASE): Role.COORDINATOR,
}
"""Which messages the server accepts at which stage, and from whom. Messages of a past stage are
accepted only if they repeat an earlier one. An excuse may cross the roster on its way, and then
changes nothing."""


_DONE = {
    Stage.KEYS: "sent keys",
    Stage.DEAL: "dealt shares",
    Stage.SUBMIT: "submitted",
    Stage.CHECK: "confirmed who submitted",
    Stage.UNMASK: "gave shares",
}


class CannotFinish(Exception):  # noqa: N818 - it names an outcome, and never leaves this module
    """Why the run cannot finish."""


class MaskingServer(SummingServer):
    """Sees masked vectors, who is there at which stage, and the exact sum over those who submitted.

    Once the masks are removed, it acts as the closed server of a one-round sum: it sends the
    roster, and releases the sum over exactly those parties once, with its noise.
    """

    def __init__(
        self,
        graph: MaskingGraph,
        query: Query,
        index: int,
        randomness: Randomness,
        bulk: Bulk,
        vouchers: Vouchers,
    ) -> None:
        super().__init__(query, index, randomness, bulk)
        self._graph = graph
        self._vouchers = vouchers
        self._stage = Stage.KEYS
        self._widths = {
            Phase.KEYS: SIGNED_KEYS_BYTES,
            Phase.DEAL: SEALED_BYTES * graph.degree,
            Phase.SUBMIT: 8 * query.submitted,
            Phase.CHECK: CONFIRMATION_BYTES * graph.degree,
            Phase.UNMASK: ELEMENT_BYTES * graph.holders,
        }
        nobody = np.zeros(query.parties, dtype=bool)
        self._heard = {phase: nobody.copy() for phase in self._widths}
        self._seen = {phase: np.zeros(query.parties, dtype=np.uint64) for phase in self._widths}
        self._said: dict[Phase, NDArray[np.uint8]] = {
            phase: np.zeros((query.parties, width), dtype=np.uint8)
            for phase, width in self._widths.items()
            if phase is not Phase.SUBMIT
        }
        self._keys: set[bytes] = set()
        self._expected = ~nobody
        self._dealt = nobody
        self._sum: Vector | None = None

    @property
    def stage(self) -> Stage:
        return self._stage

    def receive(self, message: Message) -> Step:
        expected = STAGE_ACCEPTS.get((self._stage, message.phase))
        if (refusal := out_of_turn(message, expected, self._stage.name)) is not None:
            return refusal
        match message.phase:
            case Phase.EXCUSE:
                return self._excuse(message)
            case Phase.RELEASE:
                return self._release(message)
            case _:
                return self._hear(message)

    def expire(self) -> Step:
        if self._stage is Stage.OPEN:
            return Continue()
        self._awaited &= self._heard[self._stage.phase]
        return self._close_when_complete()

    def _hear(self, message: Message) -> Step:
        ids, phase = message.senders, message.phase
        if int(ids.max()) >= self._query.parties:
            return Rejected(message.sender, f"there are only {self._query.parties} parties")
        prints = self._fingerprints(message)
        repeated = self._heard[phase][ids]
        if len(np.unique(ids)) != len(ids) or (prints != self._seen[phase][ids])[repeated].any():
            return self._refuse(message, Fault.CONTRADICTORY, f"a second {phase.label}")
        if repeated.all():
            return Continue(repeated=True)
        if repeated.any():
            return Rejected(message.sender, f"some of these sent {phase.label} before")
        if phase is not self._stage.phase or not self._expected[ids].all():
            return Rejected(message.sender, f"{phase.label} is too late")
        if (wrong := self.check(message)) is not None:
            return self._refuse(message, Fault.MALFORMED, wrong)
        if phase is Phase.SUBMIT:
            self._bulk.append(ids, self.pack(message))
        else:
            self._said[phase][ids] = message.rows()
        if phase is Phase.KEYS:
            self._keys |= set(_keys_in(message))
        self._heard[phase][ids] = True
        self._seen[phase][ids] = prints
        return self._close_when_complete()

    def check(self, message: Message) -> str | None:
        width = self._widths[message.phase]
        if message.width != width:
            return f"{message.phase.label} of {message.width} bytes, expected {width}"
        match message.phase:
            case Phase.KEYS:
                return self._check_keys(message)
            case Phase.DEAL:
                shape = (message.links, self._graph.degree, SEALED_BYTES)
                sealed = given(message.rows().reshape(shape))
                if (sealed != self._expected[self._graph.neighbours[message.senders]]).any():
                    return "shares must go to every neighbour that sent keys, and to nobody else"
            case Phase.UNMASK:
                if not FIELD128.canonical(FIELD128.unchecked(message.rows())).all():
                    return "a share is not an element of the field"
        return None

    def _check_keys(self, message: Message) -> str | None:
        keys = _keys_in(message)
        if any(low_order(key) for key in keys):
            return "nothing can be agreed with a public key of low order"
        if len(self._keys | set(keys)) < len(self._keys) + len(keys):
            return "a public key that is already in use"
        for party, row in zip(message.senders.tolist(), message.rows(), strict=True):
            signed = row.tobytes()
            statement = keys_statement(self._query.run, party, signed[:KEYS_BYTES])
            fault = self._vouchers.fault(party, statement, signed[KEYS_BYTES:])
            if fault is not None:  # its neighbours would refuse all keys they are sent with it
                return f"keys that are not its own: {fault}"
        return None

    def pack(self, message: Message) -> NDArray[np.uint8]:
        return message.rows().reshape(-1)

    def _excuse(self, message: Message) -> Step:
        excused = parse_members(message, self._query.parties)
        if isinstance(excused, Rejected):
            return excused
        self._awaited &= ~excused
        return self._close_when_complete()

    def _close_when_complete(self) -> Step:
        """Ends stages until there is a party to wait for."""
        messages: tuple[Message, ...] = ()
        before = self._stage
        while self._stage is not Stage.OPEN:
            answered = self._heard[self._stage.phase]
            if (self._expected & self._awaited & ~answered).any():
                break
            try:
                messages += self._end_stage(answered)
            except CannotFinish as error:
                return Failed(str(error))
        if self._stage is before:
            return Continue()
        return Continue(messages, deadline=self._query.deadline)

    def _end_stage(self, answered: Members) -> tuple[Message, ...]:
        """Ends a stage and returns what starts the next. Raises `CannotFinish`."""
        match self._stage:
            case Stage.KEYS | Stage.DEAL:
                stay = self._graph.survivors(answered)
                if not stay.any():
                    self._require_holders(answered, self._graph.holders_among(answered))
                self._require_minimum(stay, answered)
                self._dealt = stay
                return self._relay(self._stage.phase, stay)
            case Stage.SUBMIT:
                self._require_minimum(answered, answered)
                self._present = answered
                phase = Phase.CHECK
            case Stage.CHECK:
                phase = Phase.UNMASK
            case _:
                return self._remove_masks(answered)
        left = self._graph.holders_among(answered)
        self._require_holders(answered, left[self._needed])
        return self._relay(phase, answered)

    def _relay(self, phase: Phase, members: Members) -> tuple[Message, ...]:
        """Tells the members what they need for the next stage; only they take part in it."""
        ids = np.flatnonzero(members).astype(np.uint32)
        if phase is Phase.CHECK:
            body = np.packbits(self._present).reshape(1, -1)
        elif phase is Phase.KEYS:
            keys = np.where(members[:, None], self._said[phase], np.uint8(0))
            body = keys[self._graph.neighbours[ids]].reshape(len(ids), -1)
        else:
            said = self._said[Phase.CHECK if phase is Phase.UNMASK else phase]
            body = self._graph.relayed(np.where(members[:, None], said, np.uint8(0)))[ids]
        self._expected = members
        self._stage = Stage(self._stage + 1)
        return (
            Message(
                self._query.run, phase, Role.SERVER, Role.PARTY, address(self._index), ids, body
            ),
        )

    @property
    def _needed(self) -> Members:
        """Whose secrets are opened: of all who submitted, and of those who dealt shares to one of
        them but did not submit."""
        joined = self._present[self._graph.neighbours].any(axis=1)
        return self._present | (self._dealt & joined)

    def _remove_masks(self, answered: Members) -> tuple[Message, ...]:
        """Opens the sum and returns the roster. Raises `CannotFinish` if it cannot be opened."""
        said = np.where(answered[:, None], self._said[Phase.UNMASK], np.uint8(0))
        held = held_shares(self._graph, said)
        self._require_holders(answered, held[1].sum(axis=1)[self._needed])
        masked = np.zeros(self._query.submitted, dtype=np.uint64)
        for ids, block in self._bulk.blocks():
            masked += add_rows(block.reshape(len(ids), -1))
        try:
            self._sum = masked - remove_masks(
                self._graph,
                self._query.run,
                self._present,
                np.flatnonzero(self._needed),
                held,
                self._said[Phase.KEYS][:, PUBLIC_BYTES:KEYS_BYTES],
                len(masked),
            )
        except KeyMismatch as mismatch:
            raise CannotFinish(str(mismatch)) from None
        self._stage = Stage.OPEN
        self._state = ServerState.CLOSED
        return (self._to_coordinator(Phase.ROSTER, roster(self._present, self._faults)),)

    def _require_minimum(self, members: Members, answered: Members) -> None:
        if np.count_nonzero(members) < self._query.min_parties:
            raise CannotFinish(
                f"{self._who_answered(answered)} and {self._query.min_parties} are needed; "
                f"missing: {_names(~answered)}"
            )

    def _require_holders(self, answered: Members, counts: NDArray[np.integer]) -> None:
        """Raises `CannotFinish` if a secret has too few holders; `counts` has those of each."""
        fewest, graph = int(counts.min()), self._graph
        if fewest < graph.threshold:
            raise CannotFinish(
                f"{self._who_answered(answered)}, which leaves {fewest} of {graph.holders} holders "
                f"of a secret where {graph.threshold} are needed; missing: {_names(~answered)}"
            )

    def _who_answered(self, answered: Members) -> str:
        count, parties = np.count_nonzero(answered), self._query.parties
        return f"only {count} of {parties} parties {_DONE[self._stage]}"

    def releasable(self, message: Message) -> Members | Rejected:
        members = super().releasable(message)
        if isinstance(members, Rejected):
            return members
        if self._sum is None or (members != self._present).any():
            return Rejected(message.sender, "the sum over those parties is still masked")
        return members

    def sum_over(self, members: Members) -> Vector:
        assert self._sum is not None, "`releasable` has checked it"
        return self._sum


def _keys_in(message: Message) -> list[bytes]:
    keys = message.rows()[:, :KEYS_BYTES].reshape(2 * message.links, PUBLIC_BYTES)
    return [key.tobytes() for key in keys]


def _names(members: Members, limit: int = 5) -> str:
    ids = np.flatnonzero(members).tolist()
    names = ", ".join(Role.PARTY.named(party) for party in ids[:limit])
    return f"{names} and {len(ids) - limit} more" if len(ids) > limit else names or "nobody"
