"""Who meets whom, as the coordinator publishes it, and which meetings took place.

A party has a slot for each of its records in every matching: record r has slot r·P + p in matching
p of P. An entry tells the slot, whose slot it meets, and whether its record is the second argument
of the kernel, which matters to kernels that are not symmetric.
"""

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.contract import Ids, Records
from tallyroom.protocols.garbling.links import Links, Mask
from tallyroom.protocols.plans.pairs import PairSample
from tallyroom.protocols.query import Query
from tallyroom.protocols.wire.messages import Message, Phase, Role, address

ENTRY = np.dtype([("slot", "<u4"), ("partner", "<u4"), ("theirs", "<u4"), ("second", "u1")])
Entries = NDArray[np.void]

_COUNT = 4


def link_numbers(garblers: Ids, evaluators: Ids) -> Links:
    """What a link is called by both of its ends."""
    numbers: Links = garblers.astype(np.uint64) << np.uint64(32) | evaluators.astype(np.uint64)
    return numbers


def garblers_of(one: Ids, other: Ids) -> Ids:
    """Who garbles on a link: the lower id if the two add up to an even number, so that work spreads
    evenly."""
    low, high = np.minimum(one, other), np.maximum(one, other)
    chosen: Ids = np.where((low ^ high) & 1, high, low)
    return chosen


def draw_meetings(sample: PairSample, counts: Records) -> tuple[Ids, Entries]:
    """All entries, with the party that each is for, ordered by party and partner.

    `counts` is how many records each party holds; one that holds none meets nobody.
    """
    records = int(counts.sum())
    if records < 2:
        return np.zeros(0, dtype=np.uint32), np.zeros(0, dtype=ENTRY)
    pairs = sample.pairs_of_parties(counts).astype(np.int64)
    owners = np.repeat(np.arange(len(counts), dtype=np.uint32), counts)
    place = np.arange(records) - np.repeat(np.cumsum(counts) - counts, counts)
    matching = np.arange(len(pairs)) // (records // 2)
    slots = place[pairs] * sample.matchings + matching[:, None]
    parties = owners[pairs]
    entries = np.zeros((len(pairs), 2), dtype=ENTRY)
    for side in (0, 1):
        entries["slot"][:, side] = slots[:, side]
        entries["partner"][:, side] = parties[:, 1 - side]
        entries["theirs"][:, side] = slots[:, 1 - side]
        entries["second"][:, side] = side
    flat, party = entries.ravel(), parties.ravel()
    order = np.lexsort((flat["slot"], flat["partner"], party))
    return party[order], flat[order]


def meeting_messages(query: Query, sample: PairSample, counts: Records) -> tuple[Message, ...]:
    """One row for every party that is here; those with equally many meetings travel together."""
    parties, entries = draw_meetings(sample, counts)
    here = np.flatnonzero(counts).astype(np.uint32)
    numbers = np.bincount(parties, minlength=len(counts))
    starts = np.cumsum(numbers) - numbers
    messages = []
    for number in np.unique(numbers[here]).tolist():
        chosen = here[numbers[here] == number]
        rows = np.zeros((len(chosen), _COUNT + ENTRY.itemsize * number), dtype=np.uint8)
        rows[:, :_COUNT] = np.frombuffer(int(number).to_bytes(_COUNT, "little"), dtype=np.uint8)
        mine = entries[starts[chosen][:, None] + np.arange(number)]
        rows[:, _COUNT:] = np.ascontiguousarray(mine).view(np.uint8).reshape(len(chosen), -1)
        messages.append(
            Message(
                query.run,
                Phase.PAIRING,
                Role.COORDINATOR,
                Role.PARTY,
                address(0),
                chosen,
                rows,
            )
        )
    return tuple(messages)


def parse_meetings(
    row: NDArray[np.uint8], party: int, records: int, sample: PairSample, parties: int
) -> Entries | str:
    """The entries of one party that holds so many records, or what is wrong with them.

    No slot twice, and no record more often than the noise is for: in more pairs than were
    announced it would cost more than its ε.
    """
    slots = records * sample.matchings
    count = int.from_bytes(row[:_COUNT].tobytes(), "little")
    if row.size < _COUNT or row.size != _COUNT + ENTRY.itemsize * count:
        return "not a list of meetings"
    entries = np.frombuffer(row[_COUNT:].tobytes(), dtype=ENTRY)
    if (entries["slot"] >= slots).any() or (entries["partner"] >= parties).any():
        return "a meeting of a record or party that is not there"
    if len(np.unique(entries["slot"])) < count:
        return "a record that meets two at once"
    if (np.bincount(entries["slot"] // sample.matchings) > sample.met).any():
        return "a record in more pairs than the noise is for"
    alone = entries["partner"] == party
    own = entries[alone]
    back = dict(zip(own["slot"].tolist(), own["theirs"].tolist(), strict=True))
    if any(back.get(theirs) != slot or slot == theirs for slot, theirs in back.items()):
        return "a record that meets itself, or one that meets another"
    if (entries["second"] > 1).any():
        return "a third argument"
    # The pair's value is in the slot of its first record. Two of them would count it twice.
    second = dict(zip(own["slot"].tolist(), own["second"].tolist(), strict=True))
    if any(second[slot] == second[theirs] for slot, theirs in back.items()):
        return "a pair of two first or two second arguments"
    for partner in np.unique(entries["partner"][~alone]).tolist():
        among = entries[entries["partner"] == partner]
        if len(np.unique(among["theirs"])) < len(among):
            return f"two meetings with one record of party-{partner}"
    return entries


def pack_cells(cells: Mask) -> NDArray[np.uint8]:
    """Slots by party, (parties, slots), as bitmaps, one row a party."""
    return np.packbits(cells, axis=1)


def parse_cells(rows: NDArray[np.uint8], slots: int) -> Mask | None:
    """None if these are not bitmaps of so many slots."""
    if rows.ndim != 2 or rows.shape[1] != -(-slots // 8):
        return None
    bits = np.unpackbits(rows, axis=1)
    if bits[:, slots:].any():
        return None
    return bits[:, :slots].astype(bool)


def both_ends(sample: PairSample, counts: Records, done: Mask) -> Mask:
    """Of the slots that their parties call done, (parties, slots), those whose partners do too."""
    parties, entries = draw_meetings(sample, counts)
    mutual = np.zeros_like(done)
    agreed = done[parties, entries["slot"]] & done[entries["partner"], entries["theirs"]]
    mutual[parties[agreed], entries["slot"][agreed]] = True
    return mutual
