"""Two parties by themselves, and what they refuse."""

import numpy as np

from tallyroom.protocols.pairwise.sampling.pair_assignment import meeting_messages
from tallyroom.protocols.pairwise.sampling.schedule import pairs_of
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.run.machines import party_machine
from tallyroom.protocols.statistics.of_pairs import Gini
from tallyroom.protocols.wire.machine import Continue, Rejected
from tallyroom.protocols.wire.messages import Message
from tests.protocols.pairwise.gathering import a_pairs_query, held, ratings

GINI = Gini(lower=0.0, upper=1.0, bits=8, pairs_per_party="all")


class Lone:
    """Party 1 of two, which garbles; and party 0, which evaluates, by itself."""

    def __init__(self) -> None:
        self.holdings = held([2, 2], ratings(4))
        self.query = a_pairs_query(GINI, self.holdings)
        counts = self.holdings.counts.astype(np.int64)
        self.meetings = meeting_messages(self.query, pairs_of(self.query).sample, counts)
        blocks = list(self.holdings.blocks(2))
        self.evaluator, self.garbler = (
            party_machine(self.query, block, Randomness.from_seed(5, "parties")) for block in blocks
        )

    def meeting(self, party: int) -> Message:
        (message,) = self.meetings
        return message.select(np.array([party]))

    def opening(self) -> Message:
        step = self.evaluator.receive(self.meeting(0))
        assert isinstance(step, Continue)
        (message,) = step.messages
        return message


def refusal(step: object) -> str:
    assert isinstance(step, Rejected)
    return step.reason
