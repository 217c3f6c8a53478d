"""Public records in place of private ones: what a question says of its columns, and no more."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from tallyroom.parties.dataset import Dataset
from tallyroom.protocols.categories import parse_categories
from tallyroom.protocols.cells import encode_cells
from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.attributes import parse_attribute
from tallyroom.protocols.statistics.bounded import known_bounds
from tallyroom.protocols.statistics.grouped import Grouped
from tallyroom.protocols.studies.contract import Study
from tallyroom.protocols.studies.private_bounds import PrivateBounds


def stand_in(question: Statistic | Study, data: Dataset) -> Dataset:
    """Draws as many public records as `data` has: numbers uniform within their public bounds, names
    equally often, labels positive and negative equally often. It reads no value of `data`, only how
    many records there are and how many each party holds."""
    rows, generator = data.rows, np.random.default_rng(1)
    asked = question.statistic if isinstance(question, PrivateBounds) else question
    divided = {}
    if isinstance(asked, Grouped):
        divided = {each.column: encode_cells(each.names) for each in asked.groups.by}
        asked = asked.asked
    bounds, names = (
        dict(data.bounds) | dict(known_bounds(asked)),
        {**_names(asked, data), **divided},
    )
    for text in getattr(asked, "attributes", ()):
        attribute = parse_attribute(text)
        if attribute.bounds:
            bounds[attribute.name] = attribute.bounds
    time = getattr(asked, "time", None)
    labels = {getattr(asked, role, None) for role in ("label", "event")}
    positive = getattr(asked, "positive", None)

    def column(name: str) -> Column:
        if name in labels:
            return _labels(generator.permutation(np.arange(rows) % 2 == 0), positive)
        if name == time and name not in known_bounds(asked):
            return np.ones(rows)  # the column takes whole numbers from 1; any will do
        if name in names:
            return names[name][generator.integers(len(names[name]), size=rows)]
        lower, upper = bounds.get(name) or (0.0, 1.0)
        return lower + (upper - lower) * generator.uniform(size=rows)

    return dataclasses.replace(
        data,
        columns={name: column(name) for name in data.columns},
        owner=None if data.owner is None else np.sort(data.owner),
        notes=(),
    )


def _labels(positive: "np.ndarray[tuple[int], np.dtype[np.bool_]]", name: float | None) -> Column:
    if name is None:
        return positive.astype(np.float64)
    return np.where(positive, name, name + 1.0)


def _names(asked: Statistic | Study, data: Dataset) -> Mapping[str, Column]:
    """The names that are public, as cells, by column."""
    found = {column: parse_categories(text) for column, text in data.categories.items()}
    if counted := getattr(asked, "categories", ""):
        found[next(iter(asked.columns))] = parse_categories(counted)
    for role, listed in (("group", "groups"), ("down", "down_names"), ("across", "across_names")):
        if hasattr(asked, role) and (names := getattr(asked, listed, "")):
            found[getattr(asked, role)] = parse_categories(names)
    for text in getattr(asked, "attributes", ()):
        attribute = parse_attribute(text)
        if attribute.names:
            found[attribute.name] = attribute.names
    return {column: encode_cells(names) for column, names in found.items()}
