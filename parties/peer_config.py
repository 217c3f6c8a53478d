"""How a party host is to meet others."""

from dataclasses import dataclass

from tallyroom.protocols.errors import LocalError

WAYS = ("direct", "relay")


@dataclass(frozen=True)
class PeerConfig:
    """`listen` is where to listen for peers, `advertise` how they find that from outside; without
    a port of its own, and with `way` "relay", a host is reached through the coordinator."""

    way: str = "direct"
    listen: str = ""
    advertise: str = ""

    def __post_init__(self) -> None:
        if self.way not in WAYS:
            raise LocalError(f"parties reach each other by {' or '.join(WAYS)}, not {self.way!r}")

    @property
    def listens(self) -> bool:
        return self.way == "direct" and bool(self.listen)
