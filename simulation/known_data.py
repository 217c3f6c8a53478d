"""What can be said of a question where the data is at hand, as in a simulation."""

from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics import Estimate, Statistic
from tallyroom.simulation.runtimes import Opened


def unsmoothed(statistic: Statistic, opened: Opened) -> Estimate | None:
    """From the same release; decoding it again spends nothing."""
    before = statistic.before_smoothing()
    return None if before is None else before.decode(opened.total, opened.records)


def noiseless(statistic: Statistic, present: Holdings, opened: Opened) -> Estimate | None:
    """What noise was added to; None where nobody knows what was lost."""
    known = statistic.is_whole(present.rows, opened.records)
    return statistic.noiseless(present) if known else None


def with_categories(statistic: Statistic, known: str) -> Statistic:
    """The same, counting the names that the data set publishes, if it counts names."""
    if getattr(statistic, "categories", None) != "":
        return statistic
    return type(statistic).from_parameters(statistic.parameters() | {"categories": known})
