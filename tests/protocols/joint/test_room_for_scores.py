"""A coordinator that says fewer records than parties hold does not make scores wrap around."""

from fractions import Fraction

import numpy as np
import pytest

from tallyroom.protocols.joint.computation import Program
from tallyroom.protocols.joint.noise_circuit import JointGeometric
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.run.policy import DEPLOYED
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.choices import Mode
from tallyroom.protocols.statistics.ecdf import Quantile
from tallyroom.protocols.statistics.first_above import FirstAboveThreshold
from tests.protocols.joint.two_ends import BASES, Ends, shared
from tests.samples import a_query

UNIT = {"lower": 0.0, "upper": 1.0}
ASKED = [
    Mode(bins=4, **UNIT),  # type: ignore[arg-type]
    Quantile(strategy="max", thresholds=4, **UNIT),  # type: ignore[arg-type]
    FirstAboveThreshold(bins=4, threshold=3, **UNIT),  # type: ignore[arg-type]
]


def asked(statistic: Statistic) -> Query:
    """Four parties of four records, of which the question says that there are four in all: no
    party can tell."""
    query = a_query(
        statistic=statistic,
        records=4,
        max_records_per_party=4,
        epsilon=Fraction(10),
        noise=Placement.JOINT,
    )
    assert DEPLOYED.in_federation(2).refusal(query, records=4) is None
    return query


def opened(query: Query, counts: list[int]) -> int:
    """What is chosen of these counts, each noise as large as it can be drawn."""
    choice, noise = query.choice, query.joint_noise
    assert choice is not None
    assert isinstance(noise, JointGeometric)
    shares = shared(np.array(counts))
    drawn = shared(np.full(choice.noises, noise.largest))
    width = choice.width(noise.largest)

    def program(index: int, _: Randomness) -> Program:
        return choice.program(index, shares[index], drawn[index], width)

    ours, theirs = Ends(program, bases=BASES).run()
    return int((ours + theirs)[0])


@pytest.mark.parametrize("statistic", ASKED, ids=lambda each: each.name)
@pytest.mark.parametrize("bin_", range(4))
def test_all_records_in_one_bin_are_found_there(statistic: Statistic, bin_: int) -> None:
    """All noises are equal, so the choice is that without noise. Of 16 records, for 4, scores
    needed more bits than the circuit had."""
    counts = np.zeros(4, dtype=np.int64)
    counts[bin_] = 16
    if isinstance(statistic, Quantile):
        counts = np.cumsum(counts)
    assert opened(asked(statistic), counts.tolist()) == bin_
