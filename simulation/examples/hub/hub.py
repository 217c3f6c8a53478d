"""Answers each client's 100,000 bytes with one: `hub.py ADDRESS`. See hub.toml."""

import socket
import sys

SIZE, PORT = 100_000, 9000

with socket.create_server((sys.argv[1], PORT)) as listening:
    while True:
        line, _ = listening.accept()
        with line:
            if len(line.recv(SIZE, socket.MSG_WAITALL)) == SIZE:
                line.sendall(b".")
