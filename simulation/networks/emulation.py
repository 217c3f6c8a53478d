"""The interface of network emulations: every process has a line of its own."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from tallyroom.protocols.wire.messages import Role

LOOPBACK = "127.0.0.1"


class LineAccess(ABC):
    """A process's access to its line. The process receives it and plugs itself in first."""

    @abstractmethod
    def plug_in(self) -> None: ...


@dataclass(frozen=True)
class Direct(LineAccess):
    """No network is emulated."""

    def plug_in(self) -> None:
        pass


class Emulation(ABC):
    """Every process is given its line before it starts."""

    @abstractmethod
    def line(self, name: str, role: Role, members: int = 1) -> LineAccess:
        """Returns the line of a process, the same one after a restart. A process that hosts several
        parties has their lines side by side, hence that many times the rate."""

    @abstractmethod
    def close(self) -> None:
        """Removes everything that the emulation made."""

    def address(self, name: str) -> str:
        """The address, without port, on which the process with that line listens."""
        return LOOPBACK

    @abstractmethod
    def listens(self, name: str, port: int) -> None:
        """Notes that the process of that name listens on `port`."""

    def from_here(self, name: str, port: int) -> str:
        """The address under which this process reaches it, bypassing all lines."""
        return f"{LOOPBACK}:{port}"


class NoEmulation(Emulation):
    def line(self, name: str, role: Role, members: int = 1) -> LineAccess:
        return Direct()

    def listens(self, name: str, port: int) -> None:
        pass

    def close(self) -> None:
        pass
