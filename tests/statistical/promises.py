"""What a plan promises of a question, and what comes of it.

`python -m tests.statistical.promises FOLDER` measures files of public data sets in FOLDER, of which
one half of the records is asked about and the other is public, and prints a table."""

import gzip
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tallyroom.simulation.command.by_statistic import statistic_command
from tallyroom.simulation.command.common import RunOptions
from tallyroom.simulation.command.plan import PlanOptions, planning_of
from tallyroom.simulation.command.run import simulate

WITHIN = 0.25


def understood(name: str, options: type, words: list[str]) -> tuple[Any, Any]:
    read: list[tuple[Any, Any]] = []
    command = statistic_command(name, options, lambda chosen, given: read.append((chosen, given)))
    command.main(words, prog_name=name, standalone_mode=False)
    return read[0]


def promised(name: str, words: list[str], aggregator: str, public: str | None) -> float:
    """The error that a plan tells."""
    given = [*words, *([] if public is None else [f"--public={public}"])]
    found = planning_of(*understood(name, PlanOptions, given))(aggregator)
    assert found.error is not None
    return found.error


def came(name: str, words: list[str], aggregator: str, runs: int) -> float:
    """The root mean square of the errors of so many runs against the truth."""
    errors = []
    for seed in range(runs):
        asked = [*words, f"--aggregator={aggregator}", f"--seed={1000 + seed}"]
        result = simulate(*understood(name, RunOptions, asked))
        errors.append((result.error or {})["rmse"])
    return math.sqrt(float(np.mean(np.square(errors))))


def halves(path: Path, into: Path) -> tuple[str, str]:
    """Every other record, and the others."""
    head, *rows = gzip.decompress(path.read_bytes()).decode().splitlines()
    found = []
    for place in (0, 1):
        half = into / f"{path.name.partition('.')[0]}-{place}.csv"
        half.write_text("\n".join([head, *rows[place::2]]) + "\n")
        found.append(str(half))
    return found[0], found[1]


BANK = ["--value=balance", "--lower=-10000", "--upper=120000"]
AGE = ["--value=age", "--lower=0", "--upper=100"]
CHD = ["--label=TenYearCHD", "--score=age", "--lower=20", "--upper=80"]
TWO = ["--x=age", "--y=sysBP", "--lower=0", "--upper=300"]
WIDER = [
    ("framingham", "mean", AGE, "additive", 1),
    ("framingham", "mean", AGE, "local", 1),
    ("framingham", "ecdf", AGE, "fss", 1),
    ("framingham", "quantile", [*AGE, "--strategy=hierarchy"], "additive", 1),
    ("framingham", "roc", CHD, "additive", 1),
    ("framingham", "average-precision", CHD, "additive", 0.1),
    ("framingham", "average-precision", CHD, "additive", 1),
    ("framingham", "pr-curve", CHD, "prio3", 1),
    ("framingham", "auc", [*CHD, "--method=curve"], "additive", 0.1),
    ("framingham", "auc", [*CHD, "--method=curve"], "additive", 1),
    ("bank_full", "mean", BANK, "masking", 0.1),
    ("bank_full", "quantile", [*BANK, "--strategy=hierarchy"], "additive", 1),
    ("bank_full", "ecdf", BANK, "additive", 0.1),
    ("bank_full", "quantile", [*BANK, "--quantile=0.9"], "curator", 0.1),
    ("framingham", "histogram", [*AGE, "--delta=1e-6"], "shuffle", 1),
    ("framingham", "quantile", [*AGE, "--strategy=max"], "additive", 1),
    ("framingham", "auc", [*CHD, "--parties=4"], "additive", 1),
    ("framingham", "kendall-tau", [*TWO, "--parties=4"], "additive", 1),
    ("framingham", "gini", [*AGE, "--parties=4"], "additive", 0.1),
    ("framingham", "variance", [*AGE, "--parties=4"], "additive", 1),
    ("framingham", "collision-entropy", [*AGE, "--parties=4"], "additive", 1),
    ("bank_full", "mode", [*BANK, "--bins=32"], "additive", 0.1),
]


def main(folder: str) -> None:
    print("| data | question | aggregator | ε | promised | came | ratio |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as into:
        for data, name, words, aggregator, epsilon in WIDER:
            asked, public = halves(Path(folder) / f"{data}.csv.gz", Path(into))
            given = [f"--data={asked}", f"--epsilon={epsilon}", *words]
            told = promised(name, given, aggregator, public)
            runs = 8 if "--parties=4" in words or "--strategy=max" in words else 40
            found = came(name, given, aggregator, runs)
            more = " ".join(word for word in words if word.startswith(("--m", "--q", "--st")))
            question = f"`{name} {more}`".replace(" `", "`")
            numbers = f"{told:.3g} | {found:.3g} | {found / told if told else math.nan:.2f}"
            print(f"| {data} | {question} | {aggregator} | {epsilon} | {numbers} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
