"""The register of party hosts and what waits for them; what of their accounts is taken."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import numpy as np
import pytest

from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.identity.certificates import Identity
from tallyroom.protocols.wire.messages import Phase, Role
from tallyroom.protocols.wire.meter import Account, Direction, Link, Meter
from tallyroom.protos import tally_pb2 as pb
from tallyroom.servers import hosts
from tallyroom.servers.hosts import Announced, HostRegister
from tallyroom.servers.peer_directory import MAX_CHARGE, own_accounts

ANNE, BERT = Identity(Role.PARTY, 0, 1), Identity(Role.PARTY, 2, 4)


def announced(identity: Identity, key: bytes = bytes(32)) -> Announced:
    return Announced(identity, "127.0.0.1:1", key, b"signature", b"certificate")


def envelope(size: int = 10, key: bytes = bytes(32), to: Identity = BERT) -> pb.Envelope:
    return pb.Envelope(first=to.first, last=to.last, key=key, sealed=bytes(size))


def run(scenario: Callable[[HostRegister], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(10):
            await scenario(HostRegister())

    asyncio.run(bounded())


async def both(register: HostRegister) -> hosts.Mail:
    register.subscribe(ANNE)
    mail = register.subscribe(BERT)
    await register.announce(announced(ANNE, b"a" * 32))
    await register.announce(announced(BERT))
    return mail


def test_an_envelope_arrives_with_its_senders_name_and_key() -> None:
    async def scenario(register: HostRegister) -> None:
        mail = await both(register)
        register.forward(ANNE, envelope())
        arrived = await mail.queue.get()
        assert arrived is not None
        assert (arrived.first, arrived.last, arrived.key) == (0, 1, b"a" * 32)
        assert arrived.sealed == bytes(10)

    run(scenario)


def test_hosts_that_do_not_listen_are_not_announced_and_those_that_left_not_found() -> None:
    async def scenario(register: HostRegister) -> None:
        with pytest.raises(LookupError):
            await register.announce(announced(BERT))
        mail = await both(register)
        assert register.find(BERT) == announced(BERT)
        register.unsubscribe(BERT, mail)
        assert register.find(BERT) is None
        with pytest.raises(LookupError, match="not here"):
            register.forward(ANNE, envelope())
        with pytest.raises(LookupError, match="must be announced"):
            register.forward(BERT, envelope(to=ANNE))

    run(scenario)


def test_who_comes_back_takes_the_place_of_its_old_stream() -> None:
    async def scenario(register: HostRegister) -> None:
        old = await both(register)
        new = register.subscribe(BERT)
        assert await old.queue.get() is None
        assert register.find(BERT) is None  # until it says who it is now
        await register.announce(announced(BERT, b"b" * 32))
        register.unsubscribe(BERT, old)
        with pytest.raises(LookupError, match="a different key"):
            register.forward(ANNE, envelope())
        register.forward(ANNE, envelope(key=b"b" * 32))
        assert new.queue.qsize() == 1

    run(scenario)


def test_what_waits_is_bounded_for_each_and_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(register: HostRegister) -> None:
        await both(register)
        monkeypatch.setattr(hosts, "LEAST_WAITING_BYTES", 1)
        monkeypatch.setattr(hosts, "MOST_WAITING_BYTES", 25)
        monkeypatch.setattr(hosts, "MOST_WAITING_IN_ALL", 35)
        for _ in range(2):
            register.forward(ANNE, envelope())
        with pytest.raises(BufferError):
            register.forward(ANNE, envelope())
        register.forward(BERT, envelope(key=b"a" * 32, to=ANNE))
        with pytest.raises(BufferError):
            register.forward(BERT, envelope(key=b"a" * 32, to=ANNE))

    run(scenario)


def test_one_sender_cannot_fill_the_relay_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it sends, another still gets through to the same receiver, and to others."""

    async def scenario(register: HostRegister) -> None:
        await both(register)
        cleo = Identity(Role.PARTY, 6, 6)
        mail = register.subscribe(cleo)
        await register.announce(announced(cleo))
        monkeypatch.setattr(hosts, "LEAST_WAITING_BYTES", 4)
        monkeypatch.setattr(hosts, "MOST_WAITING_OF_ONE", 20)
        monkeypatch.setattr(hosts, "MOST_SENT_BYTES", 30)
        to_cleo = envelope(key=announced(cleo).key, to=cleo)
        for _ in range(2):
            register.forward(ANNE, to_cleo)
        with pytest.raises(
            BufferError, match=f"too many bytes from {ANNE.name} wait for {cleo.name}"
        ):
            register.forward(ANNE, to_cleo)
        register.forward(BERT, to_cleo)
        register.forward(ANNE, envelope())
        with pytest.raises(
            BufferError, match=f"too many bytes from {ANNE.name} wait for other hosts"
        ):
            register.forward(ANNE, envelope())
        assert await mail.get() is not None
        register.forward(ANNE, to_cleo)
        for _ in range(3):
            assert await mail.get() is not None
        assert (mail.size, mail.sizes) == (0, {})
        for _ in range(2):
            register.forward(BERT, envelope(0, key=announced(cleo).key, to=cleo))
        assert mail.size == 8, "an empty envelope is not for nothing"
        big = envelope(25, key=announced(cleo).key, to=cleo)
        register.forward(ANNE, envelope(12, key=announced(cleo).key, to=cleo))
        with pytest.raises(BufferError):
            register.forward(ANNE, big)

    run(scenario)


@pytest.mark.parametrize(
    "changes",
    [
        {"key": b""},
        {"key": bytes(31)},
        {"signature": bytes(1000)},
        {"address": "x" * 1000},
        {"address": "a\nb:1"},
    ],
    ids=lambda changes: str(changes)[:30],
)
def test_announcements_that_make_no_sense(changes: dict[str, object]) -> None:
    async def scenario(register: HostRegister) -> None:
        await both(register)
        with pytest.raises(ValueError, match="a host must have"):
            await register.announce(replace(announced(BERT), **changes))  # type: ignore[arg-type]
        assert register.find(BERT) == announced(BERT)

    run(scenario)


def test_who_is_not_here_yet_is_waited_for() -> None:
    async def scenario(register: HostRegister) -> None:
        wanted = np.array([4, 9], dtype=np.uint32)
        search = asyncio.create_task(register.locate(wanted, 5.0))
        await asyncio.sleep(0.01)
        assert not search.done()
        await both(register)
        assert await search == [announced(BERT)]
        assert await register.locate(np.array([9], dtype=np.uint32), 0.01) == []

    run(scenario)


def accounts(sizes: list[int], **changes: object) -> Meter:
    meter = Meter()
    link = Link(Phase.PAIR, 3, Role.PARTY, Role.PARTY, 0)
    values = np.array(sizes, dtype=np.int64)
    meter.accounts[Direction.SENT, replace(link, **changes)] = Account(values, values, 1)  # type: ignore[arg-type]
    return meter


def test_a_hosts_own_accounts_are_taken() -> None:
    for sizes in ([0, 0, 5, 0, 7, 0, 0], [0, 0, 1], [], [0]):
        meter = accounts(sizes)
        assert own_accounts(meter, BERT) is meter


@pytest.mark.parametrize(
    "meter",
    [
        accounts([0, 1]),
        accounts([0, 0, 1, 1, 1, 1]),
        accounts([0, 0, -1]),
        accounts([0, 0, MAX_CHARGE + 1]),
        accounts([0, 0, 1], receiver=Role.SERVER),
        accounts([0, 0, 1], sender=Role.COORDINATOR),
        accounts([0, 0, 1], station=1),
    ],
)
def test_accounts_of_others_or_of_nobody_are_not(meter: Meter) -> None:
    with pytest.raises(PeerError):
        own_accounts(meter, BERT)


def test_hosts_are_found_by_any_of_their_parties_in_any_order() -> None:
    async def scenario(register: HostRegister) -> None:
        await both(register)
        for ids in ([4], [2, 2], [9, 3, 7]):
            found = await register.locate(np.array(ids, dtype=np.uint32), 0.0)
            assert [host.identity for host in found] == [BERT], ids
        found = await register.locate(np.array([4, 0], dtype=np.uint32), 0.0)
        assert [host.identity for host in found] == [ANNE, BERT]
        for nobody in ([5], [5, 100]):
            assert await register.locate(np.array(nobody, dtype=np.uint32), 0.0) == []

    run(scenario)
