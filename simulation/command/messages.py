"""Messages of the command besides its results: one line each, on standard error."""

import sys


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def warn(text: str) -> None:
    say(f"tally: {' '.join(text.split())}")
