"""A block of parties in a masked sum (Bonawitz et al., CCS 2017).

A party masks its vector with a mask of its own and one for each neighbour, and deals shares of the
secrets that remove them. When it is told who submitted, it helps to remove either a neighbour's own
mask or a neighbour's pair masks, never both: both together would reveal that neighbour's vector.
"""

import hashlib
from enum import IntEnum, auto
from hmac import compare_digest

import numpy as np
from numpy.typing import NDArray

from tallyroom.fss.prg import expand_seeds, expand_seeds_sum
from tallyroom.protocols.aggregation.contract import Bodies
from tallyroom.protocols.aggregation.masking.graph import MaskingGraph, given
from tallyroom.protocols.aggregation.masking.keys import (
    CONFIRMATION_BYTES,
    KEYS_BYTES,
    PUBLIC_BYTES,
    SEALED_BYTES,
    SECRETS_BYTES,
    SEED_BYTES,
    SIGNED_KEYS_BYTES,
    Agreements,
    KeyPair,
    channel_keys,
    confirm,
    keys_statement,
    mask_seed,
    seal,
    unseal,
)
from tallyroom.protocols.aggregation.rosters import submitted_vectors
from tallyroom.protocols.algebra.field import FIELD128
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.algebra.sharing import deal, draw_elements
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.identity.vouchers import PartySigner
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.wire.machine import Continue, Done, Rejected, Step
from tallyroom.protocols.wire.messages import Message, Phase, Role, address

Rows = NDArray[np.intp]


class PartyState(IntEnum):
    """What a party waits for from the server."""

    KEYS = auto()  # its neighbours' public keys
    DEAL = auto()  # its neighbours' sealed shares
    CHECK = auto()  # who submitted
    UNMASK = auto()  # its neighbours' confirmations
    OVER = auto()


PARTY_ACCEPTS: dict[tuple[PartyState, Phase], Role] = {
    (PartyState.KEYS, Phase.KEYS): Role.SERVER,
    (PartyState.DEAL, Phase.DEAL): Role.SERVER,
    (PartyState.CHECK, Phase.CHECK): Role.SERVER,
    (PartyState.UNMASK, Phase.UNMASK): Role.SERVER,
}
"""Which messages a party accepts in which state. Repeated messages are ignored silently."""

ANSWERS = {
    Phase.KEYS: Phase.DEAL,
    Phase.DEAL: Phase.SUBMIT,
    Phase.CHECK: Phase.CHECK,
    Phase.UNMASK: Phase.UNMASK,
}


class Refusal(Exception):  # noqa: N818 - it never leaves this module
    """Why a message of the server is refused."""


class MaskingParty:
    """Sees its own vector, its neighbours' public keys and one share of each of their secrets."""

    def __init__(
        self,
        graph: MaskingGraph,
        query: Query,
        holdings: Holdings,
        randomness: Randomness,
        signer: PartySigner,
    ) -> None:
        if int(holdings.ids.max()) >= query.parties:
            raise LocalError(f"there are only {query.parties} parties")
        self._graph = graph
        self._query = query
        self._signer = signer
        self._ids = holdings.ids
        self._vectors = submitted_vectors(query, holdings, randomness)
        self._row_of = {int(party): row for row, party in enumerate(holdings.ids)}
        self._neighbours = graph.neighbours[holdings.ids]
        self._states = np.full(len(holdings.ids), PartyState.KEYS)
        self._told: dict[tuple[Phase, int], bytes] = {}
        count, degree = self._neighbours.shape
        drawn = draw_elements(randomness, "masking secrets", self._ids, 2 * graph.threshold)
        self._terms = drawn.reshape(count, 2, graph.threshold, FIELD128.limbs)
        secrets = FIELD128.encode(self._terms[:, :, 0]).reshape(count, 2, SEED_BYTES)
        self._own_seeds = secrets[:, 0]
        self._mask_pairs = [KeyPair.for_masks(seed.tobytes()) for seed in secrets[:, 1]]
        channels = randomness.rows("masking channel", self._ids, 32)
        self._channel_pairs = [KeyPair(private.tobytes()) for private in channels]
        self._agreements = Agreements()
        self._seal_keys: list[dict[int, bytes]] = [{} for _ in range(count)]
        self._confirm_keys: list[dict[int, bytes]] = [{} for _ in range(count)]
        self._mask_seeds = np.zeros((count, degree, SEED_BYTES), dtype=np.uint8)
        self._own_shares = np.zeros((count, 2, SEED_BYTES), dtype=np.uint8)
        self._shares = np.zeros((count, degree, 2, SEED_BYTES), dtype=np.uint8)
        self._dealt = np.zeros((count, degree), dtype=bool)
        self._submitted = np.zeros((count, degree), dtype=bool)
        self._members: dict[int, bytes] = {}

    def __repr__(self) -> str:
        return f"<MaskingParty of {len(self._ids)}>"

    @property
    def states(self) -> list[PartyState]:
        return [PartyState(int(state)) for state in self._states]

    def start(self) -> Step:
        keys = []
        pairs = zip(self._ids.tolist(), self._channel_pairs, self._mask_pairs, strict=True)
        for party, channel, mask in pairs:
            public = channel.public + mask.public
            proof = self._signer.prove(keys_statement(self._query.run, party, public))
            keys.append(public + proof)
        body = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), -1)
        return Continue((self._to_server(Phase.KEYS, np.arange(len(keys)), body),))

    def receive(self, message: Message) -> Step:
        if message.sender_role is not Role.SERVER or message.phase not in ANSWERS:
            return Rejected(message.sender, f"a party expects no {message.phase.label} from there")
        if message.senders.tolist() != [0]:
            return Rejected(message.sender, "there is one server")
        parties = message.receivers.tolist()
        if len(set(parties)) < len(parties) or not self._row_of.keys() >= set(parties):
            return Rejected(message.sender, f"{message.receiver} is not here")
        said = [hashlib.blake2s(row.tobytes()).digest() for row in message.body]
        said = said * len(parties) if len(said) == 1 else said
        before = [self._told.get((message.phase, party)) for party in parties]
        if before == said:
            return Continue()
        if any(before):
            return Rejected(message.sender, f"a second, different {message.phase.label}")
        rows = np.array([self._row_of[party] for party in parties], dtype=np.intp)
        if (self._states[rows] != PartyState[message.phase.name]).any():
            return Rejected(message.sender, f"{message.phase.label} is out of turn")
        try:
            answer = self._answer(message, rows)
        except Refusal as refusal:
            return Rejected(message.sender, str(refusal))
        self._states[rows] += 1
        self._told |= {
            (message.phase, party): digest for party, digest in zip(parties, said, strict=True)
        }
        messages = (self._to_server(ANSWERS[message.phase], rows, answer),)
        over = (self._states == PartyState.OVER).all()
        return Done(messages=messages) if over else Continue(messages)

    def expire(self) -> Step:
        """Nothing: the server waits for parties, not the other way round."""
        return Continue()

    def _answer(self, message: Message, rows: Rows) -> Bodies:
        """The answer to a message. Raises `Refusal`, and then no state has changed."""
        match message.phase:
            case Phase.KEYS:
                return self._take_keys(rows, self._fields(message, SIGNED_KEYS_BYTES))
            case Phase.DEAL:
                return self._take_shares(rows, self._fields(message, SEALED_BYTES))
            case Phase.CHECK:
                return self._take_members(rows, message)
            case _:
                return self._take_confirmations(rows, self._fields(message, CONFIRMATION_BYTES))

    def _require_signed(self, rows: Rows, keys: Bodies) -> None:
        """Raises `Refusal` unless these are the neighbours' own keys. Each key is checked once,
        even if several parties of this block are its neighbours."""
        seen = {
            (int(self._neighbours[row, slot]), keys[i, slot].tobytes())
            for i, row in enumerate(rows)
            for slot in np.flatnonzero(given(keys[i]))
        }
        for party, signed in sorted(seen):
            public, proof = signed[:KEYS_BYTES], signed[KEYS_BYTES:]
            statement = keys_statement(self._query.run, party, public)
            if (fault := self._signer.fault(party, statement, proof)) is not None:
                raise Refusal(f"the keys of party-{party} are not its own: {fault}")

    def _take_keys(self, rows: Rows, keys: Bodies) -> Bodies:
        """Agrees on keys with every neighbour that is there, and deals it a share of both
        secrets."""
        run, degree = self._query.run, self._graph.degree
        there = given(keys)
        self._require_enough(there, "sent keys")
        self._require_signed(rows, keys)
        sealed = np.zeros((len(rows), degree, SEALED_BYTES), dtype=np.uint8)
        mask_seeds = np.zeros((len(rows), degree, SEED_BYTES), dtype=np.uint8)
        own_shares = np.zeros((len(rows), 2, SEED_BYTES), dtype=np.uint8)
        seal_keys: list[dict[int, bytes]] = []
        confirm_keys: list[dict[int, bytes]] = []
        for i, row in enumerate(rows):
            party = int(self._ids[row])
            channel, mask = self._channel_pairs[row], self._mask_pairs[row]
            slots = np.flatnonzero(there[i])
            others = self._neighbours[row, slots]
            dealt = FIELD128.encode(deal(self._terms[row], np.append(others, party)))
            shares = dealt.reshape(2, -1, SEED_BYTES).swapaxes(0, 1)
            own_shares[i] = shares[-1]
            public = [keys[i, slot, :KEYS_BYTES].tobytes() for slot in slots]
            halves = {half for key in public for half in (key[:PUBLIC_BYTES], key[PUBLIC_BYTES:])}
            if len(halves | {channel.public, mask.public}) < 2 * len(public) + 2:
                raise Refusal("the same public key is given twice")
            seals: dict[int, bytes] = {}
            confirms: dict[int, bytes] = {}
            for slot, other, key, pair in zip(slots, others, public, shares, strict=False):
                theirs, their_mask = key[:PUBLIC_BYTES], key[PUBLIC_BYTES:]
                try:
                    secret = self._agreements.secret(channel, theirs)
                    mask_secret = self._agreements.secret(mask, their_mask)
                except ValueError:
                    raise Refusal(f"nothing can be agreed with the key of party-{other}") from None
                seals[int(slot)], confirms[int(slot)] = channel_keys(
                    secret, run, channel.public, theirs
                )
                box = seal(seals[int(slot)], party, int(other), pair.tobytes())
                sealed[i, slot] = np.frombuffer(box, dtype=np.uint8)
                seed = mask_seed(mask_secret, run, mask.public, their_mask)
                mask_seeds[i, slot] = np.frombuffer(seed, dtype=np.uint8)
            seal_keys.append(seals)
            confirm_keys.append(confirms)
        for i, row in enumerate(rows):
            self._seal_keys[row], self._confirm_keys[row] = seal_keys[i], confirm_keys[i]
        self._mask_seeds[rows], self._own_shares[rows] = mask_seeds, own_shares
        return sealed.reshape(len(rows), -1)

    def _take_shares(self, rows: Rows, sealed: Bodies) -> Bodies:
        """Keeps the neighbours' shares and masks the vector.

        If a seal does not open, only the share in it is lost: its dealer's masks are in the sum
        anyway, and other holders can remove them.
        """
        dealt = given(sealed)
        known = given(self._mask_seeds[rows])
        if (dealt & ~known).any():
            raise Refusal("shares from a party that sent no keys")
        self._require_enough(dealt, "dealt shares")
        masked = self._vectors[rows].astype("<u8")
        masked += expand_seeds(self._own_seeds[rows], masked.shape[1])
        for i, row in enumerate(rows):
            party = int(self._ids[row])
            for slot in np.flatnonzero(dealt[i]):
                other = int(self._neighbours[row, slot])
                key = self._seal_keys[row][int(slot)]
                opened = unseal(key, other, party, sealed[i, slot].tobytes())
                if opened is not None and len(opened) == SECRETS_BYTES:
                    pair = np.frombuffer(opened, dtype=np.uint8).reshape(2, SEED_BYTES)
                    self._shares[row, slot] = pair
            masked[i] += self._pair_masks(row, dealt[i], masked.shape[1])
        self._dealt[rows] = dealt
        return masked.view(np.uint8)

    def _pair_masks(self, row: int, dealt: NDArray[np.bool], length: int) -> Vector:
        """The sum of pair masks: added by the party with the lower id, subtracted by the other."""
        lower = self._neighbours[row] > self._ids[row]
        seeds = self._mask_seeds[row]
        added = expand_seeds_sum(seeds[dealt & lower], length)
        masks: Vector = added - expand_seeds_sum(seeds[dealt & ~lower], length)
        return masks

    def _take_members(self, rows: Rows, message: Message) -> Bodies:
        """Confirms to every neighbour that submitted which parties it was told have submitted."""
        parties = self._query.parties
        if message.width != -(-parties // 8):
            raise Refusal(f"not a bitmap of {parties} parties")
        bits = np.unpackbits(message.rows(), axis=1).astype(bool)
        members = bits[:, :parties]
        if bits[:, parties:].any():
            raise Refusal(f"not a bitmap of {parties} parties")
        if (members.sum(axis=1) < self._query.min_parties).any():
            raise Refusal(f"fewer than {self._query.min_parties} parties submitted")
        if not members[np.arange(len(rows)), self._ids[rows]].all():
            raise Refusal("this party is not among those said to have submitted")
        submitted = np.take_along_axis(members, self._neighbours[rows], axis=1)
        if (submitted & ~self._dealt[rows]).any():
            raise Refusal("a party that dealt no shares is said to have submitted")
        self._require_enough(submitted, "submitted")
        confirmed = np.zeros((*submitted.shape, CONFIRMATION_BYTES), dtype=np.uint8)
        for i, (row, said) in enumerate(zip(rows, message.rows(), strict=True)):
            party, body = int(self._ids[row]), said.tobytes()
            for slot in np.flatnonzero(submitted[i]):
                mine = confirm(self._confirm_keys[row][int(slot)], party, body)
                confirmed[i, slot] = np.frombuffer(mine, dtype=np.uint8)
            self._members[int(row)] = body
        self._submitted[rows] = submitted
        return confirmed.reshape(len(rows), -1)

    def _take_confirmations(self, rows: Rows, confirmed: Bodies) -> Bodies:
        """Gives one share for each neighbour, if enough neighbours were told the same."""
        agree = np.zeros(confirmed.shape[:2], dtype=bool)
        for i, row in enumerate(rows):
            body = self._members[int(row)]
            for slot in np.flatnonzero(given(confirmed[i]) & self._submitted[row]):
                other = int(self._neighbours[row, slot])
                theirs = confirm(self._confirm_keys[row][int(slot)], other, body)
                agree[i, slot] = compare_digest(confirmed[i, slot].tobytes(), theirs)
        self._require_enough(agree, "were told of the same submissions")
        kinds = np.where(self._submitted[rows], 0, 1)
        shares = np.take_along_axis(self._shares[rows], kinds[:, :, None, None], axis=2)[:, :, 0]
        own = self._own_shares[rows, 0]
        return np.concatenate([own[:, None], shares], axis=1).reshape(len(rows), -1)

    def _require_enough(self, neighbours: NDArray[np.bool], what: str) -> None:
        """Raises `Refusal` unless enough holders, of which the party itself is one, did `what`."""
        least = int(neighbours.sum(axis=1).min()) + 1
        if least < self._graph.threshold:
            raise Refusal(
                f"only {least} of {self._graph.holders} holders {what}, "
                f"and {self._graph.threshold} are needed"
            )

    def _fields(self, message: Message, width: int) -> Bodies:
        """One field per neighbour; a field of zeros is empty."""
        degree = self._graph.degree
        if message.width != degree * width:
            raise Refusal(f"{message.width} bytes, expected {degree * width}")
        return message.rows().reshape(message.links, degree, width)

    def _to_server(self, phase: Phase, rows: Rows, body: Bodies) -> Message:
        return Message(
            self._query.run, phase, Role.PARTY, Role.SERVER, self._ids[rows], address(0), body
        )
