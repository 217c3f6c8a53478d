"""Scores for those who have none: a model trained on one part of a file, which is taken to be
public, scores the other part, which parties then hold. The two parts share no record. Thresholds of
curves can follow the training part's own scores (`Statistic.planned_by`).

Columns of numbers are scaled, others become one column per value that is common in the training
part. Nothing of the held-out part is used before it is scored.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from parties.dataset import Dataset
from parties.tables import read_table
from protocols.errors import LocalError
from protocols.names import look_up
from protocols.records import Column

MOST_VALUES = 32
"""Of a column of words, the most frequent ones in the training part."""
POSITIVE = ("1", "yes", "true", "positive")
MOST_SHOWN = 5
SEED = 0


def labels_of(texts: list[str], name: str, positive: str | None) -> NDArray[np.bool]:
    """Raises `LocalError` where it is not clear which label is the positive one."""
    found = sorted(set(texts))
    shown = ", ".join(found[:MOST_SHOWN]) + (", …" if len(found) > MOST_SHOWN else "")
    if len(found) < 2:
        raise LocalError(f"column {name!r} has the label {shown} alone: a model needs two")
    if positive is None:
        named = [each for each in found if each.strip().lower() in POSITIVE]
        if len(found) > 2 or len(named) != 1:
            raise LocalError(
                f"column {name!r} has {shown}: name the positive one, positive={found[-1]}"
            )
        positive = named[0]
    elif positive not in found:
        raise LocalError(f"column {name!r} has no label {positive!r}: it has {shown}")
    return np.array([each == positive for each in texts])


def features(columns: dict[str, list[str]], training: NDArray[np.bool]) -> Column:
    """One row a record, from what the training part has."""
    made: list[Column] = []
    for texts in columns.values():
        try:
            values = np.array([float(text) if text else np.nan for text in texts])
        except ValueError:
            words = np.array(texts)
            common, counts = np.unique(words[training], return_counts=True)
            kept = common[np.argsort(-counts, kind="stable")][:MOST_VALUES]
            made += [(words == each).astype(np.float64) for each in kept]
            continue
        known = values[training & np.isfinite(values)]
        if not len(known) or not np.ptp(known):
            continue
        filled = np.where(np.isfinite(values), values, known.mean())
        made.append((filled - known.mean()) / known.std())
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
    table = read_table(Path(source.removeprefix("csv:")), delimiter=None)
    columns = dict(zip(table.header, map(list, zip(*table.rows, strict=True)), strict=True))
    if name is None:
        raise LocalError(f"say which column the model predicts: {source}?label=COLUMN")
    look_up("column", name, columns)
    label = labels_of(columns[name], name, positive)
    order = np.random.default_rng(SEED).permutation(len(label))
    training = np.zeros(len(label), dtype=bool)
    training[order[: round(share * len(label))]] = True
    if len(set(label[training].tolist())) < 2 or training.all():
        raise LocalError(f"{source}: the part to train on needs both labels of {name!r}")
    inputs = features({k: v for k, v in columns.items() if k != name}, training)
    fitted = build().fit(inputs[training], label[training])
    held = ~training | whole
    score: Column = fitted.predict_proba(inputs)[:, 1]
    unit = (0.0, 1.0)
    part = {"score": score[training], "label": label[training].astype(np.float64)}
    return Dataset(
        f"{spec} by {model}",
        {"score": score[held], "label": label[held].astype(np.float64)},
        {"score": unit, "label": unit},
        {"value": "score", "score": "score", "label": "label"},
        public={} if whole else part,
    )
