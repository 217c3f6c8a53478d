"""Keys of questions that say what was asked.

Who comes back with a key alone would have to take the coordinator's word for what was asked under
it. A key that this side made ends in a digest of the question, so that it need not.
"""

import hashlib
import os
import re
from dataclasses import replace

from tallyroom.protocols.errors import AnswerRefused
from tallyroom.protocols.run.question import Question

_BYTES = 16
_BOUND = re.compile(f"([0-9a-f]{{{2 * _BYTES}}})-([0-9a-f]{{{2 * _BYTES}}})")


def keyed(question: Question, salt: str | None = None) -> Question:
    """The question under a key that it alone can have; a new one, unless `salt` makes it again."""
    salt = salt or os.urandom(_BYTES).hex()
    return replace(question, key=f"{salt}-{_digest(salt, question)}")


def check_resumed(key: str, question: Question) -> None:
    """Raises `AnswerRefused` if this is not what was asked under `key`. Of a key that a person
    chose it cannot be told."""
    bound = _BOUND.fullmatch(key)
    if question.key != key or (bound and _digest(bound[1], question) != bound[2]):
        raise AnswerRefused("the answer is refused: coordinator: it is not to what was asked")


def _digest(salt: str, question: Question) -> str:
    """Of the question as it is read: numbers may be written in several ways."""
    read = Question.decode(replace(question, key=salt).encode())
    text = read.encode().encode()
    return hashlib.blake2s(text, digest_size=_BYTES, person=b"question").hexdigest()
