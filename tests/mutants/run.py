"""Takes away one line at a time that privacy hangs on, and sees a test fail: `make mutants`.

    python -m tests.mutants.run          every mutant of table.txt
    python -m tests.mutants.run tenth    a tenth of them, another one each day
    python -m tests.mutants.run WORDS    those that mention the words

The working tree is never written to: each worker has a copy of it, one line of which differs at a
time. Ends with an error if a test does not notice its mutant, or fails without it.
"""

import datetime as dt
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
TABLE = Path(__file__).with_name("table.txt")
PACKAGES = ("fss", "parties", "protocols", "protos", "servers", "simulation", "storage")
COPIED = (*PACKAGES, "tallyroom", "tests")
WORKERS = 2
PARTS = 10
SECONDS = 120
"""For one mutant. A test that hangs has not said what is wrong."""
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "pytest_timeout")
SIDE_BY_SIDE = ("-p", "xdist", "-n", str(WORKERS), "--dist", "worksteal")


@dataclass(frozen=True)
class Mutant:
    """`old` becomes `new` in the file at `path`: the only `old` there, or the first one behind the
    only `after`. Then `test` must fail."""

    topic: str
    path: str
    why: str
    old: str
    new: str
    test: str
    after: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"

    def put_into(self, source: str) -> str:
        """The file with the mutation. Raises `ValueError` if its place is not there."""
        start = 0
        if self.after:
            start = self._only(source, self.after) + len(self.after)
            if self.old not in source[start:]:
                raise ValueError(f"{self}: {self.old!r} is not behind {self.after!r}")
        else:
            self._only(source, self.old)
        return source[:start] + source[start:].replace(self.old, self.new, 1)

    def _only(self, source: str, text: str) -> int:
        if (found := source.count(text)) != 1:
            raise ValueError(f"{self}: {text!r} is there {found} times, not once")
        return source.index(text)


class Outcome(StrEnum):
    CAUGHT = "caught"
    SURVIVED = "SURVIVED"
    BROKEN = "TEST FAILS WITHOUT IT"
    UNCLEAR = "NO VERDICT"  # the module cannot be imported, or the test hangs


def read_table(text: str) -> list[Mutant]:
    """Entries are paragraphs, under topics that begin with `==`:

        path: why it matters
        @ text that comes before, where the line alone is not unique
        - text of one line
        + what becomes of it
        ! the test that must fail

    Raises `ValueError` on anything else.
    """
    found: list[Mutant] = []
    topic = ""
    for paragraph in text.split("\n\n"):
        lines = [line for line in paragraph.splitlines() if line and not line.startswith("#")]
        if lines and lines[0].startswith("== "):
            topic = lines.pop(0).removeprefix("== ")
        if not lines:
            continue
        path, colon, why = lines[0].partition(": ")
        parts = {line[0]: line[2:] for line in lines[1:] if line[1:2] == " "}
        if not colon or len(parts) != len(lines) - 1 or parts.keys() - {"@"} != {"-", "+", "!"}:
            raise ValueError(f"not a mutant: {paragraph!r}")
        changed = parts["-"], parts["+"], parts["!"]
        found.append(Mutant(topic, path, why, *changed, after=parts.get("@", "")))
    return found


class Copy:
    """A copy of the working tree, with its compiled modules."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in COPIED:
            shutil.copytree(ROOT / name, folder / name, symlinks=True)
        shutil.copy(ROOT / "pyproject.toml", folder)

    def fate(self, mutant: Mutant) -> Outcome:
        """Whether the test notices. The copy is as it was afterwards."""
        original, path = ROOT / mutant.path, self._folder / mutant.path
        path.write_text(mutant.put_into(original.read_text()))
        os.utime(path, (0, 0))  # bytecode of the original is not taken for that of the mutant
        try:
            code, _ = self._test("-x", mutant.test)
        finally:
            shutil.copy2(original, path)
        return {0: Outcome.SURVIVED, 1: Outcome.CAUGHT}.get(code, Outcome.UNCLEAR)

    def broken(self, tests: list[str]) -> list[str]:
        """Those of the tests that do not pass although nothing was changed."""
        code, said = self._test(*(SIDE_BY_SIDE if len(tests) > PARTS else ()), *tests)
        if code == 0:
            return []
        suspects = [test for test in tests if test in said] if code == 1 else tests
        return [test for test in suspects if self._test(test)[0] != 0]

    def _test(self, *words: str) -> tuple[int, str]:
        """What pytest ends with and says; it ends with -1 if it does not end in time."""
        environment = os.environ | {
            "PYTHONPATH": str(self._folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # half of the time that a test takes to start
        }
        try:
            done = subprocess.run(
                [*PYTEST, *words],
                cwd=self._folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=SECONDS * len(words),
                check=False,
            )
        except subprocess.TimeoutExpired:
            return -1, ""
        return done.returncode, done.stdout + done.stderr


def judged(mutants: list[Mutant]) -> Iterator[tuple[Mutant, Outcome, float]]:
    """Every mutant with its fate and the seconds that it took, as they are found out.

    Raises `ValueError` before anything is run if the place of one is not there.
    """
    for mutant in mutants:
        mutant.put_into((ROOT / mutant.path).read_text())
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies = [Copy(Path(folder, str(number))) for number in range(WORKERS)]
        broken = copies[0].broken(sorted({mutant.test for mutant in mutants}))
        free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for copy in copies:
            free.put(copy)

        def judge(mutant: Mutant) -> tuple[Mutant, Outcome, float]:
            if mutant.test in broken:
                return mutant, Outcome.BROKEN, 0.0
            copy, begun = free.get(), time.monotonic()
            try:
                return mutant, copy.fate(mutant), time.monotonic() - begun
            finally:
                free.put(copy)

        with ThreadPoolExecutor(WORKERS) as pool:
            yield from pool.map(judge, mutants)


def part_of(day: dt.date) -> int:
    return day.toordinal() % PARTS


def chosen(mutants: list[Mutant], words: str, day: dt.date) -> list[Mutant]:
    if words == "tenth":
        return mutants[part_of(day) :: PARTS]
    return [mutant for mutant in mutants if words in f"{mutant.topic} {mutant} {mutant.test}"]


def main() -> None:
    words, today = " ".join(sys.argv[1:]), dt.date.today()
    begun, caught = time.monotonic(), 0
    try:
        mutants = chosen(read_table(TABLE.read_text()), words, today)
        if not mutants:
            raise ValueError(f"no mutant mentions {words!r}")
        if words == "tenth":
            print(f"mutants: part {part_of(today) + 1} of {PARTS}, by the date", flush=True)
        for mutant, outcome, seconds in judged(mutants):
            print(f"{outcome} in {seconds:.1f} s: {mutant}", flush=True)
            if outcome is Outcome.CAUGHT:
                caught += 1
            else:
                print(f"  - {mutant.old}\n  + {mutant.new}\n  ! {mutant.test}", flush=True)
    except ValueError as error:
        sys.exit(f"mutants: {error}")
    print(f"{caught} of {len(mutants)} mutants caught in {time.monotonic() - begun:.0f} s")
    print(f"mutants: {caught} passed, {len(mutants) - caught} failed")
    sys.exit(caught < len(mutants))


if __name__ == "__main__":
    main()
