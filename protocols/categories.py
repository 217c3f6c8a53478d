"""Names in a column of doubles: text that statistics may count and cannot reckon with.

A name is stored as a NaN whose payload is 50 bits of its hash. So whatever takes numbers refuses
it as it refuses any NaN, and who knows the names that matter finds them without a list that all
parties would have to share. Two names collide with probability 2^-50.
"""

import csv
import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from protocols.errors import LocalError
from protocols.records import Column

OTHER = "other"
"""What names are counted as that are not among the categories."""

MAX_CATEGORIES = 4096
MAX_LETTERS = 1 << 16

_NAME = 0x7FFC_0000_0000_0000
_HASH = (1 << 50) - 1


def encode_names(texts: Iterable[str]) -> Column:
    """Each text as its code; None and blank ones are missing, a plain NaN."""
    codes: dict[str, int] = {}
    found = [codes.get(text) or codes.setdefault(text, _code(text)) for text in texts]
    return np.array(found, dtype=np.uint64).view(np.float64)


def _code(text: str) -> int:
    if not text:
        return int(np.array([np.nan]).view(np.uint64)[0])
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return _NAME | int.from_bytes(digest, "little") & _HASH


def is_name(column: Column) -> NDArray[np.bool_]:
    """Where a name stands and not a number, nor nothing."""
    codes = np.ascontiguousarray(column).view(np.uint64)
    named: NDArray[np.bool_] = (codes & np.uint64(_NAME)) == np.uint64(_NAME)
    return named


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
    for name in names:
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


def places(column: Column, names: tuple[str, ...]) -> NDArray[np.int64]:
    """For each record the place of its name among `names`, or past the last for any other."""
    codes = np.ascontiguousarray(column).view(np.uint64)
    known = encode_names(names).view(np.uint64)
    order = np.argsort(known)
    at = np.minimum(np.searchsorted(known[order], codes), len(names) - 1)
    found: NDArray[np.int64] = np.where(known[order][at] == codes, order[at], len(names))
    return found
