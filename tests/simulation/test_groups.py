"""Questions about a part of the records, and about groups of them, as analysts ask them."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tallyroom import Federation
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.run.policy import parse_policy
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.choices import Mode
from tallyroom.protocols.statistics.ecdf import CumulativeHistogram, Ecdf, Quantile
from tallyroom.protocols.statistics.estimates import Bins, Counts, Curve, plain
from tallyroom.protocols.statistics.group_estimates import OfEachGroup
from tallyroom.protocols.statistics.grouped import Grouped, answers_for_groups, grouped
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean, Sum
from tallyroom.simulation.command.common import RunOptions
from tallyroom.simulation.command.run import simulate
from tallyroom.simulation.result import Result
from tests.statistical.promises import understood

ROWS = 200
PAY: dict[str, Any] = {"value": "pay", "lower": -1000.0, "upper": 5e4}
SEXES = {"by": ("sex",), "groups": {"sex": "F,M"}}
WHERE = "age >= 40 and sex = 'F'"


def frame() -> pd.DataFrame:
    """Ties, negatives, blanks, a name that is in no group, and one record alone in its group."""
    rng = np.random.default_rng(3)
    found = pd.DataFrame(
        {
            "pay": np.round(rng.normal(2e4, 8e3, ROWS), -3).clip(-1000, 5e4),
            "age": rng.integers(18, 90, ROWS).astype(float),
            "sex": np.array(["F", "M", None], dtype=object)[rng.integers(0, 3, ROWS)],
            "site": rng.choice(["north", "south"], ROWS),
        }
    )
    found.loc[rng.random(ROWS) < 0.1, "age"] = np.nan
    found.loc[0, "site"] = "west"
    return found


FRAME = frame()


def asked(statistic: Statistic, epsilon: object = "inf", **more: Any) -> Result:
    with Federation(parties=5, data=FRAME, seed=7) as federation:
        return federation.run(statistic, str(epsilon), **more)


@pytest.mark.parametrize(
    ("where", "query"),
    [
        (WHERE, "age >= 40 and sex == 'F'"),
        ("not age >= 40", "not (age >= 40)"),
        ("sex is null or pay < 0", "sex.isnull() or pay < 0"),
        ("site in ('west')", "site == 'west'"),
        ("pay = 20000", "pay == 20000"),
    ],
)
def test_without_noise_it_is_what_pandas_says_of_the_rows(where: str, query: str) -> None:
    part = FRAME.query(query, engine="python")
    assert asked(Mean(**PAY), where=where).estimate == pytest.approx(part.pay.mean(), rel=1e-9)
    assert asked(Sum(**PAY), where=where).estimate == pytest.approx(part.pay.sum(), rel=1e-9)
    found = asked(Histogram(**PAY, bins=5), where=where).estimate
    assert isinstance(found, Bins)
    assert found.y == np.histogram(part.pay, bins=5, range=(-1000, 5e4))[0].tolist()
    mode = asked(Mode(**PAY, bins=5), where=where)
    assert mode.estimate == pytest.approx(-1000 + (np.argmax(found.y) + 0.5) * 10200)


def test_without_noise_groups_are_those_of_pandas() -> None:
    how: dict[str, Any] = {
        "by": ("sex", "site"),
        "groups": {"sex": "F,M", "site": "north,south,west"},
    }
    found = asked(Mean(**PAY), **how)
    expected = FRAME.groupby(["sex", "site"]).pay.mean()
    estimate = found.estimate
    assert isinstance(estimate, OfEachGroup)
    assert estimate.groups == [(s, p) for s in ("F", "M") for p in ("north", "south", "west")]
    for group, mean in zip(estimate.groups, estimate.estimates, strict=True):
        assert mean == pytest.approx(expected.get(group, np.nan), rel=1e-9, nan_ok=True)
    sums = asked(Sum(**PAY), **how).estimate
    assert isinstance(sums, OfEachGroup)
    totals = FRAME.groupby(["sex", "site"]).pay.sum()
    wanted = [totals.get(group, 0.0) for group in sums.groups]
    assert sums.estimates == pytest.approx(wanted, rel=1e-9)


def test_curves_without_noise_are_those_of_the_rows() -> None:
    part = FRAME.query("age >= 40 and sex == 'F'").pay.to_numpy()
    curve = asked(Ecdf(**PAY, thresholds=51), where=WHERE).estimate
    assert isinstance(curve, Curve)
    assert curve.y == [(part <= x).mean() for x in curve.x]
    found = asked(Quantile(**PAY, thresholds=51, quantile=(0.25, 0.5)), **SEXES).estimate
    assert isinstance(found, OfEachGroup)
    for (sex,), told in zip(found.groups, found.estimates, strict=True):
        assert isinstance(told, Curve)
        values = FRAME[FRAME.sex == sex].pay
        expected = np.quantile(values, [0.25, 0.5], method="inverted_cdf")
        assert told.y == pytest.approx(expected.tolist(), abs=1000)
    counts = asked(CumulativeHistogram(**PAY, thresholds=3), where="age > 1000").estimate
    assert isinstance(counts, Bins)
    assert counts.y == [0, 0, 0]
    assert plain(asked(Quantile(**PAY), where="age > 1000").estimate) == "nan"


def test_one_release_serves_all_curves_of_the_same_groups() -> None:
    with Federation(parties=5, data=FRAME) as federation:
        first = federation.run(Ecdf(**PAY, thresholds=16), where=WHERE)
        again = federation.run(Quantile(**PAY, thresholds=16), where=WHERE)
        other = federation.run(Quantile(**PAY, thresholds=16), where="age >= 41 and sex = 'F'")
    assert [each.reused for each in (first, again, other)] == [False, True, False]


def test_names_are_counted_by_group() -> None:
    names = Histogram(value="site", categories="north,south")
    found = asked(names, where="age is not null", **SEXES).estimate
    assert isinstance(found, OfEachGroup)
    known = FRAME[FRAME.age.notna()]
    for (sex,), counts in zip(found.groups, found.estimates, strict=True):
        assert isinstance(counts, Counts)
        sites = known[known.sex == sex].site
        assert counts.y == [*((sites == n).sum() for n in ("north", "south")), sum(sites == "west")]


def test_a_part_costs_no_more_than_all_and_groups_no_more_than_two() -> None:
    """k groups are one release: the scale is that of one record which leaves one of them and
    enters another, however many there are."""
    half = 51000 / 2
    whole = asked(Mean(**PAY), 1)
    part = asked(Mean(**PAY), 1, where="age >= 0 or age is null")
    assert part.privacy.loss == whole.privacy.loss
    [wide], [wider] = whole.deviations, part.deviations
    assert wider < 1.2 * wide < half
    mechanisms = {
        asked(Histogram(**PAY, bins=2), 1, by=("site",), groups={"site": names}).privacy.mechanism
        for names in ("north,south", "north,south,west,east")
    }
    assert {each.split(" on ")[0] for each in mechanisms} == {"discrete Laplace of scale 2"}


def test_all_answers_stand_side_by_side(tmp_path: Path) -> None:
    found = asked(Mean(**PAY), 2, where="age > 30", **SEXES)
    heads, rows = found.table()
    assert heads == ["sex", "estimate", "±", "low", "high", "truth"]
    assert [row[0] for row in rows] == ["F", "M"]
    assert all(float(row[3]) <= float(row[1]) <= float(row[4]) for row in rows)
    document = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert document["estimate"]["by"] == ["sex"]
    assert document["estimate"]["groups"] == [["F"], ["M"]]
    assert document["estimate"]["estimates"] == [row[1] for row in rows]
    assert document["interval"]["low"] == [row[3] for row in rows]
    assert document["data"]["where"] == "age > 30"
    assert document["data"]["by"] == ["sex"]
    assert found.statistic == "mean"
    assert list(found.to_frame().columns) == heads
    files = {path.name for path in found.write(tmp_path)}
    assert {"estimate.csv", "estimate.png", "report.html"} <= files
    assert (tmp_path / "estimate.csv").read_text().startswith(",".join(heads))
    assert len(found.plot().axes) == 1


def test_a_group_without_records_has_an_answer() -> None:
    """Without noise there is no mean; with noise the interval is all that is possible."""
    nobody = "age > 1000"
    assert plain(asked(Mean(**PAY), where=nobody).estimate) == "nan"
    assert asked(Sum(**PAY), where=nobody).estimate == 0
    found = asked(Mean(**PAY), 0.01, where=nobody)
    assert found.interval is not None
    assert (found.interval.low[0], found.interval.high[0]) == pytest.approx((-1000, 5e4), abs=0.1)


def test_a_party_may_refuse_to_answer_about_a_part() -> None:
    policy = parse_policy('grouping_columns = ["sex"]')
    with Federation(parties=5, data=FRAME, policy=policy) as federation:
        federation.run(Mean(**PAY), where="sex = 'F'")
        with pytest.raises(Exception, match="--where or --by of the column age"):
            federation.run(Mean(**PAY), where="age > 40")


def test_the_command_reads_columns_that_the_address_does_not_name(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    FRAME.to_csv(path, index=False)
    words = [f"--data={path}?value=pay", "--lower=-1000", "--upper=50000", "--epsilon=inf"]
    about = [f"--where={WHERE}", "--by=site", "--groups=site=north,south"]
    found = simulate(*understood("mean", RunOptions, [*words, *about])).estimate
    assert isinstance(found, OfEachGroup)
    part = FRAME.query("age >= 40 and sex == 'F'").groupby("site").pay.mean()
    assert found.estimates == pytest.approx([part["north"], part["south"]], rel=1e-9)


def test_a_schema_tells_the_groups(tmp_path: Path) -> None:
    path, schema = tmp_path / "people.csv", tmp_path / "schema"
    FRAME.to_csv(path, index=False)
    schema.write_text("pay=-1000:50000\nsex=F,M\n")
    words = [f"--data={path}?value=pay", f"--schema={schema}", "--by=sex", "--epsilon=inf"]
    found = simulate(*understood("mean", RunOptions, words)).estimate
    assert isinstance(found, OfEachGroup)
    assert found.estimates == pytest.approx(FRAME.groupby("sex").pay.mean().tolist(), rel=1e-9)


class OwnPlan(Histogram):
    """Derived, and computed in another way."""

    def plan(self, facts: Any) -> Any:
        raise NotImplementedError


def test_what_is_computed_otherwise_is_not_asked_of_groups() -> None:
    assert answers_for_groups(Histogram)
    assert not answers_for_groups(OwnPlan)
    with pytest.raises(LocalError, match="has no --where"):
        grouped(OwnPlan(**PAY), "age > 1")


@pytest.mark.parametrize(
    "changes",
    [
        {"of": "grouped"},
        {"of": "nothing"},
        {"of": "gini"},
        {"given": "{"},
        {"given": "[]"},
        {"given": '{"nothing": 1}'},
        {"given": '{"lower":0}'},
        {"given": "[" * 100_000},
        {"where": "age>1"},
        {"where": "age > "},
        {"where": ""},
        {"by": ("sex",)},
        {"by": ("sex=F, M",)},
        {"by": ("sex=F", "sex=M")},
    ],
    ids=str,
)
def test_malformed_groups_are_refused_in_one_line(changes: dict[str, Any]) -> None:
    """As they come over the wire: only the canonical form is taken."""
    right = grouped(Mean(**PAY), "age > 1")
    assert isinstance(right, Grouped)
    assert Grouped.from_parameters(right.parameters()) == right
    with pytest.raises(LocalError) as refused:
        dataclasses.replace(right, **changes)
    assert "\n" not in str(refused.value)
