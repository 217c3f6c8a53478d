"""An aggregator, a statistic, a study, a noise law, a runtime and a figure in another package:
installed, found by name, run and under contract."""

import json
import os
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tests.conftest import COMMAND, Done
from tests.once import once

SOURCE = Path(__file__).parents[1] / "example_aggregator"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package in a folder of its own, as pip installs it; no index is asked."""

    def make(folder: Path) -> None:
        source = shutil.copytree(SOURCE, folder / "source")  # building leaves files behind
        offline = ("--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
        command = ("install", "--quiet", *offline, "--target", str(folder / "site"), str(source))
        done = subprocess.run(
            [sys.executable, "-m", "pip", *command], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    return once(tmp_path_factory, "example-aggregator", make) / "site"


def with_package(installed: Path, command: list[str], folder: Path) -> Done:
    path = os.pathsep.join([str(installed), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path.rstrip(os.pathsep)},
        timeout=120,
        check=False,
    )


def test_it_is_about_forty_lines() -> None:
    assert len((SOURCE / "pads.py").read_text().splitlines()) <= 45


def test_it_is_listed_with_its_promises(installed: Path, tmp_path: Path) -> None:
    done = with_package(installed, [*COMMAND, "list", "aggregators", "--json"], tmp_path)
    found = json.loads(done.stdout)["aggregators"]
    assert found["pads"]["party_bytes"] == "8Lm"
    assert {"additive", "curator", "fss"} <= found.keys()


@pytest.mark.parametrize("runtime", ["inprocess", "processes"])
def test_it_runs_by_name(installed: Path, tmp_path: Path, runtime: str) -> None:
    words = ("run", "histogram", "--aggregator", "pads", "--servers", "3", "--epsilon", "inf")
    options = ("--parties", "6", "--hosts", "2", "--runtime", runtime, "--json")
    done = with_package(installed, [*COMMAND, *words, *options], tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["federation"]["aggregator"] == "pads"
    assert found["estimate"] == found["truth"]


def test_it_passes_the_contract(installed: Path, tmp_path: Path) -> None:
    """By the suite that it imports, in a process that knows it only from where it is installed."""
    suites = [
        f"{name}_contract.py"
        for name in ("pads", "renamed", "spread", "twofold", "counting", "coins")
    ]
    for name in suites:
        shutil.copy(SOURCE / name, tmp_path / name)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *suites]
    done = with_package(installed, command, tmp_path)
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout
    assert "failed" not in done.stdout


@pytest.mark.parametrize(
    ("words", "ours", "theirs", "way"),
    [
        (("gini",), "local", "ballots", "randomized response"),
        (("auc", "--method", "smooth"), "curator", "trustee", "Cauchy"),
    ],
)
def test_what_it_offers_decides_how_it_is_asked(
    installed: Path, tmp_path: Path, words: tuple[str, ...], ours: str, theirs: str, way: str
) -> None:
    """Whatever its name: pairs would meet otherwise, and no curator would be found."""
    options = ("--parties", "300", "--epsilon", "4", "--json")
    found = {}
    for name in (ours, theirs):
        command = [*COMMAND, "run", *words, *options, "--aggregator", name]
        done = with_package(installed, command, tmp_path)
        assert done.returncode == 0, done.stderr
        found[name] = json.loads(done.stdout)
    assert found[theirs]["federation"]["aggregator"] == theirs
    assert found[theirs]["privacy"] == found[ours]["privacy"]
    assert way in found[theirs]["privacy"]["mechanism"]


def test_its_study_runs_by_name_over_its_aggregator(installed: Path, tmp_path: Path) -> None:
    words = ("run", "near-the-mean", "--reach", "0.2", "--aggregator", "pads", "--epsilon", "inf")
    done = with_package(installed, [*COMMAND, *words, "--parties", "6", "--json"], tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [asked["statistic"] for asked in found["questions"]] == ["mean", "within"]
    assert found["estimate"] == pytest.approx(found["truth"], abs=2)  # the mean is on a grid
    listed = with_package(installed, [*COMMAND, "run", "--help"], tmp_path).stdout
    assert "near-the-mean" in listed
    assert "within" in listed


def test_its_statistic_runs_by_name_in_its_runtime(installed: Path, tmp_path: Path) -> None:
    words = ("run", "within", "--centre", "0.5", "--reach", "0.2", "--runtime", "counting")
    options = ("--parties", "6", "--epsilon", "inf", "--json")
    done = with_package(installed, [*COMMAND, *words, *options], tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["federation"]["runtime"] == "counting"
    assert found["estimate"] == found["truth"]


@pytest.mark.parametrize("runtime", ["inprocess", "processes"])
def test_its_noise_law_is_asked_by_name(installed: Path, tmp_path: Path, runtime: str) -> None:
    """Its scale is in quarters, so a count costs 2/3 of the 0.7 that are granted: ledgers and
    receipts say so. Noise of two servers is four discrete Laplace noises of that scale."""
    words = ("run", "histogram", "--bins", "4", "--noise-law", "twofold", "--epsilon", "0.7")
    options = ("--data", "synthetic:scores?n=200", "--parties", "6", "--servers", "2")
    how = ("--aggregator", "additive", "--hosts", "2", "--runtime", runtime, "--out", "out")
    done = with_package(installed, [*COMMAND, *words, *options, *how, "--json"], tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    law = DiscreteLaplace(Fraction(3))
    assert found["privacy"]["mechanism"] == f"two of {law.words()} on 4 integers"
    interval = found["interval"]
    for low, value, high in zip(
        interval["low"], found["estimate"]["y"], interval["high"], strict=True
    ):
        assert high - value == law.quantile(0.975, 4) or high == 200
        assert value - low == law.quantile(0.975, 4) or low == 0
    assert found["privacy"]["epsilon"] == pytest.approx(2 / 3)
    assert [receipt["epsilon"] for receipt in found["receipts"]] == ["2/3", "2/3"]
    assert with_package(installed, [*COMMAND, "verify", "out"], tmp_path).returncode == 0


def test_its_noise_law_is_planned_compared_and_listed(installed: Path, tmp_path: Path) -> None:
    of_mean = ("mean", "--data", "synthetic:scores?n=200", "--parties", "6", "--json")
    with_law = ("--noise-law", "twofold", "--aggregator", "additive")
    errors = {}
    for name, given in (("laplace", with_law[2:]), ("twofold", with_law)):
        done = with_package(installed, [*COMMAND, "plan", *of_mean, *given], tmp_path)
        assert done.returncode == 0, done.stderr
        errors[name] = json.loads(done.stdout)["plans"][0]["error"]
    assert errors["twofold"] == pytest.approx(errors["laplace"] * 2**0.5, rel=1e-6)
    done = with_package(installed, [*COMMAND, "compare", *of_mean, *with_law], tmp_path)
    assert done.returncode == 0, done.stderr
    listed = with_package(installed, [*COMMAND, "list", "noise-laws", "--json"], tmp_path)
    assert json.loads(listed.stdout)["noise-laws"].keys() == {
        "gaussian",
        "laplace",
        "twofold",
    }
    refused = with_package(
        installed, [*COMMAND, "run", *of_mean[:-1], *with_law, "--noise", "joint"], tmp_path
    )
    assert refused.returncode == 2
    assert "joint noise is drawn inside a circuit" in refused.stderr


def test_elsewhere_it_is_not_known() -> None:
    from tallyroom.protocols.aggregation import aggregator_names

    assert "pads" not in aggregator_names()


def test_its_figure_is_reproduced_by_name(installed: Path, tmp_path: Path) -> None:
    command = [*COMMAND, "reproduce", "coins", "--full", "--json"]
    done = with_package(installed, command, tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"] == "holds"
