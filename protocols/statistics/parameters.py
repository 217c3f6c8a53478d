"""Parameters of statistics: as people write them, as the wire has them, of which type they are."""

from types import NoneType
from typing import get_args

import numpy as np

Parameter = str | int | float | bool | tuple[float, ...] | tuple[str, ...] | None


def as_plain(value: Parameter, annotation: object) -> Parameter:
    kinds = get_args(annotation) or (annotation,)
    if isinstance(value, tuple):
        return value if str in kinds else tuple(float(each) for each in value)
    return float(value) if float in kinds and type(value) is int else value


def as_taken(value: object, annotation: object) -> object:
    kinds = get_args(annotation) or (annotation,)
    if isinstance(value, np.generic):
        value = value.item()
    if Ellipsis in kinds:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return (value,)
        return tuple(value) if isinstance(value, list | np.ndarray) else value
    if str in kinds and value is None and NoneType not in kinds:
        return "none"
    return str(value) if str in kinds and type(value) is int else value


def fits(value: object, annotation: object) -> bool:
    """Whether a JSON value is of an annotated type; whole numbers pass for reals, not truths."""
    kinds = get_args(annotation) or (annotation,)
    if Ellipsis in kinds:
        return isinstance(value, list | tuple) and all(fits(each, kinds[0]) for each in value)
    if float in kinds:
        kinds = (*kinds, int)
    return type(value) in kinds
