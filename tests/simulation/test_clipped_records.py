"""A simulation tells how many records a study's public bounds exclude."""

import numpy as np
import pytest

from tallyroom.protocols.records import Column
from tallyroom.protocols.studies.contract import Study
from tallyroom.protocols.studies.logistic_regression import LogisticRegression
from tallyroom.protocols.studies.multinomial_regression import MultinomialRegression
from tallyroom.protocols.studies.projected_histogram import ProjectedHistogram
from tallyroom.protocols.studies.residual_plot import ResidualPlot
from tallyroom.simulation.federation import Federation

SCHEMA = ("label=0,1", "a=-1:1", "b=0:1")


def data() -> dict[str, Column]:
    """Of 200 records 30 have an a outside [−1, 1], 10 of those and 5 more a b outside [0, 1]."""
    generator = np.random.default_rng(0)
    a, b = generator.uniform(-1, 1, 200), generator.uniform(0, 1, 200)
    a[:30], b[20:35] = 3.0, -7.0
    label = (generator.random(200) < 0.5).astype(float)
    return {"a": a, "b": b, "label": label, "x": a, "y": b}


CASES: dict[str, tuple[Study, int]] = {
    "logistic": (LogisticRegression(("a", "b"), "label", ranges=("a=-1:1", "b=0:1")), 35),
    "residuals": (ResidualPlot(ranges=("x=-1:1", "y=-9:9"), side=4), 30),
    "coefficients": (ResidualPlot(coefficients=(0.0, 1.0), side=4), 0),
    "histogram": (ProjectedHistogram(SCHEMA, "label", k=1, gamma=0.5, bins=2), 35),
    "names": (ProjectedHistogram(("label=0", *SCHEMA[1:]), "label", k=1, gamma=0.5, bins=2), -1),
    "model": (MultinomialRegression(SCHEMA, "label", k=1, gamma=0.5, bins=2), 35),
}


@pytest.mark.parametrize("case", CASES)
def test_a_simulation_tells_how_many(case: str) -> None:
    study, wanted = CASES[case]
    columns = data()
    if wanted < 0:  # the label 1 is no name that is counted
        excluded = (columns["label"] == 1) | (np.abs(columns["a"]) > 1) | (columns["b"] < 0)
        wanted = int(excluded.sum())
    with Federation(parties=4, data=columns, aggregator="curator") as federation:
        told = [note for note in federation.run(study, epsilon="inf").notes if "outside" in note]
    told = [note for note in told if "public bounds" in note]
    if wanted:
        [note] = told
        assert note.startswith(f"{wanted} of 200 records")
    else:
        assert not told


def test_objective_perturbation_tells_too() -> None:
    study = LogisticRegression(("a",), "label", ranges=("a=-1:1",), method="objective")
    with Federation(parties=4, data=data(), aggregator="curator") as federation:
        notes = federation.run(study, epsilon=1).notes
    assert any(note.startswith("30 of 200 values lay outside") for note in notes)
