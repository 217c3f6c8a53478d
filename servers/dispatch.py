"""Carries messages between the coordinator's machines and the servers and parties."""

import asyncio
import itertools
import logging
import time
from typing import Any

import grpc
import grpc.aio

from tallyroom.protocols.errors import NotWritten, PeerError
from tallyroom.protocols.wire.loop import Reply
from tallyroom.protocols.wire.machine import Failed
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.protos.retry import may_succeed_later
from tallyroom.protos.shown import expired_at
from tallyroom.protos.tasks import Tasks
from tallyroom.servers.coordinator import Coordinator
from tallyroom.servers.message_service import MOST_LISTED, Mailboxes, MessageService
from tallyroom.servers.run import LiveRuns, Run
from tallyroom.servers.server_link import ServerLink

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2
LOST_STORE = "has lost its store, and with it what it had received in this run"


class Dispatch:
    """Servers and parties with a `durable` store come back after a crash, and are waited for."""

    def __init__(
        self,
        coordinator: Coordinator,
        post: MessageService,
        mailboxes: Mailboxes,
        servers: list[ServerLink],
        live: LiveRuns,
        durable: bool,
    ) -> None:
        self._coordinator = coordinator
        self._post = post
        self._mailboxes = mailboxes
        self._servers = servers
        self._live = live
        self._durable = durable
        self._owing: set[int] = set()
        self._background = Tasks()

    async def close(self) -> None:
        await self._background.close()

    async def carry(self, outcome: Reply) -> None:
        """Sends in order: servers must know a run before its parties submit to it. Otherwise the
        servers work in parallel, and each answers when it is done."""
        run = self._live.of(outcome.run)
        if run is None:
            return
        if outcome.unpaid:
            self._post.pay_later(outcome)
        for side_by_side, group in itertools.groupby(outcome.messages, _is_work):
            messages = list(group)
            if side_by_side and not run.ended.done():
                if messages[0].phase is Phase.RELEASE:
                    run.phase = "release"
                    run.released = time.perf_counter()
                await self._send_all(messages)
                continue
            for message in messages:
                if run.ended.done():
                    return
                if message.receiver_role is Role.SERVER:
                    await self._send(message)
                else:
                    run.ask()
                    self._mailboxes.deliver(message)
        if outcome.finished is not None:
            run.end(outcome.finished)

    async def _send_all(self, messages: list[Message]) -> None:
        """Sends to all servers at once, and to each of them in order."""

        async def in_order(server: int) -> None:
            for message in messages:
                if int(message.receivers[0]) == server:
                    await self._send(message)

        async with asyncio.TaskGroup() as group:
            for server in {int(message.receivers[0]) for message in messages}:
                group.create_task(in_order(server))

    async def _send(self, message: Message) -> None:
        """Retries servers that keep a store for as long as the run lasts, unless the run can do
        without them."""
        server = self._servers[int(message.receivers[0])]
        while True:
            run = self._live.of(message.run)
            if run is None or run.ended.done():
                return
            seconds = run.query.deadline if _is_work(message) else 0.0
            spared = not self._durable or self._coordinator.can_spare(message.run)
            if message.phase is Phase.QUERY and server.is_gone and not spared:
                await asyncio.sleep(POLL_SECONDS)  # it is first shown what it signed before
                continue
            try:
                refused = await server.send(message, seconds)
                break
            except grpc.aio.AioRpcError as error:
                if spared or not may_succeed_later(error):
                    await self._lose_server(message.run, server, _why(error, seconds))
                    return
                log.warning("%s: %s; sending again", server.name, error.details())
                await asyncio.sleep(POLL_SECONDS)
        if run.ended.done():  # the server may have been told to forget the run before it knew it
            self._background.spawn(self._settle(server))
        for reason in refused:
            if message.phase is not Phase.EXCUSE:  # an excuse may arrive after the roster
                run.end(Failed(f"{server.name} refused: {reason}"))

    def listen_to_servers(self) -> None:
        for server in self._servers:
            self._background.spawn(self._listen(server))

    async def _listen(self, server: ServerLink) -> None:
        """Listens to one server for its lifetime; a run that needs the server dies with it."""
        for attempt in itertools.count():
            try:
                messages = await server.subscribe()
                self._coordinator.certificates.keep(server.index, server.certificate)
                await self._settle(server)
                if attempt:
                    self._background.spawn(self._remind(server.index))
                async for message, data in messages:
                    await self._post.deliver(message, data)
                reason = "closed its stream"
            except grpc.aio.AioRpcError as error:
                reason = f"is gone: {error.details()}"
            except PeerError as error:
                reason = f"is refused: {error.reason}"
            except (OSError, NotWritten) as error:  # it is repeated when the connection is back
                reason = f"sent something that cannot be stored: {error}"
            server.away = reason
            log.warning("%s %s", server.name, reason)
            if not self._durable:
                for run in self._live.all():
                    await self._lose_server(run.run, server, reason)
            await asyncio.sleep(POLL_SECONDS)

    async def _lose_server(self, run: bytes, server: ServerLink, reason: str) -> None:
        async with self._post.locks.of(run):
            outcome = self._coordinator.lose_server(run, server.index, reason)
        await self.carry(outcome)

    async def lose_those_away(self, run: bytes) -> None:
        """Ends an expired run by naming the servers that are away, not those that wait for them."""
        for server in self._servers:
            if server.away is not None:
                expired = await asyncio.to_thread(expired_at, server.target)
                await self._lose_server(
                    run, server, f"cannot be reached: {expired}" if expired else server.away
                )

    async def _remind(self, server: int) -> None:
        """Asks a server that was away again; it repeats what it had said."""
        for run in self._live.all():
            question = self._coordinator.remind_server(run.run, server)
            if question is not None and not run.ended.done():
                await self._send(question)

    def lose_parties(self) -> None:
        """Tells servers not to wait for submissions of parties that are gone, unless the parties
        may come back before the deadline."""
        if not self._durable:
            for run in self._live.all():
                self._background.spawn(self._excuse(run))

    async def _excuse(self, run: Run) -> None:
        """Called once all servers know the run: a server that does not would refuse the excuse and
        then wait for those parties. A party that joins again in the meantime is asked as usual."""
        either: list[asyncio.Future[Any]] = [run.asked, run.over]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        async with self._post.locks.of(run.run):
            outcome = self._coordinator.excuse_absent(run.run)
        await self.carry(outcome)

    async def forget(self, run: bytes) -> None:
        for server in self._servers:
            try:
                await server.forget(run)
            except grpc.aio.AioRpcError as error:
                log.warning("%s has not forgotten a run yet: %s", server.name, error.details())
                self._owing.add(server.index)
        for index in list(self._owing):
            self._background.spawn(self._settle(self._servers[index]))

    async def _settle(self, server: ServerLink) -> None:
        """Has a server forget every finished run, since it may have been away when the run ended.
        Conversely, ends runs that the server knew before it lost its store."""
        live = [run.run for run in self._live.all() if run.asked.done() or run.asks_again]
        trees = self._coordinator.releases.trees()
        try:
            kept = await server.kept()
            if len(kept) < MOST_LISTED:
                for lost in set(trees).difference(kept):
                    self._coordinator.releases.lose(lost)
                for lost in set(live).difference(kept):
                    await self._lose_server(lost, server, LOST_STORE)
            for run in kept:
                if self._live.of(run) is None and not self._coordinator.releases.holds(run):
                    await server.forget(run)
            self._owing.discard(server.index)
        except grpc.aio.AioRpcError as error:
            self._owing.add(server.index)
            log.warning("%s: %s", server.name, error.details())


def _is_work(message: Message) -> bool:
    """Whether a message makes a server compute something, which may take long."""
    return message.receiver_role is Role.SERVER and message.phase is not Phase.QUERY


def _why(error: grpc.aio.AioRpcError, seconds: float) -> str:
    """Why we stop waiting for a server's answer."""
    if seconds and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"is not done after {seconds:g} seconds, which is the deadline"
    if not may_succeed_later(error):
        return f"refuses: {error.details()}"
    return f"cannot be reached: {error.details()}"
