"""Hands 100,000 bytes to the hub: `client.py ADDRESS`. See hub.toml."""

import socket
import sys
import time

SIZE, PORT, TRIES = 100_000, 9000, 100


def phase(name: str) -> None:
    print(f"tally:phase {name}", file=sys.stderr, flush=True)


def reached(address: str) -> socket.socket:
    """The hub may need a moment to listen."""
    for _ in range(TRIES):
        try:
            return socket.create_connection((address, PORT), 10)
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"nobody listens at {address}:{PORT}")


phase("connect")
with reached(sys.argv[1]) as line:
    phase("submit")
    line.sendall(bytes(SIZE))
    if line.recv(1) != b".":
        raise SystemExit("no answer")
