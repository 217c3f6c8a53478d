"""The command by statistic: its own help, in groups, and the nearest option for one it has not."""

import re
import resource
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from tallyroom.protocols import registry
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.statistics import offered, statistic_named
from tallyroom.protocols.statistics.bounded import Bounded, Ranged
from tallyroom.protocols.statistics.contract import Piloted, Statistic
from tallyroom.protocols.statistics.grouped import answers_for_groups
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.option import option
from tallyroom.simulation.command.by_statistic import statistic_command
from tallyroom.simulation.command.common import GROUPS, CompareOptions, RunOptions, parameters_of
from tests.conftest import COMMAND, Tally

SECTION = re.compile(r"^(\w[^:\n]*):$", re.M)
FLAG = re.compile(r"^  (?:-h, )?(--[a-z-]+)", re.M)
COMMON = {
    "run": {f"--{each.name.replace('_', '-')}" for each in parameters_of(RunOptions)},
    "compare": {f"--{each.name.replace('_', '-')}" for each in parameters_of(CompareOptions)},
}
FOR_ALL = {"--help"}


def flags_of(name: str) -> set[str]:
    kind = statistic_named(name)
    own = {each.flag for each in kind.options()}
    if issubclass(kind, Bounded | Ranged):
        own |= {"--bounds", "--bounds-share", "--bounds-by", "--schema"}
    if issubclass(kind, Statistic) and answers_for_groups(kind):
        own |= {"--where", "--by", "--groups", "--schema"}
    return own | {"--pilot"} if issubclass(kind, Piloted) else own


@pytest.mark.parametrize("action", ["run", "compare"])
@pytest.mark.parametrize("name", sorted(offered()))
def test_help_has_the_statistics_options_and_the_common_ones_and_no_others(
    tally_here: Tally, action: str, name: str
) -> None:
    done = tally_here(action, name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    shown = set(FLAG.findall(done.stdout))
    common = {"--json" if flag == "--as-json" else flag for flag in COMMON[action]}
    assert shown == flags_of(name) | common | FOR_ALL
    expected = [f"Options of {name}", *GROUPS, "Other"]
    if action == "compare":
        expected.remove("A running federation")
    assert SECTION.findall(done.stdout) == expected
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize("action", ["run", "compare"])
def test_help_of_the_action_lists_every_statistic_with_its_line(
    tally_here: Tally, action: str
) -> None:
    done = tally_here(action, "--help")
    assert done.returncode == 0
    for name in sorted(offered()):
        words = statistic_named(name).summary().split()
        assert re.search(rf"^  {name} +{re.escape(words[0])}", done.stdout, re.M)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ecdf", "--bins", 3), "ecdf has no --bins; did you mean --thresholds?"),
        (("histogram", "--thresholds", 3), "histogram has no --thresholds; did you mean --bins?"),
        (("running-sum", "--bins", 3), "running-sum has no --bins; did you mean --steps?"),
        (("quantile", "--at", 0.5), "quantile has no --at; did you mean --quantile?"),
        (("ecdf", "--treshold", 3), "ecdf has no --treshold; did you mean --thresholds?"),
        (("mean", "--epsilom", 3), "mean has no --epsilom; did you mean --epsilon?"),
        (("mean", "--tau", "b"), "mean has no --tau; it has --value, --lower, --upper"),
        (("mean", "--pilot", "x"), "mean has no --pilot; it has --value, --lower, --upper"),
        (("ecdf", "--spacing", "lin"), "no spacing 'lin'; did you mean linear?"),
        (("--data", "x", "mean"), "which statistic? options come after it"),
        (("--json", "mean"), "options come after the statistic: `tally run mean --json …`"),
        (("--coordinator", "h:1", "mean"), "options come after the statistic"),
        (("--resume", "k", "mean"), "--resume KEY asks nothing new"),
        (("mean", "ecdf"), "unexpected extra argument"),
    ],
    ids=str,
)
def test_an_option_that_a_statistic_has_not(
    tally_here: Tally, words: tuple[object, ...], said: str
) -> None:
    done = tally_here("run", *words)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("tally: ")
    assert said in line


def test_columns_are_named_by_options_too(tally_here: Tally) -> None:
    words = ("run", "auc", "--data", "synthetic:scores?n=40", "--parties", 4, "--json")
    refused = tally_here(*words, "--label", "lable")
    assert "no column 'lable'" in refused.stderr
    assert tally_here(*words, "--label", "label", "--score", "score").returncode == 0


@dataclass(frozen=True)
class Outside(Histogram):
    """Of another package."""

    bands: int = option(3, "How many bands.")
    shape: str = option("flat", "Their shape.", choices=("flat", "round"))

    name: ClassVar[str] = "outside"


@dataclass(frozen=True)
class Greedy(Histogram):
    """It claims what every question has."""

    epsilon: float = option(1.0, "Its own.")

    name: ClassVar[str] = "greedy"


@dataclass(frozen=True)
class FakeEntry:
    name: str
    kind: type

    def load(self) -> type:
        return self.kind


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    known = registry.registered(registry.STATISTICS)
    added = {kind.name: FakeEntry(kind.name, kind) for kind in (Outside, Greedy)}

    def registered(group: str) -> Any:
        return {**known, **added} if group == registry.STATISTICS else {}

    monkeypatch.setattr(registry, "registered", registered)
    statistic_named.cache_clear()


@pytest.mark.usefixtures("outside")
def test_a_statistic_of_another_package_has_its_command(tally_here: Tally) -> None:
    shown = tally_here("run", "outside", "--help").stdout
    assert "Of another package." in shown
    assert re.search(r"--bands <int> +How many bands\. \[default: 3\]", shown)
    assert "--shape [flat|round]" in shown
    assert "no shape 'square'" in tally_here("run", "outside", "--shape", "square").stderr
    assert "outside has no --band; did you mean --bands?" in (
        tally_here("run", "outside", "--band", 3, "--json").stderr
    )
    assert "Of another package." in tally_here("run", "--help").stdout


@pytest.mark.usefixtures("outside")
def test_a_statistic_cannot_take_an_option_that_all_questions_have() -> None:
    with pytest.raises(LocalError, match="greedy cannot have an option --epsilon"):
        statistic_command("greedy", RunOptions, lambda chosen, options: None)


@pytest.mark.parametrize("words", [(), ("-h",), ("--help",)], ids=str)
def test_help_goes_to_standard_output(tally_here: Tally, words: tuple[str, ...]) -> None:
    done = tally_here(*words)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "Usage: tally [OPTIONS] COMMAND [ARGS]..."
    assert len(lines) > 15


def test_the_version(tally_here: Tally) -> None:
    done = tally_here("--version")
    assert done.returncode == 0
    assert re.fullmatch(r"tallyroom \d+\.\d+\.\d+\n", done.stdout)


def modules_after(*words: str) -> list[str]:
    program = (
        f"import sys; sys.argv = ['tally', *{words!r}]\n"
        "from tallyroom.simulation.command.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stderr.split()


def test_help_loads_nothing_heavy() -> None:
    heavy = {"numpy", "grpc", "cryptography", "rich", "matplotlib", "scipy", "sklearn", "pydantic"}
    assert heavy.isdisjoint(modules_after("--help"))


def test_a_run_in_one_process_loads_no_network_and_no_other_statistic() -> None:
    heavy = {"grpc", "matplotlib", "scipy", "sklearn", "tallyroom.protocols.statistics.running_sum"}
    assert heavy.isdisjoint(modules_after("run", "mean", "--json"))


def test_help_takes_little_time() -> None:
    """Half a second of CPU is twice what it takes on a busy machine; with numpy it took 0.8."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*COMMAND, "--help"], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5
