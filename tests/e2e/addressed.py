"""A federation at its addresses, and callers with certificates of every role."""

import datetime as dt
from collections.abc import Callable

import grpc
import pytest

from tallyroom.protocols.identity.certificates import Credentials, Identity
from tallyroom.protocols.wire.messages import Role
from tallyroom.protos.channel import open_blocking_channel
from tallyroom.simulation.runtimes import Layout
from tallyroom.simulation.runtimes.processes import Processes

LIFETIME = dt.timedelta(days=1)
COORDINATOR, ANALYST = Identity(Role.COORDINATOR), Identity(Role.ANALYST)
SERVER = Identity(Role.SERVER, 0, 0)
SECONDS = 20.0


def party(first: int, last: int | None = None) -> Identity:
    return Identity(Role.PARTY, first, first if last is None else last)


class Addressed(Processes):
    """Processes whose addresses and authority the test knows."""

    def __init__(self, plan: Layout) -> None:
        super().__init__(plan)
        self.addresses: dict[str, str] = {}

    def address_of(self, name: str, port: int) -> str:
        self.addresses[name] = super().address_of(name, port)
        return self.addresses[name]

    def issue(self, identity: Identity) -> Credentials:
        return self._authority.issue(identity, dt.datetime.now(dt.UTC), LIFETIME)

    def reach(self, station: str, as_identity: Identity) -> grpc.Channel:
        expected = (
            COORDINATOR if station == "coordinator" else Identity(Role.SERVER, *self.index(station))
        )
        return open_blocking_channel(self.addresses[station], expected, self.issue(as_identity))

    @staticmethod
    def index(station: str) -> tuple[int, int]:
        number = int(station.removeprefix("server-"))
        return number, number


def refusal(call: Callable[[], object]) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    assert isinstance(caught.value, grpc.Call)
    return caught.value.code()
