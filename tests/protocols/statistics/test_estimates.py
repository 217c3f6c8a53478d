"""Shapes of estimates: their errors, their JSON, their tables and their pictures."""

import json
import math

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tallyroom.protocols.statistics.drawing import Beside, Style
from tallyroom.protocols.statistics.estimates import (
    CellGrid,
    Curve,
    Curves,
    Estimate,
    Number,
    Rows,
    Shape,
    Table,
    error_of,
    plain,
    shape_of,
)

# Each with a truth, and the differences between the two, by hand.
SHAPES: dict[str, tuple[Shape, Estimate, list[float]]] = {
    "number": (Number(1.5), 1.0, [0.5]),
    "curve": (Curve([0.0, 1.0], [2.0, 4.0]), Curve([0.0, 1.0], [2.0, 1.0]), [0.0, 3.0]),
    "curves": (
        Curves({"a": Curve([0.0], [1.0]), "b": Curve([0.0, 1.0], [2.0, 3.0])}),
        Curves({"b": Curve([0.0, 1.0], [2.0, 5.0]), "a": Curve([0.0], [0.0])}),
        [1.0, 0.0, 2.0],
    ),
    "table": (
        Table(["p", "q"], ["n"], [[1.0], [2.0]]),
        Table(["p", "q"], ["n"], [[1.0], [4.0]]),
        [0.0, 2.0],
    ),
    "grid": (
        CellGrid([0.0, 1.0, 2.0], [0.0, 1.0], [[3.0, 4.0]]),
        CellGrid([0.0, 1.0, 2.0], [0.0, 1.0], [[2.0, 4.0]]),
        [1.0, 0.0],
    ),
    "rows": (
        Rows(["item", "count"], [["x", 5.0], ["y", 2.0]]),
        Rows(["item", "count"], [["y", 4.0], ["z", 3.0]]),
        [5.0, 2.0, 3.0],
    ),
}
each_shape = pytest.mark.parametrize("name", SHAPES)


@each_shape
def test_error_is_that_of_the_differences(name: str) -> None:
    shape, truth, differences = SHAPES[name]
    found = shape.error(truth)
    assert math.isclose(found["rmse"], math.sqrt(np.mean(np.square(differences))))
    assert found["max"] == max(differences)
    assert shape.error(shape) == {"rmse": 0.0, "max": 0.0}


@each_shape
def test_json_holds_every_number(name: str) -> None:
    shape, _, _ = SHAPES[name]
    text = json.dumps(plain(shape), allow_nan=False)
    assert all(f"{value:g}" in text for value in shape.values())


def test_json_of_numbers_and_curves_is_as_it_was() -> None:
    assert plain(Number(0.5)) == 0.5
    assert plain(Number(math.inf)) == "inf"
    assert plain(Curve([1.0], [math.nan])) == {"x": [1.0], "y": ["nan"]}


@each_shape
def test_a_table_has_a_head_for_every_column(name: str) -> None:
    heads, rows = SHAPES[name][0].table()
    assert rows
    assert all(len(row) == len(heads) for row in rows)
    numbers = {cell for row in rows for cell in row if not isinstance(cell, str)}
    assert numbers >= set(SHAPES[name][0].values().tolist())


@each_shape
@pytest.mark.parametrize("with_truth", [False, True])
def test_a_picture_has_something_in_it(name: str, with_truth: bool) -> None:
    shape, truth, _ = SHAPES[name]
    figure = Figure(figsize=(3.0, 2.0), dpi=50)
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    shape.draw(axes, truth if with_truth else None, Beside(name, Style()))
    assert axes.tables or axes.legend().get_texts()  # a table has its heads
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    assert pixels.std() > 1


@pytest.mark.parametrize("name", ["curve", "curves", "table", "grid"])
def test_a_truth_of_another_shape_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"values against|other names"):
        SHAPES[name][0].error(Number(0.0))


def test_rows_of_other_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="other columns"):
        SHAPES["rows"][0].error(Rows(["thing", "count"], []))


def test_a_float_is_a_number() -> None:
    assert shape_of(0.25) == Number(0.25)
    assert error_of(0.25, 0.5) == {"rmse": 0.25, "max": 0.25}
    assert error_of(math.inf, math.inf) == {"rmse": 0.0, "max": 0.0}
    assert error_of(0.25, None) is None


def test_words_are_short() -> None:
    assert str(Number(0.123456789)) == "0.12345679"
    assert str(Curve([0.0] * 9, [1.0] * 9)) == "1, 1, 1, 1, 1, 1, 1, 1, … (9 values)"
    assert str(SHAPES["rows"][0]) == "x 5; y 2"
