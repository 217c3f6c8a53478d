"""By which way an AUC is computed where nobody says."""

from dataclasses import replace
from fractions import Fraction

import pytest

from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.statistics.of_pairs import Auc
from tallyroom.protocols.studies.settling import PublicSetting, settled, words_of
from tallyroom.simulation import Federation

HERE = PublicSetting(True, True, False, 2, 2000, 1, Fraction(1))
BOUNDS = {"score": (0.0, 1.0)}
ASKED = Auc(score="score", label="label")


def put(where: PublicSetting = HERE, asked: Auc = ASKED, known: bool = True) -> tuple[str, str]:
    found = settled(asked, where, BOUNDS if known else {})
    assert isinstance(found, Auc)
    return found.method, found.meet


def test_servers_compute_pairs_where_a_curve_errs_far_more() -> None:
    """At n = 2000 and ε = 1 the curve errs by 0.015, pairs by servers by 0.005; at ε = 5 by 0.003
    and 0.002; of a million records pairs are too many."""
    assert put() == ("pairs", "servers")
    assert put(replace(HERE, epsilon=Fraction(5))) == ("curve", "parties")
    assert put(replace(HERE, epsilon=None)) == ("curve", "parties")
    assert put(replace(HERE, records_per_unit=4, epsilon=Fraction(20))) == ("curve", "parties")
    assert put(replace(HERE, records=10**6, epsilon=Fraction(1, 10**4))) == ("curve", "parties")
    assert put(replace(HERE, meet=False)) == ("curve", "parties")


def test_scores_without_bounds_and_options_leave_fewer_ways() -> None:
    bounded = replace(ASKED, lower=0.0, upper=2.0)
    five = replace(HERE, epsilon=Fraction(5))
    assert put(five, known=False) == ("pairs", "servers")
    assert put(replace(five, meet=False), known=False) == ("pairs", "parties")
    assert put(five, bounded, known=False) == ("curve", "parties")
    assert put(five, replace(ASKED, pairs_per_party="2")) == ("pairs", "parties")
    assert put(HERE, replace(ASKED, thresholds=64)) == ("curve", "parties")
    for method in ("pairs", "curve", "smooth"):
        assert put(HERE, replace(ASKED, method=method))[0] == method
    assert put(replace(HERE, randomized=True))[0] == "auto"
    assert settled(Mean(), HERE, {}) == Mean()


def test_the_answer_says_which_way() -> None:
    curve = replace(ASKED, method="curve")
    assert "the ROC curve" in words_of(ASKED, curve)[0]
    assert words_of(curve, curve) == ()
    assert words_of(replace(ASKED, thresholds=8), replace(curve, thresholds=8)) == ()


@pytest.mark.parametrize(("aggregator", "way"), [("fss", "curve"), ("additive", "servers compute")])
def test_it_is_put_so(aggregator: str, way: str) -> None:
    with Federation(parties=4, aggregator=aggregator, seed=2) as federation:
        result = federation.run("auc", 1)
    assert result.statistic == "auc"
    assert result.error is not None
    assert result.error["max"] < 0.2
    assert any(way in note for note in result.notes)
