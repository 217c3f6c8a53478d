"""Data sources: `PATH.csv?value=COL`, public files with their published schema (`adult:PATH.csv`),
and bundled sets that carry public bounds."""

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import parse_qsl

import numpy as np

from tallyroom.parties.csv_source import Options, check_column, from_csv, from_table
from tallyroom.parties.databases import (
    PARQUET,
    POSTGRESQL,
    SQLITE,
    parquet_table,
    postgresql_table,
    sqlite_table,
)
from tallyroom.parties.dataset import Dataset as Dataset
from tallyroom.parties.schema import PUBLISHED, bounds_of, published_words
from tallyroom.parties.tables import FILES, HeaderError
from tallyroom.protocols.categories import format_categories
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.records import Column
from tallyroom.protocols.registry import look_up
from tallyroom.protocols.statistics.attributes import parse_attribute

ROLES = ("value", "label", "score", "x", "y", "target", "time", "event", "group", "weights")


def load(spec: str, also: Iterable[str] = ()) -> Dataset:
    """What a DATA SPEC names, for simulations: they refuse data that parties would make do with.
    Columns that it does not name are read `also`. Raises `LocalError` with one clear line."""
    found = read(spec, tuple(also))
    if found.faults:
        raise LocalError(found.faults[0])
    return found.about() if found.of_numbers and not found.schema else found


def held(spec: str) -> Dataset:
    """What a DATA SPEC names, for the party that holds it. Raises `LocalError` for what is no such
    source, and for nothing that a record holds: whether a party takes part would tell of it."""
    try:
        return read(spec).about()
    except HeaderError as error:
        raise LocalError(error.unsaid) from None


def read(spec: str, also: tuple[str, ...] = ()) -> Dataset:
    """What a DATA SPEC names, with its records as they are."""
    source, _, query = spec.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    roles = {role: options.pop(role) for role in ROLES if role in options}
    published, colon, file = source.partition(":")
    if colon and published in PUBLISHED:
        dataset = _with_schema(from_csv(Path(file), roles, options, also), published)
    elif source.startswith(SQLITE):
        file = source.removeprefix(SQLITE)
        if not (query := options.pop("query", "")):
            raise LocalError(f"{source}: which records? give ?query=SELECT …")
        dataset = from_table(sqlite_table(Path(file), query), Path(file), roles, options, also)
    elif source.startswith(POSTGRESQL):
        if not (query := options.pop("query", "")):
            raise LocalError("which records of the database? give ?query=SELECT …")
        table = postgresql_table(source, query)
        dataset = from_table(table, table.path, roles, options, also)
    elif source.endswith(PARQUET) and not source.startswith("csv:"):
        dataset = from_table(parquet_table(Path(source)), Path(source), roles, options, also)
    elif source.startswith("csv:") or source.endswith(FILES) or Path(source).is_file():
        dataset = from_csv(Path(source.removeprefix("csv:")), roles, options, also)
    else:
        dataset = look_up("data set", source, BUNDLED)(options)
    if options:
        raise LocalError(f"{source} has no option {next(iter(options))!r}")
    for column in (*roles.values(), *also):
        check_column(column, list(dataset.columns))
    if not dataset.rows:
        raise LocalError(f"{source} has no records")
    return dataclasses.replace(dataset, name=spec, roles=dataset.roles | roles)


def _with_schema(found: Dataset, published: str) -> Dataset:
    """A public file, with what its publisher says of the columns that were read. Raises
    `LocalError` where there is none of those."""
    told = {text: parse_attribute(text) for text in PUBLISHED[published]}
    known = {text: each for text, each in told.items() if each.name in found.columns}
    if not known:
        raise LocalError(f"{found.name} has none of the columns of {published}")
    bounds = bounds_of(known)
    categories = {each.name: format_categories(each.names) for each in known.values() if each.names}
    return dataclasses.replace(
        found,
        bounds=bounds | found.bounds,
        of_numbers=found.of_numbers - categories.keys() | bounds.keys(),
        categories=categories | found.categories,
        schema=tuple(known),
        notes=(*found.notes, published_words(published)),
        faults=(*found.faults, *(found.why[name] for name in bounds if name in found.why)),
    )


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
        {"value": "score", "score": "score", "label": "label", "target": "label"},
        schema=("score=0:1", "label=0,1"),
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


def _survival(options: Options) -> Dataset:
    """Months until an event, or until the end of a study; two arms, of which one does better."""
    size = _whole(options, "n", 1000)
    generator = _generator(options)
    treated = (generator.random(size) < 0.5).astype(float)
    life = generator.exponential(25.0 + 15.0 * treated)
    followed = generator.uniform(12.0, 60.0, size)
    months: Column = np.minimum(life, followed)
    return Dataset(
        "survival",
        {"months": months, "died": (life <= followed).astype(np.float64), "arm": treated},
        {"months": (0.0, 60.0), "died": (0.0, 1.0), "arm": (0.0, 1.0)},
        {"value": "months", "time": "months", "event": "died", "group": "arm"},
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
    schema = [f"{name}={lower:g}:{upper:g}" for name, (lower, upper) in bounds.items()]
    return Dataset(
        "breast-cancer",
        columns,
        bounds,
        {"value": "mean_radius", "label": "label", "target": "label"},
        schema=("label=0,1", *schema[1:]),
    )


BUNDLED: dict[str, Callable[[Options], Dataset]] = {
    "synthetic:poisson": _poisson,
    "synthetic:scores": _scores,
    "synthetic:linear": _linear,
    "synthetic:stream": _stream,
    "synthetic:survival": _survival,
    "breast-cancer": _breast_cancer,
}
