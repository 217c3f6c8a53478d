"""Where the command begins: whoever interrupts it while it loads is answered in one line too."""

import sys


def main() -> None:
    try:
        from tallyroom.simulation.command.main import main as command
    except KeyboardInterrupt:
        print("tally: interrupted; nothing was started", file=sys.stderr)
        sys.exit(130)
    command()
