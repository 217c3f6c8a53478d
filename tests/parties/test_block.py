"""What a restarted party sends: the same for the same query, nothing in common for another."""

from parties.block import PartyBlock
from protocols.messages import Message, Phase, Role
from protocols.query import Query
from protocols.randomness import Randomness
from protocols.statistics import Histogram
from tests.samples import a_message, a_query, holdings_of


def submissions(query: Query) -> list[Message]:
    """Of a party that was just started, with the secret that it keeps."""
    block = PartyBlock(holdings_of([0.1, 0.4, 0.6, 0.9], 4), Randomness(bytes(16)))
    body = query.encode()
    asked = a_message(Phase.QUERY, Role.COORDINATOR, Role.PARTY, receivers=(0, 1, 2, 3), body=body)
    return block.handle(asked).messages


def test_a_restarted_party_repeats_itself_to_the_byte() -> None:
    first, again = submissions(a_query()), submissions(a_query())
    assert [m.encode() for m in first] == [m.encode() for m in again]


def test_another_query_under_the_same_run_is_masked_anew() -> None:
    """Else who holds both masked vectors would see their difference."""
    other = a_query(statistic=Histogram(lower=0.0, upper=2.0, bins=4))
    first, second = submissions(a_query()), submissions(other)
    for before, after in zip(first, second, strict=True):
        assert not (before.body == after.body).all(axis=1).any()
    seeds_before, seeds_after = first[1].body, second[1].body
    assert {row.tobytes() for row in seeds_before}.isdisjoint(row.tobytes() for row in seeds_after)
