"""`tally bench together`, small; pairs by servers over processes are measured, not tested, here."""

import pytest

from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.choices import Mode
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.simulation.bench import together


@pytest.mark.parametrize("statistic", [Histogram(bins=16), Mode(bins=16), together._search(16)])
def test_a_row_tells_preparation_from_the_rest(statistic: Statistic) -> None:
    row = together._in_one_process("small", statistic, 16)
    assert 0 < row.details["online_share"] < 1
    assert 0.1 < row.details["mb"] < 1
    assert row.details["cpu_s"] > 0
