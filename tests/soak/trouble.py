"""What a deployment must live through: processes that die, floods of connections, full disks."""

import random
import resource
import socket
import threading
from collections import Counter
from contextlib import ExitStack

from tests.soak.room import Room

SILENT_CONNECTIONS = 300
ROOM_ON_A_FULL_DISK = 4096


class Trouble:
    """One after the other, each for a moment, until told to stop."""

    def __init__(self, rooms: list[Room], dice: random.Random, pause: float) -> None:
        self._rooms = rooms
        self._dice = dice
        self._pause = pause
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._make)
        self.made: Counter[str] = Counter()
        self.error: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _make(self) -> None:
        kinds = {"kill": self._kill, "flood": self._flood, "full disk": self._fill}
        try:
            while not self._over.wait(self._dice.uniform(0.5, 1.5) * self._pause):
                name = self._dice.choice(list(kinds))
                kinds[name](self._dice.choice(self._rooms))
                self.made[name] += 1
        except Exception as error:  # it is raised where the soak ends
            self.error = error

    def _kill(self, room: Room) -> None:
        room.restart(self._dice.choice(list(room.runtime.children)))

    def _flood(self, room: Room) -> None:
        """Connections that say nothing."""
        station = self._dice.choice(room.keepers())
        with ExitStack() as open_ones:
            for _ in range(SILENT_CONNECTIONS):
                connection = open_ones.enter_context(socket.socket())
                connection.settimeout(1.0)
                try:
                    connection.connect(("127.0.0.1", room.port(station)))
                except OSError:
                    break
            self._over.wait(self._pause)

    def _fill(self, room: Room) -> None:
        """No file of a process may grow past a page or so: a full disk, to all that it writes."""
        pid = room.pid(self._dice.choice(list(room.runtime.children)))
        try:
            before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (ROOM_ON_A_FULL_DISK, -1))
            self._over.wait(self._pause)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        except ProcessLookupError:
            pass  # it was killed meanwhile
