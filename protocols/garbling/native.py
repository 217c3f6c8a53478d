"""Which implementation of the pairwise loops runs: chosen for each call, as in `fss.native`."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tallyroom.protocols.garbling import _garble

    compiled = _garble
else:
    try:
        from tallyroom.protocols.garbling import _garble as compiled
    except ImportError:  # no compiler at build time
        compiled = None


def instruction_set() -> int | None:
    """The code of the instruction set to run with, or None for the twin."""
    if compiled is None or os.environ.get("TALLYROOM_NATIVE") == "0":
        return None
    return compiled.best() or None
