"""Curves, quantiles and running sums from the command line."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tallyroom.protocols.errors import TallyError
from tallyroom.protocols.statistics.ecdf import Ecdf, Quantile
from tallyroom.protocols.statistics.on_demand import EcdfPoints, QuantileSearch
from tallyroom.simulation import Federation
from tests.conftest import Tally

HEADER, KEY_HEADER, LEVEL, CHECK = 54, 8, 16, 192
"""Bytes of a message's header with two addresses, of the header of keys, of a level of a
key that is checked, and of what it has to be checked by."""


def document(tally: Tally, *words: object) -> dict[str, Any]:
    done = tally("run", *words, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


COMMANDS: dict[str, tuple[object, ...]] = {
    "hierarchy": ("ecdf", "--strategy", "hierarchy"),
    "hierarchy smoothed": ("ecdf", "--strategy", "hierarchy", "--smooth", 2),
    "tree": ("ecdf", "--strategy", "tree"),
    "tree smoothed in the 1-norm": ("ecdf", "--strategy", "tree", "--smooth", 1),
    "tree smoothed in the 2-norm": ("ecdf", "--strategy", "tree", "--smooth", 2, "--no-box"),
    "logarithmic": ("ecdf", "--spacing", "log", "--lower", 0.01, "--upper", 1),
    "100 thresholds": ("ecdf", "--thresholds", 100),
    "quantiles": ("quantile", "--quantile", 0.5, "--quantile", 0.99),
    "histogram": ("cumulative-histogram", "--thresholds", 16),
}


@pytest.mark.parametrize("aggregator", ["additive", "fss"])
@pytest.mark.parametrize("name", COMMANDS)
def test_every_curve_over_shares_and_keys(tally_here: Tally, name: str, aggregator: str) -> None:
    found = document(
        tally_here, *COMMANDS[name], "--aggregator", aggregator, "--epsilon", 1, "--seed", 3
    )
    assert found["privacy"]["epsilon"] == 1.0
    assert len(found["estimate"]["y"]) == len(found["truth"]["y"])
    curve = np.array(found["estimate"]["y"])
    if "smoothed" in name:
        assert (np.diff(curve) >= -1e-9).all()
    if found["statistic"] == "ecdf":
        # 20 standard deviations of the tree with two noises at n = 2000.
        assert found["error"]["max"] < 20 * np.sqrt(2 * 2 * 8**3) / 2000


def test_the_reference_solver_gives_the_same_curve(tally_here: Tally) -> None:
    pytest.importorskip("cvxopt")
    words = ("ecdf", "--strategy", "tree", "--smooth", 2, "--seed", 4)
    ours, theirs = (
        document(tally_here, *words, "--solver", solver)["estimate"]["y"]
        for solver in ("interior-point", "cvxopt")
    )
    # cvxopt stops at an absolute gap of 1e-7 in the objective, which is 2e-4 here.
    assert ours == pytest.approx(theirs, abs=1e-3)
    assert ours != theirs, "they are two solvers"


def test_the_strategy_may_be_called_mechanism_as_before(tally_here: Tally) -> None:
    words, seed = ("ecdf", "--epsilon", 1), ("tree", "--seed", 4)
    new, old = (document(tally_here, *words, f, *seed) for f in ("--strategy", "--mechanism"))
    assert new["estimate"] == old["estimate"]
    assert new["privacy"]["mechanism"].startswith("tree: ")


def test_points_and_searches_on_demand(tally_here: Tally) -> None:
    points = document(
        tally_here,
        "ecdf-points",
        "--at",
        0.25,
        "--at",
        0.75,
        "--aggregator",
        "fss",
        "--epsilon",
        "inf",
    )
    assert points["estimate"] == points["truth"]
    search = document(
        tally_here, "quantile-search", "--quantile", 0.5, "--aggregator", "fss", "--epsilon", "inf"
    )
    assert 0 <= search["estimate"] - search["truth"] < search["data"]["grid_step"] == 5e-10
    # Of 2·10^9 lines, each to both servers.
    assert search["communication"]["phases"]["ask"]["messages"] == 2 * 31
    refused = tally_here("run", "ecdf-points", "--at", 0.5)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--aggregator fss" in refused.stderr


def test_running_sums(tally_here: Tally) -> None:
    words = ("running-sum", "--data", "synthetic:stream?n=100", "--steps", 100)
    exact = document(tally_here, *words, "--epsilon", "inf")
    assert exact["estimate"]["y"] == pytest.approx(exact["truth"]["y"], abs=1e-6)
    noisy = document(tally_here, *words, "--epsilon", 1)
    # Two servers' noise on the blocks, or of scale 4/ε on the 8 nodes above a leaf.
    assert 0 < noisy["error"]["max"] < 10 * np.sqrt(2 * 60)
    tree = document(tally_here, *words, "--epsilon", 1, "--strategy", "tree")
    assert 0 < tree["error"]["max"] < 20 * np.sqrt(2 * 8 * 2 * 4**2)
    assert "tree" in tree["privacy"]["mechanism"]


def test_streams_are_planned(tally_here: Tally) -> None:
    done = tally_here(
        *("plan", "running-sum", "--data", "synthetic:stream?n=20", "--steps", 20),
        *("--stream", "--aggregator", "additive", "--parties", 4),
    )
    assert done.returncode == 0, done.stderr
    assert "stream: " in done.stdout


def test_many_thresholds_are_told_best_under_gaussian_noise(tally_here: Tally) -> None:
    words = ("ecdf", "--data", "synthetic:scores?n=500", "--thresholds", 16384, "--smooth", "none")
    gaussian = document(tally_here, *words, "--noise-law", "gaussian", "--delta", 1e-6)
    laplace = document(tally_here, *words)
    assert "square-root" in gaussian["privacy"]["mechanism"]
    assert "splines" in laplace["privacy"]["mechanism"]

    def width(found: dict[str, Any]) -> float:
        return float(np.subtract(found["interval"]["high"], found["interval"]["low"]).mean())

    assert width(gaussian) < 0.9 * width(laplace)
    square_root = ("--strategy", "square-root", "--noise-law", "gaussian", "--delta", 1e-6)
    refused = tally_here("run", *words[:-1], "2", *square_root)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "leave --smooth out" in refused.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("ecdf", "--strategy", "tree", "--smooth", 1),
        ("ecdf", "--aggregator", "fss", "--smooth", 2),
        ("quantile-search", "--aggregator", "fss", "--quantile", 0.9),
    ],
)
def test_one_seed_gives_one_curve_in_both_runtimes(
    tally_here: Tally, words: tuple[object, ...]
) -> None:
    here, there = (
        document(tally_here, *words, "--parties", 6, "--seed", 7, "--runtime", runtime)
        for runtime in ("inprocess", "processes")
    )
    assert here["estimate"] == there["estimate"] != here["truth"]
    assert here["communication"] == there["communication"]


@pytest.mark.parametrize("runtime", ["inprocess", "processes"])
def test_keys_give_the_exact_curve_at_a_price_that_thresholds_hardly_raise(
    tally_here: Tally, runtime: str
) -> None:
    """2000 parties with a record each: a key of 16 bytes a bit of N and 192 to each server."""
    sent = {}
    for aggregator, thresholds in (("fss", 64), ("fss", 128), ("additive", 64), ("additive", 128)):
        words = ("--aggregator", aggregator, "--thresholds", thresholds, "--runtime", runtime)
        found = document(tally_here, "ecdf", "--parties", 2000, "--epsilon", "inf", *words)
        assert found["estimate"] == found["truth"]
        links = found["communication"]["links"]
        sent[aggregator, thresholds] = links["party->server"]["bytes"]
    assert sent["fss", 64] == 2000 * 2 * (HEADER + KEY_HEADER + 6 * LEVEL + CHECK)
    assert sent["fss", 128] == 2000 * 2 * (HEADER + KEY_HEADER + 7 * LEVEL + CHECK)
    for thresholds in (64, 128):
        assert sent["additive", thresholds] == 2000 * (2 * HEADER + 8 * thresholds + 16)


BAD: dict[str, tuple[tuple[object, ...], str]] = {
    "a quantile above 1": (("quantile", "--quantile", 1.5), "between 0 and 1"),
    "a quantile below 0": (("quantile", "--quantile=-0.1"), "between 0 and 1"),
    "a searched quantile above 1": (
        ("quantile-search", "--aggregator", "fss", "--quantile", 2),
        "between 0 and 1",
    ),
    "unknown strategy": (("ecdf", "--strategy", "hierarchi"), "did you mean hierarchy"),
    "a hierarchy in the 1-norm": (("ecdf", "--smooth", 1), "--smooth 2, or --strategy tree"),
    "unknown norm": (("ecdf", "--smooth", 3), "smooth"),
    "no thresholds": (("ecdf", "--thresholds", 0), "--thresholds must be between"),
    "log of a range from 0": (("ecdf", "--spacing", "log", "--lower", 0), "above 0"),
    "nowhere to ask": (("ecdf-points", "--aggregator", "fss"), "--at VALUE"),
    "keys for a mean": (("mean", "--aggregator", "fss"), "cannot do mean"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_line(tally_here: Tally, name: str) -> None:
    words, expected = BAD[name]
    done = tally_here("run", *words, "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert expected in done.stderr


@pytest.mark.parametrize("aggregator", ["additive", "fss"])
def test_values_outside_the_range_are_clipped_and_counted(
    tally_here: Tally, aggregator: str
) -> None:
    found = document(
        tally_here,
        *("ecdf", "--lower", 0.25, "--upper", 0.5, "--epsilon", "inf", "--thresholds", 5),
        *("--aggregator", aggregator),
    )
    assert found["estimate"]["x"] == found["truth"]["x"] == [0.3, 0.35, 0.4, 0.45, 0.5]
    assert found["estimate"]["y"][:-1] == found["truth"]["y"][:-1]
    assert found["estimate"]["y"][-1] == 1.0, "what is above the range is clipped to its end"
    assert found["truth"]["y"][-1] < 1.0, "the truth is that of raw values"
    assert found["error"]["max"] == 1.0 - found["truth"]["y"][-1]
    assert found["noise_error"] == {"rmse": 0.0, "max": 0.0}
    (note,) = [note for note in found["notes"] if "clipped" in note]
    assert "of 2000 values lay outside [0.25, 0.5]" in note


def test_a_curve_asked_again_costs_nothing_and_another_is_refused() -> None:
    """The cap is 1: one curve, however often and however smoothed, and nothing else."""
    curve = Ecdf(value="score", thresholds=32, smooth="none")
    with Federation(parties=4, cap=1) as federation:
        first = federation.run(curve, 1)
        again = federation.run(curve, 1)
        assert again.estimate == first.estimate != first.truth
        assert again.bill.as_json()["total_bytes"] == 0
        smoothed = federation.run(Ecdf(value="score", thresholds=32, smooth="2"), 1)
        assert smoothed.unsmoothed == first.estimate
        quantile = Quantile(value="score", thresholds=32, quantile=(0.1, 0.9), strategy="hierarchy")
        assert federation.run(quantile, 1).bill.as_json()["total_bytes"] == 0
        for other in (Ecdf(value="score", thresholds=33), Ecdf(value="score", strategy="tree")):
            with pytest.raises(TallyError, match="0 of 1 is left"):
                federation.run(other, "1/100")
        with pytest.raises(TallyError, match="0 of 1 is left"):
            federation.run(curve, "1/2")


def test_points_on_demand_share_one_tree() -> None:
    points = EcdfPoints(value="score", at=(0.2, 0.6))
    with Federation(parties=4, aggregator="fss", cap=1) as federation:
        first = federation.run(points, 1)
        again = federation.run(points, 1)
        assert again.estimate == first.estimate != first.truth
        asked = again.bill.as_json()["phases"]
        assert isinstance(asked, dict)
        assert asked.keys() == {"ask", "share"}
        federation.run(QuantileSearch(value="score", quantile=(0.3, 0.7)), 1)
        with pytest.raises(TallyError, match="0 of 1 is left"):
            federation.run(points, "1/2")


@pytest.mark.parametrize("runtime", ["inprocess", "processes"])
def test_a_curve_is_given_again_and_says_so_unless_a_fresh_one_is_asked_for(runtime: str) -> None:
    curve = Ecdf(value="score", thresholds=8)
    with Federation(parties=4, hosts=1, runtime=runtime, cap=2) as federation:
        first = federation.run(curve, 1)
        again = federation.run(replace(curve, smooth="2"), 1)
        assert (first.reused, again.reused) == (False, True)
        assert again.unsmoothed == first.estimate
        assert again.bill.total.bytes == 0
        assert any(note.startswith("reused, ε 0") for note in again.notes)
        assert again.as_json()["reused"] is True
        assert "reused" not in first.as_json()
        fresh = federation.run(curve, 1, fresh=True)
        assert not fresh.reused
        assert fresh.estimate != first.estimate  # 8 noises of scale 4: equal once in 10^7 at most
        assert federation.run(curve, 1).estimate == fresh.estimate
        with pytest.raises(TallyError, match="refused: 0 of 2 is left"):
            federation.run(curve, 1, fresh=True)
        assert federation.run(curve, 1).estimate == fresh.estimate  # it is not lost by that
