"""The runner can tell: what survives, what is broken, and an entry whose line is gone."""

import datetime as dt
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.mutants import run
from tests.mutants.run import PARTS, ROOT, TABLE, Mutant, Outcome, chosen, judged, read_table

MUTANTS = read_table(TABLE.read_text())
UPPER = (
    "protocols/privacy",
    "protocols/query.py",
    "protocols/run",
    "protocols/statistics",
    "protocols/studies",
    "simulation",
)
LOSS = Mutant(
    "",
    "protocols/privacy/loss.py",
    "δ adds up",
    "delta = self.delta + other.delta",
    "delta = self.delta",
    "tests/protocols/privacy/test_loss.py::test_count_times",
)


def test_the_table_is_large_and_half_of_it_is_of_the_lower_storey() -> None:
    lower = [mutant for mutant in MUTANTS if not mutant.path.startswith(UPPER)]
    assert len(MUTANTS) >= 80
    assert len(lower) >= len(MUTANTS) / 2
    assert len({replace(mutant, why="", test="") for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_every_mutant_has_its_place_and_its_test(mutant: Mutant) -> None:
    source = (ROOT / mutant.path).read_text()
    mutated = mutant.put_into(source)
    assert mutated != source
    compile(mutated, mutant.path, "exec")
    path, _, name = mutant.test.partition("::")
    first = re.split(r"\W", name)[0]  # what a class inherits is not looked for
    assert re.search(rf"^(async )?(def|class) {first}\b", (ROOT / path).read_text(), re.MULTILINE)


@pytest.mark.slow
def test_what_a_test_does_not_notice_has_survived() -> None:
    nothing = replace(LOSS, new="delta = other.delta + self.delta")
    unreadable = replace(LOSS, new="delta = self.delta +")
    absent = replace(LOSS, test="tests/protocols/privacy/test_loss.py::test_of_nothing")
    before = (ROOT / LOSS.path).read_bytes()
    found = [outcome for _, outcome, _ in judged([nothing, LOSS, unreadable, absent])]
    assert found == [Outcome.SURVIVED, Outcome.CAUGHT, Outcome.UNCLEAR, Outcome.BROKEN]
    assert (ROOT / LOSS.path).read_bytes() == before


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"old": "delta = 3"}, "'delta = 3' is there 0 times, not once"),
        ({"old": "delta"}, "times, not once"),
        ({"after": "def of_nothing("}, "'def of_nothing(' is there 0 times, not once"),
        ({"after": "def as_written("}, None),
        ({"after": "def _epsilon_of("}, "is not behind 'def _epsilon_of('"),
    ],
)
def test_a_line_that_is_gone_ends_the_run_before_it_begins(
    change: dict[str, str], reason: str | None
) -> None:
    mutant = replace(LOSS, **change)
    if reason is None:
        assert LOSS.new in mutant.put_into((ROOT / LOSS.path).read_text())
        return
    with pytest.raises(ValueError, match=r"^protocols/privacy/loss.py: ") as refused:
        next(judged([mutant]))
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    "entry",
    ["a.py: why\n- old\n! test", "a.py\n- old\n+ new\n! test", "a.py: why\n- old\n+ new\n? test"],
)
def test_an_entry_that_lacks_something_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="not a mutant"):
        read_table(f"== topic\n\n{entry}\n")


def test_ten_days_run_all_of_it() -> None:
    days = [dt.date(2026, 1, 1) + dt.timedelta(days=day) for day in range(PARTS)]
    parts = [chosen(MUTANTS, "tenth", day) for day in days]
    assert sorted(str(each) for part in parts for each in part) == sorted(map(str, MUTANTS))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_words_that_no_mutant_mentions_are_one_clear_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", run.__name__, "of nothing"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "mutants: no mutant mentions 'of nothing'\n")
