"""Labels of two classes in columns of numbers."""

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.records import Column

MOST_SHOWN = 5


def is_positive(labels: Column, positive: float | None) -> NDArray[np.bool]:
    """Marks the records that are positive, whatever the labels are: parties answer by this.

    A party that refused other labels would reveal something about its records without noise, and
    about any column that is asked for as a label."""
    return np.asarray(labels == (1.0 if positive is None else positive))


def positives_of(labels: Column, name: str, positive: float | None) -> NDArray[np.bool]:
    """Marks the records that are positive: those labelled `positive`, or 1 if labels are 0 and 1.

    Raises `LocalError` for other labels if `positive` is not given. The message shows the labels:
    use it for the truths of simulations, never at a party."""
    if not np.isfinite(labels).all():
        raise LocalError(f"column {name!r} has labels that are missing or not finite")
    if positive is None and not np.isin(labels, (0.0, 1.0)).all():
        raise LocalError(
            f"labels are 0 or 1: column {name!r} has {listed(labels)}; "
            f"name the positive one: --positive {labels.max():g}"
        )
    return is_positive(labels, positive)


def listed(labels: Column) -> str:
    """The first few different labels."""
    found = np.unique(labels)
    shown = ", ".join(f"{each:g}" for each in found[:MOST_SHOWN])
    return shown + (", …" if len(found) > MOST_SHOWN else "")
