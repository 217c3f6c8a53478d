"""Every installed statistic has a plan, and it is that of the runs that follow.

A plan is made on uniform values and knows none of those that are asked about.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tallyroom.protocols.aggregation import aggregator_names
from tallyroom.protocols.cells import encode_cells
from tallyroom.protocols.errors import LocalError, TallyError
from tallyroom.protocols.statistics import offered
from tallyroom.protocols.studies import studies
from tallyroom.simulation.command.common import RunOptions
from tallyroom.simulation.command.plan import PlanOptions, plan_statistic, planning_of, rehearsal
from tallyroom.simulation.command.run import simulate
from tallyroom.simulation.planning.plan import (
    BYTES_WITHIN,
    CARRIED_WITHIN,
    Planned,
    least_epsilon,
    noise_of,
    settled,
)
from tallyroom.simulation.planning.plan import plan as planned
from tallyroom.simulation.planning.rehearsal import MOST_MEETINGS, Rehearsal
from tallyroom.simulation.planning.thresholds import LADDER
from tests.conftest import Tally
from tests.statistical.promises import understood

RECORDS, PARTIES = 24, 3
EPSILON = "30"
OWN = {
    "ecdf-points": ["--at=0.5"],
    "kaplan-meier": ["--event=label"],
    "nelson-aalen": ["--event=label"],
    "log-rank": ["--event=label", "--group=x", "--groups=0,1"],
    "anova": ["--group=label", "--groups=0,1"],
    "crosstab": ["--down=label", "--across=x", "--down-names=0,1", "--across-names=0,1"],
    "chi-square": ["--down=label", "--across=x", "--down-names=0,1", "--across-names=0,1"],
    "covariance": ["--range=x=0:1", "--range=y=0:1"],
    "correlation": ["--range=x=0:1", "--range=y=0:1"],
    "pairwise": ["--kernel=abs(a.score - b.score)"],
    "hosmer-lemeshow": ["--groups=3"],
    # Of few pairs, chance decides how many are between parties, and so cost bytes.
    "gini-coefficient": ["--pairs-per-party=all"],
    "linear-regression": ["--range=x=0:1", "--range=y=0:1"],
    "logistic-regression": ["--range=x=0:1"],
    "residual-plot": ["--range=x=0:1", "--range=y=0:1"],
    "cox": ["--range=x=0:1", "--event=label", "--upper=8"],
    "projected-histogram": ["--target=label", "--attribute=label=0,1", "--attribute=score=0:1"],
    "multinomial-regression": ["--target=label", "--attribute=label=0,1", "--attribute=score=0:1"],
}
"""Options without which it cannot be asked."""
NAMES = sorted({**offered(), **studies()})


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Skewed values: no plan expects them."""
    generator = np.random.default_rng(5)
    score = generator.beta(2, 4, RECORDS)
    label = (generator.uniform(size=RECORDS) < score + 0.1).astype(int)
    x, y = generator.beta(4, 2, (2, RECORDS))
    path = tmp_path_factory.mktemp("plans") / "data.csv"
    table = np.column_stack([score, label, x, y, 1 + np.arange(RECORDS) % 8])
    np.savetxt(path, table, delimiter=",", header="score,label,x,y,time", comments="", fmt="%.6g")
    return f"{path}?value=score&score=score&label=label&x=x&y=y&time=time"


def words_for(name: str, data: str) -> list[str]:
    kind: Any = {**offered(), **studies()}[name]
    own = {option.flag for option in kind.options()}
    bounds = [f"{flag}={value}" for flag, value in (("--lower", 0), ("--upper", 1)) if flag in own]
    common = [f"--data={data}", f"--parties={PARTIES}", "--delta=1e-5"]
    return [*common, *bounds, *OWN.get(name, [])]


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_is_that_of_the_runs_that_follow(name: str, data: str) -> None:
    """Bytes and privacy of the rehearsal on uniform values. The error too, where it does not depend
    on data; where it does, a plan says so and promises nothing."""
    words = words_for(name, data)
    rehearse = rehearsal(*understood(name, PlanOptions, words))
    answered = 0
    for spec in aggregator_names():
        asked = [*words, f"--epsilon={EPSILON}", f"--aggregator={spec}", "--seed=9"]
        try:
            rehearsed = rehearse(spec, EPSILON, 0)
        except TallyError:
            with pytest.raises(TallyError):  # the run says the same
                simulate(*understood(name, RunOptions, asked))
            continue
        result = simulate(*understood(name, RunOptions, asked))
        answered += 1
        where = f"{name}, {spec}"
        found, stated = result.bill.total.bytes, rehearsed.bill.total.bytes
        assert found == pytest.approx(stated, rel=BYTES_WITHIN), where
        # A study's mechanism tells cells and buckets that the data chose.
        told, asked_for = (
            dataclasses.replace(r.privacy, mechanism="") for r in (rehearsed, result)
        )
        assert told == asked_for, where
        assert settled(rehearsed) == settled(result), where
        if settled(rehearsed):
            assert noise_of(result) == pytest.approx(noise_of(rehearsed), rel=1e-9), where
    assert answered, f"{name} has no plan with any aggregator"


def mean_plan(**changes: Any) -> Rehearsal:
    words = [f"--{key.replace('_', '-')}={value}" for key, value in changes.items()]
    return rehearsal(*understood("mean", PlanOptions, words))


def test_the_least_epsilon_is_the_closed_forms() -> None:
    """A curator's Laplace noise on a mean of n records in [0, 1] has deviation √2 / (n ε)."""
    rehearse = mean_plan(data="synthetic:scores?n=200", parties=5)
    found = least_epsilon(rehearse, "curator", 0.01)
    records = 200
    least = np.sqrt(2) / (0.01 * records)
    assert found.error is not None
    assert found.error <= 0.01
    assert found.epsilon is not None
    assert least <= found.epsilon * 1.001
    assert found.epsilon <= 1.02 * least


def test_a_target_that_no_epsilon_meets_is_told() -> None:
    rehearse = mean_plan(data="synthetic:scores?n=50", parties=5)
    with pytest.raises(LocalError, match="no ε"):
        least_epsilon(rehearse, "curator", 1e-9)


def test_a_large_federation_is_carried_on_from_smaller_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rehearse = mean_plan(data="synthetic:scores?n=400", parties=200)
    whole = planned(rehearse, "additive", "1")
    monkeypatch.setattr("tallyroom.simulation.planning.rehearsal.MOST_PARTIES", 50)
    assert [part.parties for part in rehearse.parts("additive", "1")] == [50, 25]
    carried = planned(rehearse, "additive", "1")
    assert isinstance(whole, Planned)
    assert carried.party_bytes == pytest.approx(whole.party_bytes, rel=CARRIED_WITHIN)
    assert carried.total_bytes == pytest.approx(whole.total_bytes, rel=CARRIED_WITHIN)
    assert carried.server_bytes == pytest.approx(whole.server_bytes, rel=CARRIED_WITHIN)
    assert carried.error == pytest.approx(whole.error, rel=CARRIED_WITHIN)


@pytest.mark.parametrize(
    "asked",
    [
        ["--parties=9", "--data=synthetic:scores?n=45"],
        ["--parties=22", "--data=synthetic:scores?n=88", "--meetings=few"],
    ],
)
def test_many_meetings_are_carried_on_from_few(asked: list[str]) -> None:
    """The bill of 36 meetings or more, from that of four smaller federations, against the run."""
    words = [*asked, "--epsilon=1"]
    rehearse = rehearsal(*understood("gini", PlanOptions, words))
    assert rehearse.size("additive", "1", rehearse.whole)[2] > MOST_MEETINGS
    assert max(part.parties for part in rehearse.parts("additive", "1")) == 6
    found = planned(rehearse, "additive", "1")
    bill = simulate(*understood("gini", RunOptions, [*words, "--seed=4"])).bill
    assert found.total_bytes == pytest.approx(bill.total.bytes, rel=BYTES_WITHIN)
    assert found.party_bytes == pytest.approx(bill.party_bytes().mean(), rel=BYTES_WITHIN)


@pytest.mark.parametrize("positive", [[], ["--positive=2"]])
def test_labels_of_a_file_may_have_any_name(tmp_path: Path, positive: list[str]) -> None:
    """The label column is the one that the question names; its values are not read."""
    path = tmp_path / "file.csv"
    path.write_text("ill,s\n" + "-7,0.25\n" * 40)
    words = [f"--data={path}", "--label=ill", "--score=s", "--lower=0", "--upper=1", *positive]
    for name in ("roc", "average-precision", "auc"):
        rehearse = rehearsal(*understood(name, PlanOptions, [*words, "--parties=4"]))
        chosen = rehearse.records.columns["ill"] == (2.0 if positive else 1.0)
        assert np.count_nonzero(chosen) == 20
        assert planned(rehearse, "additive", "1").error is not None


def test_public_names_are_drawn(tmp_path: Path) -> None:
    path = tmp_path / "file.csv"
    path.write_text("sex,age\n" + "unknown,7\n" * 40)
    words = [f"--data={path}", "--target=sex", "--attribute=sex=f,m", "--attribute=age=0:100"]
    rehearse = rehearsal(*understood("projected-histogram", PlanOptions, words))
    found = rehearse.records.columns
    assert set(found["sex"].view(np.uint64)) == set(encode_cells(["f", "m"]).view(np.uint64))
    assert 0 <= found["age"].min() < 20 < 80 < found["age"].max() <= 100


def test_public_records_are_as_many_as_private_ones(tmp_path: Path) -> None:
    public = tmp_path / "public.csv"
    public.write_text("score\n" + "0.5\n0.75\n" * 10)
    rehearse = mean_plan(data="synthetic:scores?n=200", parties=5, public=f"{public}?value=score")
    assert rehearse.whole == (5, 200)
    assert set(rehearse.records.columns["score"]) == {0.5, 0.75}


def test_values_of_private_data_are_not_read(tmp_path: Path, capsys: Any) -> None:
    """Two files that differ in every value have one plan, to the last digit but for time."""
    shown = []
    for name, value in (("a", 0.1), ("b", 0.9)):
        path = tmp_path / f"{name}.csv"
        path.write_text("v\n" + f"{value}\n" * 30)
        words = [f"--data={path}?value=v", "--lower=0", "--upper=1", "--json", "--thresholds=8"]
        plan_statistic(*understood("ecdf", PlanOptions, words))
        document = json.loads(capsys.readouterr().out)
        for each in document["plans"]:
            del each["seconds"], each["memory"]
        shown.append(document)
    assert shown[0] == shown[1]


@pytest.mark.parametrize("word", ["--target-error=0", "--target-bytes=nan", "--out=x", "--seed=3"])
def test_bad_input_gets_one_line(word: str) -> None:
    with pytest.raises(LocalError):
        plan_statistic(*understood("mean", PlanOptions, [word]))


CERTAIN = {"sum": True, "mean": True, "ecdf": True}
CERTAIN |= {
    "gini": False,
    "quantile": False,
    "collision-entropy": False,
    "linear-regression": False,
}


@pytest.mark.parametrize(("name", "certain"), CERTAIN.items())
def test_an_error_that_does_not_depend_on_data_is_certain(
    name: str, certain: bool, data: str
) -> None:
    rehearse = rehearsal(*understood(name, PlanOptions, words_for(name, data)))
    assert settled(rehearse("additive", "1", 0)) is certain


def test_errors_of_the_local_model_depend_on_data(data: str) -> None:
    rehearse = rehearsal(*understood("mean", PlanOptions, words_for("mean", data)))
    assert not settled(rehearse("local", "1", 0))


def between(count: int) -> float:
    """Of a uniform curve: it rises by 1/N at each of N thresholds."""
    return float(1 / count / np.sqrt(12))


def test_a_target_of_error_finds_the_thresholds() -> None:
    """No other number meets the target at a lower ε: with each, ε is searched for what it hides."""
    target = 0.02
    words = ["--parties=20", f"--target-error={target}"]
    found = planning_of(*understood("ecdf", PlanOptions, words))("curator")
    assert found.whole_error is not None
    assert found.whole_error <= target * 1.0001
    assert found.thresholds is not None
    assert found.between == pytest.approx(between(found.thresholds), rel=0.05)
    for count in LADDER[:6]:
        if between(count) >= target or count == found.thresholds:
            continue
        room = np.sqrt(target**2 - between(count) ** 2)
        rehearse = rehearsal(
            *understood("ecdf", PlanOptions, ["--parties=20", f"--thresholds={count}"])
        )
        other = least_epsilon(rehearse, "curator", float(room))
        assert other.epsilon is not None
        assert found.epsilon is not None
        assert found.epsilon <= other.epsilon * 1.02, count


def test_a_target_of_bytes_finds_the_thresholds() -> None:
    """The least error in all that a party can pay, by trying every number."""
    most = 1500.0
    words = ["--parties=20", "--epsilon=1"]
    chosen, given = understood("ecdf", PlanOptions, [*words, f"--target-bytes={most}"])
    found = planning_of(chosen, given)("curator")
    assert found.party_bytes <= most
    errors = {}
    for count in LADDER[:6]:
        asked = understood("ecdf", PlanOptions, [*words, f"--thresholds={count}"])
        other = planned(rehearsal(*asked), "curator", "1")
        if other.party_bytes <= most and other.error is not None:
            errors[count] = np.hypot(other.error, between(count))
    assert found.thresholds == min(errors, key=lambda count: errors[count])


def test_thresholds_that_were_given_are_kept() -> None:
    words = ["--parties=20", "--target-error=0.05", "--thresholds=8"]
    found = planning_of(*understood("ecdf", PlanOptions, words))("curator")
    assert (found.thresholds, found.between) == (None, 0.0)
    assert found.error is not None
    assert found.error <= 0.05
    words = ["--parties=20", "--target-error=1e-6"]
    with pytest.raises(LocalError, match="4096 thresholds hide more"):
        planning_of(*understood("ecdf", PlanOptions, words))("curator")


def test_a_quantiles_thresholds_serve_its_error_on_raw_records() -> None:
    """The planned question, run 20 times on skewed records that the plan has not seen. Seeded, so
    that it is the same every time; the plan's error is a guide, hence the factor."""
    target = 0.05
    data = "--data=synthetic:scores?n=400"
    words = ["--parties=20", data, f"--target-error={target}"]
    found = planning_of(*understood("quantile", PlanOptions, words))("curator")
    asked = ["--parties=20", data, f"--epsilon={found.epsilon}", "--aggregator=curator"]
    errors = []
    for seed in range(20):
        run = [*asked, f"--thresholds={found.thresholds}", f"--seed={seed}"]
        result = simulate(*understood("quantile", RunOptions, run))
        errors.append((result.error or {})["rmse"])
    assert np.sqrt(np.mean(np.square(errors))) <= 2 * target


@pytest.mark.parametrize(
    ("name", "spec", "power"), [("mean", "additive", 1.0), ("histogram", "prio3", 0.0)]
)
def test_a_plan_on_paper_is_the_plan_of_a_large_federation(
    name: str, spec: str, power: float
) -> None:
    """More parties than records: bytes as a real rehearsal of 4,000 parties has them, within 2 %,
    and beyond that linear; the error of the noise falls with the power of n that is known of it."""
    words = ["--lower=0", "--upper=1", "--epsilon=1"]

    def at(parties: str, data: str) -> Planned:
        given = [f"--data={data}", f"--parties={parties}", *words]
        return planned(rehearsal(*understood(name, PlanOptions, given)), spec, "1")

    few = "synthetic:poisson?bins=16&lambda=3"
    paper, huge = at("4000", few), at("4e8", few)
    real = at("4000", "synthetic:scores?n=4000&value=score")
    assert paper.total_bytes == pytest.approx(real.total_bytes, rel=0.02)
    # The one of a histogram that can be dealt is drawn, under a seed.
    assert paper.noise_error == pytest.approx(real.noise_error, rel=0.05)
    assert huge.total_bytes == pytest.approx(1e5 * paper.total_bytes, rel=0.02)
    assert huge.noise_error == pytest.approx(1e-5**power * (paper.noise_error or 0), rel=1e-6)
    assert "on paper" in huge.basis


@pytest.mark.parametrize("parties", ["1.5", "inf", "nan", "many", "1e400", "-3"])
def test_parties_that_are_no_number_of_parties_are_refused(parties: str, tally_here: Tally) -> None:
    done = tally_here("plan", "mean", f"--parties={parties}")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_pairs_are_not_planned_on_paper(tally_here: Tally) -> None:
    done = tally_here("plan", "gini", "--parties=1e8")
    assert done.returncode in (2, 3)
    assert "pairs of records are planned only for" in done.stderr


def test_a_plan_whose_length_follows_from_n_is_not_told_on_paper(tally_here: Tally) -> None:
    asked = ["plan", "roc", "--parties=1e8", "--data=synthetic:scores?n=100"]
    done = tally_here(*asked)
    assert done.returncode in (2, 3)
    assert "give --thresholds" in done.stderr
    assert tally_here(*asked, "--thresholds=64").returncode == 0
