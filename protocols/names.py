"""Looking things up by the name a user typed."""

import difflib
from collections.abc import Mapping
from typing import TypeVar

from tallyroom.protocols.errors import LocalError

T = TypeVar("T")


def look_up(kind: str, name: str, known: Mapping[str, T]) -> T:
    """The thing of that name. Raises `LocalError` with the nearest names otherwise."""
    if name in known:
        return known[name]
    typed = name.lower()
    holding = [each for each in known if len(typed) > 2 and typed in each.lower()]
    holding.sort(key=lambda each: not each.lower().startswith(typed))
    alike = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    near = list(dict.fromkeys([*holding, *alike]))[:3]
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
    raise LocalError(f"no {kind} {name!r}; {hint}")
