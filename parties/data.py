"""Data sources: `PATH.csv?value=COL`, and bundled sets that carry public bounds."""

import csv
import gzip
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from protocols.errors import LocalError
from protocols.names import look_up
from protocols.records import Column, Holdings, deal, deal_by

ROLES = ("value", "label", "score", "x", "y", "target", "time")
Options = dict[str, str]
Line = tuple[int, list[str]]
"""Fields, and the number of the line that they end on."""
FILES = (".csv", ".csv.gz", ".csv.xz")
OPENERS: dict[str, Callable[..., IO[str]]] = {".gz": gzip.open, ".xz": lzma.open}


@dataclass(frozen=True)
class Dataset:
    """Columns, their public bounds where there are any, and which column plays which role."""

    name: str
    columns: dict[str, Column]
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    owner: NDArray[np.int64] | None = None

    def deal(self, parties: int | None) -> Holdings:
        """Evenly among `parties`, or by the `party=` column, whose number of parties is given."""
        if self.owner is None:
            return deal(self.columns, 20 if parties is None else parties)
        holdings = deal_by(self.columns, self.owner)
        if parties not in (None, len(holdings.ids)):
            raise LocalError(
                f"the party column names {len(holdings.ids)} parties, but --parties says {parties}"
            )
        return holdings

    def held_by(self, party: int, slices: int | None) -> Holdings:
        """All of it, as one party's; or that party's slice of what is dealt to `slices`."""
        ids = np.array([party], dtype=np.uint32)
        if slices is None:
            return Holdings(ids, np.zeros(1, dtype=np.intp), self.columns)
        dealt = self.deal(slices)
        if party >= slices:
            raise LocalError(f"party-{party} has no slice of data dealt to {slices}")
        begin, rows = int(dealt.starts[party]), int(dealt.counts[party])
        columns = {name: column[begin : begin + rows] for name, column in dealt.columns.items()}
        return Holdings(ids, np.zeros(1, dtype=np.intp), columns)


def load(spec: str) -> Dataset:
    """Reads what a DATA SPEC names. Raises `LocalError` with one clear line."""
    source, _, query = spec.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    roles = {role: options.pop(role) for role in ROLES if role in options}
    if source.startswith("csv:") or source.endswith(FILES):
        dataset = _from_csv(Path(source.removeprefix("csv:")), roles, options)
    else:
        dataset = look_up("data set", source, BUNDLED)(options)
    if options:
        raise LocalError(f"{source} has no option {next(iter(options))!r}")
    for column in roles.values():
        look_up("column", column, dataset.columns)
    named = Dataset(spec, dataset.columns, dataset.bounds, dataset.roles | roles, dataset.owner)
    if not next(iter(named.columns.values())).size:
        raise LocalError(f"{source} has no records")
    return named


def _from_csv(path: Path, roles: dict[str, str], options: Options) -> Dataset:
    rows, header = _read_rows(path)
    party = options.pop("party", None)
    asked = list(dict.fromkeys(roles.values()))
    for name in [*asked, *([party] if party else [])]:
        look_up("column", name, dict.fromkeys(header))
    columns = {name: _numbers(rows, header.index(name), name, path) for name in asked}
    if not columns:
        columns = _numeric_columns(rows, header, path)
    owner = None
    if party is not None:
        position = header.index(party)
        _, owner = np.unique([row[position] for _, row in rows], return_inverse=True)
    return Dataset(path.name, columns, roles={}, owner=owner)


def _read_rows(path: Path) -> tuple[list[Line], list[str]]:
    if not path.name.endswith(FILES):
        raise LocalError(f"{path}: files end in .csv, .csv.gz or .csv.xz")
    try:
        with OPENERS.get(path.suffix, open)(path, "rt", encoding="utf-8-sig", newline="") as text:
            reader = csv.reader(text)
            lines = [(reader.line_num, line) for line in reader if line]
    except (
        OSError,
        EOFError,
        zlib.error,
        lzma.LZMAError,
        UnicodeDecodeError,
        csv.Error,
    ) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LocalError(f"cannot read {path}: {reason}") from None
    if len(lines) < 2:
        raise LocalError(f"{path} has no records below its header")
    header, rows = lines[0][1], lines[1:]
    for number, row in rows:
        if len(row) != len(header):
            raise LocalError(
                f"{path}, line {number}: {len(row)} fields, the header has {len(header)}"
            )
    return rows, header


def _numbers(rows: list[Line], position: int, name: str, path: Path) -> Column:
    values = np.empty(len(rows))
    for i, (number, row) in enumerate(rows):
        try:
            values[i] = float(row[position])
        except ValueError:
            values[i] = np.nan
        if not np.isfinite(values[i]):
            raise LocalError(
                f"{path}, line {number}: column {name!r} has {row[position]!r}, not a number"
            )
    return values


def _numeric_columns(rows: list[Line], header: list[str], path: Path) -> dict[str, Column]:
    columns = {}
    for position, name in enumerate(header):
        try:
            columns[name] = _numbers(rows, position, name, path)
        except LocalError:
            continue
    if not columns:
        raise LocalError(f"{path} has no column of numbers")
    return columns


def _whole(options: Options, key: str, default: int, least: int = 1, most: int = 10**8) -> int:
    text = options.pop(key, str(default))
    written = text.isascii() and text.isdigit() and len(text) <= 20
    if not written or not least <= int(text) <= most:
        raise LocalError(f"{key}= takes a whole number from {least} to {most}, not {text!r}")
    return int(text)


def _generator(options: Options) -> np.random.Generator:
    """Synthetic data is nobody's secret: numpy's generator serves."""
    return np.random.default_rng(_whole(options, "seed", 0, least=0))


def _poisson(options: Options) -> Dataset:
    """S0 §6.2: the number of records with value i is Poisson(λ), for i = 1 … bins."""
    bins = _whole(options, "bins", 1024)
    text = options.pop("lambda", "3")
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 < rate * bins <= 10**8:
        raise LocalError(f"lambda= takes a positive number, not {text!r}")
    counts = _generator(options).poisson(rate, bins)
    values = np.repeat(np.arange(1.0, bins + 1), counts)
    return Dataset("poisson", {"value": values}, {"value": (0.0, float(bins))}, {"value": "value"})


def _scores(options: Options) -> Dataset:
    """Scores of a decent classifier: two logistic-normal classes, a third of them positive."""
    size = _whole(options, "n", 2000)
    generator = _generator(options)
    label = (generator.random(size) < 1 / 3).astype(float)
    score = 1 / (1 + np.exp(-(generator.normal(size=size) + 1.5 * label - 0.75)))
    return Dataset(
        "scores",
        {"score": score, "label": label},
        {"score": (0.0, 1.0), "label": (0.0, 1.0)},
        {"value": "score", "score": "score", "label": "label"},
    )


def _linear(options: Options) -> Dataset:
    """y = x + noise for x in [0, 1]: ideal, heteroscedastic (fan) or nonlinear (bent)."""
    size = _whole(options, "n", 2000)
    kind = options.pop("kind", "ideal")
    generator = _generator(options)
    x = generator.random(size)
    noise = generator.normal(scale=0.1, size=size)
    shapes: dict[str, Callable[[], Column]] = {
        "ideal": lambda: x + noise,
        "heteroscedastic": lambda: x + 2 * x * noise,
        "nonlinear": lambda: x**3 + noise,
    }
    y = look_up("kind of linear data", kind, shapes)()
    return Dataset(
        "linear",
        {"x": x, "y": y},
        {"x": (0.0, 1.0), "y": (-1.0, 2.0)},
        {"value": "y", "x": "x", "y": "y"},
    )


def _stream(options: Options) -> Dataset:
    """One value in [0, 1] at each of the times 1 … n."""
    size = _whole(options, "n", 1024)
    values = _generator(options).beta(2, 5, size)
    return Dataset(
        "stream",
        {"value": values, "time": np.arange(1.0, size + 1)},
        {"value": (0.0, 1.0), "time": (1.0, float(size))},
        {"value": "value", "time": "time"},
    )


# Round numbers above the ranges that the data set's published description gives.
_BREAST_CANCER_UPPER = {
    "radius": (30.0, 3.0, 40.0),
    "texture": (40.0, 5.0, 50.0),
    "perimeter": (200.0, 25.0, 260.0),
    "area": (2600.0, 550.0, 4500.0),
    "smoothness": (0.2, 0.04, 0.25),
    "compactness": (0.4, 0.15, 1.1),
    "concavity": (0.5, 0.4, 1.3),
    "concave_points": (0.25, 0.06, 0.3),
    "symmetry": (0.4, 0.08, 0.7),
    "fractal_dimension": (0.1, 0.03, 0.21),
}


def _breast_cancer(options: Options) -> Dataset:
    """scikit-learn's Wisconsin breast cancer data, names with underscores."""
    from sklearn.datasets import load_breast_cancer  # heavy, and needed for this set alone

    bunch = load_breast_cancer()
    names = [str(name).replace(" ", "_") for name in bunch.feature_names]
    columns = {name: bunch.data[:, i].astype(float) for i, name in enumerate(names)}
    columns["label"] = bunch.target.astype(float)
    bounds = {"label": (0.0, 1.0)}
    for feature, (mean, error, worst) in _BREAST_CANCER_UPPER.items():
        bounds |= {
            f"mean_{feature}": (0.0, mean),
            f"{feature}_error": (0.0, error),
            f"worst_{feature}": (0.0, worst),
        }
    return Dataset("breast-cancer", columns, bounds, {"value": "mean_radius", "label": "label"})


BUNDLED: dict[str, Callable[[Options], Dataset]] = {
    "synthetic:poisson": _poisson,
    "synthetic:scores": _scores,
    "synthetic:linear": _linear,
    "synthetic:stream": _stream,
    "breast-cancer": _breast_cancer,
}
