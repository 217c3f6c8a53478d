"""Who holds which records: dealt evenly or by owner, and the same in any number of blocks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.records import Holdings, deal, deal_by


def by_party(holdings: Holdings) -> dict[int, list[float]]:
    ends = [*holdings.starts.tolist()[1:], holdings.rows]
    values = holdings.column("value")
    return {
        party: values[start:end].tolist()
        for party, start, end in zip(holdings.ids.tolist(), holdings.starts, ends, strict=True)
    }


@given(st.integers(1, 60), st.data())
def test_records_are_dealt_evenly_and_in_order(rows: int, data: st.DataObject) -> None:
    parties = data.draw(st.integers(1, rows))
    values = np.arange(rows, dtype=float)
    holdings = deal({"value": values}, parties)
    held = by_party(holdings)
    assert list(held) == list(range(parties))
    assert [v for party in held.values() for v in party] == values.tolist()
    assert holdings.counts.tolist() == [len(party) for party in held.values()]
    assert holdings.counts.max() - holdings.counts.min() <= 1
    assert holdings.counts.min() >= 1


@given(st.integers(1, 40), st.data())
def test_blocks_hold_the_same_records(rows: int, data: st.DataObject) -> None:
    parties = data.draw(st.integers(1, rows))
    count = data.draw(st.integers(1, parties))
    whole = deal({"value": np.arange(rows, dtype=float)}, parties)
    blocks = list(whole.blocks(count))
    assert len(blocks) == count
    sizes = [len(block.ids) for block in blocks]
    assert max(sizes) - min(sizes) <= 1
    joined: dict[int, list[float]] = {}
    for block in blocks:
        joined |= by_party(block)
    assert joined == by_party(whole)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=40))
def test_owners_keep_their_records_in_order(owner: list[int]) -> None:
    values = np.arange(len(owner), dtype=float)
    holdings = deal_by({"value": values}, np.array(owner))
    held = list(by_party(holdings).values())
    names = sorted(set(owner))
    assert held == [[float(i) for i, name in enumerate(owner) if name == each] for each in names]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), min_size=1, max_size=40))
def test_cells_are_counted_for_each_party(records: list[tuple[int, int]]) -> None:
    owner, cells = np.array(records).T
    holdings = deal_by({"value": cells.astype(float)}, owner)
    counts = holdings.count_by_party(holdings.column("value").astype(np.int64), 7)
    assert counts.dtype == np.uint64
    assert counts.tolist() == [
        [held.count(cell) for cell in range(7)] for held in by_party(holdings).values()
    ]


@pytest.mark.parametrize("parties", [0, -1, 6])
def test_impossible_numbers_of_parties(parties: int) -> None:
    with pytest.raises(LocalError, match="part"):
        deal({"value": np.zeros(5)}, parties)


def test_a_party_is_in_a_block_once() -> None:
    with pytest.raises(LocalError, match="twice"):
        Holdings(np.array([1, 1], dtype=np.uint32), np.array([0, 1]), {"value": np.zeros(2)})


def test_an_unknown_column_is_named_with_those_there_are() -> None:
    with pytest.raises(LocalError, match="no column 'age' in the data"):
        deal({"value": np.zeros(1)}, 1).column("age")


def test_records_of_some_parties_repeated() -> None:
    columns = {"value": np.array([1.0, 2.0, 3.0, 4.0]), "label": np.array([0.0, 1.0, 0.0, 1.0])}
    holdings = Holdings(np.array([5, 7, 9], dtype=np.uint32), np.array([0, 1, 3]), columns)
    repeated = holdings.repeated(frozenset({7, 8}), 2)
    assert repeated.ids.tolist() == [5, 7, 9]
    assert repeated.counts.tolist() == [1, 4, 1]
    assert repeated.starts.tolist() == [0, 1, 5]
    assert repeated.column("value").tolist() == [1.0, 2.0, 2.0, 3.0, 3.0, 4.0]
    assert repeated.column("label").tolist() == [0.0, 1.0, 1.0, 0.0, 0.0, 1.0]
    assert holdings.repeated(frozenset(), 9).column("value").tolist() == [1.0, 2.0, 3.0, 4.0]
