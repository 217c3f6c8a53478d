"""Parses and formats the names that a question counts, such as A,B,C."""

import csv
from collections.abc import Iterable

from tallyroom.protocols.cells import WHOLE, encode_cells
from tallyroom.protocols.errors import LocalError

OTHER = "other"
"""Names that are not among the categories are counted as this one."""

MAX_CATEGORIES = 4096
MAX_LETTERS = 1 << 16


def parse_categories(text: str) -> tuple[str, ...]:
    """The names in `a,b,c`; a name with a comma is quoted as in CSV. Raises `LocalError`."""
    if len(text) > MAX_LETTERS:
        raise LocalError(
            f"the categories have {len(text)} letters; at most {MAX_LETTERS} are allowed"
        )
    try:
        rows = list(csv.reader([text], skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise LocalError(f"categories are names separated by commas: {error}") from None
    names = tuple(name.strip() for name in (rows[0] if rows else []))
    if not names or not all(names):
        raise LocalError(f"categories are names separated by commas, not {text[:40]!r}")
    if len(names) > MAX_CATEGORIES:
        raise LocalError(f"{len(names)} categories; at most {MAX_CATEGORIES} are allowed")
    first: dict[bytes, str] = {}
    for name, code in zip(names, encode_cells(names), strict=True):
        if abs(code) >= WHOLE:
            raise LocalError(
                f"the category {name[:40]!r} is beyond 2^53, from where doubles do not tell whole "
                "numbers apart: write it with a letter, in the data too"
            )
        if (same := first.setdefault(code.tobytes(), name)) != name:
            raise LocalError(f"the categories {same!r} and {name!r} are the same number")
        if names.count(name) > 1:
            raise LocalError(f"the category {name!r} is listed twice")
    if OTHER in names[:-1]:
        raise LocalError(f"leave {OTHER!r} out: all other names are counted under it anyway")
    return names[:-1] if names[-1] == OTHER else names


def format_categories(names: Iterable[str]) -> str:
    """The inverse of `parse_categories`."""
    return ",".join(
        '"' + name.replace('"', '""') + '"' if set(name) & set('", ') else name for name in names
    )
