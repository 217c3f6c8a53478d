"""Reads files that anybody may have written into a folder of runs, so that the page survives them.

Links are not followed, and pipes are not waited for. Values that JSON allows but the page cannot
pass on are left out, such as 1e999, half a character or a thousand nested objects.
"""

import json
import math
import os
import stat
from itertools import islice
from pathlib import Path
from typing import Any

MOST_BYTES = 32 * 2**20
MOST_POINTS = 2000
MOST_CHARACTERS = 20_000
MOST_DEPTH = 40


def is_plain_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def read(path: Path, most: int, end: bool = False) -> bytes:
    """Reads at most `most` bytes, from the beginning or the `end`. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path} is not a plain file")
        if end:
            file.seek(max(0, found.st_size - most))
        return file.read(most)


def document(path: Path) -> dict[str, Any] | None:
    """Returns the object in a file; None if there is none or it is too long. Raises `OSError`."""
    data = read(path, MOST_BYTES + 1)
    try:
        found = json.loads(data) if len(data) <= MOST_BYTES else None
    except (ValueError, RecursionError):
        return None
    return shown(found) if isinstance(found, dict) else None


def shown(value: Any, depth: int = MOST_DEPTH) -> Any:
    """Returns what a page can show: lists longer than a screen are thinned evenly, long texts and
    objects are cut, and values that are not finite or too deeply nested become None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value[:MOST_CHARACTERS].encode("utf-8", "replace").decode()
    if not isinstance(value, dict | list):
        return value
    if depth == 0:
        return None
    if isinstance(value, dict):
        items = islice(value.items(), MOST_POINTS)
        return {shown(key): shown(each, depth - 1) for key, each in items}
    return [shown(each, depth - 1) for each in value[:: -(-len(value) // MOST_POINTS) or 1]]
