"""A result with anything in it changed, taken away or added, which verifying finds out."""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tallyroom.protocols.errors import TallyError
from tallyroom.simulation.verification import verify

Path = tuple[Any, ...]


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(value, dict):
        for key in value:
            yield from leaves(value[key], (*path, key))
    elif isinstance(value, list):
        for index in range(len(value)):
            yield from leaves(value[index], (*path, index))
    else:
        yield path


def at(document: Any, path: Path) -> Any:
    for key in path:
        document = document[key]
    return document


def tampered(document: dict[str, Any], path: Path) -> dict[str, Any]:
    """The same with one leaf another: a letter in the middle, or a number a little larger."""
    changed = copy.deepcopy(document)
    place = at(changed, path[:-1])
    match place[path[-1]]:
        case str() as text if text:
            middle = len(text) // 2
            middle += text[middle] == "\n"  # white space in a certificate says nothing
            letter = "0" if text[middle] != "0" else "1"
            place[path[-1]] = text[:middle] + letter + text[middle + 1 :]
        case str():
            place[path[-1]] = "AAAA"
        case bool() as truth:
            place[path[-1]] = not truth
        case int() | float() as number:
            more = max(1e-3, 1e-3 * abs(number)) if isinstance(number, float) else 1
            place[path[-1]] = number + more if abs(number) < 1e307 else number / 2
        case None:
            place[path[-1]] = 1
    return changed


def _without(document: dict[str, Any], path: Path) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    del at(changed, path[:-1])[path[-1]]
    return changed


def _with_more(document: dict[str, Any], path: Path) -> dict[str, Any]:
    """One entry more in what the path leads to."""
    changed = copy.deepcopy(document)
    place = at(changed, path)
    if isinstance(place, dict):
        place["more"] = 1
    else:
        place.append(copy.deepcopy(place[-1]) if place else 1)
    return changed


CHANGES = {"changed": tampered, "taken away": _without, "added to": _with_more}


def is_unsigned(path: Path, unsigned: tuple[str, ...]) -> bool:
    """Whether what the path leads to is of a field that nobody signs."""
    steps = tuple(step for step in path if isinstance(step, str) and step != "questions")
    return any(steps[: name.count(".") + 1] == tuple(name.split(".")) for name in unsigned)


def check_every_change(
    document: dict[str, Any],
    spared: tuple[str, ...] = (),
    redundant: bool = False,
    most: int | None = None,
) -> int:
    """Fails if one of them is not found out. Returns how many there are; `spared` are fields,
    beside those that nobody signs, that may be changed. With `redundant` receipts, the others prove
    as much where one of them is missing. Of more than `most` changes, so many are drawn."""
    unsigned = (*verify(document).unsigned, *spared)
    signed = [path for path in leaves(document) if not is_unsigned(path, unsigned)]
    within = {path[:end] for path in signed for end in range(len(path))}
    whole = {path[:end] for path in signed for end in range(1, len(path) + 1)}
    if redundant:
        whole -= {("receipts", index) for index in range(len(document["receipts"]))}
    changes: list[tuple[str, Path]] = [("changed", path) for path in signed]
    changes += [("taken away", path) for path in sorted(whole, key=str)]
    changes += [("added to", path) for path in sorted(within, key=str)]
    drawn = np.random.default_rng(len(changes)).permutation(len(changes))[:most]
    for what, path in (changes[place] for place in drawn):
        changed = CHANGES[what](document, path)
        try:
            verify(changed)
        except TallyError as error:
            assert "does not hold" in str(error)  # noqa: PT017 - which path it was is said below
        else:
            pytest.fail(f"{path} was {what} and nobody noticed")
    return len(changes)
