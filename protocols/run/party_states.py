"""How parties stand in a run that goes on: what a page shows of them, and nothing they hold."""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

MOST_SHOWN = 10_000
"""Parties that are told apart; of more, only how many have submitted."""


class PartyProgress(IntEnum):
    """One byte per party, on the wire as well."""

    WAITING = 0
    SUBMITTED = 1
    REFUSED = 2
    GONE = 3

    @property
    def label(self) -> str:
        return self.name.lower()


def party_states(
    present: NDArray[np.bool_],
    submitted: NDArray[np.bool_],
    refusing: NDArray[np.bool_],
    closed: bool,
) -> NDArray[np.uint8]:
    """Empty for more than `MOST_SHOWN`. A party is gone if it is not connected and owes its
    submission, or if the run went on without it: it is `closed`."""
    if len(present) > MOST_SHOWN:
        return np.zeros(0, dtype=np.uint8)
    waiting = np.where(present & (not closed), PartyProgress.WAITING, PartyProgress.GONE)
    states = np.where(submitted, PartyProgress.SUBMITTED, waiting)
    return np.where(refusing, PartyProgress.REFUSED, states).astype(np.uint8)
