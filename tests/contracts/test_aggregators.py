"""Every installed aggregator that offers sums passes the contract."""

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from tallyroom.extend import AggregatorContract
from tallyroom.protocols.aggregation import aggregator_named, aggregators
from tallyroom.protocols.aggregation.additive import Additive
from tallyroom.protocols.aggregation.conformance import allowed_servers, query_for
from tallyroom.protocols.aggregation.curator import Curator
from tallyroom.protocols.aggregation.local.aggregator import Local
from tallyroom.protocols.aggregation.masking.aggregator import Masking
from tallyroom.protocols.aggregation.prio3.aggregator import Prio3
from tallyroom.protocols.aggregation.shamir import Shamir
from tallyroom.protocols.aggregation.shuffle.aggregator import Shuffle
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.identity.sealing import PUBLIC_BYTES


class TestCurator(AggregatorContract):
    aggregator = Curator()


class TestAdditive(AggregatorContract):
    aggregator = Additive()


class TestPrio3(AggregatorContract):
    """Each vector is that of a record: a single 1."""

    aggregator = Prio3()

    def rows(self, length: int) -> st.SearchStrategy[list[int]]:
        return st.integers(0, length - 1).map(lambda place: one_hot(length, place))

    def vectors(self, parties: int, length: int, seed: int = 4) -> Vector:
        places = np.random.default_rng(seed).integers(0, length, parties)
        return np.eye(length, dtype=np.uint64)[places]

    def extremes(self, length: int) -> list[list[int]]:
        return [one_hot(length, 0), one_hot(length, length - 1)]


def one_hot(length: int, place: int) -> list[int]:
    return [int(i == place) for i in range(length)]


class TestMasking(AggregatorContract):
    aggregator = Masking()
    many = 60

    def servers_that_may_collude(self) -> list[int]:
        """The server sees masked vectors; on whose side parties may be is another matter."""
        return [1]


class TestSparseMasking(TestMasking):
    aggregator = Masking(neighbours="4", threshold=3)
    fewest = 5
    many = 300


class TestShamir(AggregatorContract):
    aggregator = Shamir()


class TestShuffle(AggregatorContract):
    aggregator = Shuffle()

    def servers_that_may_collude(self) -> list[int]:
        """The shuffler alone sees sealed reports: that it must not collude is another matter."""
        return [1]

    def looks_uniform(self, body: NDArray[np.uint8]) -> bool:
        """But for the byte with the high bit of the X25519 point, which is always 0."""
        assert (body[:, PUBLIC_BYTES - 1] < 128).all()
        return super().looks_uniform(np.delete(body, PUBLIC_BYTES - 1, axis=1))


class TestLocal(AggregatorContract):
    aggregator = Local()

    def servers_that_may_collude(self) -> list[int]:
        """An exact sum has no ε, so there is nothing to randomize: its vectors are in the clear."""
        pytest.skip("without ε the local model hides nothing")


def test_every_installed_aggregator_of_sums_is_under_contract() -> None:
    tested = {kind.aggregator.name for kind in AggregatorContract.__subclasses__()}
    assert {name for name, each in aggregators().items() if "sum" in each.offers} <= tested


def test_numbers_of_servers() -> None:
    assert allowed_servers(Curator()) == [1]
    assert allowed_servers(Additive()) == [2, 3, 4, 5]
    with pytest.raises(LocalError, match="additive needs at least 2 servers, not 1"):
        Additive().check(query_for(Additive(), 1, 1, 1))
    with pytest.raises(LocalError, match="curator has 1 server, not 2"):
        Curator().check(query_for(Curator(), 2, 1, 1))


def test_any_servers_but_one_may_collude_in_additive() -> None:
    for servers in (2, 3, 4):
        assert Additive().threat_model(servers).colluding == servers - 1


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("additive?seeds=2", "additive has no option 'seeds=2'; it takes no options"),
        ("additiv", "did you mean additive"),
    ],
)
def test_what_is_wrong_with_a_spec_is_said(spec: str, reason: str) -> None:
    with pytest.raises(LocalError, match=reason):
        aggregator_named(spec)
