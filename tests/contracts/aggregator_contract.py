"""The contract that every aggregator must pass, with the trusted curator as oracle.

A package that adds an aggregator makes its tests from this class:

    class TestMine(AggregatorContract):
        aggregator = Mine()

Machines are run in memory, message by message, exactly as the runtimes run them.
"""

from collections import deque
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocols.aggregation.contract import Aggregator, Bodies, Ids, Memory, OneRound, Total
from protocols.aggregation.curator import Curator
from protocols.errors import LocalError
from protocols.machine import Done, Failed, Machine, Rejected
from protocols.messages import Message, Phase, Role
from protocols.query import Query
from protocols.randomness import Randomness
from protocols.records import Holdings
from protocols.ring import Vector
from protocols.statistics import Histogram
from tests.goodness import ALPHA, uniform_bytes_p
from tests.samples import a_query

SERVERS = range(1, 5)
TOP = 2**64 - 1
words = st.sampled_from([0, 1, TOP, 2**63, 2**63 - 1]) | st.integers(0, TOP)


def query_for(aggregator: Aggregator, servers: int, parties: int, length: int) -> Query:
    return a_query(
        statistic=Histogram(lower=0.0, upper=1.0, bins=length),
        aggregator=aggregator.name,
        parties=parties,
        servers=servers,
    )


def allowed_servers(aggregator: Aggregator) -> list[int]:
    found = []
    for servers in SERVERS:
        try:
            aggregator.check(query_for(aggregator, servers, 1, 1))
        except LocalError:
            continue
        found.append(servers)
    return found


def ids_of(*numbers: int) -> Ids:
    return np.array(numbers, dtype=np.uint32)


class GivenVectors(Histogram):
    """Encodes to vectors that are given, so that any vector can be summed."""

    def __init__(self, vectors: Vector) -> None:
        super().__init__(lower=0.0, upper=1.0, bins=vectors.shape[1])
        object.__setattr__(self, "vectors", vectors)

    def encode(self, holdings: Holdings) -> Vector:
        given: Vector = self.__dict__["vectors"]
        return given


class Exchange:
    """One run of an aggregator's machines over an in-memory queue."""

    def __init__(self, aggregator: Aggregator, query: Query, seed: int = 1) -> None:
        self.query = query
        self.parties = Randomness.from_seed(seed, "parties")
        self.aggregator = aggregator
        self.servers = [
            aggregator.server(query, i, Randomness.from_seed(seed, f"server-{i}"), Memory())
            for i in range(query.servers)
        ]
        records = np.ones(query.parties, dtype=np.int64)
        self.collector = aggregator.collector(
            query, records, Randomness.from_seed(seed, "coordinator")
        )
        self.rejected: list[Rejected] = []
        self.failed: Failed | None = None
        self.total: Total | None = None
        self._queue: deque[Message] = deque()
        for server in self.servers:
            self._take(server.start())
        self._take(self.collector.start())
        # Each role is built from the query here; nobody needs to be told.
        said = [message for message in self._queue if message.phase is not Phase.QUERY]
        self._told = [m for m in said if m.receiver_role is Role.PARTY]
        self._queue = deque(m for m in said if m.receiver_role is not Role.PARTY)

    def party_messages(self, ids: Ids, vectors: Vector) -> list[Message]:
        query = replace(self.query, statistic=GivenVectors(vectors))
        holdings = Holdings(ids, np.arange(len(ids)), {"value": np.zeros(len(ids))})
        machine = self.aggregator.party(query, holdings, self.parties)
        steps = [machine.start()]
        for message in self._told:  # what parties were told together with the question
            mine = np.flatnonzero(np.isin(message.receivers, ids))
            steps.append(machine.receive(message.select(mine)))
        messages: list[Message] = []
        for step in steps:
            assert not isinstance(step, Rejected | Failed)
            messages += step.messages
        return messages

    def send(self, *messages: Message) -> None:
        self._queue.extend(messages)
        while self._queue:
            message = self._queue.popleft()
            self._take(self._receiver(message).receive(message))

    def expire(self) -> None:
        for server in self.servers:
            self._take(server.expire())
        self.send()

    def _receiver(self, message: Message) -> Machine:
        if message.receiver_role is Role.SERVER:
            return self.servers[int(message.receivers[0])]
        assert message.receiver_role is Role.COORDINATOR
        return self.collector

    def _take(self, step: object) -> None:
        match step:
            case Rejected():
                self.rejected.append(step)
            case Failed():
                self.failed = step
            case Done(output=Total() as total):
                self.total = total
        self._queue.extend(getattr(step, "messages", ()))


def sum_of(aggregator: Aggregator, servers: int, vectors: Vector, blocks: int = 1) -> list[int]:
    """The opened sum, when parties are computed in a number of blocks."""
    exchange = Exchange(aggregator, query_for(aggregator, servers, *vectors.shape))
    for ids in np.array_split(np.arange(len(vectors), dtype=np.uint32), blocks):
        exchange.send(*exchange.party_messages(ids, vectors[ids]))
    assert exchange.rejected == []
    assert exchange.total is not None
    assert exchange.total.contributors.tolist() == list(range(len(vectors)))
    values: list[int] = exchange.total.vector.tolist()
    return values


class AggregatorContract:
    aggregator: ClassVar[Aggregator]

    def servers(self) -> list[int]:
        found = allowed_servers(self.aggregator)
        assert found, f"no number of servers in {SERVERS} will do"
        return found

    def test_it_offers_sums_and_says_what_it_promises(self) -> None:
        assert "sum" in self.aggregator.offers
        for servers in self.servers():
            model = self.aggregator.threat_model(servers)
            assert 0 <= model.colluding < servers
            assert model.behaviour in str(model)
            assert model.reveals in str(model)
            assert model.dropouts in str(model)

    @settings(
        max_examples=30, suppress_health_check=[HealthCheck.differing_executors], deadline=None
    )
    @given(st.integers(1, 7), st.integers(1, 40), st.data())
    def test_sums_are_the_curators_exactly(
        self, parties: int, length: int, data: st.DataObject
    ) -> None:
        servers = data.draw(st.sampled_from(self.servers()))
        rows = st.lists(words, min_size=length, max_size=length)
        drawn = data.draw(st.lists(rows, min_size=parties, max_size=parties))
        vectors = np.array(drawn, dtype=np.uint64)
        blocks = data.draw(st.integers(1, parties))
        mine = sum_of(self.aggregator, servers, vectors, blocks)
        assert mine == sum_of(Curator(), 1, vectors)
        assert mine == [sum(row[i] for row in drawn) % 2**64 for i in range(length)]

    def test_one_party_and_one_element(self) -> None:
        for servers in self.servers():
            for value in (0, 1, TOP):
                vectors = np.array([[value]], dtype=np.uint64)
                assert sum_of(self.aggregator, servers, vectors) == [value]

    def test_many_parties(self) -> None:
        vectors = np.random.default_rng(3).integers(0, TOP, (5000, 9), dtype=np.uint64)
        expected = vectors.sum(axis=0, dtype=np.uint64).tolist()
        for servers in self.servers():
            assert sum_of(self.aggregator, servers, vectors, blocks=3) == expected

    def test_a_block_is_exactly_its_parties_one_by_one(self) -> None:
        vectors = np.random.default_rng(4).integers(0, TOP, (6, 5), dtype=np.uint64)
        ids = ids_of(3, 0, 5, 1, 4, 2)
        for servers in self.servers():
            exchange = Exchange(self.aggregator, query_for(self.aggregator, servers, 6, 5))
            block = exchange.party_messages(ids, vectors)
            together = {
                (m.sender, m.receiver): m.encode() for batch in block for m in batch.split()
            }
            alone = {
                (m.sender, m.receiver): m.encode()
                for i in range(6)
                for m in exchange.party_messages(ids[i : i + 1], vectors[i : i + 1])
            }
            assert together == alone
            assert len(alone) == 6 * len(block)

    def test_every_body_on_the_wire_looks_uniform(self) -> None:
        """For the all-zero and the all-ones vector: n = 2^13 to 2^17 bytes, 256 cells, ALPHA."""
        parties, length = 512, 32
        for servers in self.servers_that_may_collude():
            for value in (0, TOP):
                for body in self.bodies_for(value, servers, parties, length):
                    assert uniform_bytes_p(body.tobytes()) > ALPHA
                    assert len(np.unique(body, axis=0)) == parties

    def test_what_all_servers_but_one_know_looks_uniform(self) -> None:
        """Each party's shares, merged and opened without any one server: n = 2^15 bytes."""
        parties, length = 256, 16
        if not isinstance(self.aggregator, OneRound):
            pytest.skip("shares of an aggregator of several rounds are not opened by `unshard`")
        for servers in self.servers_that_may_collude():
            for value in (0, TOP):
                bodies = self.bodies_for(value, servers, parties, length)
                shares = [
                    [self.aggregator.merge(body[i : i + 1], length, server) for i in range(parties)]
                    for server, body in enumerate(bodies)
                ]
                for honest in range(servers):
                    known = [share for server, share in enumerate(shares) if server != honest]
                    opened = [
                        self.aggregator.unshard(list(each)) for each in zip(*known, strict=True)
                    ]
                    assert uniform_bytes_p(np.stack(opened).tobytes()) > ALPHA
                opened = [self.aggregator.unshard(list(each)) for each in zip(*shares, strict=True)]
                assert np.stack(opened).tolist() == [[value] * length] * parties

    def servers_that_may_collude(self) -> list[int]:
        found = [n for n in self.servers() if self.aggregator.threat_model(n).colluding > 0]
        if not found:
            pytest.skip("the server of this aggregator is trusted with the data")
        return found

    def bodies_for(self, value: int, servers: int, parties: int, length: int) -> list[Bodies]:
        exchange = Exchange(self.aggregator, query_for(self.aggregator, servers, parties, length))
        vectors = np.full((parties, length), value, dtype=np.uint64)
        messages = exchange.party_messages(np.arange(parties, dtype=np.uint32), vectors)
        return [message.rows() for message in messages]

    def test_wrong_lengths_are_refused_and_the_rest_is_summed(self) -> None:
        vectors = np.arange(12, dtype=np.uint64).reshape(3, 4)
        for servers in self.servers():
            query = replace(query_for(self.aggregator, servers, 3, 4), minimum=2)
            exchange = Exchange(self.aggregator, query)
            exchange.send(*exchange.party_messages(ids_of(0, 1), vectors[:2]))
            honest = exchange.party_messages(ids_of(2), vectors[2:])
            for body_of in (lambda body: body[:, :-1], lambda body: np.repeat(body, 2, axis=1)):
                count = len(exchange.rejected)
                exchange.send(*(replace(m, body=body_of(m.body)) for m in honest))
                assert len(exchange.rejected) == count + len(honest)
                assert exchange.rejected[-1].sender == "party-2"
            exchange.expire()
            assert exchange.total is not None
            assert exchange.total.contributors.tolist() == [0, 1]
            assert exchange.total.vector.tolist() == vectors[:2].sum(axis=0).tolist()

    def test_duplicates_are_counted_once_and_contradictions_refused(self) -> None:
        vectors = np.arange(12, dtype=np.uint64).reshape(3, 4)
        for servers in self.servers():
            exchange = Exchange(self.aggregator, query_for(self.aggregator, servers, 3, 4))
            first = exchange.party_messages(ids_of(0), vectors[:1])
            exchange.send(*first, *first)
            assert not exchange.rejected, "who was not acknowledged may repeat itself"
            other = [replace(message, body=message.body ^ np.uint8(1)) for message in first]
            exchange.send(*other)
            assert [r.sender for r in exchange.rejected] == ["party-0"] * len(first)
            exchange.send(*exchange.party_messages(ids_of(1, 2), vectors[1:]))
            assert exchange.total is not None
            assert exchange.total.vector.tolist() == vectors.sum(axis=0).tolist()

    def test_missing_parties_are_left_out(self) -> None:
        """A party that reached only some of the servers is in nobody's sum."""
        vectors = np.arange(16, dtype=np.uint64).reshape(4, 4)
        for servers in self.servers():
            query = replace(query_for(self.aggregator, servers, 4, 4), minimum=2)
            exchange = Exchange(self.aggregator, query)
            exchange.send(*exchange.party_messages(ids_of(0, 3), vectors[[0, 3]]))
            half = exchange.party_messages(ids_of(1), vectors[1:2])[:-1]
            exchange.send(*half)
            assert exchange.total is None
            exchange.expire()
            assert exchange.total is not None
            assert exchange.total.contributors.tolist() == [0, 3]
            assert exchange.total.vector.tolist() == vectors[[0, 3]].sum(axis=0).tolist()

    def test_too_few_parties_fail_the_run(self) -> None:
        vectors = np.arange(8, dtype=np.uint64).reshape(2, 4)
        for servers in self.servers():
            query = replace(query_for(self.aggregator, servers, 4, 4), minimum=3)
            exchange = Exchange(self.aggregator, query)
            exchange.send(*exchange.party_messages(ids_of(0, 1), vectors))
            exchange.expire()
            assert exchange.total is None
            assert exchange.failed is not None
            assert "party-2" in exchange.failed.reason
