"""How much a private logistic regression loses on public data sets, by each of its methods.

`python -m tests.statistical.logistic_fits FOLDER` prints by how much the mean loss exceeds that of
the fit without privacy, a mean of `RUNS` runs. Columns and bounds were written down once, and no
constant of the methods was chosen on these sets."""

import csv
import gzip
import lzma
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression as Plain

from tallyroom import Federation, LogisticRegression
from tallyroom.protocols.statistics.coefficients import Coefficients

Columns = dict[str, np.ndarray]
RUNS = 8
EPSILONS = (1, 5)
WAYS: dict[str, tuple[str, str, str | None]] = {
    "a curator": ("objective", "curator", None),
    "`whitened`": ("whitened", "additive", None),
    "`whitened`, joint noise": ("whitened", "additive", "joint"),
    "`newton`": ("newton", "additive", None),
}
"""The method, who adds up, and who draws the noise."""
SETS: dict[str, tuple[str, Callable[[str], bool], dict[str, tuple[int, int]]]] = {
    "Framingham": (
        "framingham.csv.gz TenYearCHD",
        lambda cell: cell in ("1", "1.0"),
        {
            "age": (30, 75),
            "cigsPerDay": (0, 70),
            "totChol": (100, 600),
            "sysBP": (80, 300),
            "BMI": (15, 60),
            "glucose": (40, 400),
        },
    ),
    "Adult": (
        "adult.csv.gz income",
        lambda cell: cell == ">50K",
        {
            "age": (17, 90),
            "education_num": (1, 16),
            "hours_per_week": (1, 99),
            "capital_gain": (0, 99999),
            "capital_loss": (0, 4356),
        },
    ),
    "Bank": (
        "bank_full.csv.gz y",
        lambda cell: cell == "yes",
        {
            "age": (18, 95),
            "balance": (-10000, 120000),
            "duration": (0, 5000),
            "campaign": (1, 63),
            "previous": (0, 300),
        },
    ),
    "Diabetes": (
        "diabetes130.csv.xz readmitted",
        lambda cell: cell != "NO",
        {
            "time_in_hospital": (1, 14),
            "num_lab_procedures": (1, 132),
            "num_procedures": (0, 6),
            "num_medications": (1, 81),
            "number_outpatient": (0, 42),
            "number_emergency": (0, 76),
            "number_inpatient": (0, 21),
            "number_diagnoses": (1, 16),
        },
    ),
}
"""The file and its label, which labels are positive, and public bounds."""


def read(folder: Path, name: str) -> Columns:
    """The records that have all columns, clipped."""
    place, positive, bounds = SETS[name]
    file, label = place.split()
    opened = (lzma if file.endswith("xz") else gzip).open(folder / file, "rt", encoding="utf-8")
    with opened as lines:
        rows = [row for row in csv.DictReader(lines) if all(_is_number(row[at]) for at in bounds)]
    columns = {
        at: np.clip(np.array([float(row[at]) for row in rows]), *ends)
        for at, ends in bounds.items()
    }
    return columns | {"label": np.array([float(positive(row[label])) for row in rows])}


def _is_number(cell: str) -> bool:
    try:
        return bool(np.isfinite(float(cell)))
    except ValueError:
        return False


def mean_loss(columns: Columns, names: list[str], coefficients: list[float]) -> float:
    score = coefficients[0] + sum(
        each * columns[name] for each, name in zip(coefficients[1:], names, strict=True)
    )
    return float(np.mean(np.logaddexp(0, score) - columns["label"] * score))


def least_loss(columns: Columns, names: list[str]) -> float:
    """That of scikit-learn's fit, on standardised columns."""
    raw = np.column_stack([columns[name] for name in names])
    design = (raw - raw.mean(axis=0)) / raw.std(axis=0)
    plain = Plain(C=np.inf, tol=1e-10, max_iter=1000).fit(design, columns["label"])
    standard = {name: design[:, at] for at, name in enumerate(names)}
    fitted = [float(plain.intercept_[0]), *plain.coef_[0].tolist()]
    return mean_loss(standard | {"label": columns["label"]}, names, fitted)


def excess(columns: Columns, name: str, way: str, epsilon: float) -> float:
    bounds, (method, aggregator, noise) = SETS[name][2], WAYS[way]
    ranges = tuple(f"{at}={lower}:{upper}" for at, (lower, upper) in bounds.items())
    study = LogisticRegression(tuple(bounds), "label", ranges=ranges, method=method)
    losses = []
    for seed in range(RUNS):
        with Federation(4, None, aggregator, data=columns, seed=seed) as federation:
            result = federation.run(study, epsilon, noise=noise)
        assert isinstance(result.estimate, Coefficients)
        losses.append(mean_loss(columns, list(bounds), result.estimate.coefficients))
    return float(np.mean(losses)) - least_loss(columns, list(bounds))


def main(folder: str) -> None:
    print("| data | ε |", " | ".join(WAYS), "|")
    print("|---|---|", "|".join("---" for _ in WAYS), "|", sep="")
    for name in SETS:
        columns = read(Path(folder), name)
        for epsilon in EPSILONS:
            found = (f"{excess(columns, name, way, epsilon):.2g}" for way in WAYS)
            print(f"| {name} | {epsilon} |", " | ".join(found), "|", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
