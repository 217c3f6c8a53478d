"""The loopback of a namespace of its own, and a tap on it: the kernel writes the head of every
packet into memory that this process reads some hundred times a second. Nothing is forwarded, so a
program is as fast as without it.
"""

import mmap
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import addressof, create_string_buffer

import numpy as np

from tallyroom.simulation.meter.traffic import HEADER_BYTES, Headers, Integers
from tallyroom.simulation.networks.namespaces import within

FRAME, BLOCK, BLOCKS = 256, 1 << 20, 16
FRAMES = BLOCK * BLOCKS // FRAME
ALL_PROTOCOLS = 0x0003
SOL_PACKET, PACKET_RX_RING, PACKET_STATISTICS, PACKET_VERSION = 263, 5, 6, 10
PACKET_IGNORE_OUTGOING = 23
SECOND_VERSION = 1
SO_ATTACH_FILTER = 26
RETURN = 0x06
EVERY, AT_ONCE = 0.02, 512
SIZE_AT, NETWORK_AT = 4, 14


class Tap:
    """`take` is given the heads and sizes of packets, in their order, from a thread of its own."""

    def __init__(self, namespace: int, take: Callable[[Headers, Integers], None]) -> None:
        self._take = take
        self._lock = threading.Lock()
        with ThreadPoolExecutor(1) as thread:
            self._socket = thread.submit(within, namespace, _opened).result()
        self._ring = mmap.mmap(self._socket.fileno(), BLOCK * BLOCKS)
        self._frames = np.ndarray((FRAMES, FRAME), np.uint8, self._ring)
        self._status = np.ndarray((FRAMES,), np.uint32, self._ring, 0, (FRAME,))
        self._sizes = np.ndarray((FRAMES,), np.uint32, self._ring, SIZE_AT, (FRAME,))
        self._heads = np.ndarray((FRAMES,), np.uint16, self._ring, NETWORK_AT, (FRAME,))
        self._at = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        self.missed = 0

    def drain(self) -> None:
        """All that is there is taken when it returns."""
        with self._lock:
            while self._some():
                pass

    def close(self) -> None:
        """`missed` packets found no room, which nobody counted."""
        self._ending.set()
        self._thread.join()
        self.drain()
        said = self._socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
        self.missed = struct.unpack("II", said)[1]
        del self._frames, self._status, self._sizes, self._heads
        self._ring.close()
        self._socket.close()

    def _read(self) -> None:
        while not self._ending.wait(EVERY):
            self.drain()

    def _some(self) -> bool:
        """What is ready from here on, to the end of the ring at most."""
        ready = self._status[self._at : self._at + AT_ONCE] & 1
        count = len(ready) if ready.all() else int(ready.argmin())
        if count == 0:
            return False
        part = slice(self._at, self._at + count)
        begin = int(self._heads[self._at])
        headers = self._frames[part, begin : begin + HEADER_BYTES].copy()
        sizes = self._sizes[part].astype(np.int64)
        self._status[part] = 0
        self._at = (self._at + count) % FRAMES
        self._take(headers, sizes)
        return True


def _opened() -> socket.socket:
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
    filtered = create_string_buffer(struct.pack("HBBI", RETURN, 0, 0, HEADER_BYTES))
    tap.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", 1, addressof(filtered)))
    tap.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    tap.setsockopt(SOL_PACKET, PACKET_VERSION, SECOND_VERSION)
    tap.setsockopt(SOL_PACKET, PACKET_RX_RING, struct.pack("IIII", BLOCK, BLOCKS, FRAME, FRAMES))
    tap.bind(("lo", ALL_PROTOCOLS))
    return tap
