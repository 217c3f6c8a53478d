"""A result on paper: whatever is changed in it, `tally verify` finds out."""

import copy
import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parties.data import Dataset
from protocols.errors import LocalError, TallyError
from protocols.identity.certificates import Authority
from protocols.statistics import Statistic
from protocols.statistics.ecdf import Ecdf
from protocols.statistics.histogram import Histogram
from protocols.statistics.moments import Mean
from protocols.statistics.of_pairs import CollisionEntropy, Gini
from protocols.statistics.on_demand import EcdfPoints, QuantileSearch
from simulation import Federation
from simulation.proof import verify
from simulation.result import Result
from tests.conftest import Tally

ASKED: list[tuple[str, int, Statistic, dict[str, Any]]] = [
    ("additive", 3, Histogram(value="score", bins=4), {}),
    ("prio3", 2, Histogram(value="score", bins=4), {}),
    ("shamir", 3, Mean(value="score"), {}),
    ("masking", 1, Mean(value="score"), {}),
    ("fss", 2, Ecdf(value="score", thresholds=8, smooth="2"), {}),
    ("fss", 2, QuantileSearch(value="score"), {}),
    ("shuffle", 1, Histogram(value="score", bins=4), {"delta": 1e-6}),
    ("additive", 2, Gini(value="score", bits=4, pairs_per_party="1"), {}),
    ("local", 1, Gini(value="score"), {}),
]


def document_of(result: Result) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(result.as_json()))
    return document


@pytest.mark.parametrize(
    ("aggregator", "servers", "statistic", "more"), ASKED, ids=lambda v: getattr(v, "name", str(v))
)
def test_every_kind_of_answer_can_be_verified_later(
    aggregator: str, servers: int, statistic: Statistic, more: dict[str, Any]
) -> None:
    data = "synthetic:scores?n=12"
    with Federation(3, servers, aggregator, data=data) as federation:
        result = federation.run(statistic, 1, **more)
    receipts = verify(document_of(result))
    assert {receipt.server for receipt in receipts} == set(range(servers))
    assert {receipt.epsilon for receipt in receipts} == {"1"}


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key in value:
            yield from leaves(value[key], (*path, key))
    elif isinstance(value, list):
        for index in range(len(value)):
            yield from leaves(value[index], (*path, index))
    else:
        yield path


def tampered(document: dict[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    """The same with one leaf another: a letter in the middle, or a number a little larger."""
    changed = copy.deepcopy(document)
    place = changed
    for key in path[:-1]:
        place = place[key]
    match place[path[-1]]:
        case str() as text if text:
            at = len(text) // 2
            at += text[at] == "\n"  # white space in a certificate says nothing
            letter = "0" if text[at] != "0" else "1"
            place[path[-1]] = text[:at] + letter + text[at + 1 :]
        case str():
            place[path[-1]] = "AAAA"
        case bool() as truth:
            place[path[-1]] = not truth
        case int() | float() as number:
            place[path[-1]] = number + 1e-3 if isinstance(number, float) else number + 1
        case None:
            place[path[-1]] = 1
    return changed


READING = {"smooth", "box", "solver", "nonnegative"}
"""How a release is read, where another value may read the same."""
SAID = ("statistic", "estimate", "receipts")
STATED = {
    "privacy": ("epsilon", "delta", "noise"),
    "federation": ("parties", "servers", "aggregator"),
}


@pytest.mark.parametrize("kind", [0, 4, 5], ids=["sum", "curve", "on demand"])
def test_whatever_is_changed_in_a_result_is_found_out(kind: int) -> None:
    aggregator, servers, statistic, _ = ASKED[kind]
    if statistic.on_demand:
        statistic = EcdfPoints(value="score", at=(0.25, 0.5))
    reading = {*READING, "thresholds"} if statistic.on_demand else READING
    with Federation(3, servers, aggregator, data="synthetic:scores?n=12") as federation:
        document = document_of(federation.run(statistic, 1))
    verify(document)
    paths = [path for entry in SAID for path in leaves(document[entry], (entry,))]
    paths += [(entry, key) for entry, keys in STATED.items() for key in keys]
    assert len(paths) > 30
    for path in paths:
        try:
            verify(tampered(document, path))
        except TallyError as error:
            assert "does not hold" in str(error)  # noqa: PT017 - which path it was is said below
        else:
            pytest.fail(f"{path} was changed and nobody noticed")
    for path in leaves(document["receipts"][0]["asked"]):
        if path[0] == "parameters" and path[1] in reading:
            continue
        changed = copy.deepcopy(document)
        for entry in changed["receipts"]:  # in all of them alike
            entry["asked"] = tampered(entry["asked"], path)
        with pytest.raises(TallyError, match="does not hold"):
            verify(changed)
    for missing in range(len(document["receipts"])):
        less = copy.deepcopy(document)
        del less["receipts"][missing]
        with pytest.raises(TallyError, match="does not hold"):
            verify(less)


def test_a_curve_that_is_read_again_has_the_receipts_of_its_release() -> None:
    with Federation(4, 2, "fss", data="synthetic:scores?n=40", seed=1) as federation:
        first = document_of(federation.run(Ecdf(value="score", thresholds=8, smooth="none"), 0.05))
        again = document_of(federation.run(Ecdf(value="score", thresholds=8), 0.05))
    assert signatures(again) == signatures(first)
    assert again["estimate"] != first["estimate"]
    verify(again)
    with pytest.raises(TallyError, match="its estimate is not what the servers released"):
        verify(again | {"estimate": first["estimate"]})


def signatures(document: dict[str, Any]) -> list[str]:
    return [receipt["signature"] for receipt in document["receipts"]]


def test_an_estimate_that_is_no_number_can_be_verified() -> None:
    """Without a collision, collision entropy is infinite."""
    data = Dataset("apart", {"value": np.array([0.0, 1.0, 2.0])}, {"value": (0.0, 3.0)})
    with Federation(3, 2, data=data) as federation:
        document = document_of(federation.run(CollisionEntropy(), "inf"))
    assert document["estimate"] == "inf"
    verify(document)
    with pytest.raises(TallyError, match="its estimate"):
        verify(document | {"estimate": 3.0})


def test_the_command_says_a_line_a_server_and_pins_an_authority(
    tally_here: Tally, tmp_path: Path
) -> None:
    with Federation(3, 2, data="synthetic:scores?n=12") as federation:
        result = federation.run(Mean(value="score"), 1)
    file = tmp_path / "result.json"
    file.write_text(json.dumps(result.as_json()))
    assert result.proof is not None
    ours, theirs = tmp_path / "ours.pem", tmp_path / "theirs.pem"
    ours.write_bytes(result.proof.authority)
    other = Authority.create("theirs", dt.datetime.now(dt.UTC), dt.timedelta(days=1))
    theirs.write_bytes(other.pem)
    good = tally_here("verify", str(tmp_path), "--authority", str(ours))
    assert good.returncode == 0
    assert [line.split()[0] for line in good.stdout.splitlines()] == ["server-0", "server-1"]
    bad = tally_here("verify", str(file), "--authority", str(theirs))
    assert (bad.returncode, bad.stdout) == (3, "")
    assert bad.stderr.startswith("tally: the result does not hold: authority")
    assert bad.stderr.count("\n") == 1
    file.write_text("{}")
    none = tally_here("verify", str(file))
    assert (none.returncode, none.stderr) == (2, f"tally: {file} has no receipts\n")


def test_what_is_no_result_is_said(tmp_path: Path) -> None:
    from simulation.proof import read_result

    (tmp_path / "text").write_text("no")
    for path, words in ((tmp_path / "gone", "cannot read"), (tmp_path / "text", "not a result")):
        with pytest.raises(LocalError, match=words):
            read_result(path)
