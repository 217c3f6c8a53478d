"""The names that a question counts, as they are written: A,B,C."""

import csv
from collections.abc import Iterable

from tallyroom.protocols.cells import encode_cells
from tallyroom.protocols.errors import LocalError

OTHER = "other"
"""What names are counted as that are not among the categories."""

MAX_CATEGORIES = 4096
MAX_LETTERS = 1 << 16


def parse_categories(text: str) -> tuple[str, ...]:
    """`a,b,c`, quoted as in CSV where a name has a comma. Raises `LocalError`."""
    if len(text) > MAX_LETTERS:
        raise LocalError(
            f"the categories have {len(text)} letters; at most {MAX_LETTERS} are taken"
        )
    try:
        rows = list(csv.reader([text], skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise LocalError(f"categories are names separated by commas: {error}") from None
    names = tuple(name.strip() for name in (rows[0] if rows else []))
    if not names or not all(names):
        raise LocalError(f"categories are names separated by commas, not {text[:40]!r}")
    if len(names) > MAX_CATEGORIES:
        raise LocalError(f"{len(names)} categories; at most {MAX_CATEGORIES} are counted")
    first: dict[bytes, str] = {}
    for name, code in zip(names, encode_cells(names), strict=True):
        if (same := first.setdefault(code.tobytes(), name)) != name:
            raise LocalError(f"the categories {same!r} and {name!r} are the same number")
        if names.count(name) > 1:
            raise LocalError(f"the category {name!r} is there twice")
    if OTHER in names[:-1]:
        raise LocalError(f"{OTHER!r} is what all other names are counted as: leave it out")
    return names[:-1] if names[-1] == OTHER else names


def format_categories(names: Iterable[str]) -> str:
    """What `parse_categories` reads."""
    return ",".join(
        '"' + name.replace('"', '""') + '"' if set(name) & set('", ') else name for name in names
    )
