"""S1 Fig. 4 again: unbiased estimators, noise of the right size, verdicts that can fail."""

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tallyroom.protocols.garbling.laplace_circuit import CircuitLaplace
from tallyroom.protocols.kernels.estimator import Design, epsilon_each
from tallyroom.protocols.records import deal
from tallyroom.protocols.statistics.of_pairs import KendallTau
from tallyroom.simulation.reproduce import s1_kendall
from tallyroom.simulation.reproduce.classified import data_folder
from tallyroom.simulation.reproduce.confidence import Mean
from tallyroom.simulation.reproduce.contract import Scale
from tallyroom.simulation.reproduce.s1_kendall import METHODS, Errors, Sample, judge
from tests.goodness import ALPHA

CELLS = s1_kendall.synthetic(200, np.random.default_rng(1))
TRUTH = s1_kendall.tau(CELLS)
RUNS = 2000


def test_tau_is_that_of_the_statistic() -> None:
    x, y = np.divmod(CELLS, s1_kendall.LEVELS)
    holdings = deal({"x": x.astype(np.float64), "y": y.astype(np.float64)}, 10)
    assert pytest.approx(KendallTau().reference(holdings), abs=1e-12) == TRUTH


def test_made_up_ratings_have_the_tau_that_is_stated() -> None:
    """n = 200,000 records; the deviation is about 0.001."""
    cells = s1_kendall.synthetic(200_000, np.random.default_rng(2))
    assert abs(s1_kendall.tau(cells) - 0.45) < 0.01
    assert set(cells.tolist()) <= set(range(25))


def estimates(name: str, epsilon: str) -> NDArray[np.float64]:
    rng = np.random.default_rng(5)
    sample = Sample.of(CELLS, rng)
    _, method = METHODS[name]
    return np.array([method(sample, Fraction(epsilon), rng) for _ in range(RUNS)])


@pytest.mark.parametrize("name", METHODS)
def test_noise_is_centred(name: str) -> None:
    """2,000 runs on one sample of pairs."""
    found = estimates(name, "2")
    matchings = {"p1": 1, "p2": 2, "p5": 5, "total": s1_kendall.AUTOMATIC}.get(name)
    sample = Sample.of(CELLS, np.random.default_rng(5))
    centre = TRUTH
    if matchings is not None:
        centre = sample.totals[matchings] / sample.pairs(matchings)
    reach = stats.norm.isf(ALPHA / 2) * found.std(ddof=1) / math.sqrt(RUNS)
    assert abs(found.mean() - centre) < reach


@pytest.mark.parametrize("epsilon", ["0.5", "10"])
def test_noise_is_as_large_as_the_mechanisms(epsilon: str) -> None:
    """2,000 runs. A variance has a relative deviation of at most √(5/2000) = 0.05 here."""
    for name, matchings in (("p1", 1), ("p5", 5)):
        scale = Fraction(matchings * s1_kendall.DELTA_F) / Fraction(epsilon)
        wanted = CircuitLaplace(scale, 20, 64).variance / (matchings * 100)
        assert estimates(name, epsilon).var() == pytest.approx(wanted, rel=0.3)
    if epsilon == "0.5":
        total = Design(200, s1_kendall.AUTOMATIC).total_variance(s1_kendall.DELTA_F, float(epsilon))
        assert estimates("total", epsilon).var() == pytest.approx(total, rel=0.4)
    for name, left in (("all", s1_kendall.by_corollary), ("all_tight", epsilon_each)):
        each = left(float(epsilon), 199, s1_kendall.COMPOSITION_DELTA)
        all_pairs = 2 * (s1_kendall.DELTA_F / each) ** 2 / math.comb(200, 2)
        assert estimates(name, epsilon).var() == pytest.approx(all_pairs, rel=0.3)


def picture(changes: dict[tuple[float, str], float]) -> list[Errors]:
    """What the paper shows, with changes."""
    base = {"p1": 1.0, "p2": 1.5, "p5": 2.5, "response": 10.0, "response_25": 5.0}
    base |= {"all": 12.0, "all_tight": 11.0, "total": 0.1}
    found = []
    for epsilon in (0.2, 2.0, 5.0):
        values = {name: changes.get((epsilon, name), value) for name, value in base.items()}
        found.append(Errors(epsilon, {name: Mean(value, 0.0) for name, value in values.items()}))
    return found


@pytest.mark.parametrize(
    ("changes", "places"),
    [
        ({(2.0, "response"): 3.0}, [0]),
        ({(0.2, "all"): 3.0, (0.2, "response"): 11.0}, [1, 3]),
        ({(0.2, "p2"): 0.9}, [2]),
        ({(2.0, "p2"): 0.9}, []),
        ({(2.0, "response"): 13.0}, [3]),
        ({(5.0, "response"): 0.01, (5.0, "total"): 99.0}, []),
        ({(0.2, "response_25"): 0.01, (0.2, "all_tight"): 0.01}, []),
    ],
)
def test_verdict_flips(changes: dict[tuple[float, str], float], places: list[int]) -> None:
    assert all(judge(picture({}), "response", "all").values())
    after = list(judge(picture(changes), "response", "all").values())
    assert [place for place, met in enumerate(after) if not met] == places


def test_one_noise_on_the_total_must_err_least() -> None:
    assert all(s1_kendall.judge_ours(picture({})).values())
    after = list(s1_kendall.judge_ours(picture({(0.2, "total"): 1.1})).values())
    assert after == [True, True, True, True, False]


def test_ratings_come_from_the_sample_if_it_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not (data_folder() / s1_kendall.DATA_FILE).exists():
        pytest.skip("the sample of ratings is not beside the project: set TALLY_DATA")
    cells, source = s1_kendall.ratings(50_000, np.random.default_rng(1))
    assert source == "1,000 TripAdvisor reviews, resampled"
    assert abs(s1_kendall.tau(cells) - 0.414) < 0.01
    monkeypatch.setenv("TALLY_DATA", str(tmp_path))
    _, source = s1_kendall.ratings(10, np.random.default_rng(1))
    assert source == "synthetic ratings"


def test_a_small_run_says_what_it_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = replace(s1_kendall.SIZES[Scale.SMALL], records=500, runs=3)
    monkeypatch.setitem(s1_kendall.SIZES, Scale.SMALL, small)
    monkeypatch.setenv("TALLY_DATA", str(tmp_path))
    outcome = s1_kendall.run(tmp_path, Scale.SMALL)
    assert outcome.figures["data"] == "synthetic ratings"
    assert outcome.figures["records"] == 500
    assert sorted(path.name for path in outcome.files) == ["s1-fig4.csv", "s1-fig4.png"]
