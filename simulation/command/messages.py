"""Messages of the command besides its results: one line each, on standard error."""

import logging
import sys

from tallyroom.servers.logs import JsonLines


def say(text: str, level: int = logging.INFO) -> None:
    """As a line of the log, whatever its level, where that is JSON: then all of it is."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, JsonLines):
            record = logging.LogRecord("tallyroom", level, "", 0, text, None, None)
            handler.emit(record)
            return
    print(text, file=sys.stderr, flush=True)


def warn(text: str) -> None:
    say(f"tally: {' '.join(text.split())}", logging.WARNING)
