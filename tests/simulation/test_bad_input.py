"""Bad input gets one line on standard error and exit code 2; nothing is written."""

import json
import socket
from pathlib import Path

import pytest

from tests.conftest import Tally

FED = "--identity fed"

GOOD_CSV = "age,name,party\n" + "".join(f"{20 + i},n{i},{i % 3}\n" for i in range(10))
FILES = {
    "good.csv": GOOD_CSV,
    "nan.csv": "age\n1\n2\nnan\n",
    "text.csv": "age\n1\n\ntwo\n",
    "ragged.csv": "age,b\n1,2\n3\n",
    "empty.csv": "",
    "header.csv": "age\n",
    "notes.txt": "age\n1\n",
}

CASES: dict[str, tuple[tuple[str, ...], str]] = {
    "unknown aggregator": (("mean", "--aggregator", "aditive"), "did you mean additive"),
    "resume what": (("--resume", "k"), "--coordinator"),
    "a key of nothing": (("mean", "--key", "k"), "--coordinator"),
    "resume something else": (
        ("mean", "--resume", "k", "--coordinator", "h:1", "--identity", "x"),
        "leave the statistic",
    ),
    "no statistic": ((), "which statistic"),
    "unknown statistic": (("maen",), "did you mean mean"),
    "part of a study's name": (("logistic",), "did you mean logistic-regression"),
    "a study's own question": (("logistic-step",), "a question that logistic-regression asks"),
    "a way of computing": (("auc-by-curve",), "no statistic 'auc-by-curve'"),
    "unknown runtime": (("mean", "--runtime", "proceses"), "did you mean processes"),
    "unknown data": (("mean", "--data", "breast-cancr"), "did you mean breast-cancer"),
    "unknown option": (("mean", "--no-such-thing"), "--no-such-thing"),
    "no such column": (("mean", "--data", "csv:good.csv?value=aeg"), "did you mean age"),
    "no such bundled column": (("mean", "--data", "breast-cancer?value=mean_radus"), "mean_radius"),
    "no such file": (("mean", "--data", "csv:none.csv?value=age"), "none.csv"),
    "not a csv": (("mean", "--data", "csv:notes.txt?value=age"), "files end in .csv"),
    "nan in a column": (("mean", "--data", "csv:nan.csv?value=age"), "line 4"),
    "text in a column": (("mean", "--data", "csv:text.csv?value=age"), "line 4"),
    "text column": (("mean", "--data", "csv:good.csv?value=name"), "line 2"),
    "ragged lines": (("mean", "--data", "csv:ragged.csv?value=age"), "line 3"),
    "empty file": (("mean", "--data", "csv:empty.csv?value=age"), "no records"),
    "only a header": (("mean", "--data", "csv:header.csv?value=age"), "no records"),
    "no bounds for a csv": (
        ("mean", "--data", "csv:good.csv?value=age&party=party"),
        "--lower and --upper",
    ),
    "one bound for a csv": (
        ("mean", "--data", "csv:good.csv?value=age", "--lower", "0", "--parties", "2"),
        "--lower and --upper",
    ),
    "no condition": (("mean", "--where", "age >"), "the condition has 'end'"),
    "an empty condition": (("mean", "--where", " "), "a condition is needed"),
    "a condition of code": (("mean", "--where", "__import__('os')"), "the condition"),
    "a condition about no column": (("mean", "--where", "scoer > 1"), "did you mean score"),
    "a condition about no column of a file": (
        ("mean", "--data", "good.csv?value=age", "--where", "nmae = 'n1'"),
        "did you mean name",
    ),
    "no groups": (("mean", "--by", "name", "--data", "good.csv?value=age"), "--by name needs"),
    "groups of no column": (("mean", "--by", "lable", "--groups", "lable=0,1"), "did you mean la"),
    "groups that are none": (("mean", "--by", "label", "--groups", "label"), "COLUMN=NAME,NAME"),
    "groups without --by": (("mean", "--groups", "label=0,1"), "--by label"),
    "groups of another column": (
        ("mean", "--by", "label", "--groups", "score=0,1"),
        "--by does not name score",
    ),
    "more groups than records": (
        (
            "mean",
            "--data=synthetic:scores?n=3",
            "--parties=1",
            "--by=label",
            "--groups=label=0,1,2,3",
        ),
        "4 groups of 3 records",
    ),
    "a part of pairs": (("gini", "--where", "label = 1"), "gini has no --where"),
    "groups of a study": (("hosmer-lemeshow", "--by", "label"), "no --by"),
    "a quantile that is chosen": (
        ("quantile", "--strategy", "max", "--where", "label = 1"),
        "--strategy",
    ),
    "modes of groups": (("mode", "--by", "label", "--groups", "label=0,1"), "chooses once"),
    "private bounds of a part": (
        ("mean", "--where", "label = 1", "--bounds", "private"),
        "--bounds private is of all records",
    ),
    "epsilon 0": (("mean", "--epsilon", "0"), "epsilon must be a positive number"),
    "epsilon below 0": (("mean", "--epsilon=-1"), "epsilon must be a positive number"),
    "epsilon nan": (("mean", "--epsilon", "nan"), "epsilon must be a positive number"),
    "epsilon a word": (("mean", "--epsilon", "some"), "epsilon must be a positive number"),
    "epsilon too small": (("mean", "--epsilon", "1e-9"), "epsilon 1e-09 is too small"),
    "one server for additive": (("mean", "--servers", "1"), "additive needs at least 2 servers"),
    "two servers for curator": (
        ("mean", "--aggregator", "curator", "--servers", "2"),
        "curator has 1 server",
    ),
    "unknown way to meet": (("mean", "--peer", "smoke"), "by direct or relay, not 'smoke'"),
    "a shuffle that tells the truth": (
        ("histogram", "--aggregator", "shuffle", "--epsilon", "1e-6", "--delta", "0.9"),
        "not below one in 2000",
    ),
    "a policy in containers": (
        ("mean", "--runtime", "docker", "--policy", "/dev/null"),
        "inprocess or processes",
    ),
    "direct in containers": (("mean", "--runtime", "docker", "--peer", "direct"), "--peer relay"),
    "no server": (("mean", "--servers", "0"), "at least one server"),
    "too many servers": (("mean", "--servers", "65"), "there must be 1 to 64"),
    "no party": (("mean", "--parties", "0"), "at least one party"),
    "fewer than no party": (("mean", "--parties=-3"), "at least one party"),
    "more parties than records": (
        ("mean", "--data", "synthetic:scores?n=10", "--parties", "11"),
        "10 records are too few for 11 parties",
    ),
    "more hosts than parties": (("mean", "--parties", "3", "--hosts", "4"), "4 hosts"),
    "parties against the party column": (
        ("mean", "--data", "csv:good.csv?value=age&party=party", "--parties", "4"),
        "names 3 parties",
    ),
    "lower above upper": (("mean", "--lower", "2", "--upper", "1"), "must be below"),
    "lower equal to upper": (("mean", "--lower", "1", "--upper", "1"), "must be below"),
    "infinite bound": (("mean", "--upper", "inf"), "finite"),
    "bounds that overflow": (("sum", "--lower=-1e308", "--upper", "1e308"), "bounds"),
    "edges that overflow": (("histogram", "--lower=-1.7e308", "--upper", "1.7e308"), "bounds"),
    "no bins": (("histogram", "--bins", "0"), "--bins must be between"),
    "bins of a mean": (
        ("mean", "--bins", "5"),
        "mean has no --bins; it has --value, --lower, --upper",
    ),
    "unknown placement": (("mean", "--noise", "nowhere"), "no noise placement"),
    "unknown unit": (("mean", "--unit", "hospital"), "record or party"),
    "minimum of none": (("mean", "--min-parties", "0"), "minimum"),
    "minimum of too many": (("mean", "--parties", "5", "--min-parties", "6"), "minimum"),
    "too few for shared noise": (
        ("mean", "--parties", "10", "--noise", "parties", "--min-parties", "4"),
        "at least 5",
    ),
    "deadline of nothing": (("mean", "--deadline", "0"), "deadline"),
    "cap 0": (("mean", "--cap", "0"), "epsilon must be a positive number"),
    "a number that is a figure": (("mean", "--data", "synthetic:scores?n=²"), "n= takes"),
    "unknown data option": (("mean", "--data", "synthetic:scores?m=3"), "no option 'm'"),
}


@pytest.mark.parametrize("name", CASES)
def test_one_line_exit_code_2_and_nothing_written(
    tally_here: Tally, tmp_path: Path, name: str
) -> None:
    words, expected = CASES[name]
    work = tmp_path / "work"
    for file, text in FILES.items():
        (work / file).write_text(text)
    before = sorted(work.iterdir())
    done = tally_here("run", *words, "--out", "out", "--json")
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("tally: ")
    assert expected in lines[0]
    assert done.returncode == 2
    assert sorted(work.iterdir()) == before


@pytest.mark.parametrize("out", ["file/out", "file", "file/a/b/c"])
def test_an_output_folder_that_cannot_be_is_refused_before_the_run(
    tally_here: Tally, tmp_path: Path, out: str
) -> None:
    (tmp_path / "work" / "file").write_text("in the way")
    done = tally_here("run", "mean", "--out", out, "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert f"cannot write to {out}" in done.stderr
    assert (tmp_path / "work" / "file").read_text() == "in the way"


def test_a_busy_port(tally: Tally, tmp_path: Path) -> None:
    made = tally("enrol", "create", "fed", "--servers", "1", "--parties", "1")
    assert made.returncode == 0
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for command in (
            ("server", "--identity", "fed/server-0"),
            ("coordinator", "--identity", "fed/coordinator", "--server", "x:1", "--parties", "1"),
        ):
            done = tally(*command, "--listen", address, "--insecure")
            assert (done.returncode, done.stdout) == (2, "")
            assert f"cannot listen on {address}" in done.stderr
            assert len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("server", "--identity", "nowhere"), "no identity in nowhere"),
        (("server", "--identity", "fed/analyst"), "not of a server"),
        (
            ("party", "--identity", "fed/server-0", "--coordinator", "x:1", "--data", "x"),
            "not of a party",
        ),
        (
            ("coordinator", "--identity", "fed/coordinator", "--server", "x:1", "--parties", "0"),
            "one party",
        ),
        (("enrol", "create", "fed"), "already holds a federation"),
        (("enrol", "create", "other", "--parties", "0"), "at least one server"),
        (("server", "--identity", "fed/server-0", "--cap", "0"), "epsilon must be"),
        (
            ("server", "--identity", "fed/server-0"),
            "without --cap and --store does not limit what it releases",
        ),
        (
            ("server", "--identity", "fed/server-0", "--cap", "1"),
            "without --store does not limit what it releases",
        ),
        (
            ("server", "--identity", "fed/server-0", "--store", "s"),
            "without --cap does not limit what it releases",
        ),
        (
            ("server", "--identity", "fed/server-0", "--store", "s", "--cap", "inf"),
            "without --cap does not limit what it releases",
        ),
        (
            ("coordinator", "--identity", "fed/coordinator", "--server", "x:1", "--parties", "1"),
            "a coordinator without --cap and --store does not limit what it releases",
        ),
        (("run", "mean", "--policy", "nowhere.toml"), "cannot read the policy nowhere.toml"),
        (("run", "mean", "--policy", "x", "--coordinator", "h:1", "--identity", "x"), "simulation"),
        (("ledger", "nowhere.sqlite", "--delta", "2"), "--delta must be a probability"),
        (("ledger", "nowhere.sqlite"), "no ledger"),
        (("ledger", "fed/server-0/certificate.pem"), "ledger"),
        (("list", "aggregator"), "did you mean aggregators"),
        (("bench", "agregate"), "did you mean aggregate"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_other_commands(tally_here: Tally, words: tuple[str, ...], expected: str) -> None:
    assert tally_here("enrol", "create", "fed", "--servers", "1", "--parties", "1").returncode == 0
    done = tally_here(*words)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert expected in done.stderr


@pytest.mark.parametrize("words", [("--epsilon", "1"), ("--epsilon", "inf")], ids=str)
@pytest.mark.parametrize("runtime", ["inprocess", "processes"])
def test_a_question_past_the_cap_is_refused(
    tally_here: Tally, tmp_path: Path, runtime: str, words: tuple[str, str]
) -> None:
    options = ("--runtime", runtime, "--cap", "0.5", "--parties", "2", "--out", "out")
    done = tally_here("run", "mean", *words, *options, "--json")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "refused" in line
    said = "the cap is 0.5" if "inf" in words else "0.5 of 0.5 is left"
    assert said in line or "0.5 left" in line
    assert list((tmp_path / "work").iterdir()) == []


def test_the_real_command_says_one_line_too(tally: Tally, tmp_path: Path) -> None:
    done = tally("run", "mean", "--aggregator", "aditive", "--out", "out")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "tally: no aggregator 'aditive'; did you mean additive?\n"
    assert list((tmp_path / "work").iterdir()) == []


def test_a_run_that_cannot_finish_ends_with_3(tally: Tally, tmp_path: Path) -> None:
    """Within a millisecond, twelve processes can neither enrol nor submit over TLS."""
    words = ("--runtime", "processes", "--deadline", "0.001", "--parties", "12", "--out", "out")
    done = tally("run", "mean", *words, "--json")
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert "could not finish" in line
    assert "of 12 parties" in line
    for told in (tmp_path / "work").rglob("*.*"):  # no result; if it ever began, how it ended
        progress = json.loads(told.read_text())
        assert (told.name, progress["state"]) == ("progress.json", "failed")
        assert progress["reason"] in line
