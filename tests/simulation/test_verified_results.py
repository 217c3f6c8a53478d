"""A result on paper: whatever is changed in it, `tally verify` finds out."""

import copy
import datetime as dt
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tallyroom.parties.data import Dataset
from tallyroom.protocols.errors import LocalError, TallyError
from tallyroom.protocols.identity.certificates import Authority
from tallyroom.protocols.run.promise import NO_NOISE
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.linear_regression import LinearRegression
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.statistics.of_pairs import CollisionEntropy, Gini
from tallyroom.protocols.statistics.on_demand import EcdfPoints, OnDemand, QuantileSearch
from tallyroom.protocols.studies.gini_coefficient import GiniCoefficient
from tallyroom.simulation import Federation
from tallyroom.simulation.result import Result
from tallyroom.simulation.verification import UNSIGNED, verify
from tests.conftest import Tally
from tests.simulation.changed_results import at, check_every_change, leaves, tampered

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
    receipts = verify(document_of(result)).receipts
    assert {receipt.server for receipt in receipts} == set(range(servers))
    assert {receipt.loss.epsilon for receipt in receipts} == {1}


READING = {"smooth", "box", "solver", "nonnegative"}
"""How a release is read, where another value may read the same."""


def answer_of(kind: int, **more: Any) -> dict[str, Any]:
    aggregator, servers, statistic, asked = ASKED[kind]
    if isinstance(statistic, OnDemand):
        statistic = EcdfPoints(value="score", at=(0.25, 0.5))
    with Federation(3, servers, aggregator, data="synthetic:scores?n=12") as federation:
        return document_of(federation.run(statistic, **({"epsilon": 1} | asked | more)))


@pytest.mark.parametrize("kind", range(len(ASKED)), ids=lambda kind: f"{ASKED[kind][0]}-{kind}")
def test_whatever_is_changed_in_a_result_is_found_out(kind: int) -> None:
    """Every leaf of it is changed, taken away and given a neighbour, but for fields that nobody
    signs."""
    document = answer_of(kind)
    aggregator = ASKED[kind][0]
    assert check_every_change(document, redundant=aggregator == "shamir") > 80
    reading = {*READING, "thresholds"} if isinstance(ASKED[kind][2], OnDemand) else READING
    for path in leaves(document["receipts"][0]["asked"]):
        if path[0] == "parameters" and path[1] in reading:
            continue
        if aggregator == "shuffle" and path == ("records",):  # reports that could be used
            continue
        changed = copy.deepcopy(document)
        for entry in changed["receipts"]:  # in all of them alike
            entry["asked"] = tampered(entry["asked"], path)
        with pytest.raises(TallyError, match="does not hold"):
            verify(changed)


LIES: dict[str, tuple[tuple[str, ...], Any]] = {
    "columns": (("data", "columns"), ["salary"]),
    "bounds": (("data", "bounds"), [0.0, 2.0]),
    "records": (("data", "records"), 12000),
    "mechanism": (("privacy", "mechanism"), "none needed"),
    "unit": (("privacy", "protects"), "all records of one party, replaced by as many others"),
    "threat model": (("privacy", "threat_model"), "nobody needs to be trusted"),
    "concessions": (("privacy", "concessions"), ["none"]),
    "key": (("key",), "another"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_result_cannot_say_more_than_was_signed(lie: str) -> None:
    document = answer_of(0)
    (*path, last), value = LIES[lie]
    at(document, tuple(path))[last] = value
    with pytest.raises(TallyError, match=f"its {last}|its {'.'.join([*path, last])}"):
        verify(document)


def test_what_weakens_the_promise_cannot_be_left_out_of_the_notes() -> None:
    document = answer_of(0, epsilon="inf")
    assert document["privacy"]["concessions"] == [NO_NOISE]
    verify(document)
    document["notes"].remove(NO_NOISE)
    with pytest.raises(TallyError, match="its notes leave out: NOT PRIVATE"):
        verify(document)


def test_whatever_is_changed_in_a_study_is_found_out() -> None:
    """Its parameters are held to what it asks and concludes; another that does both alike is as
    true."""
    study = GiniCoefficient(value="score", lower=0.0, upper=1.0, pairs_per_party="1")
    with Federation(3, 2, data="synthetic:scores?n=12") as federation:
        document = document_of(federation.run(study, 50))  # so that the mean is above 0
    assert check_every_change(document, spared=("study.parameters",)) > 200


@pytest.mark.parametrize("shown", ["noise", "population"])
def test_an_interval_cannot_pass_for_the_other(shown: str) -> None:
    """Nor can one of the two be widened, or left out."""
    asked = LinearRegression(("score=0:1", "label=0:1"), ("score",), "label")
    with Federation(3, 2, data="synthetic:scores?n=12") as federation:
        document = document_of(federation.run(asked, 50, interval=shown))
    assert document["interval"] == document["intervals"][shown]
    verify(document)
    (other,) = {"noise", "population"} - {shown}
    for lie in (
        {"interval": document["interval"] | {"covers": other}},
        {"interval": document["intervals"][other] | {"covers": shown}},
        {"intervals": document["intervals"] | {other: document["intervals"][shown]}},
        {"intervals": {shown: document["intervals"][shown]}},
    ):
        with pytest.raises(TallyError, match="does not hold"):
            verify(document | lie)


def test_a_result_from_before_there_were_two_intervals_still_holds() -> None:
    document = answer_of(0)
    del document["intervals"]
    with pytest.raises(TallyError, match="does not hold"):
        verify(document)
    del document["interval"]["covers"]
    verify(document)


def test_where_only_the_coordinator_can_open_reports_the_sum_is_not_signed() -> None:
    signed, unsigned = (verify(answer_of(kind)).unsigned for kind in (0, 6))
    assert signed == UNSIGNED
    reading = ("receipts.asked.records", "receipts.asked.parameters")
    assert unsigned == (*UNSIGNED, "estimate", "interval", "intervals", *reading)


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
    *servers, unsigned = good.stdout.splitlines()
    assert [line.split()[0] for line in servers] == ["server-0", "server-1"]
    assert unsigned.endswith(f"except for unsigned fields: {', '.join(UNSIGNED)}")
    bad = tally_here("verify", str(file), "--authority", str(theirs))
    assert (bad.returncode, bad.stdout) == (3, "")
    assert bad.stderr.startswith("tally: the result does not hold: authority")
    assert bad.stderr.count("\n") == 1
    file.write_text("{}")
    none = tally_here("verify", str(file))
    assert (none.returncode, none.stderr) == (2, f"tally: {file} has no receipts\n")


def test_what_is_no_result_is_said(tmp_path: Path) -> None:
    from tallyroom.simulation.proof import read_result

    (tmp_path / "text").write_text("no")
    for path, words in ((tmp_path / "gone", "cannot read"), (tmp_path / "text", "not a result")):
        with pytest.raises(LocalError, match=words):
            read_result(path)
