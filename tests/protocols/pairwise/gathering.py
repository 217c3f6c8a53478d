"""The message loop over all machines of a statistic of pairs."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tallyroom.fss.ring import Bytes
from tallyroom.protocols.aggregation.contract import Ids, Memory
from tallyroom.protocols.aggregation.exchange import MachineLoop
from tallyroom.protocols.algebra.ring import signed
from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.garbling import base_ot
from tallyroom.protocols.garbling.links import Links, names
from tallyroom.protocols.kernels.contract import Integers
from tallyroom.protocols.pairwise.sampling.schedule import pairs_of
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.run.machines import collector_machine, party_machine, server_machine
from tallyroom.protocols.statistics.pairwise import Pairs
from tallyroom.protocols.wire.loop import OnWay, unchanged
from tallyroom.protocols.wire.machine import Machine
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tests.samples import a_query


def held(counts: list[int], columns: dict[str, Column]) -> Holdings:
    """Records dealt in order to parties that have so many each."""
    starts = np.cumsum([0, *counts[:-1]])
    return Holdings(np.arange(len(counts), dtype=np.uint32), starts, columns)


def ratings(rows: int, seed: int = 3) -> dict[str, Column]:
    """Columns of every role, with ties."""
    draw = np.random.default_rng(seed)
    x = draw.integers(0, 6, rows)
    columns = {
        "value": x / 5,
        "x": x / 5,
        "y": np.clip(x + draw.integers(-2, 3, rows), 0, 5) / 5,
        "score": draw.integers(0, 6, rows) / 5,
        "label": draw.integers(0, 2, rows).astype(float),
    }
    return {name: column.astype(np.float64) for name, column in columns.items()}


def a_pairs_query(
    statistic: Pairs,
    holdings: Holdings,
    servers: int = 2,
    epsilon: Fraction | None = None,
    noise: Placement = Placement.TOTAL,
    **changes: Any,
) -> Query:
    max_records_per_party = int(holdings.counts.max())
    parties = len(holdings.ids)
    return a_query(
        statistic=statistic,
        aggregator="additive" if servers > 1 else "curator",
        parties=parties,
        servers=servers,
        epsilon=epsilon,
        noise=noise,
        **{
            "min_parties": parties,
            "max_records_per_party": max_records_per_party,
            "records": holdings.rows,
        }
        | changes,
    )


def drawn_values(query: Query, holdings: Holdings) -> Integers:
    """The kernel in the clear over exactly the pairs that were drawn, (pairs, outputs)."""
    plan = pairs_of(query)
    pairs, records = plan.sample.pairs(holdings.rows), plan.measured(holdings)
    return plan.kernel.reference(records[pairs[:, 0]], records[pairs[:, 1]])


def owners_of(query: Query, holdings: Holdings) -> Ids:
    """The parties of the pairs that were drawn, (pairs, 2)."""
    return np.repeat(holdings.ids, holdings.counts)[pairs_of(query).sample.pairs(holdings.rows)]


class Gathering(MachineLoop):
    """A run to its end. `chance` does jobs in random order, and parts of messages by themselves."""

    def __init__(
        self,
        query: Query,
        holdings: Holdings,
        blocks: int = 1,
        chance: int | None = None,
        intercept: OnWay = unchanged,
        seed: int = 1,
        made_by: Callable[[Query, Holdings, Randomness], Machine] = party_machine,
    ) -> None:
        self.query = query
        servers = [
            server_machine(query, i, Randomness.from_seed(seed, f"server-{i}"), Memory())
            for i in range(query.servers)
        ]
        counts = holdings.counts.astype(np.int64)
        collector = collector_machine(query, counts, Randomness.from_seed(seed, "c"))
        super().__init__(servers, collector, intercept, chance)
        for block in holdings.blocks(blocks):
            machine = made_by(query, block, Randomness.from_seed(seed, "parties"))
            self.enter(block.ids, machine)
        self.blocks = [machine for _, machine in self.hosts]

    def run(self) -> "Gathering":
        for machine in (*self.servers, *self.blocks, self.coordinator):
            self.say(machine, machine.start())
        self.finish()
        return self

    @property
    def totals(self) -> NDArray[np.int64]:
        """Of each output, over the pairs that count."""
        assert self.total is not None
        return signed(self.query.plan.measure(self.total.vector))


def by_link(messages: list[Message], *phases: Phase) -> dict[tuple[object, ...], bytes]:
    """What passed on every link, however it was batched."""
    found: dict[tuple[object, ...], bytes] = {}
    for message in messages:
        if message.phase in phases:
            for single in message.split():
                step = int(single.body[0, 0]) if single.phase is Phase.PAIR else 0
                where = (single.sender, single.receiver, single.phase, single.round, step)
                assert where not in found
                found[where] = single.encode()
    return found


def leaving(party: int, after: int) -> OnWay:
    """A party that is silent after so many messages to other parties, to all of them."""
    said = 0

    def intercept(message: Message) -> Iterable[Message]:
        nonlocal said
        if message.sender_role is not Role.PARTY:
            return (message,)
        kept = []
        for single in message.split():
            if int(single.senders[0]) == party:
                if single.phase is not Phase.PAIR or said >= after:
                    continue
                said += 1
            kept.append(single)
        return kept

    return intercept


def changing(
    chosen: Callable[[Message], bool], change: Callable[[Bytes], Bytes]
) -> tuple[OnWay, list[Message]]:
    """Changes the body of the first single row that is `chosen`, and lists it."""
    changed: list[Message] = []

    def intercept(message: Message) -> Iterable[Message]:
        for single in message.split():
            if not changed and chosen(single):
                changed.append(single)
                body = change(single.body.copy())
                single = replace(single, body=body)
            yield single

    return intercept, changed


def deal_base_ots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Base OTs without curves: both keys follow from A, which is fast, and no secret to whoever
    looks. Otherwise sessions are what they are."""

    def key_pairs(links: Links, points: Bytes, count: int) -> Bytes:
        rows = [
            Randomness(point[1:17].tobytes()).rows("keys", links[at : at + 1], count * 32)
            for at, point in enumerate(points)
        ]
        return np.concatenate(rows).reshape(len(links), count, 2, 16)

    def sender_points(scalars: Bytes) -> Bytes:
        return np.concatenate([np.full((len(scalars), 1), 2, np.uint8), scalars[:, 0]], axis=1)

    def receiver_points(
        links: Links, points: Bytes, choices: Bytes, scalars: Bytes
    ) -> tuple[Bytes, Bytes]:
        if (points[:, 0] != 2).any():
            raise PeerError(names(links), "bytes that are no point of the curve")
        count = choices.shape[1]
        pairs = key_pairs(links, points, count)
        keys = np.take_along_axis(pairs, choices[:, :, None, None].astype(np.intp), axis=2)
        answers = np.zeros((len(links), base_ot.reply_bytes(count)), dtype=np.uint8)
        points = answers[:, : count * 33].reshape(len(links), count, 33)
        points[:, :, 0], points[:, :, 1:] = 3, scalars[:, :count]
        answers[:, : count * 33] = points.reshape(len(links), -1)
        return answers, np.ascontiguousarray(keys[:, :, 0])

    def sender_keys(links: Links, scalars: Bytes, answers: Bytes) -> Bytes:
        points = answers[:, : -base_ot.PROOF_BYTES].reshape(len(links), -1, 33)
        if (points[:, :, 0] != 3).any():
            raise PeerError(names(links), "bytes that are no point of the curve")
        return key_pairs(links, sender_points(scalars), points.shape[1])

    def draw_scalars(randomness: Randomness, label: str, links: Links, count: int) -> Bytes:
        return randomness.rows(label, links, count * 32).reshape(len(links), count, 32)

    def bind_scalars(scalars: Bytes, points: Bytes) -> Bytes:
        return scalars

    for name, dealt in (
        ("sender_points", sender_points),
        ("receiver_points", receiver_points),
        ("sender_keys", sender_keys),
        ("draw_scalars", draw_scalars),
        ("bind_scalars", bind_scalars),
    ):
        monkeypatch.setattr(base_ot, name, dealt)
