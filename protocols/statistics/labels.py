"""Labels of two classes, as columns of numbers have them."""

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.records import Column

MOST_SHOWN = 5


def is_positive(labels: Column, positive: float | None) -> NDArray[np.bool]:
    """Which records are positive, whatever the labels are: this is what parties answer by.

    A party that refused other labels would tell of its records without noise, and of any column.
    """
    return np.asarray(labels == (1.0 if positive is None else positive))


def positives_of(labels: Column, name: str, positive: float | None) -> NDArray[np.bool]:
    """Which records are positive: those labelled 1 of 0 and 1, or those labelled `positive`.

    Raises `LocalError` for other labels where nobody said which is positive, and tells them: for
    truths of simulations, never at a party.
    """
    if not np.isfinite(labels).all():
        raise LocalError(f"column {name!r} has labels that are missing or not finite")
    if positive is None and not np.isin(labels, (0.0, 1.0)).all():
        raise LocalError(
            f"labels are 0 or 1: column {name!r} has {listed(labels)}; "
            f"name the positive one: --positive {labels.max():g}"
        )
    return is_positive(labels, positive)


def listed(labels: Column) -> str:
    """The first of those that there are."""
    found = np.unique(labels)
    shown = ", ".join(f"{each:g}" for each in found[:MOST_SHOWN])
    return shown + (", …" if len(found) > MOST_SHOWN else "")
