"""What can be said of a question where the data is at hand, as in a simulation."""

from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics import Estimate, Statistic
from tallyroom.protocols.statistics.classifier_estimates import Judgements
from tallyroom.protocols.statistics.legacy import estimate_without_noise
from tallyroom.simulation.proof import Proof
from tallyroom.simulation.runtimes import Opened


def noiseless(proof: Proof, opened: Opened, present: Holdings) -> Estimate | None:
    """The same computation without noise; None where nobody knows what was lost."""
    plan = proof.plan(proof.evidence.asked_query)
    if not plan.is_whole(present.rows, opened.records):
        return None
    return estimate_without_noise(proof.statistic, plan, present, opened.records)


def beside(truth: Estimate, estimate: Estimate) -> Estimate:
    """The truth as it is told beside an estimate: curves of classifiers at the same thresholds."""
    if isinstance(truth, Judgements) and isinstance(estimate, Judgements):
        return truth.beside(estimate)
    return truth


def with_categories(statistic: Statistic, known: str) -> Statistic:
    """The same, counting the names that the data set publishes, if it counts names."""
    if getattr(statistic, "categories", None) != "":
        return statistic
    return type(statistic).from_parameters(statistic.parameters() | {"categories": known})
