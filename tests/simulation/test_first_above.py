"""`first-above`, `--bounds-by sparse-vector` and a residual plot's axes through real servers: what
they find, what they cost, whom they name."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tallyroom.parties.data import Dataset
from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.joint.above_threshold import FirstAbove
from tallyroom.protocols.plans.contract import NoisyChoice, NoisySum
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.estimates import Rows
from tallyroom.protocols.statistics.first_above import (
    BEYOND,
    FirstAboveThreshold,
    MagnitudeBounds,
)
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.residuals import JointReach
from tallyroom.protocols.studies.private_bounds import PrivateBounds
from tallyroom.protocols.studies.residual_plot import ResidualPlot
from tallyroom.protocols.wire.messages import Message, Phase
from tallyroom.simulation import Federation
from tallyroom.storage.ledger import Ledger
from tests.conftest import Tally
from tests.simulation.tampering import Tampered

RNG = np.random.default_rng(8)
VALUES = np.clip(RNG.normal(0.4, 0.15, 500), 0, 1)
DATA = Dataset(
    "bell", {"value": VALUES, "y": 3 * VALUES + RNG.normal(0, 5, 500)}, {"value": (0.0, 1.0)}
)
COUNTS, EDGES = np.histogram(VALUES, bins=20, range=(0, 1))
FIRST = int(np.argmax(COUNTS >= 30))


def ask(**options: object) -> FirstAboveThreshold:
    return FirstAboveThreshold(value="value", bins=20, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("aggregator", ["additive", "fss"])
def test_it_is_what_numpy_says_and_inf_where_there_is_none(aggregator: str) -> None:
    with Federation(parties=4, hosts=1, aggregator=aggregator, data=DATA) as federation:
        for epsilon in ("inf", 40):
            found = federation.run(ask(threshold=30), epsilon)
            assert found.estimate == pytest.approx((EDGES[FIRST] + EDGES[FIRST + 1]) / 2)
            none = federation.run(ask(threshold=450), epsilon)
            assert none.estimate == none.truth == math.inf
    assert none.error == {"rmse": 0.0, "max": 0.0}
    assert json.loads(json.dumps(none.as_json(), allow_nan=False))["estimate"] == "inf"


def test_an_index_is_all_that_is_released_and_it_is_paid_for(tmp_path: Path) -> None:
    with Federation(parties=4, hosts=1, data=DATA, store=tmp_path) as federation:
        result = federation.run(ask(threshold=30), 4)
    assert result.bill.by_phase()["share"].bytes < 700  # one word and a receipt a server
    assert {"prepare", "together"} <= result.bill.by_phase().keys()
    assert "geometric noise of scale 0.75" in result.privacy.mechanism  # ε = 3/s
    assert 0 < result.privacy.delta <= 2.0**-40
    for server in range(2):
        ledger = Ledger(tmp_path / f"server-{server}" / "ledger.sqlite")
        assert [row[2] for row in ledger.rows()] == ["4"]
        ledger.close()


def failing(change: Callable[[Message], Message], security: str = "") -> str:
    with Federation(parties=3, hosts=1, data=DATA) as federation:
        runtime = Tampered(federation.runtime.layout)
        runtime.change = change
        federation.runtime = runtime
        with pytest.raises(RunFailed) as caught:
            federation.run(ask(threshold=30), 1.0, security=security)
    return str(caught.value)


@pytest.mark.parametrize("step", [1, 2, 6], ids=["comparisons", "search", "its last level"])
def test_a_server_that_sends_a_malformed_circuit_is_named(step: int) -> None:
    """In the comparison of scores, and in a level of the search for the first; computed one way."""

    def garbled_otherwise(message: Message) -> Message:
        if message.phase is Phase.TOGETHER and message.senders[0] == 0:
            body = message.body.copy()
            if body[0, 0] == step:
                body[0, 200] ^= 1
            return replace(message, body=body)
        return message

    named = "server-1 cannot go on: server-0: an answer that does not fit its digest"
    assert failing(garbled_otherwise, "semi-honest") == named


def test_a_server_with_another_threshold_is_named() -> None:
    """The program's name has it: a server that was told another one computes something else."""

    def other(message: Message) -> Message:
        if message.phase is Phase.TOGETHER and message.senders[0] == 1:
            body = message.body.copy()
            body[0, 6] ^= 1  # of the digest of the opening
            return replace(message, body=body)
        return message

    assert "server-0 cannot go on: server-1: computes something else" in failing(other)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"threshold": 0}, "from 1 to the number of records, not 0"),
        ({"threshold": 501}, "from 1 to the number of records, 500, not 501"),
        ({"bins": 1 << 16}, "bins must be between 1 and 65535"),
        ({"categories": "a,b"}, "names have no order"),
    ],
)
def test_what_cannot_be_found_is_one_line(options: dict[str, object], words: str) -> None:
    with (
        Federation(parties=4, hosts=1, data=DATA) as federation,
        pytest.raises(LocalError, match=words),
    ):
        federation.run(FirstAboveThreshold(**{"value": "value"} | options), 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "statistic",
    [
        FirstAboveThreshold(lower=0.0, upper=1.0, threshold=3),
        MagnitudeBounds(),
        JointReach(("x",), "y", (0.0, 1.0), doublings=5),
    ],
    ids=lambda each: each.name,
)
def test_they_go_over_the_wire_and_back(statistic: Statistic) -> None:
    sent = json.loads(json.dumps(statistic.parameters(), allow_nan=False))
    assert type(statistic).from_parameters(sent) == statistic
    asked = planned(statistic, Facts.of_one_server(100))
    plan = asked.plan
    assert isinstance(plan, NoisyChoice)
    chosen = plan.rule
    assert (chosen.chosen, chosen.noises) == (plan.released, plan.noises)
    scores = plan.measure(np.zeros(plan.length, dtype=np.uint64))
    assert len(scores) == chosen.contests * chosen.candidates
    beyond = np.array([2**40] * plan.released, dtype=np.uint64)
    with pytest.raises(RunFailed, match="add up to anything"):
        asked.decode(beyond, 100)


# --- bounds ---


@pytest.mark.parametrize(
    ("values", "bounds"),
    [
        (np.linspace(5.0, 7.9, 600), (4.0, 8.0)),
        (np.linspace(-100.0, 3.0, 600), (-128.0, 4.0)),
        (-np.linspace(0.3, 0.4, 600), (-0.5, -0.25)),
        (np.zeros(600), (0.0, 2.0**-32)),
        (np.append(np.linspace(5.0, 7.9, 598), [1e9, -1e9]), (4.0, 8.0)),
    ],
    ids=["positive", "both signs", "negative", "all zero", "two outliers"],
)
def test_bounds_are_found_by_an_index_each(values: np.ndarray, bounds: tuple[float, float]) -> None:
    with Federation(parties=4, hosts=1, data={"value": values}, seed=1) as federation:
        result = federation.run(PrivateBounds(Mean(), 0.5, "sparse-vector"), epsilon=40)
    assert result.data["bounds"] == list(bounds)
    assert result.questions[0].privacy.noise == "joint"
    assert result.questions[0].bill.by_phase()["share"].bytes < 700


def beyond_bounds(known: Facts) -> int:
    """How many records may lie beyond a bound."""
    plan = MagnitudeBounds().plan(known)
    assert isinstance(plan.rule, FirstAbove)
    [within] = set(plan.rule.thresholds)
    return known.records - within


def test_noise_seldom_leads_beyond_all_records() -> None:
    """10,000 searches in the clear by numpy, alpha 1e-9: no more than BEYOND on either side go past
    the outermost bin that has records."""
    scale = 2.0
    known = Facts.of_one_server(1000, 1, Fraction(2), False, b"")
    beyond = beyond_bounds(known)
    assert beyond == math.ceil(math.log(1 / (2 * BEYOND)) * scale)
    party = beyond_bounds(replace(known, records_per_unit=5))
    assert party == math.ceil(math.log(1 / (2 * BEYOND)) * 5 * scale)
    draws = np.floor(np.random.default_rng(1).exponential(scale, (2, 10_000)))
    past = np.count_nonzero(draws[0] + beyond < draws[1])
    assert past <= 165  # of 100 at most on average: Poisson(100) is above 165 once in 10^9


def test_bounds_that_noise_hides_are_not_found() -> None:
    """Where so little ε is left that all records may lie beyond, the search ends anywhere."""
    values = Rows(["end", "value"], [["lower", 8.0], ["upper", 4.0]])
    study = PrivateBounds(Mean(), 0.5, "sparse-vector").steps()
    next(study)
    from tallyroom.protocols.studies.contract import Answer

    with pytest.raises(RunFailed, match="no bounds were found"):
        study.send(Answer.told(values, np.full(2, np.nan), 10))


def test_the_command_has_both_ways(tally_here: Tally) -> None:
    run = "--data synthetic:scores?n=400 --parties 4 --epsilon 20 --seed 1 --json"
    found = tally_here(*f"run mean --bounds private --bounds-by sparse-vector {run}".split())
    assert found.returncode == 0, found.stderr
    document = json.loads(found.stdout)
    assert document["questions"][0]["statistic"] == "magnitudes"
    assert document["questions"][0]["privacy"]["noise"] == "joint"
    refused = tally_here(*f"run mean --bounds-by histogram {run}".split())
    assert refused.returncode != 0
    assert "give --bounds private" in refused.stderr
    searched = tally_here(*f"run first-above --threshold 9 {run}".split())
    assert json.loads(searched.stdout)["statistic"] == "first-above"


# --- the axes of a residual plot ---


def test_axes_reach_as_a_curator_finds_them() -> None:
    """Without counts: the same reaches as from exact counts, at an ε that leaves no doubt."""
    with Federation(parties=4, hosts=1, data=DATA) as federation:
        reach = federation.run(JointReach(("value",), "y", (0.0, 3.0)), 60)
        plot = ResidualPlot(
            ("value",), "y", coefficients=(0.0, 3.0), method="laplace", reach_by="sparse-vector"
        )
        result = federation.run(plot, 60, noise="each-server")
    assert isinstance(reach.estimate, Rows)
    assert reach.estimate == reach.noiseless == reach.truth
    assert [each.statistic for each in result.questions] == ["residual-plot"] * 2
    assert [each.privacy.noise for each in result.questions] == ["joint", "each-server"]


def test_three_servers_have_no_such_index() -> None:
    with (
        Federation(parties=4, servers=3, hosts=1, data=DATA) as federation,
        pytest.raises(LocalError, match="two servers, not by 3"),
    ):
        federation.run(PrivateBounds(Mean("value"), method="sparse-vector"), 1.0)
    assert isinstance(planned(Histogram(lower=0.0, upper=1.0)).plan, NoisySum)
