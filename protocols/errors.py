"""Whose fault it is decides what happens next, so every error says whose it is."""


class TallyError(Exception):
    """Base of all errors that a user may see; the message is one clear line."""


class LocalError(TallyError):
    """Our own caller asked for something that cannot be done. Nothing was sent or written."""


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
