"""Every installed aggregator with parties that cheat or fall silent: caught, or said to be not."""

import json
from pathlib import Path

import numpy as np
import pytest

from tallyroom.parties.data import Dataset
from tallyroom.protocols.aggregation import aggregators
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.statistics import Curve, Statistic
from tallyroom.protocols.statistics.bounded import with_bounds
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.simulation import Federation, Result
from tests.conftest import Tally

PARTIES = 12
VALUES = np.random.default_rng(5).uniform(0, 1, 3 * PARTIES)
DATA = Dataset("values", {"value": VALUES}, {"value": (0.0, 1.0)})
INSTALLED = sorted(aggregators())


def statistic_for(aggregator: str) -> Statistic:
    sums = "sum" in aggregators()[aggregator.partition("?")[0]].offers
    return Histogram(bins=4) if sums else Ecdf(thresholds=4)


EVEN = Dataset("even", {"value": VALUES[: 2 * PARTIES]}, {"value": (0.0, 1.0)})


def run(
    aggregator: str,
    *cheats: str,
    runtime: str = "inprocess",
    dropout: float = 0.0,
    after: int = 0,
    data: Dataset = DATA,
    parties: int | None = PARTIES,
) -> Result:
    with Federation(
        parties=parties,
        aggregator=aggregator,
        runtime=runtime,
        data=data,
        hosts=2,
        seed=3,
        dropout=dropout,
        drop_after=after,
        cheats=cheats,
    ) as federation:
        return federation.run(statistic_for(aggregator), "inf", deadline=1.5)


def truth_of(aggregator: str, *missing: int) -> object:
    holdings = DATA.deal(PARTIES).without(frozenset(missing))
    assert holdings is not None
    statistic = with_bounds(statistic_for(aggregator), DATA.bounds)
    return statistic.reference(holdings)


@pytest.mark.parametrize("aggregator", INSTALLED)
def test_malformed_submissions_are_always_caught(aggregator: str) -> None:
    result = run(aggregator, "2:malformed", "7:malformed")
    assert [party for party, _ in result.caught] == [2, 7]
    assert result.truth == truth_of(aggregator, 2, 7)
    assert result.estimate == result.truth
    for party, reason in result.caught_by_name:
        assert f"{party} was caught: {reason}" in result.notes
    assert not any("not caught" in note for note in result.notes)


@pytest.mark.parametrize("aggregator", INSTALLED)
def test_one_of_two_reports_is_no_whole_submission(aggregator: str) -> None:
    result = run(aggregator, "2:malformed", data=EVEN)
    assert result.caught_by_name == [("party-2", "its submission is malformed")]


@pytest.mark.parametrize("aggregator", INSTALLED)
def test_a_lie_is_caught_or_said_to_have_gone_unnoticed(aggregator: str) -> None:
    result = run(aggregator, "5:out-of-range")
    unnoticed = [note for note in result.notes if "party-5 cheated and was not caught" in note]
    kind = aggregators()[aggregator]
    if kind.threat_model(kind.servers).catches:
        assert result.caught
    if result.caught:
        assert [party for party, _ in result.caught] == [5]
        assert unnoticed == []
        assert result.estimate == result.truth == truth_of(aggregator, 5)
    else:
        assert len(unnoticed) == 1
        assert result.truth == truth_of(aggregator)


@pytest.mark.parametrize("aggregator", ["additive", "curator"])
def test_an_unnoticed_lie_is_a_thousand_records_in_one_bin(aggregator: str) -> None:
    result = run(aggregator, "5:out-of-range")
    note = f"party-5 cheated and was not caught: {aggregator} does not verify submissions"
    assert note in result.notes
    assert isinstance(result.estimate, Curve)
    assert isinstance(result.truth, Curve)
    added = np.subtract(result.estimate.y, result.truth.y)
    own, _ = np.histogram(VALUES[15:18], bins=4, range=(0, 1))
    assert (added + own).tolist() == [0, 0, 0, 3000]


def test_two_keys_for_one_record_go_unnoticed_below_the_largest_party() -> None:
    """Party 0 holds one record, the others three: two keys could be honest, six cannot."""
    owner = np.repeat(np.arange(4), [1, 3, 3, 3]).astype(np.int64)
    data = Dataset("owned", {"value": VALUES[:10]}, {"value": (0.0, 1.0)}, owner=owner)
    below = run("fss?verified=no", "0:out-of-range", data=data, parties=None)
    assert below.caught == ()
    assert "party-0 cheated and was not caught: fss does not verify submissions" in below.notes
    assert isinstance(below.estimate, Curve)
    assert isinstance(below.truth, Curve)
    twice = np.array(below.estimate.y) - np.array(below.truth.y)
    assert twice[-1] == pytest.approx(0.1)
    past = run("fss?verified=no", "1:out-of-range", data=data, parties=None)
    assert past.caught_by_name == [("party-1", "its submission is malformed")]
    assert past.estimate == past.truth


@pytest.mark.parametrize("aggregator", ["additive", "fss"])
def test_runtimes_agree_on_who_is_caught(aggregator: str) -> None:
    cheats = ("2:malformed", "5:out-of-range")
    here, there = (
        run(aggregator, *cheats, runtime=runtime, dropout=0.25)
        for runtime in ("inprocess", "processes")
    )
    assert here.caught == there.caught
    assert here.caught
    assert here.estimate == there.estimate
    assert here.truth == there.truth
    assert here.notes == there.notes


@pytest.mark.parametrize("aggregator", INSTALLED)
@pytest.mark.parametrize("after", [1, 9])
def test_whoever_is_in_the_sum_is_in_the_truth(aggregator: str, after: int) -> None:
    """Some fall silent after their first message, or after their last."""
    result = run(aggregator, dropout=0.25, after=after)
    assert result.estimate == result.truth
    if after == 9 or aggregators()[aggregator].stages == 1:
        assert result.truth == truth_of(aggregator)
        assert any(
            "3 parties fell silent" in n and "3 of them in the sum" in n for n in result.notes
        )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--cheat", "1:lying"), "no way to cheat 'lying'; there are out-of-range, malformed"),
        (("--cheat", "1:malformd"), "did you mean malformed"),
        (("--cheat", "20:malformed"), "there are parties 0 to 19"),
        (("--cheat", "1:malformed", "--cheat", "1:out-of-range"), "party-1 cheats already"),
        (("--cheat", "malformed"), "say who and how"),
        (("--cheat", "-1:malformed"), "say who and how"),
        (("--cheat", "²:malformed"), "say who and how"),
        (("--drop-after", "-1"), "--drop-after -1"),
        (
            ("--data", "synthetic:linear", "--cheat", "1:out-of-range"),
            "kendall-tau is computed in circuits",
        ),
        (("--cheat", "1:malformed", "--runtime", "docker"), "for simulated parties"),
        (("--parties", "1", "--cheat", "0:malformed"), "leaves none of 1 parties"),
        (
            ("--cheat", "1:malformed", "--coordinator", "x:1", "--identity", "x"),
            "--cheat is for simulations",
        ),
        (
            ("--drop-after", "1", "--coordinator", "x:1", "--identity", "x"),
            "--drop-after is for simulations",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_bad_scripts(tally_here: Tally, words: tuple[str, ...], reason: str) -> None:
    statistic = "kendall-tau" if "kendall-tau" in reason else "mean"
    done = tally_here("run", statistic, *words, "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert reason in done.stderr


def test_what_was_caught_is_printed_and_written(tally_here: Tally, tmp_path: Path) -> None:
    words = ("run", "mean", "--parties", 6, "--cheat", "2:malformed", "--out", "out")
    done = tally_here(*words, "--json")
    expected = [{"party": "party-2", "reason": "its submission is malformed"}]
    assert json.loads(done.stdout)["caught"] == expected
    folder = tmp_path / "work" / "out"
    assert json.loads((folder / "result.json").read_text())["caught"] == expected
    page = (folder / "report.html").read_text()
    assert "<h2>Caught</h2><table><tr><th>party-2</th><td>its submission is malformed" in page
    plain = tally_here(*words)
    assert "caught      party-2: its submission is malformed" in plain.stdout
    assert "party-2 was caught: its submission is malformed" in plain.stderr
    assert "caught" not in json.loads(tally_here("run", "mean", "--json").stdout)


def test_a_federation_refuses_a_script_that_leaves_nobody() -> None:
    with pytest.raises(LocalError, match="leaves none"):
        Federation(parties=4, data=DATA, dropout=0.75, cheats=["1:malformed"])
