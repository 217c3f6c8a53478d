"""The data of S4's experiments, coded by a schema whose bounds are taken to be public.

S4's Infarct is not public: Framingham's ten-year risk takes its place, a small set of two classes.
If a file is missing, records are made up.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallyroom.parties.tables import read_table
from tallyroom.protocols.privacy.laplace import Integers
from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics.attributes import Attribute
from tallyroom.protocols.statistics.class_model import between, design_of
from tallyroom.simulation.reproduce.classified import data_folder

Matrix = NDArray[np.float64]

SEED = 2012
MISSING = ("", "?", "NA", "nan")
FILES = {
    "iris": ("iris.csv.gz", "class", ()),
    "satellite": ("satellite.csv.gz", "class", ("split",)),
    "framingham": ("framingham.csv.gz", "TenYearCHD", ()),
    "adult": ("adult.csv.gz", "income", ("split",)),
}
"""The file, the column to predict, and columns that are not attributes. Rows with a missing value
are left out, as S4 seems to have done with Adult."""
MADE_UP = {
    "iris": (150, 4, 3),
    "satellite": (6435, 36, 6),
    "framingham": (3658, 15, 2),
    "adult": (45_222, 14, 2),
}
"""Records, attributes and classes."""


@dataclass(frozen=True)
class Records:
    """`columns` are numbers within [−1, 1], or indices of names, by attribute."""

    attributes: list[Attribute]
    columns: list[Column]
    classes: Integers
    count: int
    source: str

    def __len__(self) -> int:
        return len(self.classes)

    def part(self, chosen: NDArray[np.bool]) -> "Records":
        columns = [column[chosen] for column in self.columns]
        return Records(self.attributes, columns, self.classes[chosen], self.count, self.source)

    @property
    def design(self) -> Matrix:
        return design_of(self.attributes, self.columns)

    def codes(self, bins: int) -> Integers:
        """One row per record, numbers in `bins` bins."""
        coded = [
            np.minimum(((column + 1) / 2 * bins).astype(np.int64), bins - 1)
            if each.bounds
            else column.astype(np.int64)
            for each, column in zip(self.attributes, self.columns, strict=True)
        ]
        return np.stack(coded, axis=1)

    def sizes(self, bins: int) -> list[int]:
        """The number of values of each attribute: no value is outside the names in the file."""
        return [bins if each.bounds else len(each.names) for each in self.attributes]


def records_of(name: str, most: int | None = None) -> Records:
    """One of the four sets; at most `most` records of it, by a fixed shuffle."""
    path = data_folder() / FILES[name][0]
    found = _read(name) if path.exists() else _made_up(name)
    if most is None or most >= len(found):
        return found
    chosen = np.zeros(len(found), dtype=bool)
    chosen[np.random.default_rng(SEED).permutation(len(found))[:most]] = True
    return found.part(chosen)


def _read(name: str) -> Records:
    file, target, left_out = FILES[name]
    table = read_table(data_folder() / file, delimiter=None)
    rows = [row for row in table.rows if not any(each.strip() in MISSING for each in row)]
    texts = dict(zip(table.header, map(list, zip(*rows, strict=True)), strict=True))
    _, classes = np.unique(np.array(texts.pop(target)), return_inverse=True)
    attributes, columns = [], []
    for column, values in texts.items():
        if column in left_out:
            continue
        try:
            numbers = np.array([float(each) for each in values])
        except ValueError:
            names, places = np.unique(np.array(values), return_inverse=True)
            attributes.append(Attribute(column, None, tuple(map(str, names))))
            columns.append(places.astype(np.float64))
            continue
        attribute = Attribute(column, (float(numbers.min()), float(numbers.max())))
        attributes.append(attribute)
        columns.append(between(attribute, numbers))
    return Records(attributes, columns, classes.astype(np.int64), int(classes.max()) + 1, file)


def _made_up(name: str) -> Records:
    """Normal variables whose means differ by class, in every second attribute."""
    size, width, count = MADE_UP[name]
    generator = np.random.default_rng(SEED)
    classes = generator.integers(0, count, size)
    means = generator.normal(size=(count, width)) * (np.arange(width) % 2 == 0)
    drawn = means[classes] + generator.normal(size=(size, width))
    attributes = [Attribute(f"x{at}", (-5.0, 5.0)) for at in range(width)]
    columns = [between(each, column) for each, column in zip(attributes, drawn.T, strict=True)]
    return Records(attributes, columns, classes, count, f"{size} made-up records")


def folds_of(classes: Integers, count: int) -> Integers:
    """The fold of every record, stratified by class."""
    generator = np.random.default_rng(SEED)
    found = np.zeros(len(classes), dtype=np.int64)
    for each in np.unique(classes):
        at = generator.permutation(np.flatnonzero(classes == each))
        found[at] = np.arange(len(at)) % count
    return found
