"""Base transfers between two servers, made once and kept: every run branches off from them.

The messages of the base transfers, 33 and 4,320 bytes, are sent in every run, and are the same in
every run: a function of each server's secret and of what it heard. So what is kept here may be lost
at any time, and a run that is told again after a crash needs nothing but its own messages.
"""

import threading

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.garbling.session import Evaluator, Garbler
from tallyroom.protocols.randomness import Randomness

Bytes = NDArray[np.uint8]

_LINK = np.zeros(1, dtype=np.uint64)


class BaseTransfers:
    """Of one server with another. `randomness` is as long-lived as the server."""

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness.derive("base transfers of servers")
        self._opening: Bytes | None = None
        self._evaluator: tuple[bytes, Evaluator] | None = None
        self._garbler: tuple[bytes, Bytes, Garbler] | None = None
        self._caught: set[bytes] = set()
        self._distrusted = False
        self._lock = threading.RLock()  # runs go on side by side
        self.made = 0
        """How often base transfers were computed."""

    def __repr__(self) -> str:
        return "<BaseTransfers>"

    # --- the evaluator's end ---

    def open(self) -> Bytes:
        """What the evaluator sends first."""
        with self._lock:
            if self._opening is None:
                self._opening = Evaluator(_LINK, self._randomness).open()
            return self._opening

    def evaluator(self, reply: Bytes, label: bytes, randomness: Randomness) -> Evaluator:
        """The session of one run. Raises `PeerError` on a reply that is none."""
        heard = reply.tobytes()
        with self._lock:
            self._check_trusted()
            if self._evaluator is None or self._evaluator[0] != heard:
                evaluator = Evaluator(_LINK, self._randomness)
                evaluator.open()
                evaluator.accept(reply)
                self.made += 1
                self._evaluator = heard, evaluator
            return self._evaluator[1].branch(label, randomness)

    # --- the garbler's end ---

    def garbler(
        self, opening: Bytes, label: bytes, randomness: Randomness
    ) -> tuple[Bytes, Garbler]:
        """What to reply, and the session of one run. Raises `PeerError` on an opening that is
        none, or of an evaluator that was caught: it would guess again at the same Δ."""
        heard = opening.tobytes()
        with self._lock:
            self._check_trusted()
            if heard in self._caught:
                raise PeerError("the other server", "was caught with inconsistent choices before")
            if self._garbler is None or self._garbler[0] != heard:
                garbler = Garbler(_LINK, self._randomness)
                self._garbler = heard, garbler.reply(opening), garbler
                self.made += 1
            _, reply, session = self._garbler
            return reply, session.branch(label, randomness)

    def close(self, opening: Bytes) -> None:
        """The evaluator that opened so was caught."""
        with self._lock:
            self._caught.add(opening.tobytes())

    # --- either end ---

    def distrust(self) -> None:
        """The other server garbled otherwise than it must: nothing is computed with it any more.

        What it garbled may have passed in one of so many cases, or told it a predicate. Were it met
        again, it could try until it passes, at no cost: a run that ends so is charged to nobody.
        """
        with self._lock:
            self._distrusted = True

    def _check_trusted(self) -> None:
        if self._distrusted:
            raise PeerError(
                "the other server",
                "garbled otherwise than it must in an earlier run: nothing is computed with it "
                "until this server is started anew",
            )
