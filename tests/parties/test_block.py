"""What a restarted party sends: the same for the same query, nothing in common for another; and
what one says again that was asked again."""

from dataclasses import replace

import numpy as np

from tallyroom.parties.block import MOST_REPEATED, PartyBlock
from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.contract import Memory
from tallyroom.protocols.pairwise.sampling.pair_assignment import meeting_messages
from tallyroom.protocols.pairwise.sampling.schedule import pairs_of
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.of_pairs import Gini
from tallyroom.protocols.wire.loop import Reply
from tallyroom.protocols.wire.machine import Continue
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tests.protocols.pairwise.gathering import a_pairs_query
from tests.samples import a_message, a_query, holdings_of


def submissions(query: Query) -> list[Message]:
    """Of a party that was just started, with the secret that it keeps."""
    block = PartyBlock(holdings_of([0.1, 0.4, 0.6, 0.9], 4), Randomness(bytes(16)))
    return block.handle(asking(query)).messages


def asking(query: Query) -> Message:
    parties = tuple(range(query.parties))
    return a_message(
        Phase.QUERY, Role.COORDINATOR, Role.PARTY, receivers=parties, body=query.encode()
    )


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


def led_to_the_end(block: PartyBlock, query: Query) -> list[Message]:
    """What an honest server told the block, stage by stage, until it had the sum."""
    server = aggregator_named(query.aggregator).server(
        query, 0, Randomness.from_seed(1, "server-0"), Memory()
    )
    told: list[Message] = []
    waiting = list(block.handle(asking(query)).messages)
    while waiting:
        message = waiting.pop(0)
        if message.receiver_role is Role.SERVER:
            step = server.receive(message)
            assert isinstance(step, Continue)
            waiting += [m for m in step.messages if m.receiver_role is Role.PARTY]
        else:
            told.append(message)
            waiting += block.handle(message).messages
    assert [m.phase for m in told] == [Phase.KEYS, Phase.DEAL, Phase.CHECK, Phase.UNMASK]
    return told


def test_parties_that_helped_to_remove_masks_do_not_begin_again() -> None:
    """A coordinator that asks again, and a server that tells them now that party 3 dropped out,
    would have the shares of both of its secrets, hence its vector."""
    query = a_query(aggregator="masking", servers=1, min_parties=3)
    holdings = holdings_of([0.1, 0.3, 0.6, 0.9], 4)
    block = PartyBlock(holdings, Randomness.from_seed(1, "parties"))
    keys, deal, check, _ = led_to_the_end(block, query)
    assert not block.handle(asking(query)).messages
    lie = replace(check, body=np.packbits([True, True, True, False]).reshape(1, -1))
    for message in (keys, deal, lie):
        outcome = block.handle(message)
        assert not outcome.messages
        assert outcome.refused


def test_parties_that_spoke_once_say_the_same_again() -> None:
    query = a_query()
    block = PartyBlock(holdings_of([0.1, 0.3, 0.6, 0.9], 4), Randomness.from_seed(1, "parties"))
    first = [m.encode() for m in block.handle(asking(query)).messages]
    assert first
    assert [m.encode() for m in block.handle(asking(query)).messages] == first


def settled(block: PartyBlock, message: Message) -> Reply:
    """What a message leads to, with what the block's parties say to each other."""
    whole, waiting = Reply(message.run), [message]
    while waiting:
        outcome = block.handle(waiting.pop(0))
        whole.refused += outcome.refused
        for answer in outcome.messages:
            (waiting if answer.between_parties else whole.messages).append(answer)
    return whole


def test_parties_that_met_and_are_asked_again_repeat_their_shares_and_do_not_meet_again() -> None:
    holdings = holdings_of([0.1, 0.9], 2)
    query = a_pairs_query(Gini(lower=0.0, upper=1.0, bits=4), holdings)
    block = PartyBlock(holdings, Randomness(bytes(16)))
    body = query.encode()
    asked = a_message(Phase.QUERY, Role.COORDINATOR, Role.PARTY, receivers=(0, 1), body=body)
    (meet,) = meeting_messages(query, pairs_of(query).sample, holdings.counts.astype("i8"))
    settled(block, asked)
    said = settled(block, meet).messages
    assert {message.phase for message in said} == {Phase.PAIRED, Phase.SUBMIT}
    met = {link: account.bytes.sum() for link, account in block.meters[query.run].accounts.items()}

    again, told_again = settled(block, asked), settled(block, meet)
    assert [m.encode() for m in again.messages] == [m.encode() for m in said]
    assert (told_again.messages, again.refused + told_again.refused) == ([], [])
    now = {link: account.bytes.sum() for link, account in block.meters[query.run].accounts.items()}
    assert {k: v for k, v in now.items() if k[1].between_parties} == {
        k: v for k, v in met.items() if k[1].between_parties
    }


def test_shares_of_pairs_are_kept_for_the_last_runs_only() -> None:
    holdings = holdings_of([0.1, 0.9], 2)
    block = PartyBlock(holdings, Randomness(bytes(16)))
    first: list[Message] = []
    for number in range(MOST_REPEATED + 1):
        query = replace(
            a_pairs_query(Gini(lower=0.0, upper=1.0), holdings), nonce=bytes([number] * 8)
        )
        body = query.encode()
        asked = a_message(Phase.QUERY, Role.COORDINATOR, Role.PARTY, receivers=(0, 1), body=body)
        asked = replace(asked, run=query.run)
        first.append(asked)
        block.handle(asked)
        assert block.expire(query.run).messages
    assert block.handle(first[0]).messages == []
    assert block.handle(first[1]).messages
