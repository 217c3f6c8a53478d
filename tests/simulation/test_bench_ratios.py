"""The page of ratios: every peer told one way, and those that are missing named with the reason."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.simulation.bench import command, ratios
from tallyroom.simulation.bench.peers import adapters
from tallyroom.simulation.bench.peers import jobs as peers
from tallyroom.simulation.bench.ratios import KNOWN, compared, missing, page_text, write_page
from tallyroom.simulation.bench.row import Row

ROWS = [
    ("fss", Row("gen-32-native", 2e6, "keys/s", {"sycret": 9.0, "aes-limit": 0.5})),
    ("fss", Row("gen-32-twin", 2e3, "keys/s", {"sycret": 0.01})),
    ("fss", Row("cores-2", 2e6, "points/s", {"cores-1": 1.9})),
    ("peers", Row("mean-error-central", 0.0014, "rmse", {"opendp-error": 1.25})),
    ("aggregate", Row("additive-100", 1e5, "parties/s", {"curator": 1.25})),
]


def test_less_time_or_error_is_better_and_our_own_rows_are_left_out() -> None:
    found = compared(ROWS)
    assert {(each.peer.key, each.better) for each in found} == {
        ("sycret", 9.0),
        ("aes-limit", 0.5),
        ("opendp-error", 0.8),
        ("curator", 0.8),
    }


def test_a_peer_that_is_not_there_is_said_and_no_number_is(monkeypatch: pytest.MonkeyPatch) -> None:
    away = ratios.Peer("away", "A peer that is away", ratios.RatioKind.SPEED, module="no_such_peer")
    few = (KNOWN["sycret"], KNOWN["opendp-error"], KNOWN["fedcurve"], away)
    monkeypatch.setattr(ratios, "PEERS", few)
    rows = [ROWS[0], ROWS[3]]
    monkeypatch.setattr(ratios, "KNOWN", {peer.key: peer for peer in few})
    named = dict(missing(compared(rows)))
    assert "No module named 'no_such_peer'" in named["A peer that is away"]
    assert named["fedcurve"] == "it is not on a package index"
    assert "OpenDP" not in named
    page = page_text(compared(rows), {"cpu": "a machine"}, ["the benchmark scale failed: no room"])
    told = page[page.index("## Not compared") :]
    assert "- fedcurve: it is not on a package index" in told
    assert "- the benchmark scale failed: no room" in told
    assert "- cpu: a machine" in page
    assert "fedcurve" not in page[: page.index("## Not compared")]


def test_the_page_is_a_table_and_a_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    present = [KNOWN[key] for _, row in ROWS for key in row.ratios if key in KNOWN]
    monkeypatch.setattr(ratios, "PEERS", tuple(p for p in ratios.PEERS if p in present))
    table, _, plot = write_page(compared(ROWS), command.machine(), [], tmp_path / "page")
    with table.open() as file:
        listed = list(csv.DictReader(file))
    assert [row["peer"] for row in listed] == ["sycret", "opendp-error", "aes-limit", "curator"]
    assert plot.read_bytes().startswith(b"\x89PNG")
    monkeypatch.setattr(ratios, "PEERS", ())
    assert len(write_page([], {}, [], tmp_path / "nothing")) == 2


def test_composition_is_dp_accountings() -> None:
    row = peers.compose()
    assert row.ratios["dp-accounting-epsilon"] == pytest.approx(1, abs=1e-4)
    assert row.ratios.keys() <= KNOWN.keys()
    assert row.details["epsilon"] < 20, "by addition alone it is 20"


def test_errors_of_ours_are_those_of_laplace_noise() -> None:
    """Of 128 draws, the root mean square is off by a factor of 2 with chance below 1e-6."""
    values = np.random.default_rng(0).random(peers.RECORDS)
    counts = np.histogram(values, peers.BINS, (0.0, 1.0))[0].astype(float)
    draw = peers._ours(Histogram(bins=peers.BINS), values, "central")
    error = peers._rmse([draw(), draw()], counts)
    assert 0.5 < error / (math.sqrt(2) * 2 / peers.EPSILON) < 2


def test_where_there_is_no_flower_there_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWER_PYTHON", "/nonexistent/python")
    adapters.missing.cache_clear()
    assert adapters.FLOWER.ask("4", "8", "3", "2") is None
    adapters.missing.cache_clear()


def test_the_loopback_carries_something() -> None:
    assert peers.loopback_rate(1 << 22) > 1e6
