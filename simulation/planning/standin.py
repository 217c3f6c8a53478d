"""Public records in the place of private ones: as many, dealt alike, and nothing else in common."""

import dataclasses

import numpy as np

from tallyroom.parties.dataset import Dataset
from tallyroom.protocols.records import Column

MOST_PARTIES = 2000
MOST_RECORDS = 20_000


def stand_in(data: Dataset, bounds: dict[str, tuple[float, float]], rows: int) -> Dataset:
    """`rows` records, uniform within the public bounds; labels are 0 or 1 alike often. No value of
    `data` is read, but how many there are, and who holds how many."""
    generator = np.random.default_rng(1)
    label, time = (data.roles.get(role, role) for role in ("label", "time"))

    def column(name: str) -> Column:
        if name == label:
            return generator.permutation(np.arange(rows) % 2 == 0).astype(np.float64)
        if name == time:
            return np.ones(rows)  # whole numbers from 1, of which any will do
        lower, upper = bounds.get(name) or data.bounds.get(name) or (0.0, 1.0)
        return lower + (upper - lower) * generator.uniform(size=rows)

    return dataclasses.replace(
        data,
        columns={name: column(name) for name in data.columns},
        owner=None if data.owner is None else data.owner[:rows],
        notes=(),
    )
