"""How a party host reaches other party hosts."""

from dataclasses import dataclass

from tallyroom.protocols.errors import LocalError

WAYS = ("direct", "relay")


@dataclass(frozen=True)
class PeerConfig:
    """`listen` is the address to listen on for peers; `advertise` is the address that peers outside
    use. A host without a port, or with `way` "relay", is reached through the coordinator."""

    way: str = "direct"
    listen: str = ""
    advertise: str = ""

    def __post_init__(self) -> None:
        if self.way not in WAYS:
            raise LocalError(f"parties reach each other by {' or '.join(WAYS)}, not {self.way!r}")

    @property
    def listens(self) -> bool:
        return self.way == "direct" and bool(self.listen)
