"""Scores for data that has none: a model trained on one part of a file scores the other part.

The training part is taken to be public; the parties hold the other part. The two parts share no
record. Thresholds of curves can follow the training part's own scores (`Piloted.planned_by`).

The training part decides what a feature is and which label is positive: a column is numeric if all
its cells there are numbers or blank, and is then scaled; any other column becomes one feature per
value that is frequent there, blanks being one value. Held-out cells decide nothing: an unknown
value counts as none of the frequent ones. A record without a number in a numeric column, or without
a label, is refused unless `missing=` says otherwise.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from tallyroom.parties.csv_source import Reading, missing_rule
from tallyroom.parties.dataset import DROP, REFUSE, Dataset, listed
from tallyroom.parties.tables import Cells
from tallyroom.protocols.cells import encode_cells, is_blank, is_word, numbers, places
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.records import Column
from tallyroom.protocols.registry import look_up

MOST_VALUES = 32
"""How many values of a text column become features: the most frequent ones in the training part."""
POSITIVE = ("1", "yes", "true", "positive")
MOST_SHOWN = 5
FARTHEST = 1e6
"""Limit on a held-out number's distance from the training mean, in standard deviations."""
SEED = 0
MEAN = "mean"
"""What `missing=` may say for a model, besides what it says elsewhere."""


def positive_of(texts: list[str], name: str, positive: str | None) -> str:
    """Returns the positive label, judged by the labels of the training part. Raises `LocalError` if
    it is ambiguous."""
    found = sorted(set(texts))
    shown = ", ".join(found[:MOST_SHOWN]) + (", …" if len(found) > MOST_SHOWN else "")
    if len(found) < 2:
        raise LocalError(f"column {name!r} has only the label {shown}: a model needs two")
    if positive is None:
        named = [each for each in found if each.lower() in POSITIVE]
        if len(found) > 2 or len(named) != 1:
            raise LocalError(
                f"column {name!r} has {shown}: name the positive one, as in positive={found[-1]}"
            )
        return named[0]
    if (places(encode_cells(found), (positive,)) > 0).all():
        raise LocalError(f"column {name!r} has no label {positive!r}: it has {shown}")
    return positive


def lacking(column: Column, training: NDArray[np.bool], missing: str) -> NDArray[np.bool]:
    """Which records have no number in a column that is numeric in the training part. In any other
    column a blank is a value like the others, unless such records are to be dropped."""
    if np.isfinite(column[training]).any() and not is_word(column[training]).any():
        return ~np.isfinite(column)
    return is_blank(column) & (missing == DROP)


def features(columns: dict[str, Cells], training: NDArray[np.bool], instead: str = MEAN) -> Column:
    """Returns one row per record, with features chosen by the training part. A record without a
    number has the number `instead` there, or the training part's mean."""
    made: list[Column] = []
    for cells in columns.values():
        column = cells.column
        if is_word(column[training]).any():
            words = np.where(is_blank(column), "", np.array(cells.texts))
            common, counts = np.unique(words[training], return_counts=True)
            kept = common[np.argsort(-counts, kind="stable")][:MOST_VALUES]
            made += [(words == each).astype(np.float64) for each in kept]
            continue
        known = column[training & np.isfinite(column)]
        if not len(known) or not np.ptp(known):
            continue
        filled = numbers(column, known.mean() if instead == MEAN else float(instead))
        with np.errstate(over="ignore"):
            scaled = (filled - known.mean()) / known.std()
        made.append(np.clip(scaled, -FARTHEST, FARTHEST))
    if not made:
        raise LocalError("there is no column to train the model on")
    return np.stack(made, axis=1)


def _logistic() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=1000)


MODELS: dict[str, Callable[[], Any]] = {"logistic": _logistic}


def _kept(
    lacks: dict[str, NDArray[np.bool]], missing: str
) -> tuple[NDArray[np.bool], tuple[str, ...]]:
    """Which records are kept, and what is told about those that lack a value. Raises `LocalError`
    if they are refused."""
    lack = np.any(list(lacks.values()), axis=0)
    if not lack.any():
        return ~lack, ()
    names = listed([name for name, found in lacks.items() if found.any()])
    said = f"{np.count_nonzero(lack)} of {len(lack)} records lack {names}"
    if missing == REFUSE:
        raise LocalError(
            f"{said}: FILE.csv?missing=drop leaves such records out, missing=mean puts the "
            "training part's mean there, missing=VALUE a number"
        )
    if missing == DROP:
        return ~lack, (f"{said} and are left out",)
    instead = "the training part's mean" if missing == MEAN else missing
    return np.ones_like(lack), (f"{said} and count as {instead} there",)


def _filled(labels: Column, blank: NDArray[np.bool], missing: str) -> Column:
    """The labels; a blank one counts as the number that `missing` says, else as no label."""
    if missing in (REFUSE, DROP, MEAN):
        return labels
    return np.where(blank, float(missing), labels)


def scored(spec: str, model: str, share: float = 0.5, whole: bool = False) -> Dataset:
    """Reads `csv:FILE?label=COLUMN`, with `positive=LABEL` if that is ambiguous. Returns the
    held-out part with two columns: `score`, the model's probability of the positive label, and
    `label`, 0 or 1.

    A fixed shuffle takes `share` of the records as the training part, the public part of the data.
    With `whole`, these records are scored too, for experiments of a given size: a classifier then
    looks better than it is, and no part is public.
    """
    build = look_up("model", model, MODELS)
    source, _, query = spec.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    name, positive = options.pop("label", None), options.pop("positive", None)
    missing = options.pop("missing", REFUSE)
    missing = missing if missing == MEAN else missing_rule(missing)
    reading = Reading.of(options)
    if options:
        raise LocalError(
            "--model takes label=, positive=, missing=, sep=, decimal=, encoding= and lines=, "
            f"not {next(iter(options))!r}"
        )
    table = reading.table(Path(source.removeprefix("csv:"))).checked()
    if name is None:
        raise LocalError(f"say which column the model predicts: {source}?label=COLUMN")
    look_up("column", name, dict.fromkeys(table.header))
    training = np.zeros(table.records, dtype=bool)
    order = np.random.default_rng(SEED).permutation(table.records)
    training[order[: round(share * table.records)]] = True
    columns = {each: table.column(each, reading.decimal) for each in table.header}
    labels = columns.pop(name)
    lacks = {each: lacking(cells.column, training, missing) for each, cells in columns.items()}
    lacks[name] = is_blank(labels.column)
    kept, notes = _kept(lacks, missing)
    known = np.flatnonzero(training & ~lacks[name])
    texts = labels.texts
    chosen = positive_of([texts[row] for row in known], name, positive)
    label = places(_filled(labels.column, lacks[name], missing), (chosen,)) == 0
    training, held = training & kept, (~training | whole) & kept
    if len(set(label[training].tolist())) < 2 or not held.any():
        raise LocalError(f"{source}: the part to train on needs both labels of {name!r}")
    inputs = features(columns, training, MEAN if missing in (REFUSE, DROP) else missing)
    fitted = build().fit(inputs[training], label[training])
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
        notes=(note, *notes),
    )
