"""The package's own tests: the contract of every aggregator, and nothing else."""

from pads import Pads

from tallyroom.extend import AggregatorContract


class TestPads(AggregatorContract):
    aggregator = Pads()
