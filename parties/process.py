"""The party process: `tally party`. It is only a client unless it listens for peers, so it may sit
behind NAT."""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from tallyroom.parties.block import PartyBlock
from tallyroom.parties.consent import Consent
from tallyroom.parties.dispatcher import Dispatcher
from tallyroom.parties.patience import Patience
from tallyroom.parties.peer_config import PeerConfig
from tallyroom.parties.signing import signer_of
from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.identity.certificates import Credentials, Identity
from tallyroom.protocols.randomness import KEY_BYTES, Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.run.policy import Policy
from tallyroom.protocols.wire.loop import Reply
from tallyroom.protocols.wire.messages import Message, Phase, Role, decode, last_number
from tallyroom.protocols.wire.meter import Meter
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.accounts import accounts_to_wire
from tallyroom.protos.channel import open_channel, stop_signal
from tallyroom.protos.heap import keep_freed_memory
from tallyroom.protos.identity_files import write_secret
from tallyroom.protos.retry import may_succeed_later
from tallyroom.protos.tally_pb2_grpc import CoordinatorStub, MessagesStub
from tallyroom.protos.tasks import Tasks
from tallyroom.storage.ledger import Ledger
from tallyroom.storage.lock import StoreLock
from tallyroom.storage.party_answers import PartyAnswers
from tallyroom.storage.store import SECRET

if TYPE_CHECKING:
    from tallyroom.parties.peers import Peers

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
SEND_SECONDS = 30.0
"""The least time that a message has to be acknowledged; a run with more time gives it more."""
PARTS_IN_FLIGHT = 2
"""How many parts of a large block may be in flight at once."""
LISTEN_SECONDS = 5.0
"""How long to wait for servers before anything is sent."""
REFUSED = (
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,  # another version
)


MakeBlock = Callable[
    [Holdings, Randomness, Consent | None, PartyAnswers | None],
    PartyBlock,
]


@dataclass(frozen=True)
class PartyConfig:
    """Without a `policy`, the parties answer every question and keep no ledger."""

    credentials: Credentials
    coordinator: str
    holdings: Holdings
    seed: int | None = None
    store: Path | None = None
    peer: PeerConfig = field(default_factory=PeerConfig)
    policy: Policy | None = None


def party_randomness(config: PartyConfig) -> Randomness:
    """With a store, the secret is made once and kept: a restarted party must send the same shares
    again, or servers would hold halves of two different sharings."""
    if config.seed is not None or config.store is None:
        return Randomness.for_role(config.seed, "parties")
    path = config.store / SECRET
    if not path.exists():
        config.store.mkdir(parents=True, exist_ok=True)
        write_secret(path, os.urandom(KEY_BYTES))
    return Randomness(path.read_bytes())


def _locked(store: Path | None) -> StoreLock | None:
    """Called first: two processes on one store would say two things in one run."""
    if store is None:
        return None
    try:
        store.mkdir(parents=True, exist_ok=True)
        return StoreLock(store)
    except OSError as error:
        raise LocalError(f"cannot use {store} as a store: {error.strerror}") from None


def party_answers(config: PartyConfig) -> PartyAnswers | None:
    """Called before the secret is drawn. A store that has a secret but no record of earlier answers
    has lost it, or is a copy without it; then every run until now counts as begun."""
    if config.store is None:
        return None
    known = (config.store / SECRET).exists()
    return PartyAnswers(config.store / "answers", last_number(time.time()) if known else b"")


class PartyHost:
    """Runs one party or a block of parties: receives queries from the coordinator, submits to the
    servers, and meets other parties if the query asks for it."""

    def __init__(self, config: PartyConfig, make_block: MakeBlock = PartyBlock) -> None:
        self._config = config
        self._lock = _locked(config.store)
        self._consent = Consent(config.policy, config.store) if config.policy else None
        answers = party_answers(config)
        randomness = party_randomness(config)
        self._block = make_block(config.holdings, randomness, self._consent, answers)
        if config.seed is None:
            self._block.begun.clock = time.time
        self._patience = self._block.disk_patience = Patience(self._hindered)
        self._hindrances: set[tuple[bytes, str]] = set()
        self._version = config.holdings.version(randomness)
        self._block.signer = signer_of(config.credentials)
        self._dispatcher = Dispatcher(self._block, self._post_to_peers, self._carry)
        self._peers: Peers | None = None
        self._joined = asyncio.Event()
        self._in_order = asyncio.Lock()
        self._carrying = Tasks()
        self._coordinator: grpc.aio.Channel | None = None
        self._servers: list[MessagesStub] = []
        self._channels: list[grpc.aio.Channel] = []
        self._listening: list[asyncio.Task[None]] = []

    def use(self, credentials: Credentials) -> None:
        """Uses new credentials from the next connection on: current ones are not cut off."""
        self._config = replace(self._config, credentials=credentials)
        self._block.signer = signer_of(credentials)
        if self._peers is not None:
            self._peers.use(credentials)

    @property
    def credentials(self) -> Credentials:
        return self._config.credentials

    @property
    def present(self) -> bool:
        """Whether the coordinator counts on its parties now."""
        return self._joined.is_set()

    @property
    def ledger(self) -> Ledger | None:
        return None if self._consent is None else self._consent.ledger

    def watch(self, decided: Callable[[str], None]) -> None:
        """`decided` hears of each question whether it is answered or refused."""
        self._block.decided = decided

    def _others(self) -> "Peers":
        """Made when there is a peer to meet: most runs do not need it."""
        if self._peers is None:
            from tallyroom.parties.peers import Peers

            self._peers = Peers(
                self._config.peer,
                self._config.coordinator,
                self._config.credentials,
                self._config.credentials.authority_of_parties,
                self._config.holdings.ids,
                self._hear,
                self._dispatcher.ends,
            )
        return self._peers

    async def run(self) -> None:
        """Serves queries for the lifetime of the process; joins again after a lost connection."""
        self._loop = asyncio.get_running_loop()
        try:
            while True:
                await self._serve_once()
                await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._patience.stop()
            self._dispatcher.close()
            await self._carrying.close()
            if self._peers is not None:
                await self._peers.close()
            if self._consent is not None:
                self._consent.close()
            if self._lock is not None:
                self._lock.release()

    async def _serve_once(self) -> None:
        shown = self._config.credentials
        try:
            await self._join_and_serve()
        except grpc.aio.AioRpcError as error:
            if error.code() in REFUSED and shown is self._config.credentials:
                raise PeerError("coordinator", str(error.details())) from None
            log.warning("coordinator: %s; joining again", error.details())
        finally:
            self._joined.clear()
            for task in self._listening:
                task.cancel()
            await asyncio.gather(*self._listening, return_exceptions=True)
            for channel in self._channels:
                await channel.close()
            self._listening.clear()
            self._channels.clear()
            self._servers.clear()

    async def _join_and_serve(self) -> None:
        channel = self._open(self._config.coordinator, Identity(Role.COORDINATOR))
        self._coordinator = channel
        holdings = self._config.holdings
        request = pb.JoinRequest(
            parties=holdings.ids.astype("<u4").tobytes(),
            records=holdings.counts.astype("<u4").tobytes(),
            version=self._version,
        )
        # The stream is open before the parties count as present, so that no query is missed.
        stream = MessagesStub(channel).Receive(pb.Subscription(), wait_for_ready=True)
        await stream.initial_metadata()
        welcome = await self._join(request)
        if self._consent is not None:
            self._consent.joined(len(welcome.servers))
        for index, target in enumerate(welcome.servers):
            self._servers.append(
                MessagesStub(self._open(target, Identity(Role.SERVER, index, index)))
            )
        self._joined.set()
        async for parcel in stream:
            message = decode(parcel.message, "coordinator")
            if message.sender_role is not Role.COORDINATOR:
                raise PeerError("coordinator", f"claims to be {message.sender}")
            await self._answer(message)

    async def _join(self, request: pb.JoinRequest) -> pb.Welcome:
        """Raises `PeerError` if the federation does not accept our parties or records: asking again
        would not help."""
        try:
            welcome: pb.Welcome = await CoordinatorStub(self._coordinator).Join(
                request, wait_for_ready=True
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise PeerError("coordinator", f"refused to join: {error.details()}") from None
            raise
        return welcome

    async def _listen_to_servers(self) -> None:
        """Called only for runs in which servers speak to parties: each stream has a cost.

        Every stream is open before anything is sent, except that of a server that is away: it
        repeats what was missed, and the other servers may manage without it.
        """
        if not self._listening:
            ready = [asyncio.Event() for _ in self._servers]
            self._listening = [
                self._carrying.spawn(self._listen(index, ready[index]))
                for index in range(len(self._servers))
            ]
            opened = asyncio.gather(*(event.wait() for event in ready))
            try:
                await asyncio.wait_for(opened, LISTEN_SECONDS)
            except TimeoutError:
                log.warning("some servers are not connected yet")

    async def _listen(self, index: int, ready: asyncio.Event) -> None:
        """Listens to one server while this process is joined; it repeats missed messages."""
        expected = Identity(Role.SERVER, index, index)
        while True:
            try:
                stream = self._servers[index].Receive(pb.Subscription(), wait_for_ready=True)
                await stream.initial_metadata()
                ready.set()
                async for parcel in stream:
                    message = decode(parcel.message, expected.name)
                    if not expected.speaks_for(message):
                        raise PeerError(expected.name, f"claims to be {message.sender}")
                    # Losing the coordinator ends this task, but an answer must still be sent.
                    await self._carrying.finish(self._answer(message))
            except grpc.aio.AioRpcError as error:
                log.warning("%s: %s; listening again", expected.name, error.details())
            except PeerError as error:
                log.error("refused: %s", error)
            await asyncio.sleep(RETRY_SECONDS)

    async def _answer(self, message: Message) -> None:
        if message.phase is Phase.PAIRING:
            self._others().wake()
        outcome = await self._dispatcher.tell(message)
        if self._block.is_open(message.run) and not outcome.more:
            await self._listen_to_servers()
        for refusal in outcome.refused:
            log.error("refused %s: %s", refusal.sender, refusal.reason)
        await self._send_parts(outcome)

    async def _send_parts(self, outcome: Reply) -> None:
        """Makes each part only when it is its turn, and skips stations that failed to take one."""
        sending: set[asyncio.Task[None]] = set()
        gone: set[str] = set()
        while outcome.more:
            sending.add(self._carrying.spawn(self._send_all(outcome, gone)))
            if len(sending) == PARTS_IN_FLIGHT:
                done, sending = await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            outcome = await self._dispatcher.proceed(outcome.run)
        await asyncio.gather(*sending)
        await self._send_all(outcome, gone)

    async def _hear(self, message: Message) -> Reply:
        """Takes a message from a peer, which does not wait for messages that we send elsewhere."""
        outcome = await self._dispatcher.hear(message)
        self._carry(outcome)
        return outcome

    def _post_to_peers(self, message: Message) -> None:
        self._others().post(message)

    def _carry(self, outcome: Reply) -> None:
        """Sends replies to stations that no station's message caused, one reply after another."""

        async def send() -> None:
            async with self._in_order:
                await self._joined.wait()
                if self._block.is_open(outcome.run):
                    await self._listen_to_servers()
                await self._send_all(outcome)

        if outcome.messages:
            self._carrying.spawn(send())

    async def _send_all(self, outcome: Reply, gone: set[str] | None = None) -> None:
        """Sends to all stations except those in `gone`, and adds stations that fail to it."""
        gone = set() if gone is None else gone
        if any(message.phase is Phase.PAIRED for message in outcome.messages):
            await self._report(outcome.run)
        messages = [message for message in outcome.messages if message.receiver not in gone]
        results = await asyncio.gather(
            *(self._send(outgoing) for outgoing in messages), return_exceptions=True
        )
        for message, result in zip(messages, results, strict=True):
            if isinstance(result, grpc.aio.AioRpcError):
                gone.add(message.receiver)
                log.error("submission failed: %s", result.details())
            elif isinstance(result, BaseException):
                raise result

    async def _report(self, run: bytes) -> None:
        """Reports what our parties sent to other parties, before the coordinator hears that they
        are done, so that the answer's bill is complete."""
        meter = self._block.meters.get(run, Meter()).between_parties()
        if not meter.accounts:
            return  # this host restarted and is repeating itself: it has already reported
        accounts = accounts_to_wire(meter, waiting_seconds=self._dispatcher.waits.waited(run))
        relayed = self._config.peer.way == "relay"
        report = pb.AccountReport(run=run, accounts=accounts, relayed=relayed)
        try:
            await CoordinatorStub(self._coordinator).Report(report, timeout=SEND_SECONDS)
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            log.error("the coordinator was gone before it accepted the accounts")
        except grpc.aio.AioRpcError as error:
            log.error("the coordinator did not accept the accounts: %s", error.details())

    def _hindered(self, run: bytes, reason: str) -> None:
        """Tells the coordinator once what keeps its parties from answering. Any thread calls it."""
        if (run, reason) not in self._hindrances:
            log.error("run %s: %s", run.hex(), reason)
            self._hindrances = {one for one in self._hindrances if one[0] == run} | {(run, reason)}
            tell = self._tell_hindrance(pb.Hindrance(run=run, reason=reason))
            self._loop.call_soon_threadsafe(self._carrying.spawn, tell)

    async def _tell_hindrance(self, hindrance: pb.Hindrance) -> None:
        try:
            await CoordinatorStub(self._coordinator).Hinder(hindrance, timeout=SEND_SECONDS)
        except grpc.aio.AioRpcError as error:
            log.warning("the coordinator did not hear it: %s", error.details())

    def _station(self, message: Message) -> MessagesStub:
        if message.receiver_role is Role.COORDINATOR:
            return MessagesStub(self._coordinator)
        return self._servers[int(message.receivers[0])]

    async def _send(self, message: Message) -> None:
        """Retries a station that is away until it has had time to come back.

        It may take as long as the run waits for it, and longer while it makes progress: an uplink
        may be slow.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + max(SEND_SECONDS, self._block.deadline_of(message.run))
        for chunk in message.chunks():
            parcel = pb.Parcel(message=chunk.encode())
            while True:
                await self._joined.wait()
                try:
                    receipt = await self._station(message).Send(
                        parcel, timeout=max(SEND_SECONDS, deadline - clock()), wait_for_ready=True
                    )
                    deadline = max(deadline, clock() + SEND_SECONDS)
                    break
                except asyncio.CancelledError:
                    if _is_cancelled():
                        raise
                except grpc.aio.AioRpcError as error:
                    if not may_succeed_later(error) or clock() > deadline:
                        raise
                    log.warning("%s: %s; sending again", message.receiver, error.details())
                    await asyncio.sleep(0.2)
            for refusal in receipt.refused:
                log.error("%s refused %s: %s", message.receiver, refusal.sender, refusal.reason)

    def _open(self, target: str, expected: Identity) -> grpc.aio.Channel:
        channel = open_channel(target, expected, self._config.credentials)
        self._channels.append(channel)
        return channel


def _is_cancelled() -> bool:
    """Whether this task was cancelled, rather than only its call, whose channel was closed: in that
    case the process joins again and sends again."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def run_party(config: PartyConfig, make_block: MakeBlock = PartyBlock) -> None:
    """Takes part until the process is stopped or the coordinator refuses it."""
    keep_freed_memory()
    work = asyncio.create_task(PartyHost(config, make_block).run())
    stop = asyncio.create_task(stop_signal())
    await asyncio.wait([work, stop], return_when=asyncio.FIRST_COMPLETED)
    failed = work.exception() if work.done() else None
    for task in (work, stop):
        task.cancel()
    await asyncio.gather(work, stop, return_exceptions=True)
    if failed is not None:
        raise failed
