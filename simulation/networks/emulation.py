"""What emulates a network between processes: every process has a line of its own."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from tallyroom.protocols.wire.messages import Role

LOOPBACK = "127.0.0.1"


class Outlet(ABC):
    """A process's way to its line. It is handed to the process, which plugs itself in first."""

    @abstractmethod
    def plug_in(self) -> None: ...


@dataclass(frozen=True)
class Direct(Outlet):
    """No network is emulated."""

    def plug_in(self) -> None:
        pass


class Emulation(ABC):
    """Every process has a line before it is started."""

    @abstractmethod
    def line(self, name: str, role: Role, members: int = 1) -> Outlet:
        """The line of a process; the same when it comes back. One that is host to several parties
        has theirs side by side, so as many times the rate."""

    @abstractmethod
    def close(self) -> None:
        """Nothing is left of it."""

    def address(self, name: str) -> str:
        """Where a process with that line listens, without the port."""
        return LOOPBACK

    @abstractmethod
    def listens(self, name: str, port: int) -> None:
        """The process of that name listens there."""

    def from_here(self, name: str, port: int) -> str:
        """How this process reaches it, past any line."""
        return f"{LOOPBACK}:{port}"


class NoEmulation(Emulation):
    def line(self, name: str, role: Role, members: int = 1) -> Outlet:
        return Direct()

    def listens(self, name: str, port: int) -> None:
        pass

    def close(self) -> None:
        pass
