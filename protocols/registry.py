"""What can be chosen by name, from this and other packages: one group of entry points per kind.

An entry is loaded only when somebody asks for it. So a party does not import what it does not need,
and a broken package does not affect the others.
"""

import contextlib
import difflib
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from operator import attrgetter
from typing import Any, TypeVar

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.offers import Offers

T = TypeVar("T")

AGGREGATORS = "tallyroom.aggregators"
STATISTICS = "tallyroom.statistics"
QUESTIONS = "tallyroom.questions"
"""Statistics that only studies ask; users cannot ask for them by name."""
STUDIES = "tallyroom.studies"
KERNELS = "tallyroom.kernels"
NOISE_LAWS = "tallyroom.noise_laws"
RUNTIMES = "tallyroom.runtimes"
FIGURES = "tallyroom.figures"
"""Figures of other packages; `simulation.reproduce.registry` lists those that are bundled."""

KINDS: Mapping[str, str] = {
    AGGREGATORS: "aggregator",
    STATISTICS: "statistic",
    QUESTIONS: "statistic",
    STUDIES: "study",
    KERNELS: "kernel",
    NOISE_LAWS: "noise law",
    RUNTIMES: "runtime",
    FIGURES: "figure",
}
"""The word for an entry of each group, in messages."""


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """A package's `__getattr__` (PEP 562) for names whose modules, `homes`, are loaded when they
    are used: what takes long to load must not slow down those who do not need it."""

    def find(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"there is no {name!r} in this package")
        found: object = getattr(import_module(f"{package}.{homes[name]}"), name)
        return found

    return find


@cache
def registered(group: str) -> Mapping[str, EntryPoint]:
    """The entries of a group by name, in alphabetical order. Does not load them."""
    found = entry_points(group=group)
    return dict(sorted(zip(map(attrgetter("name"), found), found, strict=True)))


def named(group: str, name: str) -> Any:
    """Loads the entry of that name.

    Raises `LocalError` if there is none, with the nearest names, or if it cannot be loaded.
    """
    entry = look_up(KINDS[group], name, registered(group))
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        raise LocalError(f"{KINDS[group]} {name!r} cannot be loaded: {error}") from None


def kind_named(group: str, name: str, base: type) -> Any:
    """Loads the class of that name, and no other entry of the group.

    Raises `LocalError` if there is none, if it cannot be loaded, if it is not derived from `base`,
    or if its `name` differs.
    """
    kind = named(group, name)
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise LocalError(f"{KINDS[group]} {name!r} is not a subclass of {base.__name__}")
    if (own := getattr(kind, "name", None)) != name:
        raise LocalError(f"{KINDS[group]} {name!r} must be registered under its own name, {own!r}")
    return kind


@cache
def offers_of(spec: str) -> Offers:
    """What the aggregator of this specification offers; empty if there is no such aggregator."""
    with contextlib.suppress(LocalError):
        offers: Offers = named(AGGREGATORS, spec.partition("?")[0]).offers
        return offers
    return frozenset()


def loadable(group: str) -> dict[str, Any]:
    """All entries of a group that can be loaded."""
    entries = {}
    for name in registered(group):
        with contextlib.suppress(LocalError):
            entries[name] = named(group, name)
    return entries


def look_up(kind: str, name: str, known: Mapping[str, T]) -> T:
    """The value of that name. Raises `LocalError` with the nearest names if there is none."""
    if name in known:
        return known[name]
    typed = name.lower()
    containing = [other for other in known if len(typed) > 2 and typed in other.lower()]
    containing.sort(key=lambda other: not other.lower().startswith(typed))
    similar = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    near = list(dict.fromkeys([*containing, *similar]))[:3]
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
    raise LocalError(f"no {kind} {name!r}; {hint}")
