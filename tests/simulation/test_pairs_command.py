"""`tally run` on statistics of pairs: one line for what cannot be, and answers in full."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from tallyroom.parties.data import load
from tallyroom.protocols.errors import RunFailed
from tallyroom.protocols.pairwise.sampling.pair_assignment import draw_meetings
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.pairs import PairwiseMean
from tallyroom.protocols.statistics.of_pairs import Auc, Gini, KendallTau, Pairwise
from tallyroom.protocols.statistics.pairwise import Pairs
from tallyroom.simulation import Federation, Result
from tallyroom.simulation.misbehaviour import choose_silent
from tests.conftest import Tally

SCORES = "synthetic:scores?n=24"
RATINGS = "csv:ratings.csv?x=room&y=clean&value=room&party=guest"

CASES: dict[str, tuple[tuple[str, ...], str]] = {
    **{
        f"pairs by {aggregator}": (
            ("gini", "--aggregator", aggregator),
            f"gini adds up shares of pairs: {aggregator} cannot, additive",
        )
        for aggregator in ("fss", "masking", "prio3", "shamir")
    },
    "noise of pairs where there are none": (
        ("histogram", "--noise", "per-pair"),
        "--noise per-pair is of statistics of pairs",
    ),
    "noise on a total of pairs where there are none": (
        ("mean", "--noise", "total"),
        "--noise total is of statistics of pairs",
    ),
    "noise of parties": (("gini", "--noise", "parties"), "parties cannot add"),
    "no pairs": (("gini", "--pairs-per-party", "0"), "--pairs-per-party is a number, all or auto"),
    "some pairs": (("gini", "--pairs-per-party", "some"), "not 'some'"),
    "pairs of a sum": (("mean", "--pairs-per-party", "2"), "mean has no --pairs-per-party"),
    "no such kernel": (("pairwise", "--kernel", "ginni"), "did you mean gini"),
    "a kernel that does not parse": (
        ("pairwise", "--kernel", "abs(a.score - b.score", "--lower", "0", "--upper", "1"),
        "')' is missing",
    ),
    "a kernel of a column that is not there": (
        ("pairwise", "--kernel", "abs(a.age - b.age)", "--lower", "0", "--upper", "1"),
        "no column 'age'",
    ),
    "a kernel where none is asked": (("gini", "--kernel", "gini"), "gini has no --kernel"),
    "no such tau": (("kendall-tau", "--tau", "c"), "no tau 'c'; there are a, b"),
    "too many bits": (("gini", "--bits", "33"), "--bits is 1 to 32, not 33"),
    "noise that no circuit holds": (
        ("gini", "--noise", "per-pair", "--epsilon", "1e-9"),
        "epsilon",
    ),
    "noise that is too exact": (
        ("gini", "--noise", "per-pair", "--delta", "1e-300"),
        "would need over 1024 bits to stay within delta 1e-300",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_cannot_be_is_said_in_one_line(name: str, tally_here: Tally) -> None:
    words, said = CASES[name]
    parties = () if "prio3" in words else ("--parties", "6")
    done = tally_here("run", *words, "--data", SCORES, *parties)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("tally: ")
    assert said in line


def answer(tally: Tally, *words: str) -> dict[str, object]:
    done = tally("run", *words, "--parties", "6", "--seed", "3", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


PARTY_GARBLES = (
    "the party that garbles a pair must follow the protocol: if it deviates, the released total "
    "can tell the other's record, past any noise"
)
BOUNDED = (
    "the party that garbles a pair is not checked: whatever it does, a pair moves the total no "
    "further than a record may, and it learns one bit of the other's record if it makes the other "
    "refuse"
)


def test_what_an_answer_says_of_its_privacy(tally_here: Tally) -> None:
    options = ("--data", SCORES, "--bits", "8", "--epsilon", "2")
    inside = answer(tally_here, "gini", *options, "--noise", "per-pair", "--delta", "1e-6")
    privacy = inside["privacy"]
    assert isinstance(privacy, dict)
    assert 0 < privacy["delta"] <= 1e-6
    assert privacy["noise"] == "per-pair"
    assert "inside the circuit of every pair" in privacy["mechanism"]
    assert "keeps its coins to itself and both follow the protocol" in privacy["threat_model"]
    assert PARTY_GARBLES in privacy["threat_model"]
    total = answer(tally_here, "gini", *options, "--noise", "total")
    privacy = total["privacy"]
    assert isinstance(privacy, dict)
    assert privacy["delta"] == 0.0
    assert privacy["noise"] == "total"
    assert "on the total of one output over all pairs" in privacy["mechanism"]
    assert BOUNDED in privacy["threat_model"]
    links = total["communication"]
    assert isinstance(links, dict)
    assert links["links"]["party->party"]["bytes"] > 0


def test_one_server_leaves_noise_to_pairs(tally_here: Tally) -> None:
    options = ("--data", SCORES, "--bits", "6", "--epsilon", "2", "--aggregator", "curator")
    privacy = answer(tally_here, "gini", *options)["privacy"]
    assert isinstance(privacy, dict)
    assert privacy["noise"] == "per-pair"


@pytest.mark.parametrize(
    ("words", "bounds"),
    [
        (("kendall-tau",), False),
        (("kendall-tau", "--tau", "b"), False),
        (("gini",), True),
        (("variance",), True),
        (("collision-entropy",), False),
        (("pairwise", "--kernel", "abs(a.room - b.clean)"), True),
        (("pairwise", "--kernel", "kendall-tau"), True),
    ],
)
def test_answers_over_all_pairs_are_exact(
    words: tuple[str, ...], bounds: bool, tally_here: Tally
) -> None:
    draw = np.random.default_rng(2)
    lines = ["guest,room,clean"]
    for guest in range(14):
        room = int(draw.integers(1, 6))
        lines.append(f"{guest % 6},{room},{int(np.clip(room + draw.integers(-1, 2), 1, 5))}")
    Path("ratings.csv").write_text("\n".join(lines) + "\n")
    options = ["--data", RATINGS, "--epsilon", "inf", "--pairs-per-party", "all"]
    options += ["--lower", "1", "--upper", "5"] if bounds else []
    done = tally_here("run", *words, *options, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    if words == ("pairwise", "--kernel", "abs(a.room - b.clean)"):  # each pair in one order only
        assert found["estimate"] == pytest.approx(found["truth"], abs=0.5)
    else:
        assert found["estimate"] == pytest.approx(found["truth"], abs=1e-9)


def a_run(
    statistic: Pairs,
    runtime: str = "inprocess",
    dropout: float = 0.0,
    epsilon: str = "inf",
    noise: str | None = None,
    min_parties: int | None = None,
) -> Result:
    with Federation(
        parties=6, data=SCORES, seed=7, hosts=3, runtime=runtime, dropout=dropout
    ) as federation:
        return federation.run(
            statistic, epsilon, noise=noise, min_parties=min_parties, deadline=2.0
        )


@pytest.mark.parametrize("noise", ["total", "per-pair"])
def test_both_runtimes_agree_to_the_bit(noise: str) -> None:
    statistic = Auc(pairs_per_party="2", lower=0.0, upper=1.0, bits=8)
    here, there = (
        a_run(statistic, runtime, epsilon="1", noise=noise)
        for runtime in ("inprocess", "processes")
    )
    assert here.estimate == there.estimate
    assert here.communication == there.communication


def test_a_link_with_more_pairs_than_a_message_holds_crosses_the_wire() -> None:
    """Some 1,500 pairs of 2.6 kB on one link, of which most travel one way: three batches."""
    with Federation(
        parties=2, data="synthetic:scores?n=1500", seed=7, hosts=2, runtime="processes"
    ) as federation:
        result = federation.run(Auc(pairs_per_party="4"), "inf")
    messages = result.bill.by_link()["party->party"].messages
    assert messages == 2 + 2 * 3
    assert result.estimate == pytest.approx(result.truth, abs=0.05)
    assert result.notes == ("NOT PRIVATE: epsilon is inf, so no noise was added",)


@pytest.mark.parametrize("runtime", ["inprocess", "processes"])
def test_dropouts_cost_their_pairs(runtime: str) -> None:
    """All pairs of those that are left: off by rounding to 8 bits, and by nothing else."""
    result = a_run(Gini(value="score", bits=8, pairs_per_party="all"), runtime, dropout=0.3)
    assert result.estimate == pytest.approx(result.truth, abs=2.0**-7)
    assert result.noise_error == {"rmse": 0.0, "max": 0.0}
    assert any("parties contributed" in note for note in result.notes)
    silent = choose_silent(6, 0.3, 7)
    held = load(SCORES).deal(6)
    stay = sum(int(n) for party, n in enumerate(held.counts) if party not in silent)
    assert result.lost_pairs == math.comb(held.rows, 2) - math.comb(stay, 2)
    lost = f"{result.lost_pairs} of {math.comb(held.rows, 2)} pairs are left out"
    assert any(note.startswith(lost) for note in result.notes)


def test_when_nobody_can_meet_the_run_fails() -> None:
    """Two records of two parties, of which one is gone."""
    with (
        Federation(parties=2, data="synthetic:scores?n=2", seed=7, dropout=0.5) as federation,
        pytest.raises(RunFailed, match="no pair was completed"),
    ):
        federation.run(Auc(method="pairs"), "inf", min_parties=1, deadline=2.0)


def test_own_columns_reach_written_kernels() -> None:
    with Federation(parties=6, data=SCORES, seed=7) as federation:
        kernel = Pairwise(
            kernel_name="if(a.label != b.label, abs(a.score - b.score), 0)",
            lower=0.0,
            upper=1.0,
            pairs_per_party="all",
        )
        assert federation.run(kernel, "inf").estimate == pytest.approx(
            federation.run(kernel, "inf").truth, abs=1e-6
        )


def test_tau_takes_the_columns_of_its_roles() -> None:
    with Federation(parties=6, data=SCORES, seed=7) as federation:
        result = federation.run(KendallTau(x="score", y="label", pairs_per_party="all"), "inf")
        assert result.estimate == result.truth


@pytest.mark.parametrize("name", ["gini", "variance", "collision-entropy", "kendall-tau"])
def test_one_record_makes_no_pair(name: str, tmp_path: Path, tally_here: Tally) -> None:
    (tmp_path / "one.csv").write_text("x,y\n1,2\n")
    columns = "x=x&y=y" if name == "kendall-tau" else "value=x"
    data = f"csv:{tmp_path / 'one.csv'}?{columns}"
    done = tally_here("run", name, "--data", data, "--lower", "0", "--upper", "5", "--parties", "1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"tally: {name} needs at least two records\n"


def test_an_infinite_entropy_is_told_by_name(tmp_path: Path, tally_here: Tally) -> None:
    (tmp_path / "ids.csv").write_text("\n".join(["x", *map(str, range(9))]))
    data = f"csv:{tmp_path / 'ids.csv'}?value=x"
    words = ("collision-entropy", "--data", data, "--parties", "1", "--epsilon", "inf")
    done = tally_here("run", *words, "--json", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["estimate"] == found["truth"] == "inf"
    assert found["error"] == found["noise_error"] == {"rmse": 0.0, "max": 0.0}
    assert (tmp_path / "out" / "report.html").exists()


@pytest.mark.parametrize(("records", "pairs"), [(4, 3), (5, 4), (7, 6)])
def test_all_pairs_take_noise_for_those_that_a_record_is_in(records: int, pairs: int) -> None:
    """Of an odd number, every record sits out one of the matchings."""
    plan = KendallTau(pairs_per_party="all").plan(Facts.of_one_server(records))
    assert plan.sensitivity.l1 == 2 * pairs
    assert isinstance(plan, PairwiseMean)
    _, entries = draw_meetings(plan.sample, np.ones(records, dtype=np.int64))
    assert len(entries) == records * pairs


def test_noise_alone_is_told_from_what_sampling_did() -> None:
    """The pairs that were drawn are known by the run's name."""
    with Federation(parties=4, data="synthetic:scores?n=40", seed=3) as federation:
        exact = federation.run(Gini(value="score", pairs_per_party="2"), "inf")
        noisy = federation.run(Gini(value="score", pairs_per_party="2"), 1)
    assert exact.noise_error == {"rmse": 0.0, "max": 0.0}
    assert exact.error is not None
    assert exact.error["max"] > 0, "two pairs a record are not all"
    assert noisy.noise_error is not None
    assert noisy.noise_error["max"] > 0
