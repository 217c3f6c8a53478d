"""What a user waits for: whole commands, from the start of the process to its end.

Times and ratios are of CPU seconds, which a busy machine changes little. `numpy` is a process that
imports numpy and ends, the least that a command can take.
"""

from tallyroom.simulation.bench.reading import TALLY, cost
from tallyroom.simulation.bench.row import Row

NUMPY = "import numpy"
PAIRS = ("--method", "pairs", "--parties", "100")
COMMANDS = {
    "start-mean": ("mean", "--data", "synthetic:poisson"),
    "auc-100x2000": ("auc", "--data", "synthetic:scores?n=2000", *PAIRS),
    "auc-100x20000": ("auc", "--data", "synthetic:scores?n=20000", *PAIRS),
    "ecdf-fss-processes": (
        *("ecdf", "--data", "synthetic:poisson"),
        *("--aggregator", "fss", "--runtime", "processes"),
    ),
}


def rows(commands: dict[str, tuple[str, ...]] = COMMANDS) -> list[Row]:
    least, _ = cost(NUMPY)
    return [_row(name, asked, least) for name, asked in commands.items()]


def _row(name: str, asked: tuple[str, ...], least: float) -> Row:
    spent, peak = cost(TALLY, "run", *asked)
    details = {"cpu_seconds": spent, "peak_mb": peak / 2**20}
    return Row(name, 1 / spent, "runs/CPU s", {"numpy": spent / least}, details)
