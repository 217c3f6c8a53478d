"""A party that does not take part says so, and why: nobody waits for it then.

Sees the query alone. What it says is public, and short.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.contract import Ids
from tallyroom.protocols.wire.machine import Done, Rejected, Step
from tallyroom.protocols.wire.messages import Message, Phase, Role, address, body_of

MAX_REASON_BYTES = 300
MOST_REASONS = 100
"""Refusals of a run that are kept with their reasons; of others it is known whose they are."""


class RefusingParty:
    """The machine of a block of parties that refuse a query."""

    def __init__(self, run: bytes, ids: Ids, reason: str) -> None:
        self._run = run
        self._ids = ids
        self.reason = reason

    def start(self) -> Step:
        text = self.reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")
        message = Message(
            self._run,
            Phase.REFUSE,
            Role.PARTY,
            Role.COORDINATOR,
            self._ids,
            address(0),
            body_of(text.encode()),
        )
        return Done(messages=(message,))

    def receive(self, message: Message) -> Step:
        return Rejected(message.sender, "this party refused to take part")

    def expire(self) -> Step:
        return Done()


def parse_reason(message: Message) -> str | Rejected:
    """What parties gave as their reason: one for all of a message, of printable text."""
    if message.width > MAX_REASON_BYTES or len(message.body) != 1:
        return Rejected(message.sender, f"a reason has at most {MAX_REASON_BYTES} bytes")
    try:
        text = str(message.body[0].tobytes(), "utf-8")
    except UnicodeDecodeError:
        return Rejected(message.sender, "a reason is text")
    if not text or not text.isprintable():
        return Rejected(message.sender, "a reason is one printable line")
    return text


class Refusals:
    """Who refuses to take part in one run. A party that says so again is not heard."""

    def __init__(self, parties: int, min_parties: int) -> None:
        self.min_parties = min_parties
        self._refusing = np.zeros(parties, dtype=bool)
        self._reasons: dict[int, str] = {}

    @property
    def count(self) -> int:
        return int(np.count_nonzero(self._refusing))

    @property
    def refusing(self) -> NDArray[np.bool_]:
        """Of each party, whether it does."""
        return self._refusing.copy()

    @property
    def reasons(self) -> tuple[tuple[int, str], ...]:
        """Party and reason, of the first that were heard."""
        return tuple(sorted(self._reasons.items()))

    @property
    def too_many(self) -> str | None:
        """Why the run is over, if too few parties are left for it."""
        parties = len(self._refusing)
        left = parties - self.count
        if left >= self.min_parties:
            return None
        return f"{left} of {parties} parties agree to take part and {self.min_parties} are needed"

    def is_known(self, message: Message) -> bool:
        """Whether there is nothing new in a refusal."""
        ids = message.senders
        return bool((ids < len(self._refusing)).all() and self._refusing[ids].all())

    def take(self, message: Message) -> Rejected | None:
        """Notes a refusal; what is wrong with it if it is not taken."""
        ids = message.senders
        if int(ids.max()) >= len(self._refusing):
            return Rejected(message.sender, f"there are only {len(self._refusing)} parties")
        if self._refusing[ids].any():
            return Rejected(message.sender, "it refused before")
        reason = parse_reason(message)
        if isinstance(reason, Rejected):
            return reason
        self._refusing[ids] = True
        for party in ids[: MOST_REASONS - len(self._reasons)].tolist():
            self._reasons[party] = reason
        return None


def refusal_words(reasons: Sequence[tuple[int, str]], count: int, most: int = 5) -> str:
    """Who refused and why, in one line."""
    shown = [f"{Role.PARTY.named(party)} refuses: {reason}" for party, reason in reasons[:most]]
    more = [f"{count - len(shown)} more refuse"] if count > len(shown) else []
    return "; ".join(shown + more)
