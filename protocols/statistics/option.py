"""Options of a statistic or a study: fields of its dataclass that a user may set, with their help.

`thresholds: int = option(64, "Points of the curve.")` is a field with a default, and an option
`--thresholds` of the command. `role` is one that names a column of the data. A plain field is
neither: it is for the coordinator to fill in.
"""

import dataclasses
from dataclasses import dataclass
from types import NoneType
from typing import Any, get_args, get_origin

_KEY = "tallyroom option"


@dataclass(frozen=True)
class Option:
    """`kind` is the type of one value; with `multiple`, the option may be given repeatedly.

    `role` tells that it names a column, `bounded` that this column's values need public bounds.
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


def option(
    default: Any,
    help: str,
    *,
    choices: tuple[str, ...] = (),
    flag: str | None = None,
    multiple: bool = False,
) -> Any:
    """A field that a user may set. `flag` is what it is called on the command line, `--name` if
    left out; a tuple may be given repeatedly."""
    said = {"help": help, "choices": choices, "flag": flag, "multiple": multiple}
    return dataclasses.field(default=default, metadata={_KEY: said} | said)


def role(default: str | tuple[str, ...], help: str, *, bounded: bool = False) -> Any:
    """A field that names a column of the data by the part it plays: score and label, x and y."""
    said: dict[str, Any] = {"help": help, "choices": (), "flag": None, "multiple": False}
    said |= {"role": True, "bounded": bounded}
    return dataclasses.field(default=default, metadata={_KEY: said} | said)


def options_of(kind: type) -> tuple[Option, ...]:
    """The options of a dataclass, those of its bases first, as it declares them."""
    return tuple(
        _option(each, each.metadata[_KEY])
        for each in dataclasses.fields(kind)
        if _KEY in each.metadata
    )


def _option(each: "dataclasses.Field[Any]", said: dict[str, Any]) -> Option:
    repeated = get_origin(each.type) is tuple
    kinds = [kind for kind in get_args(each.type) or (each.type,) if isinstance(kind, type)]
    [kind] = {kind for kind in kinds if kind is not NoneType}
    return Option(
        name=each.name,
        kind=kind,
        default=each.default,
        **said
        | {"flag": said["flag"] or f"--{each.name.replace('_', '-')}"}
        | {"multiple": said["multiple"] or repeated},
    )
