"""Reads a sweep's specification, a TOML file, into the runs that it stands for.

```toml
statistic = "ecdf"
seed = 7              # every run's seed is derived from it
trials = 10           # runs of each point of the grid

[options]             # those of `tally run`, without the dashes; the same in every run
parties = 200

[grid]                # every combination; [[grid]] several times adds grids up
aggregator = ["additive", "fss"]
epsilon = [0.5, 1, 2]

[plot]
x = "epsilon"
y = "rmse"
by = "aggregator"
log = "xy"
```
"""

import hashlib
import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from tallyroom.protocols.errors import LocalError
from tallyroom.simulation.sweep.columns import COLUMNS, MEASURED

Value = str | int | float | bool | tuple[str | int | float, ...]
Point = dict[str, Value]

MOST_RUNS = 1_000_000
MOST_BYTES = 1 << 20
SEED_BYTES = 6
NOT_OF_A_SWEEP = {
    "seed": "give `seed` once, above [options]: each run's seed is derived from it",
    "out": "the command has --out",
    "json": "the command has --json",
    "coordinator": "a sweep runs simulations only",
    "identity": "a sweep runs simulations only",
    "key": "a sweep runs simulations only",
    "resume": "the same command continues a sweep",
    "repeat": "give `trials` instead",
}
"""Options of `tally run` that a specification cannot have, and what to do instead."""
KNOWN = ("statistic", "seed", "trials", "format", "options", "grid", "plot")
FORMATS = ("csv", "parquet")
AXES = ("", "x", "y", "xy")


@dataclass(frozen=True)
class GridRun:
    """One run: a statistic, its options by name without dashes, and its trial number."""

    statistic: str
    point: Point
    trial: int
    seed: int

    @property
    def key(self) -> str:
        """The journal's key: the same in every sweep that has this run."""
        return _digest([self.statistic, _named(self.point), self.trial, self.seed]).hex()[:32]

    @property
    def words(self) -> list[str]:
        """The run as arguments of a command line."""
        return [*words_of(self.point), f"--seed={self.seed}"]


def words_of(point: Mapping[str, Value]) -> list[str]:
    """`--flag=VALUE`, so that no value is taken for an option; repeated for several values."""
    words = []
    for name, value in point.items():
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
            continue
        several = value if isinstance(value, tuple) else (value,)
        words += [f"--{name}={each}" for each in several]
    return words


@dataclass(frozen=True)
class Plot:
    """`x` and `y` are columns of the table, with one line per value of `by`; `log` names the
    logarithmic axes."""

    x: str
    y: str
    by: str = ""
    log: str = ""


@dataclass(frozen=True)
class Specification:
    seed: int
    trials: int
    points: list[tuple[str, Point]]
    format: str = "csv"
    plot: Plot | None = None
    axes: tuple[str, ...] = field(default=())

    def runs(self) -> Iterator[GridRun]:
        """Yields runs in the order of the table. A run's seed depends on its question alone, not on
        the rest of the file, so a grid can grow and keep its finished runs."""
        for statistic, point in self.points:
            for trial in range(self.trials):
                material = _digest([self.seed, statistic, _named(point), trial])
                yield GridRun(
                    statistic, point, trial, int.from_bytes(material[:SEED_BYTES], "little")
                )

    def __len__(self) -> int:
        return len(self.points) * self.trials


def read(path: Path) -> Specification:
    """Raises `LocalError` if the file is not a specification."""
    try:
        with path.open("rb") as file:
            source = file.read(MOST_BYTES + 1)
        if len(source) > MOST_BYTES:
            raise LocalError(f"{path} is too large to be a specification")
        document = tomllib.loads(source.decode())
    except OSError as error:
        raise LocalError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LocalError(f"{path} is not TOML: {error}") from None
    return parse(document)


def parse(document: Mapping[str, Any]) -> Specification:
    for name in document:
        if name not in KNOWN:
            raise LocalError(f"a sweep has no {name!r}; it has {', '.join(KNOWN)}")
    seed = _whole(document, "seed", 0, 2**63 - 1, None)
    trials = _whole(document, "trials", 1, MOST_RUNS, 1)
    fixed = _options(document.get("options", {}), "[options]")
    grids = document.get("grid", {})
    points: dict[str, tuple[str, Point]] = {}
    axes: dict[str, None] = {}
    for grid in grids if isinstance(grids, list) else [grids]:
        choices = _axes(grid)
        named: list[Any] = [*choices.pop("statistic", [])] or [document.get("statistic")]
        size = math.prod(map(len, choices.values())) * len(named) * trials
        if size > MOST_RUNS:
            raise LocalError(f"a grid of {size:,} runs is too large: at most {MOST_RUNS:,}")
        axes |= dict.fromkeys(choices)
        for statistic, *chosen in product(named, *choices.values()):
            if not isinstance(statistic, str):
                raise LocalError("a sweep needs `statistic`, at the top or in the grid")
            point = fixed | dict(zip(choices, chosen, strict=True))
            points.setdefault(_digest([statistic, _named(point)]).hex(), (statistic, point))
    if len(points) * trials > MOST_RUNS:
        raise LocalError(
            f"grids of {len(points) * trials:,} runs are too large: at most {MOST_RUNS:,}"
        )
    format = document.get("format", "csv")
    if format not in FORMATS:
        raise LocalError(f"format must be {' or '.join(FORMATS)}, not {format!r}")
    names = (*axes, *fixed)
    plot = None if "plot" not in document else _plot(document["plot"], names)
    return Specification(seed, trials, list(points.values()), format, plot, tuple(axes))


def _digest(value: object) -> bytes:
    return hashlib.sha256(json.dumps(value).encode()).digest()


def _named(point: Point) -> list[tuple[str, list[str]]]:
    """Normalises a point: the order of its options does not matter, and 1 equals "1"."""
    return sorted((name, words_of({name: value})) for name, value in point.items())


def _whole(document: Mapping[str, Any], name: str, least: int, most: int, other: int | None) -> int:
    value = document.get(name, other)
    if value is None:
        raise LocalError(f"a sweep needs `{name}`, so that its runs can be repeated")
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise LocalError(f"{name} must be a whole number from {least} to {most:,}, not {value!r}")
    return value


def _options(table: object, where: str) -> Point:
    if not isinstance(table, dict):
        raise LocalError(f"{where} must be a table of options")
    return {_flag(name): _value(name, value) for name, value in table.items()}


def _axes(table: object) -> dict[str, list[Value]]:
    if not isinstance(table, dict):
        raise LocalError("[grid] must be a table of options, each with a list of values")
    axes = {}
    for name, values in table.items():
        if not isinstance(values, list) or not values:
            raise LocalError(f"[grid] {name} needs a list of values")
        flag = name if name == "statistic" else _flag(name)
        axes[flag] = list(dict.fromkeys(_value(name, value) for value in values))
    return axes


def _flag(name: str) -> str:
    flag = name.replace("_", "-")
    if flag in NOT_OF_A_SWEEP:
        raise LocalError(f"{name} cannot be an option of a sweep: {NOT_OF_A_SWEEP[flag]}")
    if not flag or flag.startswith("-") or not all(c.isalnum() or c == "-" for c in flag):
        raise LocalError(f"{name!r} is not an option: write it as in `epsilon`, without dashes")
    if flag in COLUMNS:
        raise LocalError(f"{name!r} is a column of results, not an option")
    return flag


def _value(name: str, value: object) -> Value:
    if isinstance(value, list):
        if value and all(
            isinstance(v, str | int | float) and not isinstance(v, bool) for v in value
        ):
            return tuple(value)
    elif isinstance(value, str | int | float):
        return value
    raise LocalError(f"{name} cannot be {value!r}: give text, a number, true, false, or several")


def _plot(table: object, options: tuple[str, ...]) -> Plot:
    if not isinstance(table, dict) or not table.keys() <= {"x", "y", "by", "log"}:
        raise LocalError("[plot] takes x, y, by and log")
    known = ("statistic", "trial", *options)
    found = {key: str(value).replace("-", "_") for key, value in table.items()}
    for key, allowed in (
        ("x", (*known, *MEASURED)),
        ("y", MEASURED),
        ("by", ("", *known)),
        ("log", AXES),
    ):
        plain = [each.replace("-", "_") for each in allowed]
        if found.get(key, "" if key in ("by", "log") else None) not in plain:
            raise LocalError(f"[plot] {key} must be one of {', '.join(filter(None, plain))}")
    return Plot(**found)
