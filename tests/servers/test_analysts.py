"""Several analysts: certificates of their own, caps that hold, keys that are theirs, revocation."""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from tallyroom.parties.enrolment import enrol
from tallyroom.parties.process import PartyConfig, PartyHost
from tallyroom.protocols.errors import LocalError, PeerError, RunFailed
from tallyroom.protocols.identity.certificates import (
    CAP_EXTENSION,
    Authority,
    Identity,
    cap_of,
)
from tallyroom.protocols.privacy.ledger import LedgerRefusal
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.wire.machine import Spend
from tallyroom.protocols.wire.messages import Role
from tallyroom.protos.identity_files import read_identity
from tallyroom.servers.allowances import Asker
from tallyroom.servers.federation_folder import (
    add_analyst,
    analysts,
    create_federation,
    renew_member,
    revoke_analyst,
)
from tallyroom.simulation.analyst import Analyst
from tallyroom.simulation.runtimes.contract import Opened
from tallyroom.storage.ledger import Ledger
from tests.servers.stations import Federation, create, running

NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)
FIRST = Identity(Role.ANALYST, 1, 1)
MEAN = Mean(value="v", lower=0.0, upper=1.0)
CURVE = Ecdf(value="v", lower=0.0, upper=1.0, thresholds=4)


def question(key: str, epsilon: Fraction = Fraction(1), **other: object) -> Question:
    asked = Question(MEAN, "curator", epsilon, Placement.CURATOR, key=key, deadline=20.0)
    return replace(asked, **other)  # type: ignore[arg-type]


@asynccontextmanager
async def a_room(folder: Path) -> AsyncIterator[Federation]:
    """A federation of one server, whose one party answers."""
    held = Holdings(np.zeros(1, np.uint32), np.zeros(1, np.intp), {"v": np.full(5, 0.5)})
    made = create(folder, parties=1)
    async with running(made) as room:
        credentials = await enrol(room.tokens[0], room.enrolment)
        host = PartyHost(PartyConfig(credentials, room.coordinator, held))
        work = asyncio.create_task(host.run())
        try:
            yield room
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)


async def ask(room: Federation, folder: Path, asked: Question | str) -> Opened:
    """Asks as the analyst of this folder; a text comes back for the answer under that key."""
    analyst = Analyst(room.coordinator, read_identity(folder, Role.ANALYST))
    call: Callable[..., Opened] = analyst.resume if isinstance(asked, str) else analyst.ask
    try:
        return await asyncio.to_thread(call, asked, lambda _: None)
    finally:
        analyst.close()


@pytest.mark.timeout(60)
def test_caps_keys_and_revocation_of_several_analysts(tmp_path: Path) -> None:
    async def scenario() -> None:
        folder = tmp_path / "room"
        async with a_room(folder) as room:
            capped, other = add_analyst(folder, "2"), add_analyst(folder)
            assert (await ask(room, capped, question("a"))).records == 5
            with pytest.raises(LocalError, match=r"analyst-1 has a cap of its own: epsilon 1.5"):
                await ask(room, capped, question("b", Fraction(3, 2)))
            for asking in (question("a"), "a"):  # a key is its analyst's
                with pytest.raises(LocalError, match="key"):
                    await ask(room, other, asking)

            # A curve that another analyst paid for is given again, and counts for both.
            curve = question("c", statistic=CURVE)
            assert not (await ask(room, other, curve)).reused
            assert (await ask(room, capped, replace(curve, key="d"))).reused
            assert (await ask(room, capped, replace(curve, key="e"))).reused  # counts once
            with pytest.raises(LocalError, match="0 of 2 is left"):
                await ask(room, capped, question("f", Fraction(1, 10**6)))

            assert revoke_analyst(folder, "analyst-2") == 1
            with pytest.raises(RunFailed, match="its certificate is revoked"):
                await ask_on(room, other)
            assert (await ask(room, capped, "a")).records == 5
            assert analysts(folder) == {
                "analyst": ("", True),
                "analyst-1": ("2", True),
                "analyst-2": ("", False),
            }
        ledger = Ledger(folder / "store" / "ledger.sqlite")
        learnt = {name: ledger.learnt(name) for name in ledger.analysts()}
        told = {name: [each.loss.epsilon for each in found] for name, found in learnt.items()}
        assert told == {"analyst-1": [1, 1], "analyst-2": [1]}
        assert ledger.totals().noisy.epsilon == 2
        ledger.close()

    asyncio.run(scenario())


async def ask_on(room: Federation, folder: Path) -> None:
    """Stations hear of a revocation within seconds."""
    for _ in range(100):
        await ask(room, folder, "c")
        await asyncio.sleep(0.05)


def spend(receipt: str, epsilon: Fraction = Fraction(1)) -> Spend:
    return Spend("data", receipt, PrivacyLoss.of(epsilon))


def asker(cap: str) -> Asker:
    authority = Authority.create("members", NOW, DAY)
    return Asker.of(FIRST, authority.issue(FIRST, NOW, DAY, cap=cap).certificate)


def test_releases_that_an_analyst_waits_for_count_and_count_once() -> None:
    ledger, first = Ledger(None), asker("2")
    ledger.record([spend("a")], analyst="analyst-1")
    ledger.record([spend("x", Fraction(50))], analyst="analyst-7")  # is another's
    first.check(ledger, spend("b"), spend("b"), [spend("a")])  # which is written, and not yet over
    with pytest.raises(LedgerRefusal):
        first.check(ledger, spend("c"), spend("c"), [spend("b")])
    first.check(ledger, spend("b"), spend("b"), [spend("b")])  # learnt again
    with pytest.raises(LedgerRefusal):  # the rest of a study is seen beforehand
        first.check(ledger, spend("b"), spend("b", Fraction(2)), [])
    ledger.close()


@pytest.mark.parametrize(
    ("cap", "questions"), [("1", 10), ("1, delta = 1e-6", 15), ("rho 0.1", 20)]
)
def test_a_cap_of_any_kind_is_held(cap: str, questions: int) -> None:
    """Of ε = 0.1 each: by ε 10 fit; by ρ = ε²/2, 20 in ρ = 0.1, and some between at (1, 1e-6)."""
    ledger, first = Ledger(None), asker(cap)
    for number in range(questions):
        each = spend(str(number), Fraction(1, 10))
        try:
            first.check(ledger, each, each, [])
        except LedgerRefusal:
            break
        ledger.record([each], analyst=first.name)
    if cap != "1, delta = 1e-6":
        assert len(ledger.learnt(first.name)) == questions
    last = spend("last", Fraction(1, 10))
    with pytest.raises(LedgerRefusal):
        first.check(ledger, last, last, [])
    ledger.close()


def _with_cap(value: bytes) -> bytes:
    """A certificate that states whatever, as an authority could be made to sign it."""
    made = Authority.create("members", NOW, DAY)
    certificate = x509.load_pem_x509_certificate(made.issue(FIRST, NOW, DAY).certificate)
    builder = x509.CertificateBuilder(
        certificate.issuer,
        certificate.subject,
        certificate.public_key(),
        certificate.serial_number,
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
    ).add_extension(x509.UnrecognizedExtension(CAP_EXTENSION, value), critical=False)
    return builder.sign(made._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize("stated", [b"", b"much", b"-1", b"\xff", b"9" * 300, b"1, delta = 2"])
def test_a_damaged_cap_is_not_no_cap(stated: bytes) -> None:
    with pytest.raises(PeerError):
        Asker.of(FIRST, _with_cap(stated))


def test_a_certificate_without_a_cap_states_none() -> None:
    assert asker("").filter == Asker().filter
    assert Asker().name == Identity(Role.ANALYST).name == "analyst"


def test_analysts_are_made_renewed_and_revoked_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "fed"
    create_federation(folder, 1, 1)
    for bad in ("much", "-1", "3, delta = 7"):
        with pytest.raises(LocalError):
            add_analyst(folder, bad)
    assert not (folder / "analyst-1").exists()
    assert add_analyst(folder, "3").name == "analyst-1"
    (folder / "analyst-1").rename(tmp_path / "carried away")
    assert add_analyst(folder, "inf").name == "analyst-2"  # a number is given once
    kept = read_identity(renew_member(folder, "analyst-1"), Role.ANALYST)
    assert (kept.identity.name, cap_of(kept.certificate)) == ("analyst-1", "3")
    with pytest.raises(LocalError, match="has no cap"):
        renew_member(folder, "server-0", cap="3")
    assert revoke_analyst(folder, "analyst-1") == 2  # the old one and the renewed one
    with pytest.raises(LocalError, match="already"):
        revoke_analyst(folder, "analyst-1")
    with pytest.raises(LocalError, match="no certificate of analyst-9"):
        revoke_analyst(folder, "analyst-9")
    assert analysts(folder)["analyst-1"] == ("3", False)
    assert analysts(folder)["analyst-2"] == ("", True)


def test_an_analyst_of_another_folder_is_revoked_by_its_certificate(tmp_path: Path) -> None:
    """As where the members' authority is kept apart from the process that enrols parties."""
    folder = tmp_path / "fed"
    create_federation(folder, 1, 1)
    made = add_analyst(folder, "3") / "certificate.pem"
    desk = folder / "coordinator"
    with pytest.raises(LocalError, match="--certificate"):
        revoke_analyst(desk, "analyst-1")
    with pytest.raises(LocalError, match="is a certificate of analyst-1"):
        revoke_analyst(desk, "analyst-2", made)
    with pytest.raises(LocalError, match="is not a certificate"):
        revoke_analyst(desk, "analyst-1", folder / "coordinator" / "key.pem")
    assert revoke_analyst(desk, "analyst-1", made) == 1
