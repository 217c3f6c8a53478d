"""Looking things up by the name a user typed."""

import difflib
from collections.abc import Mapping
from typing import TypeVar

from tallyroom.protocols.errors import LocalError

T = TypeVar("T")


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
