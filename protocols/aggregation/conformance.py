"""The contract that every aggregator must pass, with the trusted curator as oracle.

A package that adds an aggregator makes its tests from this class, with pytest and hypothesis:

    from tallyroom.extend import AggregatorContract

    class TestMine(AggregatorContract):
        aggregator = Mine()

If an aggregator cannot do everything, its test class overrides attributes: `rows` if it only takes
vectors in some range, `fewest` if it needs some parties to hide among, `many` if its cost grows too
fast.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from tallyroom.protocols.aggregation.contract import Aggregator, Bodies, Ids
from tallyroom.protocols.aggregation.curator import Curator
from tallyroom.protocols.aggregation.exchange import Exchange
from tallyroom.protocols.aggregation.one_round import OneRound
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.offers import Offer
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.wire.messages import Message, Phase

SERVERS = range(1, 6)
TOP = 2**64 - 1
ALPHA = 1e-9
"""The chance that one statistical check refuses a right program."""


def query_for(aggregator: Aggregator, servers: int, parties: int, length: int) -> Query:
    """A query for an exact sum, without noise."""
    return Query(
        nonce=b"contract",
        statistic=Histogram(lower=0.0, upper=1.0, bins=length),
        aggregator=aggregator.name,
        parties=parties,
        servers=servers,
        records=parties,
        epsilon=None,
        noise=Placement.CURATOR if servers == 1 else Placement.EACH_SERVER,
        data="contract",
        min_parties=parties,
    )


def allowed_servers(aggregator: Aggregator, parties: int = 12) -> list[int]:
    """The numbers of servers among `SERVERS` that it can work with."""
    allowed = []
    for servers in SERVERS:
        try:
            aggregator.check(query_for(aggregator, servers, parties, 1))
        except LocalError:
            continue
        allowed.append(servers)
    return allowed


def ids_of(*numbers: int) -> Ids:
    return np.array(numbers, dtype=np.uint32)


Spoil = Callable[[Bodies], Bodies]


def _cut_short(body: Bodies) -> Bodies:
    return body[:, :-1]


def _doubled(body: Bodies) -> Bodies:
    return np.repeat(body, 2, axis=1)


def uniform_p(data: bytes) -> float:
    """The p-value of a χ² test that bytes are uniform."""
    counts = np.bincount(np.frombuffer(data, dtype=np.uint8), minlength=256)
    return float(stats.chisquare(counts).pvalue)


class AggregatorContract:
    aggregator: ClassVar[Aggregator]
    fewest: ClassVar[int] = 1
    many: ClassVar[int] = 5000
    words: ClassVar[Sequence[int]] = (0, 1, TOP, 2**63, 2**63 - 1)

    def rows(self, length: int) -> st.SearchStrategy[list[int]]:
        """Vectors that parties may submit."""
        word = st.sampled_from(list(self.words)) | st.integers(0, TOP)
        return st.lists(word, min_size=length, max_size=length)

    def vectors(self, parties: int, length: int, seed: int = 4) -> Vector:
        """Some vectors that parties may submit."""
        return np.random.default_rng(seed).integers(0, TOP, (parties, length), dtype=np.uint64)

    def extremes(self, length: int) -> list[list[int]]:
        """Vectors whose shares must look alike."""
        return [[0] * length, [TOP] * length]

    def servers(self) -> list[int]:
        found = allowed_servers(self.aggregator)
        assert found, f"it works with no number of servers in {SERVERS}"
        return found

    def servers_that_may_collude(self) -> list[int]:
        found = [n for n in self.servers() if self.aggregator.threat_model(n).colluding > 0]
        if not found:
            pytest.skip("the server of this aggregator is trusted with the data")
        return found

    def exchange_of(self, servers: int, vectors: Vector, blocks: int = 1) -> Exchange:
        """A finished run, with parties in a number of blocks."""
        exchange = Exchange(self.aggregator, query_for(self.aggregator, servers, *vectors.shape))
        for ids in np.array_split(np.arange(len(vectors), dtype=np.uint32), blocks):
            exchange.join(ids, vectors[ids])
        exchange.run()
        return exchange

    def sum_of(self, servers: int, vectors: Vector, blocks: int = 1) -> list[int]:
        exchange = self.exchange_of(servers, vectors, blocks)
        assert exchange.rejected == []
        assert exchange.total is not None
        assert exchange.total.contributors.tolist() == list(range(len(vectors)))
        assert exchange.total.caught == ()
        values: list[int] = exchange.total.vector.tolist()
        return values

    def test_it_says_what_it_promises(self) -> None:
        assert Offer.SUM in self.aggregator.offers
        assert self.aggregator.party_bytes
        for servers in self.servers():
            model = self.aggregator.threat_model(servers)
            assert 0 <= model.colluding <= servers
            for words in (model.behaviour, model.reveals, model.dropouts):
                assert words
                assert words in str(model)

    @settings(
        max_examples=30, suppress_health_check=[HealthCheck.differing_executors], deadline=None
    )
    @given(st.integers(0, 6), st.integers(1, 40), st.data())
    def test_sums_are_the_curators_exactly(
        self, more: int, length: int, data: st.DataObject
    ) -> None:
        parties = self.fewest + more
        servers = data.draw(st.sampled_from(self.servers()))
        drawn = data.draw(st.lists(self.rows(length), min_size=parties, max_size=parties))
        vectors = np.array(drawn, dtype=np.uint64)
        blocks = data.draw(st.integers(1, parties))
        mine = self.sum_of(servers, vectors, blocks)
        oracle = Exchange(Curator(), query_for(Curator(), 1, *vectors.shape))
        oracle.join(np.arange(parties, dtype=np.uint32), vectors)
        oracle.run()
        assert oracle.total is not None
        assert mine == oracle.total.vector.tolist()
        assert mine == [sum(row[i] for row in drawn) % 2**64 for i in range(length)]

    def test_few_parties_and_one_element(self) -> None:
        for servers in self.servers():
            for row in self.extremes(1):
                vectors = np.array([row] * self.fewest, dtype=np.uint64)
                expected = [row[0] * self.fewest % 2**64]
                assert self.sum_of(servers, vectors) == expected

    def test_many_parties(self) -> None:
        vectors = self.vectors(self.many, 9, seed=3)
        expected = vectors.sum(axis=0, dtype=np.uint64).tolist()
        for servers in self.servers():
            assert self.sum_of(servers, vectors, blocks=3) == expected

    def test_a_block_is_exactly_its_parties_one_by_one(self) -> None:
        """Every message that a party sends in a whole run, to the byte."""
        parties = max(6, self.fewest)
        vectors = self.vectors(parties, 5)
        for servers in self.servers():
            together, alone = (
                [
                    (m.sender, m.receiver, m.encode())
                    for message in self.exchange_of(servers, vectors, blocks).sent_by_parties
                    for m in message.split()
                ]
                for blocks in (2, parties)
            )
            assert sorted(together) == sorted(alone)
            assert len({sender for sender, _, _ in alone}) == parties

    def test_every_submission_on_the_wire_looks_uniform(self) -> None:
        """For extreme vectors: at least 2^13 bytes to each server, 256 cells, ALPHA."""
        parties, length = min(512, self.many), 32
        for servers in self.servers_that_may_collude():
            for row in self.extremes(length):
                for body in self.submitted(row, servers, parties):
                    assert self.looks_uniform(body)
                    assert len(np.unique(body, axis=0)) == parties

    def looks_uniform(self, body: NDArray[np.uint8]) -> bool:
        return uniform_p(body.tobytes()) > ALPHA

    def submitted(self, row: list[int], servers: int, parties: int) -> list[Bodies]:
        """What each server receives when all parties have the same vector."""
        vectors = np.array([row] * parties, dtype=np.uint64)
        sent = self.exchange_of(servers, vectors).sent_by_parties
        return [message.rows() for message in sent if message.phase is Phase.SUBMIT]

    def test_what_colluding_servers_know_looks_uniform(self) -> None:
        """Each party's shares, merged and opened by as many servers as may collude: 2^15 bytes."""
        parties, length = 256, 16
        if not isinstance(self.aggregator, OneRound):
            pytest.skip("shares of an aggregator of several rounds are not opened by `unshard`")
        for servers in self.servers_that_may_collude():
            for value in (0, TOP):
                bodies = self.submitted([value] * length, servers, parties)
                shares = [
                    [self.aggregator.merge(body[i : i + 1], length, server) for i in range(parties)]
                    for server, body in enumerate(bodies)
                ]
                colluding = self.aggregator.threat_model(servers).colluding
                for known in itertools.combinations(shares, colluding):
                    opened = [
                        self.aggregator.unshard(list(each)) for each in zip(*known, strict=True)
                    ]
                    assert uniform_p(np.stack(opened).tobytes()) > ALPHA
                opened = [self.aggregator.unshard(list(each)) for each in zip(*shares, strict=True)]
                assert np.stack(opened).tolist() == [[value] * length] * parties

    def test_malformed_submissions_are_refused_named_and_left_out(self) -> None:
        parties = max(9, self.fewest + 1)
        vectors = self.vectors(parties, 4)
        for servers in self.servers():
            for spoil in (_cut_short, _doubled):

                def way(message: Message, spoil: Spoil = spoil) -> Iterable[Message]:
                    if message.phase is not Phase.SUBMIT or 2 not in message.senders:
                        return (message,)
                    return (replace(message, body=spoil(message.body)),)

                query = query_for(self.aggregator, servers, *vectors.shape)
                exchange = Exchange(
                    self.aggregator, replace(query, min_parties=parties - 1), way=way
                )
                exchange.join(ids_of(2), vectors[2:3])
                others = np.delete(np.arange(parties, dtype=np.uint32), 2)
                exchange.join(others, vectors[others])
                exchange.expire()
                assert {refusal.sender for refusal in exchange.rejected} == {"party-2"}
                assert exchange.total is not None
                assert exchange.total.contributors.tolist() == others.tolist()
                expected = vectors[others].sum(axis=0, dtype=np.uint64)
                assert exchange.total.vector.tolist() == expected.tolist()
                assert [party for party, _ in exchange.total.caught] == [2]

    def test_duplicates_are_counted_once_and_contradictions_refused(self) -> None:
        parties = max(3, self.fewest)
        vectors = self.vectors(parties, 4)
        for servers in self.servers():
            first: list[Message] = []

            def way(message: Message, first: list[Message] = first) -> Iterable[Message]:
                """Party 0 says everything twice, and then contradicts its submission."""
                if message.senders.tolist() != [0]:
                    return (message,)
                if message.phase is not Phase.SUBMIT:
                    return (message, message)
                first.append(message)
                return (message, message, replace(message, body=message.body ^ np.uint8(1)))

            query = query_for(self.aggregator, servers, *vectors.shape)
            exchange = Exchange(self.aggregator, query, way=way)
            others = np.arange(1, parties, dtype=np.uint32)
            exchange.join(ids_of(0), vectors[:1])
            exchange.join(others, vectors[1:])
            exchange.run()
            assert [r.sender for r in exchange.rejected] == ["party-0"] * len(first)
            assert exchange.total is not None
            assert exchange.total.vector.tolist() == vectors.sum(axis=0, dtype=np.uint64).tolist()

    def test_missing_parties_are_left_out(self) -> None:
        """Nobody hears of party 2, and party 1 reaches only some of the servers."""
        parties = max(9, self.fewest + 2)
        vectors = self.vectors(parties, 4)
        for servers in self.servers():
            last = servers - 1

            def way(message: Message, last: int = last) -> Iterable[Message]:
                lost = message.phase is Phase.SUBMIT and message.receivers.tolist() == [last]
                return () if lost and message.senders.tolist() == [1] else (message,)

            query = query_for(self.aggregator, servers, *vectors.shape)
            exchange = Exchange(self.aggregator, replace(query, min_parties=parties - 2), way=way)
            others = np.delete(np.arange(parties, dtype=np.uint32), [1, 2])
            exchange.join(ids_of(1), vectors[1:2])
            exchange.join(others, vectors[others])
            exchange.run()
            assert exchange.total is None
            exchange.expire()
            assert exchange.total is not None
            assert exchange.total.contributors.tolist() == others.tolist()
            expected = vectors[others].sum(axis=0, dtype=np.uint64)
            assert exchange.total.vector.tolist() == expected.tolist()

    def test_too_few_parties_fail_the_run(self) -> None:
        parties = max(4, self.fewest + 1)
        vectors = self.vectors(parties, 4)
        for servers in self.servers():
            exchange = Exchange(
                self.aggregator, query_for(self.aggregator, servers, *vectors.shape)
            )
            exchange.join(np.arange(parties - 1, dtype=np.uint32), vectors[:-1])
            exchange.expire()
            assert exchange.total is None
            assert exchange.failed is not None
            assert str(parties) in exchange.failed.reason
