"""What metering costs: one program by itself, and the same under `tally meter`.

Two processes on the loopback send each other megabytes in turn, and hash what they get. The program
tells its own time, from its first byte to its last. The rate is turns a second when it is metered;
`ratios.bare` is its time metered divided by its time alone, each the best of several in turn: 1.03
or less is what the laboratory promises on a quiet machine. `meter_cpu_share` is the CPU time of the
metering itself, its start included, as a share of the program's time.
"""

import subprocess
import sys
import time

from tallyroom.simulation.bench.row import Row
from tallyroom.simulation.meter.box import Limits
from tallyroom.simulation.meter.conduct import meter
from tallyroom.simulation.meter.program import one_command

TURNS, SIZE, REPEATS = 300, 1 << 20, 7
PROGRAM = """
import hashlib, os, socket, sys, time
turns, size = int(sys.argv[1]), int(sys.argv[2])
listening = socket.create_server(("127.0.0.1", 0))
child = os.fork()
line = listening.accept()[0] if child else socket.create_connection(listening.getsockname())
begun = time.perf_counter()
for turn in range(turns):
    if turn % 2 == bool(child):
        line.sendall(bytes(size))
    else:
        hashlib.sha256(line.recv(size, socket.MSG_WAITALL)).digest()
if child:
    os.wait()
    print("tally:estimate", time.perf_counter() - begun, flush=True)
"""


def rows(turns: int = TURNS, repeats: int = REPEATS) -> list[Row]:
    bare, metered = [], []
    begun = time.process_time()
    for _ in range(repeats):
        bare.append(_bare(turns))
        metered.append(_metered(turns))
    best = min(metered)
    share = (time.process_time() - begun) / sum(metered)
    details = {"seconds": best, "bare_seconds": min(bare), "meter_cpu_share": share}
    return [Row("metering", turns / best, "turns/s", {"bare": best / min(bare)}, details)]


def _command(turns: int) -> list[str]:
    return [sys.executable, "-S", "-c", PROGRAM, str(turns), str(SIZE)]


def _bare(turns: int) -> float:
    done = subprocess.run(_command(turns), capture_output=True, text=True, check=True)
    return float(done.stdout.split()[1])


def _metered(turns: int) -> float:
    found = meter(one_command(_command(turns), Limits()), lambda member, line: None)
    return found.figures["estimate"]
