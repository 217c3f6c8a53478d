"""Options that Python reads, and what is loaded for a question."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from tallyroom.simulation.command.main import main
sys.argv = ["tally", *{words!r}]
try:
    main()
finally:
    heavy = {{"pydantic", "scipy", "matplotlib", "pandas"}}
    print(sorted(heavy & sys.modules.keys()), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["run", "mean"],
        ["run", "mean", "--epsilon", "0.5", "--parties", "30", "--value", "score", "--json"],
    ],
)
def test_a_question_loads_nothing_heavy(words: list[str]) -> None:
    """Each of them takes longer to load than such a question to answer."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(words=words)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr.splitlines()[-1] == "[]"
