"""Links: pairs of parties, numbered by the caller. A message is one row of bytes for each link."""

import numpy as np
from numpy.typing import NDArray

from tallyroom.fss.ring import Bytes
from tallyroom.protocols.errors import LocalError, PeerError

Links = NDArray[np.uint64]
Mask = NDArray[np.bool]
Bits = Bytes | NDArray[np.bool]
"""Inputs: 0 and 1, or False and True."""

_NAMED = 3


def checked_links(links: Links) -> Links:
    """A copy. Raises LocalError unless these are distinct 64-bit numbers: a number decides what a
    link's secrets are."""
    if links.dtype != np.uint64 or links.ndim != 1 or len(np.unique(links)) != len(links):
        raise LocalError("links are distinct 64-bit numbers")
    return links.copy()


def names(links: Links) -> str:
    """How errors name links."""
    listed = ", ".join(str(link) for link in links[:_NAMED].tolist())
    rest = "" if len(links) <= _NAMED else f" and {len(links) - _NAMED} more"
    return f"link {listed}" if len(links) == 1 else f"links {listed}{rest}"


def checked_rows(links: Links, rows: Bytes, width: int, what: str) -> Bytes:
    """The peers' rows, contiguous. Raises LocalError if they are not one a link, PeerError if they
    are not `width` bytes long."""
    if rows.dtype != np.uint8 or rows.ndim != 2 or len(rows) != len(links):
        raise LocalError(f"{what}: one row of bytes for each of {len(links)} links")
    if rows.shape[1] != width:
        raise PeerError(names(links), f"{what} of {rows.shape[1]} bytes, not {width}")
    return np.ascontiguousarray(rows)


class UnfitAnswerError(PeerError):
    """A garbler's answer does not fit its digest. Whether it does may depend on the evaluator's
    input, so an evaluator that took another answer would tell the garbler one bit for each."""

    def __init__(self, links: Links) -> None:
        super().__init__(names(links), "an answer that does not fit its digest")
        self.links = links


def refuse_unfit(links: Links, wrong: Mask) -> None:
    """Raises `UnfitAnswerError` if the answer of any link is wrong."""
    if wrong.any():
        raise UnfitAnswerError(links[wrong])


def refuse(links: Links, wrong: Mask, reason: str, error: type[PeerError] = PeerError) -> None:
    """Raises the error if any link is wrong, and names those that are."""
    if wrong.any():
        raise error(names(links[wrong]), reason)
