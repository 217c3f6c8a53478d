"""Entry point of the command: an interrupt while it loads gets one clear line too."""

import sys


def main() -> None:
    try:
        from tallyroom.simulation.command.main import main as command
    except KeyboardInterrupt:
        print("tally: interrupted; nothing was started", file=sys.stderr)
        sys.exit(130)
    command()
