"""Reading a large file: `tally run mean` on a CSV file of a million rows, from the start of the
process to its end, against a process that imports pandas, reads the file and takes the mean.

Times and ratios are of CPU seconds, which a busy machine changes little; `peak_mb` is the most
memory that our process had.
"""

import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.simulation.bench.row import Row

RECORDS = 1_000_000
REPEATS = 3
TALLY = "from tallyroom.simulation.command.main import main; main()"
PANDAS = "import sys, pandas; print(pandas.read_csv(sys.argv[1])['age'].mean())"


def rows(records: int = RECORDS) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.csv"
        _write(path, records)
        asked = ("run", "mean", "--data", f"{path}?value=age", "--lower", "0", "--upper", "120")
        ours, peak = cost(TALLY, *asked)
        ratios = {}
        if find_spec("pandas") is not None:
            ratios["pandas"] = ours / cost(PANDAS, str(path))[0]
    details = {"cpu_seconds": ours, "peak_mb": peak / 2**20}
    return [Row(f"csv-mean-{records}", records / ours, "records/s", ratios, details)]


def _write(path: Path, records: int) -> None:
    rng = np.random.default_rng(0)
    ages, codes = rng.normal(50, 15, records).round(4), rng.integers(0, 1000, records)
    lines = zip(ages.tolist(), codes.tolist(), rng.random(records).tolist(), strict=True)
    with path.open("w") as file:
        file.write("age,code,share\n")
        file.writelines(f"{age},{code},{share:.6f}\n" for age, code, share in lines)


def cost(program: str, *arguments: str) -> tuple[float, int]:
    """The fewest CPU seconds, and the least peak of memory in bytes, of several processes, with
    those that they started. Raises `LocalError` if one fails."""
    seconds, peaks = [], []
    for _ in range(REPEATS):
        command = [sys.executable, "-c", program, *arguments]
        quiet = [(os.POSIX_SPAWN_OPEN, each, os.devnull, os.O_WRONLY, 0) for each in (1, 2)]
        child = os.posix_spawn(sys.executable, command, os.environ, file_actions=quiet)
        _, status, usage = os.wait4(child, 0)
        if status:
            raise LocalError(f"the process that was given {' '.join(arguments)!r} failed")
        seconds.append(usage.ru_utime + usage.ru_stime)
        peaks.append(usage.ru_maxrss * 1024)
    return min(seconds), min(peaks)
