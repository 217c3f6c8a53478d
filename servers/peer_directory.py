"""The coordinator's service for parties that meet: it locates hosts and takes their accounts."""

from abc import abstractmethod

import grpc
import numpy as np

from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.identity.certificates import Identity
from tallyroom.protocols.wire.messages import Role
from tallyroom.protocols.wire.meter import Meter, relayed
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.accounts import accounts_from_wire, accounts_to_wire, longest_wait
from tallyroom.protos.channel import Context, caller, certificate_of
from tallyroom.protos.tally_pb2_grpc import CoordinatorServicer
from tallyroom.servers.hosts import Announced, HostRegister

LOCATE_SECONDS = 0.5
"""How long to wait for a host that is not here yet: it may be about to announce itself."""
MAX_CHARGE = 1 << 50
"""An upper limit on what a party can send: sums of hosts' claims must not overflow."""


class PeerDirectory(CoordinatorServicer):
    def __init__(self) -> None:
        self.hosts = HostRegister()
        self._reports: dict[bytes, dict[Identity, pb.AccountList]] = {}

    @abstractmethod
    def is_running(self, run: bytes) -> bool:
        """Whether a run is in progress here."""

    def reports(self, run: bytes) -> list[pb.AccountList]:
        """Hands over, and no longer keeps, the accounts that hosts reported for a run."""
        return list(self._reports.pop(run, {}).values())

    async def Announce(self, request: pb.Announcement, context: Context) -> pb.Receipt:  # noqa: N802
        identity = await self._party(context)
        host = Announced(
            identity, request.address, request.key, request.signature, certificate_of(context)
        )
        try:
            await self.hosts.announce(host)
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except LookupError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error.args[0]))
        return pb.Receipt()

    async def Locate(self, request: pb.Parties, context: Context) -> pb.Hosts:  # noqa: N802
        await self._party(context)
        if len(request.parties) % 4 or not request.parties:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not a list of parties")
        ids = np.frombuffer(request.parties, dtype="<u4").astype(np.uint32)
        found = await self.hosts.locate(ids, LOCATE_SECONDS)
        return pb.Hosts(hosts=[host.to_wire() for host in found])

    async def Report(self, request: pb.AccountReport, context: Context) -> pb.Receipt:  # noqa: N802
        """Each report covers the whole run, so a host's last report counts."""
        identity = await self._party(context)
        if not self.is_running(request.run):
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such run is in progress")
        try:
            meter = own_accounts(accounts_from_wire(request.accounts, identity.name), identity)
        except PeerError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        waited = longest_wait([request.accounts])
        meter = relayed(meter) if request.relayed else meter
        taken = accounts_to_wire(meter, waiting_seconds=waited)
        self._reports.setdefault(request.run, {})[identity] = taken
        return pb.Receipt()

    @staticmethod
    async def _party(context: Context) -> Identity:
        identity = await caller(context)
        if identity.role is not Role.PARTY:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "only a party host may do this")
        return identity


def own_accounts(meter: Meter, identity: Identity) -> Meter:
    """Raises `PeerError` unless all traffic was between parties and the payers are the caller's."""
    for (_, link), account in meter.accounts.items():
        if not link.between_parties or link.station != 0:
            raise PeerError(identity.name, f"a party host cannot report accounts of {link.label}")
        charged = np.flatnonzero((account.bytes != 0) | (account.messages != 0))
        if len(charged) and not identity.covers(charged.astype(np.uint32)):
            raise PeerError(identity.name, "reported accounts of parties of other hosts")
        for values in (account.bytes, account.messages):
            if len(values) and (int(values.min()) < 0 or int(values.max()) > MAX_CHARGE):
                raise PeerError(identity.name, "reported impossible accounts")
    return meter
