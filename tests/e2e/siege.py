"""Federations whose certificates the test holds, and hands that use them against the rules."""

import time
from typing import Self

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tallyroom.protocols.identity.certificates import Identity
from tallyroom.protocols.wire.messages import Message, Role, decode
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.tally_pb2_grpc import MessagesStub
from tallyroom.simulation.runtimes import Layout
from tests.e2e.addressed import COORDINATOR, SECONDS, Addressed, party


class LoneServers(Addressed):
    """Servers only: the test is the coordinator and all parties."""

    def start(self) -> None:
        try:
            self._lay_lines()
            for index in range(self.layout.servers):
                self._start_server(index)
        except BaseException:
            self.stop()
            raise


class Undermined(Addressed):
    """A federation in which the test plays one of the hosts."""

    def __init__(self, plan: Layout, played: int) -> None:
        super().__init__(plan)
        self._played = played

    def _start_host(self, number: int) -> None:
        if number != self._played:
            super()._start_host(number)


class Hand:
    """Everybody's certificate, and an ear at what a server says to the coordinator."""

    def __init__(self, federation: Addressed, station: str = "server-0", last: int = 3) -> None:
        self._channels = {
            Role.COORDINATOR: federation.reach(station, COORDINATOR),
            Role.PARTY: federation.reach(station, party(0, last)),
        }
        self._posts = {role: MessagesStub(channel) for role, channel in self._channels.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for channel in self._channels.values():
            channel.close()

    def send(self, message: Message) -> list[str]:
        """Why it was refused; nothing if it was taken."""
        parcel = pb.Parcel(message=message.encode())
        receipt = self._posts[message.sender_role].Send(parcel, timeout=SECONDS)
        return [refusal.reason for refusal in receipt.refused]

    def heard(self, count: int, beyond: float = 0.5) -> list[Message]:
        """The next `count` messages to the coordinator; waits a little for one too many.

        A server notices the end of a stream a moment after the caller ended it, and refuses the
        next one until then.
        """
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                return self._listen(count, beyond)
            except grpc.RpcError as error:
                busy = error.code() is grpc.StatusCode.ALREADY_EXISTS
                if not busy or time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def _listen(self, count: int, beyond: float) -> list[Message]:
        stream = self._posts[Role.COORDINATOR].Receive(
            pb.Subscription(), timeout=SECONDS if count else beyond
        )
        found: list[Message] = []
        try:
            for parcel in stream:
                found.append(decode(parcel.message, "server"))
                if len(found) == count:
                    break
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                raise
        stream.cancel()
        return found

    def forget(self, run: bytes) -> None:
        self._posts[Role.COORDINATOR].Forget(pb.RunRef(run=run), timeout=SECONDS)


def serves(federation: Addressed, station: str, as_identity: Identity) -> bool:
    """Whether a station answers the question for its health in time."""
    with federation.reach(station, as_identity) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service=""), timeout=5.0
        )
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def resident_bytes(federation: Addressed, name: str) -> int:
    pid = federation.children[name].pid
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * 4096
