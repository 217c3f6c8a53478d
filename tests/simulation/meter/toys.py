"""Programs whose costs are known, each a text that Python reads."""

PING_PONG = """
import socket, sys, os
turns, size = map(int, sys.argv[1:3])
listening = socket.create_server(("127.0.0.1", 0))
if os.fork() == 0:
    line = socket.create_connection(listening.getsockname())
    for _ in range(turns):
        line.sendall(bytes(size))
        assert len(line.recv(size, socket.MSG_WAITALL)) == size
    os._exit(0)
line, _ = listening.accept()
for _ in range(turns):
    assert len(line.recv(size, socket.MSG_WAITALL)) == size
    line.sendall(bytes(size))
os.wait()
"""
DATAGRAMS = """
import socket, sys
count, size = map(int, sys.argv[1:3])
one, other = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
other.bind(("127.0.0.1", 0))
for _ in range(count):
    one.sendto(bytes(size), other.getsockname())
    assert len(other.recv(1 << 16)) == size
"""
SERVER = """
import socket, sys
listening = socket.create_server((sys.argv[1], 9000))
while True:
    line, _ = listening.accept()
    while data := line.recv(1 << 16):
        line.sendall(b"." * data.count(b"!"))
"""
PARTY = """
import socket, sys, time
def say(what):
    print(what, file=sys.stderr, flush=True)
for _ in range(100):
    try:
        line = socket.create_connection((sys.argv[1], 9000), 10)
        break
    except OSError:
        time.sleep(0.05)
for phase, size in (("keys", 1000), ("submit", int(sys.argv[2]))):
    say("tally:phase " + phase)
    time.sleep(0.05)
    line.sendall(bytes(size - 1) + b"!")
    assert line.recv(1) == b"."
say("tally:estimate 2.5")
say("tally:truth 2")
"""
ALLOCATES = """
import sys
held = bytearray(int(sys.argv[1]))
"""
WORKS = """
import time, sys
while time.process_time() < float(sys.argv[1]):
    pass
"""
ORPHAN = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while time.process_time() < float(sys.argv[1]):
            pass
        held = bytearray(int(sys.argv[2]))
    os._exit(0)
"""
BOMB = """
import os, time
for _ in range(8):
    try:
        os.fork()
    except OSError:
        pass
time.sleep(60)
"""
"""256 processes at the most, should nothing bound it: a test must not take the machine down."""
ECHO = """
import json, sys, os
print(json.dumps([sys.argv[1:], os.environ.get("MINE"), os.getcwd()]))
"""
SLEEPS = """
import os, time
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
time.sleep(600)
"""
