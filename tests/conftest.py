"""The command as a child process, how hypothesis runs, and which tests are of a slow kind."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import tallyroom.protos  # noqa: F401 - before gRPC, as the processes have it
from tallyroom.protocols.errors import words_of_the_command

settings.register_profile("tallyroom", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("tallyroom")

KINDS = {
    "e2e": "e2e",
    "compose": "e2e",
    "browser": "e2e",
    "statistical": "statistical",
    "fuzz": "slow",
}
"""Folders whose tests are all of one kind."""
SLOW = {
    "contracts/test_example_aggregator",
    "contracts/test_plans",
    "fss/test_comparison",
    "fss/test_dcf",
    "fss/test_native",
    "fss/test_uniform",
    "fss/test_vdaf_vectors",
    "golden/test_golden",
    "parties/test_durable_answers",
    "parties/test_membership",
    "parties/test_peers",
    "protocols/aggregation/test_masking",
    "protocols/aggregation/test_masking_graph",
    "protocols/aggregation/test_on_demand",
    "protocols/aggregation/test_shuffle",
    "protocols/garbling/test_session",
    "protocols/pairwise/test_views",
    "protocols/privacy/smoothing/test_curve",
    "protocols/privacy/test_composition",
    "protocols/privacy/test_projected",
    "protocols/privacy/test_quantiles",
    "protocols/privacy/test_rounded_noise",
    "protocols/privacy/test_selection",
    "protocols/privacy/test_thresholded",
    "protocols/privacy/test_tree",
    "protocols/statistics/test_curated",
    "protocols/statistics/test_local_forms",
    "protocols/statistics/test_projected_histogram",
    "protocols/statistics/test_statistics",
    "protocols/statistics/test_thresholds",
    "protocols/vdaf/test_polynomial",
    "protocols/vdaf/test_prio3",
    "protocols/vdaf/test_vectors",
}
"""Modules whose tests take more than some four seconds together."""
QUICK_COMMANDS = ("test_bad_input", "test_command", "test_options")
"""Of tests/simulation, what `make check` runs: the others start federations."""

Done = subprocess.CompletedProcess[str]
Tally = Callable[..., Done]

HERE = Path(__file__).parent
COMMAND = [sys.executable, "-c", "from tallyroom.simulation.command.main import main; main()"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what `make check` leaves out, by folder and by module."""
    for item in items:
        path = item.path.relative_to(HERE)
        module = path.with_suffix("").as_posix()
        if kind := KINDS.get(path.parts[0]):
            item.add_marker(kind)
        of_command = path.parts[0] == "simulation" and path.stem not in QUICK_COMMANDS
        if module in SLOW or of_command:
            item.add_marker("slow")


@pytest.fixture(autouse=True)
def as_the_command_says() -> Iterator[None]:
    """Errors name options by their flags, as they are written; what Python users read is tested
    where that is the point."""
    with words_of_the_command():
        yield


@pytest.fixture
def tally(tmp_path: Path) -> Tally:
    """Runs `tally` with the given words in an empty folder."""
    folder = tmp_path / "work"
    folder.mkdir()

    def run(*words: object, seconds: float = 120.0) -> Done:
        return subprocess.run(
            [*COMMAND, *map(str, words)],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    return run


@pytest.fixture
def tally_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Tally:
    """The same in this process, which saves its start: for tables of bad input."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def run(*words: object) -> Done:
        from tallyroom.simulation.command.main import main

        monkeypatch.setattr(sys, "argv", ["tally", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        written = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return subprocess.CompletedProcess(sys.argv, code, written.out, written.err)

    return run
