"""A deployed federation, which the page shows but asks nothing."""

from pathlib import Path

from tallyroom.protocols.errors import TallyError
from tallyroom.protocols.wire.messages import Role
from tallyroom.protos.identity_files import read_identity
from tallyroom.simulation.analyst import Analyst

SECONDS = 3.0


class Deployed:
    """Raises `LocalError` if the identity cannot be read; the coordinator may be away."""

    def __init__(self, coordinator: str, identity: Path) -> None:
        self._target = coordinator
        self._analyst = Analyst(coordinator, read_identity(identity, Role.ANALYST))

    def look(self) -> dict[str, object]:
        try:
            there = self._analyst.describe(SECONDS)
        except TallyError as error:
            return {"coordinator": self._target, "away": str(error)}
        return {
            "coordinator": self._target,
            "parties": there.parties,
            "present": there.present,
            "servers": there.servers,
            "records": there.records,
            "durable": there.durable,
        }

    def close(self) -> None:
        self._analyst.close()
