"""Options of a statistic or a study: the fields of its dataclass that a user may set.

`thresholds: int = option(64, "Points of the curve.")` is a field with a default, and an option
`--thresholds` of the command. `role` declares an option that names a column of the data. The
coordinator fills in plain fields: users cannot set them.

All fields are parameters: they are sent over the wire, and stored with results, under their names.
An option that was renamed keeps its former name there. Users may still write the former name, on
the command line and in Python.
"""

import dataclasses
from abc import ABCMeta
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType
from typing import Any, ClassVar, Self, get_args, get_origin

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.statistics.drawing import Style

_OPTION, _FORMER = "tallyroom option", "tallyroom former name"

Parameter = str | int | float | bool | tuple[float, ...] | tuple[str, ...] | None
Field = dataclasses.Field[Any]


@dataclass(frozen=True)
class Option:
    """`kind` is the type of one value; with `multiple`, the option may be given repeatedly.

    `role` says that the option names a column, `bounded` that the values of this column need public
    bounds. `former` is the name that the option had before it was renamed.
    """

    name: str
    flag: str
    kind: type
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    multiple: bool = False
    role: bool = False
    bounded: bool = False
    former: str = ""


def option(
    default: Any,
    help: str,
    *,
    choices: tuple[str, ...] = (),
    flag: str | None = None,
    multiple: bool = False,
    former: str = "",
) -> Any:
    """A field that a user may set. `flag` is its name on the command line, `--name` if left out; an
    option whose type is a tuple may be given repeatedly."""
    said = {"help": help, "choices": choices, "flag": flag, "multiple": multiple}
    return dataclasses.field(default=default, metadata={_OPTION: said, _FORMER: former})


def role(default: str | tuple[str, ...], help: str, *, bounded: bool = False) -> Any:
    """A field that names a column of the data by the part it plays: score and label, x and y."""
    said = {"help": help, "flag": None, "multiple": False, "role": True, "bounded": bounded}
    return dataclasses.field(default=default, metadata={_OPTION: said})


def renamed(default: Any, former: str) -> Any:
    """A field that no user may set, and that had another name before."""
    return dataclasses.field(default=default, metadata={_FORMER: former})


def options_of(kind: type) -> tuple[Option, ...]:
    """The options of a dataclass, those of its bases first, as it declares them."""
    found = []
    for each in dataclasses.fields(kind):
        if (said := each.metadata.get(_OPTION)) is None:
            continue
        [of] = set(get_args(each.type) or (each.type,)) - {NoneType, Ellipsis}
        flag = said["flag"] or f"--{each.name.replace('_', '-')}"
        multiple = said["multiple"] or get_origin(each.type) is tuple
        former = each.metadata.get(_FORMER, "")
        told = said | {"flag": flag, "multiple": multiple, "former": former}
        found.append(Option(name=each.name, kind=of, default=each.default, **told))
    return tuple(found)


# --- names and values of parameters ---


def wire_name(each: Field) -> str:
    """The name of a field on the wire and in stored results: the first that it ever had."""
    return each.metadata.get(_FORMER) or each.name


@cache
def _former_names(kind: Any) -> dict[str, str]:
    """Today's names by former ones."""
    found = {}
    for each in dataclasses.fields(kind):
        if former := each.metadata.get(_FORMER):
            found[former] = each.name
    return found


def with_names_of_today(kind: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """The values by today's names. Raises `LocalError` if a value is given by both names."""
    today, found = _former_names(kind), {}
    for name, value in given.items():
        new = today.get(name, name)
        if new != name and new in given:
            raise LocalError(f"{name} is the former name of {new}")
        found[new] = value
    return found


class _TakesFormerNames(ABCMeta):
    """Lets `Ecdf(mechanism="tree")` mean `Ecdf(strategy="tree")`."""

    def __call__(cls, *values: Any, **named: Any) -> Any:
        return super().__call__(*values, **with_names_of_today(cls, named))


SUMS = "How many, how much"
DISTRIBUTIONS = "How values are distributed"
TESTS = "Tables and tests: is it significant?"
RELATIONS = "How columns depend on each other"
SURVIVAL = "Survival over time"
CLASSIFIERS = "How well a score or a model predicts"
PAIRS = "Functions of pairs of records"
OTHERS = "Others"
TOPICS = (SUMS, DISTRIBUTIONS, TESTS, RELATIONS, SURVIVAL, CLASSIFIERS, PAIRS, OTHERS)
"""What people look for, in the order in which it is listed."""


@dataclass(frozen=True)
class Parametrized(metaclass=_TakesFormerNames):
    """A statistic or a study: it is asked by name, with parameters.

    Subclasses are frozen dataclasses whose fields are the parameters. A user may set those that are
    made with `option` or `role`.
    """

    name: ClassVar[str]
    style: ClassVar[Style] = Style()
    topic: ClassVar[str] = OTHERS
    """One of `TOPICS`, under which `tally list statistics` has it."""

    @classmethod
    def options(cls) -> tuple[Option, ...]:
        """The parameters that a user may set, without those that the coordinator fills in."""
        return options_of(cls)

    @classmethod
    def summary(cls) -> str:
        """The first line of its documentation."""
        return (cls.__doc__ or "").strip().partition("\n")[0]

    def with_names(self, known: Mapping[str, str]) -> Self:
        """With the names in columns that a schema or a data set publishes, as A,B,C, where it needs
        some and tells none."""
        return self

    def parameters(self) -> dict[str, Parameter]:
        """The parameters in canonical form: a real number is a float, whether it was written 1 or
        1.0."""
        return {
            wire_name(each): as_plain(getattr(self, each.name), each.type)
            for each in dataclasses.fields(self)
        }

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, object]) -> Self:
        """Builds it from wire input. Raises `LocalError` on anything unexpected."""
        fields = {each.name: each for each in dataclasses.fields(cls)}
        named = with_names_of_today(cls, parameters)
        if unknown := named.keys() - fields.keys():
            raise LocalError(f"{cls.name} has no parameter {sorted(unknown)[0]!r}")
        for key, value in named.items():
            if not fits(value, fields[key].type):
                raise LocalError(f"{cls.name}: {key} cannot be {value!r}")
            plain = tuple(value) if isinstance(value, list) else value
            try:
                named[key] = as_plain(plain, fields[key].type)
            except OverflowError:
                raise LocalError(f"{cls.name}: a number is too large") from None
        return cls(**named)  # checked against the fields above


def as_plain(value: Any, annotation: object) -> Parameter:
    """A value as the wire carries it: whole numbers in fields of real numbers become floats."""
    kinds = get_args(annotation) or (annotation,)
    if isinstance(value, tuple):
        return value if str in kinds else tuple(float(each) for each in value)
    return float(value) if float in kinds and type(value) is int else value


def as_taken(value: object, annotation: object) -> object:
    """A value as a field holds it, from what people write in Python: one number or name where there
    may be several, 2 for the choice "2", None for the choice "none"."""
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
    """Whether a JSON value has an annotated type. A whole number passes for a real one; a truth
    value does not pass for a number."""
    kinds = get_args(annotation) or (annotation,)
    if Ellipsis in kinds:
        return isinstance(value, list | tuple) and all(fits(each, kinds[0]) for each in value)
    if float in kinds:
        kinds = (*kinds, int)
    return type(value) in kinds
