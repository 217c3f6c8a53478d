"""Errors, by whose fault they are: that decides what happens next."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tallyroom.protocols.accusation_text import split_proof


class TallyError(Exception):
    """Base of all errors that a user may see; the message is one clear line."""


class LocalError(TallyError, ValueError):
    """Our own caller asked for something that cannot be done. Nothing was sent or written.

    Messages are written with the command's options, as in `--min-parties`; a caller in Python sees
    `min_parties` instead.
    """

    def __str__(self) -> str:
        message = super().__str__()
        return message if _of_command else _FLAG.sub(_in_python, message)


_FLAG = re.compile(r"(?<![\w-])--(bounds private|[a-z][a-z-]*)")
_of_command = False


_OTHERWISE = {"cheat": "cheats", "bounds private": "PrivateBounds(…)"}


def _in_python(flag: re.Match[str]) -> str:
    return _OTHERWISE.get(flag[1], flag[1].replace("-", "_"))


@contextmanager
def words_of_the_command() -> Iterator[None]:
    """Within this context, errors name options by their flags, in all threads. The command runs
    inside it."""
    global _of_command
    before, _of_command = _of_command, True
    try:
        yield
    finally:
        _of_command = before


class PeerError(TallyError):
    """What a peer sent is wrong. The peer is refused; the run goes on without it."""

    def __init__(self, sender: str, reason: str) -> None:
        super().__init__(f"{sender}: {reason}")
        self.sender = sender
        self.reason = reason


class RunFailed(TallyError):  # noqa: N818 - it names an outcome, not a mistake
    """A run that cannot finish: too many dropouts, a dead server, a refused spend.

    `proof` is a certificate that somebody cheated, if that is why and it can be proved.
    """

    def __init__(self, text: str, proof: bytes | None = None) -> None:
        words, told = split_proof(text)
        super().__init__(words)
        self.proof = proof or told


class NotWritten(RunFailed):
    """What guards a release cannot be written, or read, just now. Nothing was released, and it may
    be tried again."""


class AnswerRefused(RunFailed):
    """An answer came, but it is not proved to answer the question that was asked."""


class Interrupted(TallyError):  # noqa: N818 - it names what happened, not a mistake
    """The run was interrupted by whoever asked; the message says what became of it."""
