"""A TCP relay that counts, and reads what TLS leaves in the clear: types and lengths of records."""

import contextlib
import socket
import threading
import time
from dataclasses import dataclass, field

RECORD_HEADER = 5
APPLICATION_DATA = 23
SEAL = 17
"""TLS 1.3 adds a content type and a 16-byte tag to what it encrypts."""


@dataclass
class Flow:
    """One direction of one connection. `plaintext` is what was inside its application records."""

    size: int = 0
    plaintext: int = 0
    _pending: bytearray = field(default_factory=bytearray)
    _skip: int = 0

    def see(self, data: bytes) -> None:
        self.size += len(data)
        position = 0
        while position < len(data):
            if self._skip:
                step = min(self._skip, len(data) - position)
                self._skip -= step
                position += step
                continue
            need = RECORD_HEADER - len(self._pending)
            self._pending += data[position : position + need]
            position += need
            if len(self._pending) == RECORD_HEADER:
                self._skip = int.from_bytes(self._pending[3:], "big")
                if self._pending[0] == APPLICATION_DATA:
                    self.plaintext += self._skip - SEAL
                self._pending.clear()


class Relay:
    """Listens on a free port and carries every connection on to `port` of this machine, what is
    sent there at most at so many bytes a second, if that is given."""

    def __init__(self, port: int, bytes_per_second: float | None = None) -> None:
        self._to = port
        self._bytes_per_second = bytes_per_second
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self.connections: list[tuple[Flow, Flow]] = []
        """To the station and back, in the order in which connections were made."""
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def close(self) -> None:
        """First the listener: once nobody accepts, no socket is added any more."""
        _end(self._listener)
        self._acceptor.join()
        for each in self._sockets:
            _end(each)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._carry(near)

    def _carry(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(("127.0.0.1", self._to))
        except OSError:  # nobody listens there: the connection ends, as it would without a relay
            near.close()
            return
        self._sockets += [near, far]
        flows = (Flow(), Flow())
        self.connections.append(flows)
        for pump in ((near, far, flows[0], self._bytes_per_second), (far, near, flows[1], None)):
            threading.Thread(target=self._pump, args=pump, daemon=True).start()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket, flow: Flow, rate: float | None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16 if rate is None else 1 << 12):
                if rate is not None:
                    time.sleep(len(data) / rate)
                flow.see(data)
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def _end(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
