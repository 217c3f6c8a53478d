"""For packages that add to Tallyroom: the contracts to fulfil, and the suites that hold them to it.

An aggregator, a statistic, a study, a kernel of pairs, a noise law, a runtime or a figure is found
by its name through an entry point of your package (`tallyroom.aggregators`, `tallyroom.statistics`,
`tallyroom.studies`, `tallyroom.kernels`, `tallyroom.noise_laws`, `tallyroom.runtimes`,
`tallyroom.figures`).
`docs/extending.md` has examples.

The suites need pytest and hypothesis, and are loaded when they are asked for:

    from tallyroom.extend import AggregatorContract

    class TestMine(AggregatorContract):
        aggregator = Mine()
"""

import importlib
from typing import TYPE_CHECKING, Any

from tallyroom.protocols.aggregation.contract import (
    Aggregator,
    Bodies,
    Bulk,
    Ids,
    ThreatModel,
    Total,
)
from tallyroom.protocols.aggregation.mechanism import AddedNoise, Mechanism
from tallyroom.protocols.aggregation.one_round import OneRound
from tallyroom.protocols.algebra.ring import Vector, add_shares, signed
from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.kernels.contract import Grid, Kernel, Output
from tallyroom.protocols.offers import Offer, Offers
from tallyroom.protocols.plans.contract import (
    Curated,
    CuratorMechanism,
    Encoding,
    NoisyChoice,
    NoisySum,
    PlainSum,
    Plan,
    Strategy,
)
from tallyroom.protocols.plans.encodings import ClippedNumber, EqualBins, Names
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace, Placement
from tallyroom.protocols.privacy.noise_law import NoiseLaw, Sensitivity
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.bounded import Bounded, BoundedColumn, Clipped, OneColumn
from tallyroom.protocols.statistics.contract import Statistic
from tallyroom.protocols.statistics.estimates import Bins, Counts, Curve, Estimate
from tallyroom.protocols.statistics.option import option, role
from tallyroom.protocols.statistics.release import Answer, Noise, Release
from tallyroom.protocols.studies.contract import Ask, Finding, Steps, Study
from tallyroom.simulation.reproduce.contract import Figure, Outcome, Scale, write_table
from tallyroom.simulation.runtimes.contract import Layout, Opened, Progress, Report, Runtime

if TYPE_CHECKING:
    from tallyroom.protocols.aggregation.conformance import (
        AggregatorContract as AggregatorContract,
    )
    from tallyroom.protocols.privacy.conformance import NoiseLawContract as NoiseLawContract
    from tallyroom.protocols.statistics.conformance import StatisticContract as StatisticContract
    from tallyroom.protocols.studies.conformance import StudyContract as StudyContract
    from tallyroom.simulation.reproduce.conformance import FigureContract as FigureContract
    from tallyroom.simulation.runtimes.conformance import RuntimeContract as RuntimeContract

SUITES = {
    "AggregatorContract": "tallyroom.protocols.aggregation.conformance",
    "NoiseLawContract": "tallyroom.protocols.privacy.conformance",
    "StatisticContract": "tallyroom.protocols.statistics.conformance",
    "StudyContract": "tallyroom.protocols.studies.conformance",
    "RuntimeContract": "tallyroom.simulation.runtimes.conformance",
    "FigureContract": "tallyroom.simulation.reproduce.conformance",
}


def __getattr__(name: str) -> Any:
    """The suites, which need pytest."""
    if name in SUITES:
        return getattr(importlib.import_module(SUITES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AddedNoise",
    "Aggregator",
    "Answer",
    "Ask",
    "Bins",
    "Bodies",
    "Bounded",
    "BoundedColumn",
    "Bulk",
    "Clipped",
    "ClippedNumber",
    "Column",
    "Counts",
    "Curated",
    "CuratorMechanism",
    "Curve",
    "DiscreteLaplace",
    "Encoding",
    "EqualBins",
    "Estimate",
    "Facts",
    "Figure",
    "Finding",
    "Grid",
    "Holdings",
    "Ids",
    "Interval",
    "Kernel",
    "Layout",
    "LocalError",
    "Mechanism",
    "Names",
    "Noise",
    "NoiseLaw",
    "NoisyChoice",
    "NoisySum",
    "Offer",
    "Offers",
    "OneColumn",
    "OneRound",
    "Opened",
    "Outcome",
    "Output",
    "Placement",
    "PlainSum",
    "Plan",
    "PrivacyLoss",
    "Progress",
    "Query",
    "Randomness",
    "Release",
    "Report",
    "RunFailed",
    "Runtime",
    "Scale",
    "Sensitivity",
    "Statistic",
    "Steps",
    "Strategy",
    "Study",
    "ThreatModel",
    "Total",
    "Vector",
    "add_shares",
    "option",
    "role",
    "signed",
    "write_table",
]
