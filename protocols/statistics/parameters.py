"""Parameters of statistics and studies: as people write them, as the wire has them, of which type
they are."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, ClassVar, Self, get_args

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.option import Option, options_of

Parameter = str | int | float | bool | tuple[float, ...] | tuple[str, ...] | None


@dataclass(frozen=True)
class Parametrized:
    """What is asked by name with parameters: a statistic or a study.

    Subclasses are frozen dataclasses whose fields are the parameters. Those made with `option` or
    `role` are what a user may set.
    """

    name: ClassVar[str]
    style: ClassVar[Style] = Style()

    @classmethod
    def options(cls) -> tuple[Option, ...]:
        """What a user may set: not what the coordinator fills in."""
        return options_of(cls)

    @classmethod
    def summary(cls) -> str:
        """It in one line: the first of its documentation."""
        return (cls.__doc__ or "").strip().partition("\n")[0]

    def parameters(self) -> dict[str, Parameter]:
        """In one form: a real number is a float, whether it was written 1 or 1.0."""
        return {f.name: as_plain(getattr(self, f.name), f.type) for f in dataclasses.fields(self)}

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, object]) -> Self:
        """Builds it from wire input. Raises `LocalError` on anything unexpected."""
        fields = {f.name: f for f in dataclasses.fields(cls)}
        if unknown := parameters.keys() - fields.keys():
            raise LocalError(f"{cls.name} has no parameter {sorted(unknown)[0]!r}")
        for key, value in parameters.items():
            if not fits(value, fields[key].type):
                raise LocalError(f"{cls.name}: {key} cannot be {value!r}")
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in parameters.items()}
        try:
            plain = {k: as_plain(v, fields[k].type) for k, v in values.items()}
        except OverflowError:
            raise LocalError(f"{cls.name}: a number is too large") from None
        return cls(**plain)  # checked against the fields above


def as_plain(value: Any, annotation: object) -> Parameter:
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
        if isinstance(value, str) and str in kinds:
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
