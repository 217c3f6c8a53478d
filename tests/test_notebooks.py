"""The documentation's notebooks: they run from top to bottom, and show what they talk about."""

import asyncio
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")

NOTEBOOKS = Path(__file__).resolve().parent.parent / "docs" / "notebooks"
NAMES = ("first-steps", "comparing-aggregators", "hospitals", "judging-a-classifier")

Outputs = list[dict[str, str]]


def read(name: str) -> Any:
    return nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)


def executed() -> list[Outputs]:
    """What the cells of each put out, by kind. Raises where a cell does.

    One kernel for all, emptied in between: starting one each takes longer than all they do.
    """
    whole, ends = nbformat.v4.new_notebook(), []
    for name in NAMES:
        whole.cells += [nbformat.v4.new_code_cell("%reset -f"), *read(name).cells]
        ends.append(len(whole.cells))
    where = {"metadata": {"path": str(NOTEBOOKS)}}
    asyncio.run(nbclient.NotebookClient(whole, timeout=120, resources=where).async_execute())
    found = []
    for begin, end in pairwise([0, *ends]):
        outputs = [each for cell in whole.cells[begin:end] for each in cell.get("outputs", ())]
        shown = [each.get("data") or {"text/plain": each.get("text", "")} for each in outputs]
        found.append([{kind: "".join(text) for kind, text in each.items()} for each in shown])
    return found


def frames(outputs: Outputs, head: str) -> list[str]:
    """Data frames that have such a column."""
    return [
        each["text/html"] for each in outputs if f"<th>{head}</th>" in each.get("text/html", "")
    ]


def texts(outputs: Outputs) -> str:
    return "\n".join(each.get("text/plain", "") for each in outputs)


def results(outputs: Outputs) -> list[str]:
    """Those that are a `Result` showing itself."""
    return [each["text/html"] for each in outputs if "<p>Bill: " in each.get("text/html", "")]


def test_each_is_listed_and_kept_without_its_outputs() -> None:
    """What they show is computed when they are read, and never left over from another version."""
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == set(NAMES)
    for name in NAMES:
        cells = [cell for cell in read(name).cells if cell.cell_type == "code"]
        assert [cell for cell in cells if cell.outputs or cell.execution_count] == []


@pytest.mark.slow
def test_they_run_and_show_what_they_talk_about() -> None:
    first_steps, comparing, hospitals, judging = executed()
    of_first_steps(first_steps)
    of_comparing(comparing)
    of_hospitals(hospitals)
    of_judging(judging)


def of_first_steps(outputs: Outputs) -> None:
    shown = results(outputs)
    assert len(shown) == 3
    for each in shown:
        assert 'src="data:image/png;base64,' in each
        assert re.search(r"<p>Bill: [\d,]+ bytes, [\d,]+ messages, \d+ rounds</p>", each)
    assert shown[1].count("<tr>") == 13  # twelve of the curve's rows, and their heads
    assert "30 of 300 values lay outside [0, 100]" in shown[2]
    said = texts(outputs)
    assert "paid for again: False" in said
    low, high = (float(each) for each in re.findall(r"noise: ([\d.]+) to ([\d.]+)", said)[0])
    assert low < high


def of_comparing(outputs: Outputs) -> None:
    (table,) = frames(outputs, "error (rmse)")
    rows = re.findall(r"<th>([\w-]+)</th>\s*<td>", table)
    assert rows == ["curator", "additive", "prio3", "shamir", "masking", "fss", "shuffle", "local"]
    assert len([each for each in outputs if "image/png" in each]) == 1
    assert texts(outputs).count("16 of 20 parties contributed") == 3


def of_hospitals(outputs: Outputs) -> None:
    shown = results(outputs)
    assert len(shown) == 6
    table_1, sexes, survival, log_rank, cost, hazard = shown
    for words, each in (("control", table_1), ("treated", sexes), ("at risk", survival)):
        assert words in each
        assert 'src="data:image/png;base64,' in each
    assert "p = 0.000999" in log_rank  # none of a thousand draws is as large
    assert "R²" in cost
    assert "hazard ratios: age" in hazard
    (table,) = frames(outputs, "private")
    found = np.array([float(each) for each in re.findall(r"<td>(-?[\d.]+)</td>", table)])
    private, pooled = found.reshape(3, 2).T
    # The noise moves the treated by 0.02 and a year by 0.003: ten times that is another model.
    assert abs(private[2] - pooled[2]) < 0.2
    assert abs(private[1] - pooled[1]) < 0.03


def of_judging(outputs: Outputs) -> None:
    assert len(results(outputs)) == 2
    (table,) = frames(outputs, "private")
    auc, pooled, precision, pooled_precision = map(float, re.findall(r"<td>([\d.]+)</td>", table))
    # The noise moves them by about 0.01 and 0.02: ten times that is another curve.
    assert abs(auc - pooled) < 0.12
    assert abs(precision - pooled_precision) < 0.25
    said = texts(outputs)
    assert "refused: " in said
    assert "semi-honest" in said
