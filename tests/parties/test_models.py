"""Scores of a model trained on one part of a file."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from tallyroom.parties.models import features, positive_of, scored
from tallyroom.parties.tables import Cells, TextTable
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.statistics.classifier_curves import Roc
from tallyroom.simulation import Federation


def written(folder: Path, records: int = 400) -> Path:
    generator = np.random.default_rng(1)
    x = generator.normal(size=records)
    colour = generator.choice(["red", "green"], records)
    positive = generator.random(records) < 1 / (1 + np.exp(-2 * x - (colour == "red")))
    rows = [f"{a},{b},{'yes' if c else 'no'}" for a, b, c in zip(x, colour, positive, strict=True)]
    path = folder / "data.csv"
    path.write_text("x,colour,y\n" + "\n".join(rows) + "\n")
    return path


def cells(**columns: list[str]) -> dict[str, Cells]:
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    table = TextTable(Path("data.csv"), list(columns), rows, lines=[])
    return {name: table.column(name) for name in columns}


def test_the_part_that_was_not_trained_on_is_scored(tmp_path: Path) -> None:
    path = written(tmp_path)
    data = scored(f"csv:{path}?label=y", "logistic")
    assert len(data.columns["score"]) == 200
    assert ((data.columns["score"] > 0) & (data.columns["score"] < 1)).all()
    assert roc_auc_score(data.columns["label"], data.columns["score"]) > 0.75
    assert data.bounds["score"] == (0.0, 1.0)
    again = scored(f"{path}?label=y&positive=yes", "logistic")
    assert (again.columns["score"] == data.columns["score"]).all()
    other = scored(f"{path}?label=y&positive=no", "logistic")
    np.testing.assert_allclose(other.columns["score"], 1 - data.columns["score"], atol=1e-4)
    whole = scored(f"{path}?label=y", "logistic", whole=True)
    assert len(whole.columns["score"]) == 400
    assert len(data.public["score"]) == 200
    assert "200 of 400 records are taken as public and nothing protects them" in data.notes[0]
    with Federation(4, data=data) as federation:
        result = federation.run(Roc(lower=0.0, upper=1.0, thresholds=4), 1)
    assert data.notes[0] in result.as_json()["notes"]  # type: ignore[operator]
    assert whole.public == {}  # every record is judged: none is left to choose thresholds by


def test_nothing_of_the_held_out_part_is_learnt() -> None:
    """A value that the training part lacks has no column, and changes no scale."""
    training = np.array([True, True, True, False])
    one = features(cells(x=["1", "2", "3", "99"], word=["a", "b", "a", "new"]), training)
    two = features(cells(x=["1", "2", "3", "4"], word=["a", "b", "a", "a"]), training)
    assert one.shape == two.shape == (4, 3)
    assert (one[:3] == two[:3]).all()


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "say which column the model predicts"),
        ("?label=z", "no column 'z'"),
        (
            "?label=colour",
            "column 'colour' has green, red: name the positive one, as in positive=red",
        ),
        ("?label=y&positive=maybe", "has no label 'maybe': it has no, yes"),
        ("?label=y&party=x", "--model takes label=, positive=, .*, not 'party'"),
    ],
)
def test_what_cannot_be_predicted_is_refused(tmp_path: Path, query: str, words: str) -> None:
    path = written(tmp_path, 20)
    with pytest.raises(LocalError, match=words):
        scored(f"{path}{query}", "logistic")


def test_files_and_models_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="no model 'forest'"):
        scored("data.csv?label=y", "forest")
    with pytest.raises(LocalError, match="files end in"):
        scored("synthetic:scores?label=y", "logistic")
    with pytest.raises(LocalError, match="cannot read"):
        scored(f"{tmp_path}/none.csv?label=y", "logistic")
    ragged = tmp_path / "ragged.csv"
    ragged.write_text("x,y\n1,0\n2\n")
    with pytest.raises(LocalError, match="line 3: 1 field,"):
        scored(f"{ragged}?label=y", "logistic")
    constant = tmp_path / "constant.csv"
    constant.write_text("x,y\n" + "1,1\n" * 10)
    with pytest.raises(LocalError, match="'y' has only the label 1: a model needs two"):
        scored(f"{constant}?label=y&positive=1", "logistic")
    rare = tmp_path / "rare.csv"
    rare.write_text("x,y\n" + "1,1\n" * 10 + "2,0\n")
    with pytest.raises(LocalError, match="has only the label 1: a model needs two"):
        scored(f"{rare}?label=y", "logistic", share=0.05)
    with pytest.raises(LocalError, match="no column to train the model on"):
        features(cells(x=["1", "1"]), np.array([True, False]))
    assert positive_of(["1", "0"], "y", None) == "1"
