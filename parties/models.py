"""Scores for those who have none: a model trained on one part of a file, which is taken to be
public, scores the other part, which parties then hold. The two parts share no record. Thresholds of
curves can follow the training part's own scores (`Statistic.planned_by`).

What a feature is, and which label is positive, is decided by the training part: a column in which
all of its cells are numbers or blank is of numbers, which are scaled; any other becomes one column
per value that is common there. A held-out cell is read by that: it decides nothing, and what it is
not counts as the training part's mean, or as none of the values.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from tallyroom.parties.dataset import Dataset
from tallyroom.parties.tables import read_table
from tallyroom.protocols.cells import encode_cells, is_word, numbers, places
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.names import look_up
from tallyroom.protocols.records import Column

MOST_VALUES = 32
"""Of a column of words, the most frequent ones in the training part."""
POSITIVE = ("1", "yes", "true", "positive")
MOST_SHOWN = 5
FARTHEST = 1e6
"""From the training part's mean, in its deviations: a held-out number may be any."""
SEED = 0


def positive_of(texts: list[str], name: str, positive: str | None) -> str:
    """Which label is the positive one, by those of the training part. Raises `LocalError` where it
    is not clear."""
    found = sorted(set(texts))
    shown = ", ".join(found[:MOST_SHOWN]) + (", …" if len(found) > MOST_SHOWN else "")
    if len(found) < 2:
        raise LocalError(f"column {name!r} has the label {shown} alone: a model needs two")
    if positive is None:
        named = [each for each in found if each.lower() in POSITIVE]
        if len(found) > 2 or len(named) != 1:
            raise LocalError(
                f"column {name!r} has {shown}: name the positive one, positive={found[-1]}"
            )
        return named[0]
    if (places(encode_cells(found), (positive,)) > 0).all():
        raise LocalError(f"column {name!r} has no label {positive!r}: it has {shown}")
    return positive


def features(columns: dict[str, list[str]], training: NDArray[np.bool]) -> Column:
    """One row a record, from what the training part has."""
    made: list[Column] = []
    for texts in columns.values():
        column = encode_cells(texts)
        if is_word(column[training]).any():
            words = np.array(texts)
            common, counts = np.unique(words[training], return_counts=True)
            kept = common[np.argsort(-counts, kind="stable")][:MOST_VALUES]
            made += [(words == each).astype(np.float64) for each in kept]
            continue
        known = column[training & np.isfinite(column)]
        if not len(known) or not np.ptp(known):
            continue
        with np.errstate(over="ignore"):
            scaled = (numbers(column, known.mean()) - known.mean()) / known.std()
        made.append(np.clip(scaled, -FARTHEST, FARTHEST))
    if not made:
        raise LocalError("there is no column to train on")
    return np.stack(made, axis=1)


def _logistic() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=1000)


MODELS: dict[str, Callable[[], Any]] = {"logistic": _logistic}


def scored(spec: str, model: str, share: float = 0.5, whole: bool = False) -> Dataset:
    """`csv:FILE?label=COLUMN` with `positive=LABEL` where that is not clear: the held-out part,
    with `score`, the model's probability of being positive, and `label`, 0 or 1.

    `share` of the records are the training part, by a fixed shuffle: the public part of the data.
    With `whole` they are judged too, for experiments of a given size: a classifier then looks
    better than it is, and no part is public.
    """
    build = look_up("model", model, MODELS)
    source, _, query = spec.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    name, positive = options.pop("label", None), options.pop("positive", None)
    if options:
        raise LocalError(f"--model takes label= and positive=, not {next(iter(options))!r}")
    table = read_table(Path(source.removeprefix("csv:")), delimiter=None).checked()
    if name is None:
        raise LocalError(f"say which column the model predicts: {source}?label=COLUMN")
    look_up("column", name, dict.fromkeys(table.header))
    training = np.zeros(len(table.rows), dtype=bool)
    order = np.random.default_rng(SEED).permutation(len(table.rows))
    training[order[: round(share * len(table.rows))]] = True
    labels = table.column(name).texts
    told = [text for text, public in zip(labels, training, strict=True) if public]
    label = places(encode_cells(labels), (positive_of(told, name, positive),)) == 0
    if len(set(label[training].tolist())) < 2 or training.all():
        raise LocalError(f"{source}: the part to train on needs both labels of {name!r}")
    others = {each: table.column(each).texts for each in table.header if each != name}
    inputs = features(others, training)
    fitted = build().fit(inputs[training], label[training])
    held = ~training | whole
    score: Column = fitted.predict_proba(inputs)[:, 1]
    unit = (0.0, 1.0)
    trained = int(training.sum())
    note = (
        f"{trained} of {len(training)} records are taken as public and nothing protects them: the "
        "model was trained on them, and thresholds may follow their scores"
    )
    part = {"score": score[training], "label": label[training].astype(np.float64)}
    return Dataset(
        f"{spec} by {model}",
        {"score": score[held], "label": label[held].astype(np.float64)},
        {"score": unit, "label": unit},
        {"value": "score", "score": "score", "label": "label"},
        public={} if whole else part,
        notes=(note,),
    )
