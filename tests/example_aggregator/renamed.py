"""Aggregators under other names: they state what they offer, and are asked accordingly."""

from typing import ClassVar

from tallyroom.protocols.aggregation.curator import Curator
from tallyroom.protocols.aggregation.local.aggregator import Local


class Ballots(Local):
    """Randomized reports to one server that nobody needs to trust."""

    name: ClassVar[str] = "ballots"


class Trustee(Curator):
    """One server that sees every vector."""

    name: ClassVar[str] = "trustee"
