"""The summary of a sweep: against pandas, on rows as sweeps leave them."""

from pathlib import Path

import numpy as np
import pandas
import pytest

from tallyroom.simulation.sweep.journal import Row
from tallyroom.simulation.sweep.summary import summary_of, write_summary

RMSES = {("0.5", "additive"): [1.0, 2.0, 6.0], ("inf", "additive"): [0.0], ("1", "fss"): []}


def rows() -> list[Row]:
    found: list[Row] = []
    for (epsilon, aggregator), rmses in RMSES.items():
        point = {"statistic": "mean", "parties": 5, "epsilon": epsilon, "aggregator": aggregator}
        for trial, rmse in enumerate(rmses):
            measured = {"rmse": rmse, "party_bytes": 100.0 * trial, "wall_seconds": rmse / 2}
            found.append({**point, "trial": trial, "run_seed": trial, **measured, "failed": ""})
        if not rmses:
            failed = "fss compares_values: 50 % & more"
            found.append({**point, "trial": 0, "run_seed": 0, "failed": failed})
    return found


def test_means_are_those_of_pandas(tmp_path: Path) -> None:
    write_summary(rows(), tmp_path)
    found = pandas.read_csv(tmp_path / "summary.csv", dtype={"epsilon": str})
    frame = pandas.DataFrame(rows())
    groups = frame[frame.failed == ""].groupby(["epsilon", "aggregator"])
    assert found.trials.tolist() == [3, 1, 0]
    for _, row in found[found.trials > 0].iterrows():
        group = groups.get_group((row.epsilon, row.aggregator))
        for name in ("rmse", "party_bytes", "wall_seconds"):
            assert row[name] == pytest.approx(group[name].mean())
        spread = group.rmse.std() if len(group) > 1 else np.nan
        assert row.rmse_spread == pytest.approx(spread, nan_ok=True)
    assert found.iloc[2][["rmse", "wall_seconds"]].isna().all()


def test_the_table_for_a_paper_leaves_out_what_is_the_same_everywhere(tmp_path: Path) -> None:
    write_summary(rows(), tmp_path)
    lines = (tmp_path / "summary.tex").read_text().splitlines()
    heads = lines[2].removesuffix(r" \\").split(" & ")
    assert heads == [
        "epsilon",
        "aggregator",
        "trials",
        "rmse",
        "rmse spread",
        "party bytes",
        "wall",
    ]
    assert lines[4] == r"0.5 & additive & 3 & 3 & 2.646 & 100 & 1.5 \\"
    assert lines[6] == r"1 & fss & 0 &  &  &  &  \\"


def test_one_point_has_a_table_too(tmp_path: Path) -> None:
    one = rows()[:1]
    assert [each["trials"] for each in summary_of(one)] == [1]
    assert "trials & rmse" in write_summary(one, tmp_path)[1].read_text()
