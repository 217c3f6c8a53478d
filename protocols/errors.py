"""Whose fault it is decides what happens next, so every error says whose it is."""

import re
from collections.abc import Iterator
from contextlib import contextmanager


class TallyError(Exception):
    """Base of all errors that a user may see; the message is one clear line."""


class LocalError(TallyError, ValueError):
    """Our own caller asked for something that cannot be done. Nothing was sent or written.

    Messages name options as the command does, `--min-parties`; to a caller in Python they say
    `min_parties`.
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
    """Errors name options by their flags: around all that the command does, in all its threads."""
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
    """A run that cannot finish: too many dropouts, a dead server, a refused spend."""


class AnswerRefused(RunFailed):
    """An answer came, and it is not proved to be one to what was asked."""


class Interrupted(TallyError):  # noqa: N818 - it names what happened, not a mistake
    """Whoever asked does not want the answer any more; the message says what became of it."""
