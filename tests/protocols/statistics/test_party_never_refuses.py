"""Whether a party answers tells nothing of its records: a refusal has no noise, and costs no ε.

Who asks chooses columns, coefficients and how many times there are. Were a party to refuse where
its records do not fit those, a few questions would find out any value of it.
"""

from dataclasses import replace

import numpy as np
import pytest

from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.records import Holdings, deal
from tallyroom.protocols.statistics.calibration import CalibrationCounts
from tallyroom.protocols.statistics.contract import Statistic
from tallyroom.protocols.statistics.logistic_moments import LogisticMoments
from tallyroom.protocols.statistics.logistic_objective import LogisticObjective
from tallyroom.protocols.statistics.logistic_step import LogisticStep
from tallyroom.protocols.statistics.of_pairs import Auc, KendallTau, Pairwise
from tallyroom.protocols.statistics.pairwise import Pairs
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.residuals import ResidualCells, ResidualReach
from tallyroom.protocols.statistics.running_sum import RunningSum
from tallyroom.protocols.statistics.whitened_step import WhitenedStep
from tests.every_statistic import EVERY, records
from tests.protocols.statistics.local_form_samples import labelled, locally, quantized

VALUES = (0.0, 1.0, 2.0, 37.0, -1e308, 1.7e308, 5e-324, 0.5)
HUGE = (0.0, 1e308, -1e308)
AUC = Auc(lower=0.0, upper=1.0, bins="8")


def one_record(value: float) -> Holdings:
    return deal({name: np.array([value]) for name in records(1).columns}, 1)


@pytest.mark.parametrize(
    "statistic",
    [
        RunningSum(lower=0.0, upper=1.0, steps=20),
        ResidualReach(("x", "value"), "y", HUGE),
        ResidualCells(("x", "value"), "y", HUGE, side=4),
        CalibrationCounts(at=(0.5,)),
        Auc(lower=0.0, upper=1.0, method="curve"),
        Auc(lower=0.0, upper=1.0, method="smooth"),
        LogisticStep(("x=0:1",)),
        LogisticMoments(("x=0:1",)),
        WhitenedStep(("x=0:1",), whitening=(1e6,), at=(1e6, -1e6)),
        LogisticObjective(ranges=("x=0:1",)),
    ],
    ids=lambda statistic: statistic.name,
)
@pytest.mark.parametrize("value", VALUES)
def test_any_record_is_answered_for(statistic: Statistic, value: float) -> None:
    plan = planned(statistic).plan
    assert plan.encode(one_record(value)).shape == (1, plan.length)


@pytest.mark.parametrize("statistic", EVERY, ids=lambda statistic: statistic.name)
def test_no_statistic_refuses_a_number(statistic: Statistic) -> None:
    """Every installed one, in the form in which parties have it to answer."""
    for value in VALUES:
        holdings = one_record(value)
        if isinstance(statistic, Pairs):
            for facts in (Facts.of_one_server(1000), locally()):
                assert len(statistic.plan(facts).measured(holdings)) == 1
            continue
        plan = planned(statistic).plan
        assert plan.encode(holdings).shape == (1, plan.length)
        if plan.measurement is not None:
            assert len(plan.measured(holdings)) == 1


@pytest.mark.parametrize("value", VALUES)
def test_any_record_is_in_a_pair_and_in_a_report(value: float) -> None:
    records = planned(AUC).plan.measured(one_record(value))
    low, high = ([getattr(grid, end) for grid in AUC.kernel.grids] for end in ("low", "high"))
    assert (records >= low).all()
    assert (records <= high).all()
    planned(KendallTau()).plan.measured(one_record(value))
    form = quantized(Pairwise(kernel_name="auc", lower=0.0, upper=1.0, bins="4"))
    assert 0 <= int(form.exact_cells(one_record(value))[0]) < form.length
    tree = labelled(replace(AUC, bins="8"))
    assert 0 <= int(tree.measured(one_record(value))[0]) < 2 * tree.domain
