"""The command as a child process, and how hypothesis runs."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

import protos  # noqa: F401 - before gRPC, as the processes have it

settings.register_profile("tallyroom", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("tallyroom")

Done = subprocess.CompletedProcess[str]
Tally = Callable[..., Done]

COMMAND = [sys.executable, "-c", "from simulation.command.main import main; main()"]


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
        from simulation.command.main import main

        monkeypatch.setattr(sys, "argv", ["tally", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        written = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return subprocess.CompletedProcess(sys.argv, code, written.out, written.err)

    return run
