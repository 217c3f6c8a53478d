"""Peers as other programs: what they answer is read, and what is not there is named."""

import json
import sys
from pathlib import Path

import pytest

from tallyroom.simulation.bench import fss, metering
from tallyroom.simulation.bench.command import PEER_KEYS
from tallyroom.simulation.bench.peers import adapters
from tallyroom.simulation.bench.peers.adapters import BY_KEY, Adapter, missing
from tallyroom.simulation.bench.ratios import KNOWN, compared
from tallyroom.simulation.bench.ratios import missing as not_compared
from tallyroom.simulation.bench.row import Row
from tallyroom.simulation.networks import namespaces


def test_every_adapter_is_a_file_that_imports_nothing_of_ours() -> None:
    for adapter in BY_KEY.values():
        source = (adapters.FOLDER / adapter.file).read_text()
        assert "tallyroom" not in source
        compile(source, adapter.file, "exec")
    assert set(PEER_KEYS) <= KNOWN.keys()


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(adapters, "FOLDER", tmp_path)
    monkeypatch.delenv(adapters.INTERPRETER, raising=False)
    return tmp_path


def test_a_peer_gets_its_job_and_its_last_line_is_read(scripts: Path) -> None:
    got = "import json, sys\nprint('hello')\ngot = [json.load(sys.stdin), sys.argv[1:]]\n"
    (scripts / "echo.py").write_text(got + "print(json.dumps(got))")
    assert Adapter("echo.py", "json").ask("a", job={"x": 1}) is None, "a list is no answer"
    (scripts / "echo.py").write_text(got + "print(json.dumps({'got': got}))")
    assert Adapter("echo.py", "json").ask("a", job={"x": 1}) == {"got": [{"x": 1}, ["a"]]}


@pytest.mark.parametrize("text", ["raise SystemExit(1)", "print('no JSON')", "", "print('{')"])
def test_a_peer_that_fails_gives_no_figure(scripts: Path, text: str) -> None:
    (scripts / "peer.py").write_text(text)
    assert Adapter("peer.py", "json").ask() is None


def test_peers_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = Adapter("mpyc_sum.py", "no_such_module_at_all")
    assert "No module named 'no_such_module_at_all'" in missing(absent)
    assert absent.ask() is None
    monkeypatch.setenv("NOWHERE_PYTHON", "/not/there/python")
    assert "cannot be run" in missing(Adapter("x.py", "json", "NOWHERE_PYTHON"))
    monkeypatch.setitem(BY_KEY, "mpyc", absent)
    row = Row("sum", 1.0, "x/s", {"sycret": 2.0})
    told = dict(not_compared(compared([("peers", row)]), ("sycret", "mpyc", "fedcurve")))
    assert list(told) == ["MPyC (a sum of three parties)", "fedcurve"]
    assert "no_such_module_at_all" in told["MPyC (a sum of three parties)"]


def test_keys_are_held_against_a_peer_that_is_there() -> None:
    if missing(adapters.SYCRET):
        assert fss.peer_rows() == []
        return
    found = adapters.SYCRET.ask("1")
    assert found is not None
    assert found["gen"] > 1
    assert found["eval"] > 1


@pytest.mark.skipif(bool(namespaces.missing()), reason=namespaces.missing() or "root")
def test_what_metering_costs_is_measured() -> None:
    """In small: on a machine that is busy with other tests, its figure says little."""
    (row,) = metering.rows(turns=20, repeats=1)
    assert row.ratios["bare"] == pytest.approx(row.details["seconds"] / row.details["bare_seconds"])
    assert 0.05 < row.ratios["bare"] < 20
    assert json.dumps(row.as_json())
    assert sys.executable in metering._command(1)
