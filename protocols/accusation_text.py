"""A proof that somebody cheated, as it travels in the words that say why a run failed.

So it takes the way of every failure, from a server through the coordinator to whoever asked.
"""

import base64
import re
from typing import Final

MOST_BYTES: Final = 64 << 10
_PROOF = re.compile(r" \[proof ([A-Za-z0-9+/=]*)\]")


def with_proof(words: str, proof: bytes) -> str:
    return f"{words} [proof {base64.b64encode(proof).decode()}]"


def split_proof(text: str) -> tuple[str, bytes | None]:
    """The words, and the proof if there is one that is not too long."""
    found = _PROOF.search(text)
    if found is None:
        return text, None
    words = text[: found.start()] + text[found.end() :]
    if len(found[1]) > MOST_BYTES:
        return words, None
    try:
        return words, base64.b64decode(found[1], validate=True)
    except ValueError:
        return words, None
