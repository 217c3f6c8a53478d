"""The contract of every aggregator, for one of the local model."""

import pytest
from renamed import Ballots

from tallyroom.extend import AggregatorContract


class TestBallots(AggregatorContract):
    aggregator = Ballots()

    def servers_that_may_collude(self) -> list[int]:
        pytest.skip("without ε the local model hides nothing")
