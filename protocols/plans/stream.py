"""The plan of sums that are told while records arrive, batch by batch (S0 Appendix A)."""

from dataclasses import dataclass

import numpy as np

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import NoisySum
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.privacy.sums_over_time import BlocksAsTheyFill

PLACEMENTS = (Placement.EACH_SERVER, Placement.CURATOR, Placement.SHARED)
"""Who can draw the noise of a block when it is complete."""


@dataclass(frozen=True)
class Stream(NoisySum):
    """Parties submit a batch of records for every time, and servers release the sums of the blocks
    of times that it completes: all is asked once and paid for once."""

    @property
    def filling(self) -> BlocksAsTheyFill:
        assert isinstance(self.strategy, BlocksAsTheyFill)
        return self.strategy

    @property
    def batches(self) -> int:
        return self.filling.steps

    @property
    def batch_length(self) -> int:
        """How many ring elements there are in a batch: a sum, and how many records are in it."""
        return 1 + self.filling.counts_records

    def released_at(self, batch: int, exact: bool = False) -> int:
        """How many values are released after a batch; batches are numbered from 0. The sum itself,
        where no noise is added."""
        completed = self.filling.completed
        blocks = 1 if exact else int(completed[batch + 1] - completed[batch])
        return blocks + self.filling.counts_records

    def in_order(self, batches: list[Vector]) -> Vector:
        """All that is released, from what is released after each batch: the blocks as they were
        completed, or the sums; then how many records there are up to each batch."""
        counted = self.filling.counts_records
        blocks = [each[: len(each) - counted] for each in batches]
        return np.concatenate([*blocks, *(each[len(each) - counted :] for each in batches)])

    def check_asked(self, parties: int, noise: Placement) -> None:
        super().check_asked(parties, noise)
        if noise not in PLACEMENTS:
            raise LocalError(
                f"{noise} noise is not drawn batch by batch: take --noise each-server or curator"
            )
