"""Messages between the two ends of a link, and how a party tells its ends apart."""

import numpy as np

from tallyroom.fss.ring import Bytes
from tallyroom.protocols.garbling.links import Links
from tallyroom.protocols.wire.messages import Message, Phase, Role

ASKED = 1
"""The round of the question. A link's steps follow in rounds of their own, whichever link is
ahead: the bill does not depend on chance."""


def link_message(
    run: bytes, links: Links, step: int, rows: Bytes, evaluator: bool = True, turn: int = 0
) -> Message:
    """From our end of these links to the other, about their task of that number."""
    garblers = (links >> np.uint64(32)).astype(np.uint32)
    evaluators = (links & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    senders, receivers = (evaluators, garblers) if evaluator else (garblers, evaluators)
    tagged = np.empty((len(links), 1 + rows.shape[1]), dtype=np.uint8)
    tagged[:, 0], tagged[:, 1:] = step, rows
    return Message(
        run,
        Phase.PAIR,
        Role.PARTY,
        Role.PARTY,
        senders,
        receivers,
        tagged,
        ASKED + step + 2 * turn,
    )


def end_of(number: int, evaluator: bool) -> int:
    """One of the two ends of a link: both may be in one block."""
    return number << 1 | evaluator
