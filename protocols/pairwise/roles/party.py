"""A party of a statistic of pairs: meets others two by two, then submits its shares.

On a link one end garbles and the other evaluates (`session`); all pairs of two parties are one
batch of their link. The party here ends up with additive shares of the kernel's outputs in Z_2^64:
the evaluator's and the garbler's add up to the output, and each alone is uniform. It submits to the
aggregator a vector with its share in the slot of every pair. What a garbler garbles is not checked:
one that deviates can make the released total tell its peer's record, past any noise. The party of
`bounded` ends up with shares of bits instead, which cannot.

A block's links travel together, and arrive as they were sent or in parts; what is on a link is the
same either way.
"""

import hashlib
from dataclasses import replace
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.contract import Bodies, Ids
from tallyroom.protocols.aggregation.one_round import OneRound
from tallyroom.protocols.aggregation.rosters import submissions
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.garbling.links import Links, UnfitAnswerError
from tallyroom.protocols.pairwise.roles.link_batch import (
    OPENING,
    REPLY,
    Batch,
    EvaluatorBatch,
    GarblerBatch,
    LinkTask,
)
from tallyroom.protocols.pairwise.sampling.pair_assignment import (
    Entries,
    garblers_of,
    link_numbers,
    pack_cells,
    parse_meetings,
)
from tallyroom.protocols.pairwise.sampling.schedule import Schedule, pairs_of
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings, bound_to_rows
from tallyroom.protocols.wire.machine import Continue, Done, Rejected, Step
from tallyroom.protocols.wire.messages import Message, Phase, Role, address

Bytes = NDArray[np.uint8]

ASKED = 1
"""The round of the question. A link's steps follow in rounds of their own, whichever link is
ahead: the bill does not depend on chance."""


def link_message(
    run: bytes, links: Links, step: int, rows: Bytes, evaluator: bool = True, turn: int = 0
) -> Message:
    """From our end of these links to the other, about their task of that number."""
    garblers = (links >> np.uint64(32)).astype(np.uint32)
    evaluators = (links & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    senders, receivers = (evaluators, garblers) if evaluator else (garblers, evaluators)
    tagged = np.empty((len(links), 1 + rows.shape[1]), dtype=np.uint8)
    tagged[:, 0], tagged[:, 1:] = step, rows
    return Message(
        run,
        Phase.PAIR,
        Role.PARTY,
        Role.PARTY,
        senders,
        receivers,
        tagged,
        ASKED + step + 2 * turn,
    )


def end_of(number: int, evaluator: bool) -> int:
    """One of the two ends of a link: both may be in one block."""
    return number << 1 | evaluator


MOST_LINKS = 128
"""Links of a block that travel together: a few seconds of work, so that nobody has to wait for
longer to hear something."""


class PairwiseState(Enum):
    MEETING = auto()
    OVER = auto()  # its shares are submitted


PAIRWISE_ACCEPTS: dict[tuple[PairwiseState, Phase], Role] = {
    (PairwiseState.MEETING, Phase.PAIRING): Role.COORDINATOR,
    (PairwiseState.MEETING, Phase.PAIR): Role.PARTY,
}
"""Whose message of a phase is taken. The steps of a link have an order of their own
(`protocols.pairwise.roles.link_batch`)."""


class PairwiseParty:
    """Sees its own records, and whom they meet. Learns shares."""

    def __init__(
        self, aggregator: OneRound, query: Query, holdings: Holdings, randomness: Randomness
    ) -> None:
        plan = pairs_of(query)
        if int(holdings.counts.max()) > plan.max_records_per_party:
            raise LocalError(f"a party here has more than {plan.max_records_per_party} records")
        self._aggregator = aggregator
        self._query = query
        self._plan = plan
        self._ids = holdings.ids
        self._place = {int(party): at for at, party in enumerate(holdings.ids)}
        self._starts = holdings.starts
        self._counts = holdings.counts
        self._randomness = randomness
        self._noise = query.circuit_noise
        self._records = plan.measured(holdings)
        self._schedule = Schedule.of(query)
        shape = (len(self._ids), plan.slots)
        self._shares = self._no_shares(shape)
        self._done = np.zeros(shape, dtype=bool)
        self._assigned = np.zeros(len(self._ids), dtype=bool)
        self._awaited = 0
        self._batches: dict[int, Batch] = {}
        self._slots: dict[int, NDArray[np.intp]] = {}
        self._sizes: dict[int, tuple[int, int]] = {}
        self._listed: dict[int, NDArray[np.uint64]] = {}
        self._settled: set[int] = set()
        self._early: dict[int, Message] = {}
        self._state = PairwiseState.MEETING

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self._ids)}>"

    def _no_shares(self, shape: tuple[int, int]) -> NDArray[np.unsignedinteger]:
        """Room for shares of every slot."""
        return np.zeros((*shape, self._plan.outputs), dtype=np.uint64)

    def _own_shares(self, values: NDArray[np.int64]) -> NDArray[np.unsignedinteger]:
        """The whole of a pair's values, where nobody else has a share."""
        return values.astype(np.int64).view(np.uint64)

    def _bodies(self) -> list[Bodies]:
        """What each server gets of all shares."""
        vectors: Vector = self._shares.reshape(len(self._ids), -1)
        # Which pairs are done depends on others. A machine that was begun anew may have other
        # shares to submit, and the masks of the first ones must not meet them.
        masks = bound_to_rows(self._randomness, self._ids, vectors)
        return self._aggregator.shard(self._ids, vectors, self._query.servers, masks)

    def start(self) -> Step:
        """The deadline is set anew whenever a link comes a step further: who is at work is not
        given up, however many links there are."""
        return Continue(deadline=self._query.deadline)

    def receive(self, message: Message) -> Step:
        if PAIRWISE_ACCEPTS.get((self._state, message.phase)) is not message.sender_role:
            return Rejected(message.sender, f"a party in pairs expects no {message.phase.label}")
        if not np.isin(message.receivers, self._ids).all():
            return Rejected(message.sender, f"{message.receiver} is elsewhere")
        return self._meet(message) if message.phase is Phase.PAIRING else self._pair(message)

    def expire(self) -> Step:
        """What is not done by now is left out."""
        return self._submit()

    # --- whom to meet ---

    def _meet(self, message: Message) -> Step:
        places = self._places(message.receivers)
        if message.links != len(places):
            return Rejected(message.sender, "there is one coordinator")
        if self._assigned[places].all():
            return Continue()
        if self._assigned[places].any():
            return Rejected(message.sender, "some of these know whom to meet")
        assigned: list[Entries] = []
        for row, place in zip(message.rows(), places.tolist(), strict=True):
            party, records = int(self._ids[place]), int(self._counts[place])
            entries = parse_meetings(row, party, records, self._plan.sample, self._query.parties)
            if isinstance(entries, str):
                return Rejected(message.sender, entries)
            assigned.append(entries)
        self._assigned[places] = True
        evaluations: dict[tuple[int, int], list[int]] = {}
        for place, entries in zip(places.tolist(), assigned, strict=True):
            self._alone(place, entries[entries["partner"] == self._ids[place]])
            self._list_links(place, entries, evaluations)
        messages: list[Message] = []
        for _, numbers in sorted(evaluations.items()):
            for at in range(0, len(numbers), MOST_LINKS):
                links = np.array(numbers[at : at + MOST_LINKS], dtype=np.uint64)
                tasks = self._tasks(links, evaluator=True)
                batch = EvaluatorBatch(links, tasks, self._along(links, evaluator=True))
                self._keep(batch)
                messages.append(link_message(self._query.run, links, OPENING, batch.open()))
        return self._and_early(messages)

    def _list_links(
        self, place: int, entries: Entries, evaluations: dict[tuple[int, int], list[int]]
    ) -> None:
        party = self._ids[place]
        for partner in np.unique(entries["partner"]).tolist():
            if partner == party:
                continue
            among = entries[entries["partner"] == partner]
            ends = np.array([partner], dtype=np.uint32), np.array([party], dtype=np.uint32)
            garbles = bool(garblers_of(*ends)[0] == party)
            number = int(link_numbers(*(ends[::-1] if garbles else ends))[0])
            second = (among["second"] == garbles) & (not self._plan.kernel.symmetric)
            # Both ends take the pairs of their link in the order of the garbler's slots, those
            # with the garbler's record second after the others.
            order = np.lexsort((among["slot"] if garbles else among["theirs"], second))
            own = end_of(number, evaluator=not garbles)
            self._slots[own] = place * self._plan.slots + among["slot"][order].astype(np.intp)
            columns = (
                among[name][order].astype(np.uint64) for name in ("slot", "theirs", "second")
            )
            self._listed[own] = np.concatenate(list(columns))
            swapped = int(np.count_nonzero(second))
            self._sizes[own] = len(among) - swapped, swapped
            self._awaited += 1
            if not garbles:
                evaluations.setdefault(self._sizes[own], []).append(number)

    def _alone(self, place: int, entries: Entries) -> None:
        """Pairs of one party's own records: it needs nobody. The value is in the first's slot."""
        first = entries[entries["second"] == 0]
        if not len(first):
            return
        noise = self._noise
        kernel = self._plan.kernel
        x, y = (self._rows_of(place, first[name]) for name in ("slot", "theirs"))
        values = kernel.reference(x, y)
        if noise is not None:
            # Bound to these pairs: the same noise on others would tell how they differ.
            pairs = hashlib.blake2s(first.tobytes(), digest_size=16).hexdigest()
            source = self._randomness.of(f"alone {pairs}", int(self._ids[place]))
            values = values + noise.draw(values.shape, source)
        self._shares[place, first["slot"]] = self._own_shares(values)
        self._done[place, entries["slot"]] = True

    def _rows_of(self, place: int, slots: NDArray[np.uint32]) -> NDArray[np.int64]:
        rows = self._starts[place] + slots.astype(np.intp) // self._plan.sample.matchings
        records: NDArray[np.int64] = self._records[rows]
        return records

    # --- meeting ---

    def _pair(self, message: Message) -> Step:
        if message.width < 1 or len(np.unique(message.body[:, 0])) != 1:
            return Rejected(message.sender, "steps of different kinds in one message")
        places = self._places(message.receivers)
        step = int(message.body[0, 0])
        if not self._assigned[places].all():
            return self._hold_back(message, step)
        evaluator = step in EvaluatorBatch.STEPS
        garblers, evaluators = (
            (message.senders, message.receivers)
            if evaluator
            else (message.receivers, message.senders)
        )
        links = link_numbers(garblers, evaluators)
        keys = [end_of(number, evaluator) for number in links.tolist()]
        if (
            any(key not in self._slots for key in keys)
            or not (garblers_of(garblers, evaluators) == garblers).all()
        ):
            return Rejected(message.sender, "it was not to meet that party")
        if step == OPENING:
            return self._opened(message, links)
        return self._advance(message, links, keys, step)

    def _hold_back(self, message: Message, step: int) -> Step:
        """Another was told whom to meet before us: its opening waits."""
        if message.links > 1:
            return Rejected(message.sender, "some of these do not know yet whom to meet")
        key = int(link_numbers(message.receivers, message.senders)[0])
        if step != OPENING or key in self._early:
            return Rejected(message.sender, "it is not known yet whom to meet")
        self._early[key] = message
        return Continue()

    def _and_early(self, messages: list[Message]) -> Step:
        """What was held back for those who know by now whom to meet."""
        known = [
            key
            for key, message in self._early.items()
            if self._assigned[self._places(message.receivers)].all()
        ]
        for key in known:
            step = self._pair(self._early.pop(key))
            if isinstance(step, Continue):
                messages += step.messages
        return self._submit_if_done(messages)

    def _opened(self, message: Message, links: Links) -> Step:
        keys = {end_of(number, evaluator=False) for number in links.tolist()}
        # A link that is done stays closed: its secrets, drawn again, would serve two requests,
        # whose difference tells our records.
        if keys & (self._batches.keys() | self._settled):
            return Rejected(message.sender, "it opened this link before")
        replies: list[Message] = []
        try:
            for tasks, chosen in self._by_tasks(links):
                source = self._along(links[chosen], evaluator=False)
                batch = GarblerBatch(links[chosen], tasks, source)
                rows = batch.reply(message.rows()[chosen, 1:])
                replies.append(link_message(self._query.run, links[chosen], REPLY, rows, False))
                self._keep(batch)
        except PeerError as error:
            for key in keys:
                self._batches.pop(key, None)
            return Rejected(message.sender, error.reason)
        return Continue(tuple(replies), deadline=self._query.deadline)

    def _by_tasks(self, links: Links) -> list[tuple[tuple[LinkTask, ...], NDArray[np.intp]]]:
        """Links that have equally many pairs of either kind."""
        kinds: dict[tuple[int, int], list[int]] = {}
        for at, number in enumerate(links.tolist()):
            kinds.setdefault(self._sizes[end_of(number, evaluator=False)], []).append(at)
        chosen = [np.array(places, dtype=np.intp) for _, places in sorted(kinds.items())]
        return [(self._tasks(links[places], evaluator=False), places) for places in chosen]

    def _advance(self, message: Message, links: Links, keys: list[int], step: int) -> Step:
        """All or nothing: what is refused comes again link by link. A link stays where it was if
        its message is malformed, and is left out in the end if nothing better comes. A link whose
        answer does not fit its digest is closed: a garbler that could try again would learn our
        record, one refusal at a time."""
        if not all(key in self._batches for key in keys):
            return Rejected(message.sender, "the link is not open")
        found = self._batches_of(links, keys)
        if len(found) > 1:
            return Rejected(message.sender, "links that do different things in one message")
        ((batch, chosen),) = found
        try:
            answer = batch.take(step, message.rows()[chosen, 1:])
        except UnfitAnswerError as error:
            for number in error.links.tolist():
                self._batches.pop(end_of(number, evaluator=True), None)
            return Rejected(message.sender, error.reason)
        except PeerError as error:
            return Rejected(message.sender, error.reason)
        messages: list[Message] = []
        if answer is not None:
            evaluator = isinstance(batch, EvaluatorBatch)
            turn = batch.at if evaluator else batch.at - 1
            messages.append(link_message(self._query.run, batch.links, *answer, evaluator, turn))
        if batch.shares is not None:
            self._settle(batch)
        return self._submit_if_done(messages)

    def _batches_of(self, links: Links, keys: list[int]) -> list[tuple[Batch, NDArray[np.intp]]]:
        """The batches that these links are in, and the rows of each. One that is in part elsewhere
        is parted."""
        held: dict[int, tuple[Batch, list[int]]] = {}
        for place, key in enumerate(keys):
            batch = self._batches[key]
            held.setdefault(id(batch), (batch, []))[1].append(place)
        found = []
        for batch, places in held.values():
            chosen = np.array(places, dtype=np.intp)
            if len(chosen) < len(batch.links):
                batch = batch.part(links[chosen])
                self._keep(batch)
            order = np.argsort(links[chosen])[np.argsort(np.argsort(batch.links))]
            found.append((batch, chosen[order]))
        return found

    def _settle(self, batch: Batch) -> None:
        """A batch is done: its shares go to their slots."""
        assert batch.shares is not None
        evaluator = isinstance(batch, EvaluatorBatch)
        flat = self._shares.reshape(-1, self._shares.shape[2])
        for number, shares in zip(batch.links.tolist(), batch.shares, strict=True):
            key = end_of(number, evaluator)
            flat[self._slots[key]] = shares
            self._done.reshape(-1)[self._slots[key]] = True
            del self._batches[key]
            self._settled.add(key)
            self._awaited -= 1

    def _keep(self, batch: Batch) -> None:
        evaluator = isinstance(batch, EvaluatorBatch)
        for number in batch.links.tolist():
            self._batches[end_of(number, evaluator)] = batch

    def _tasks(self, links: Links, evaluator: bool) -> tuple[LinkTask, ...]:
        """What these links compute, with our bits for it: records, and coins for the noise."""
        kernel, schedule = self._plan.kernel, self._schedule
        keys = [end_of(number, evaluator) for number in links.tolist()]
        slots = np.stack([self._slots[key] for key in keys])
        place, slot = np.divmod(slots, self._plan.slots)
        rows = self._starts[place] + slot // self._plan.sample.matchings
        bits = kernel.input_bits(self._records[rows.ravel()])
        bits = bits.reshape(*slots.shape, kernel.record_bits)
        coins = kernel.inputs(self._noise) - kernel.record_bits
        if coins:
            label = "coins of the evaluator" if evaluator else "coins of the garbler"
            width = -(-slots.shape[1] * coins // 8)
            source = self._along(links, evaluator)
            drawn = np.unpackbits(source.rows(label, links, width), axis=1)
            tossed = drawn[:, : slots.shape[1] * coins].reshape(*slots.shape, coins)
            bits = np.concatenate([bits, tossed], axis=2)
        return tuple(
            LinkTask(
                schedule.second if swapped else schedule.first, schedule.form, bits[:, start:end]
            )
            for swapped, start, end in schedule.cuts(*self._sizes[keys[0]])
        )

    def _along(self, links: Links, evaluator: bool) -> Randomness:
        """What we draw on these links, bound to the records of our end of each and to the pairs
        that meet on it. A machine that is started anew may be told of others, and to one reply of a
        garbler, two requests from the same secrets show where their bits differ."""
        ends = links & np.uint64(0xFFFFFFFF) if evaluator else links >> np.uint64(32)
        source = self._randomness.along(links, ends.astype(np.uint32))
        listed = np.stack([self._listed[end_of(number, evaluator)] for number in links.tolist()])
        return bound_to_rows(source, links, listed)

    # --- when all is done ---

    def _submit_if_done(self, messages: list[Message]) -> Step:
        if self._awaited or not self._assigned.all():
            return Continue(tuple(messages), deadline=self._query.deadline)
        submitted = self._submit()
        assert isinstance(submitted, Done)
        return Done(messages=(*messages, *submitted.messages))

    def _submit(self) -> Step:
        """Slots that are not done are zero, and said to be so."""
        self._state = PairwiseState.OVER
        self._shares[~self._done] = 0
        query, bodies = self._query, self._bodies()
        paired = Message(
            query.run,
            Phase.PAIRED,
            Role.PARTY,
            Role.COORDINATOR,
            self._ids,
            address(0),
            pack_cells(self._done),
        )
        messages = (paired, *submissions(query, self._ids, bodies))
        last = ASKED + self._schedule.rounds + 1
        return Done(messages=tuple(replace(each, round=last) for each in messages))

    def _places(self, ids: Ids) -> NDArray[np.intp]:
        return np.array([self._place[int(party)] for party in ids], dtype=np.intp)
