"""Private diagnostics by a curator, in one thread.

`dawa-65536`: both stages of DAWA over a grid of 2^16 cells in Hilbert's order; `seconds` should be
below 2. `projected-adult`: PrivateKD picks among the 14 attributes of Adult (48,842 records), and a
thresholded histogram of four is made, from a table in memory that is already coded; `pandas` is the
time divided by what pandas takes to read the file, and `twice_n` the time with every record twice
divided by the time. Without the file, `projected-synthetic` has a table of the same shape, and no
`pandas`.
"""

import time
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.privacy.dawa import Dawa
from tallyroom.protocols.privacy.projected import private_projection
from tallyroom.protocols.privacy.thresholded import Space, ThresholdedHistogram, lei_threshold
from tallyroom.protocols.randomness import Randomness
from tallyroom.simulation.bench.row import Row, seconds
from tallyroom.simulation.reproduce.classified import data_folder

Table = NDArray[np.int64]

SIDE = 256
RECORDS = 48_842
SIZES = (2, 9, 2, 16, 2, 7, 15, 6, 5, 2, 2, 2, 2, 42, 2)
"""How many values Adult's attributes have, numbers in two bins, income last."""
KEPT = 4


def rows(side: int = SIDE, records: int = RECORDS) -> list[Row]:
    return [_dawa(side), _projected(records)]


def _dawa(side: int) -> Row:
    across, up = np.random.default_rng(0).normal(side / 2, side / 8, (2, 20 * side))
    grid, _, _ = np.histogram2d(across, up, bins=side, range=[[0, side], [0, side]])
    counts = grid.astype(np.int64)
    mechanism = Dawa.spending(Fraction(1))
    randomness = Randomness.from_seed(0, "bench")
    begun = time.process_time()
    wall = seconds(lambda: mechanism.release_grid(counts, randomness))
    cpu = (time.process_time() - begun) / 3
    details = {"seconds": wall, "cpu_seconds": cpu}
    return Row(f"dawa-{side**2}", side**2 / wall, "cells/s", {}, details)


def _projected(records: int) -> Row:
    path = data_folder() / "adult.csv.gz"
    ratios: dict[str, float] = {}
    if path.is_file() and records == RECORDS:
        table, read = _adult(path)
        name = "adult"
    else:
        generator = np.random.default_rng(0)
        table = np.stack([generator.integers(0, size, records) for size in SIZES], axis=1)
        name, read = "synthetic", 0.0
    ours = seconds(lambda: _project(table))
    if read:
        ratios["pandas"] = ours / read
    ratios["twice_n"] = seconds(lambda: _project(np.concatenate([table, table]))) / ours
    details = {"seconds": ours} | ({"pandas_seconds": read} if read else {})
    return Row(f"projected-{name}", len(table) / ours, "records/s", ratios, details)


def _adult(path: Path) -> tuple[Table, float]:
    """Returns the coded table, numbers in two bins, and the time that pandas takes to read it."""
    import pandas

    read = seconds(lambda: pandas.read_csv(path))
    frame = pandas.read_csv(path).drop(columns=["split"])
    columns = []
    for name in frame.columns:
        column = frame[name]
        if pandas.api.types.is_numeric_dtype(column):
            columns.append((column > (column.min() + column.max()) / 2).to_numpy(np.int64))
        else:
            columns.append(column.astype("category").cat.codes.to_numpy(np.int64))
    return np.stack(columns, axis=1), read


def _project(table: Table) -> int:
    randomness = Randomness.from_seed(0, "bench")
    half = Fraction(1, 2)
    chosen = private_projection(table[:, :-1], table[:, -1], KEPT, half, randomness)
    kept = table[:, [*chosen, -1]]
    space = Space(tuple(int(size) for size in kept.max(axis=0) + 1))
    mechanism = ThresholdedHistogram.spending(half, lei_threshold(len(table), half))
    return len(mechanism.sample(space.encode(kept), space.size, randomness).cells)
