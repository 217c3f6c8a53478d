"""Log lines of the process commands, for people or as one JSON object per line.

No line contains a key, a token, a share or a record: messages show only their sizes, credentials
and tokens hide their secrets, and errors are logged without the data that they quote.
"""

import datetime as dt
import json
import logging
import sys

from tallyroom.protocols.errors import LocalError

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")


class JsonLines(logging.Formatter):
    def __init__(self, station: str) -> None:
        super().__init__()
        self._station = station

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(),
            "level": record.levelname.lower(),
            "station": self._station,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def configure_logs(station: str, form: str, level: str) -> None:
    """Sends log lines to standard error. Raises `LocalError` on an unknown format or level."""
    if form not in FORMATS:
        raise LocalError(f"no log format {form!r}; choose from {', '.join(FORMATS)}")
    if level not in LEVELS:
        raise LocalError(f"no log level {level!r}; choose from {', '.join(LEVELS)}")
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter(f"%(asctime)s %(levelname)s {station} %(name)s: %(message)s")
    handler.setFormatter(JsonLines(station) if form == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    if form == "json":  # what nobody caught is a line as well
        sys.excepthook = lambda kind, error, trace: logging.getLogger("tallyroom").critical(
            "ended by an error of its own", exc_info=(kind, error, trace)
        )
