"""What a statistic needs is refused by whoever does not offer it, whatever the query says."""

from fractions import Fraction

import pytest

from tallyroom.protocols.aggregation import aggregators
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.offers import Offer
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.run.machines import check
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.areas import AveragePrecision
from tallyroom.protocols.statistics.on_demand import EcdfPoints, QuantileSearch
from tests.samples import a_query


@pytest.mark.parametrize(
    ("statistic", "needed", "able"),
    [
        (QuantileSearch(lower=0.0, upper=1.0), Offer.COMPARE, "fss"),
        (EcdfPoints(lower=0.0, upper=1.0, at=(0.5,)), Offer.COMPARE, "fss"),
        (AveragePrecision(lower=0.0, upper=1.0, method="smooth"), Offer.CURATE, "curator"),
    ],
    ids=lambda value: value.name if isinstance(value, Statistic) else "",
)
def test_it_is_asked_of_those_alone_that_offer_it(
    statistic: Statistic, needed: Offer, able: str
) -> None:
    others = [name for name, each in aggregators().items() if needed not in each.offers]
    assert len(others) >= 5
    for name in others:
        query = a_query(
            statistic=statistic,
            aggregator=name,
            servers=1,
            noise=Placement.CURATOR,
            epsilon=Fraction(1),
        )
        with pytest.raises(LocalError, match=f"take --aggregator {able}$"):
            check(query)
