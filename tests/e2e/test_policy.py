"""Parties that have a say: real processes under a coordinator that lies, and parties that forge,
flood and exaggerate."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tallyroom.protocols.errors import RunFailed
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.run.policy import DEPLOYED
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.wire.messages import Message, Phase, Role, decode
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.tally_pb2_grpc import CoordinatorStub, MessagesStub
from tallyroom.simulation.runtimes import Layout, Opened
from tallyroom.storage.ledger import Ledger
from tests.e2e import lying_coordinator
from tests.e2e.addressed import SECONDS, Addressed, party, refusal
from tests.e2e.deployed import MEAN, Room, answer, tally
from tests.e2e.siege import Undermined
from tests.samples import a_message, holdings_of

VALUES = [0.1, 0.3, 0.6, 0.9]
DEADLINE = 600.0
"""Longer than a test may take: what waits for it fails."""


def asked(data: str = "data", min_parties: int | None = None) -> Question:
    statistic = Histogram(lower=0.0, upper=1.0, bins=4)
    return Question(
        statistic,
        "additive",
        Fraction(1),
        Placement.EACH_SERVER,
        data=data,
        min_parties=min_parties,
        deadline=DEADLINE,
    )


class Deceived(Addressed):
    """Two servers and two parties as they are deployed, and a coordinator that lies."""

    def _launch(self, name: str, target: Callable[[Any, Connection], None], config: Any) -> str:
        lying = lying_coordinator.coordinate if name == "coordinator" else target
        return super()._launch(name, lying, config)


@pytest.fixture(scope="module")
def deceived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deceived]:
    store = tmp_path_factory.mktemp("deceived")
    with Deceived(Layout(holdings_of(VALUES, 2), 2, 2, store=store, policy=DEPLOYED)) as started:
        yield started


REASONS = {
    "curator": "curator lets one server see its data",
    "curator without noise": "curator lets one server see its data",
    "one server": "it asks for 2 servers or more, not 1",
    "without noise": "it takes part in no answer without noise",
}


@pytest.mark.parametrize("lie", lying_coordinator.LIES)
def test_deployed_parties_refuse_what_a_lying_coordinator_puts(
    deceived: Deceived, lie: str
) -> None:
    with pytest.raises(RunFailed, match=r"party-[01] refuses: ") as failed:
        deceived.ask(asked(lie), lambda _: None)
    assert "1 of 2 parties agree to take part" in str(failed.value)
    assert REASONS[lie] in str(failed.value)


def test_an_honest_question_is_answered_and_written_in_each_partys_ledger(
    deceived: Deceived,
) -> None:
    assert deceived.ask(asked(), lambda _: None).contributors.tolist() == [0, 1]
    assert deceived.layout.store is not None
    for host in ("host-0", "host-1"):
        path = deceived.layout.store / host / "ledger.sqlite"
        ledger = Ledger(path)
        assert [row[1:3] for row in ledger.rows()] == [("data", "1")]
        ledger.close()
        assert path.stat().st_mode & 0o777 == 0o600


def test_nobody_else_reads_what_is_stored(deceived: Deceived) -> None:
    """Folders 0700, files 0600: journals, ledgers, bulk, secrets, of every process."""
    deceived.ask(asked(), lambda _: None)
    assert deceived.layout.store is not None
    found = [
        path for keeper in deceived.layout.store.iterdir() for path in (keeper, *keeper.rglob("*"))
    ]
    names = {path.name for path in found}
    assert {"ledger.sqlite", "secret.key", "runs", "server-0", "host-0", "coordinator"} <= names
    for path in found:
        with contextlib.suppress(FileNotFoundError):  # a journal that was forgotten meanwhile
            expected = 0o700 if path.is_dir() else 0o600
            assert path.stat().st_mode & 0o777 == expected, path


@contextlib.contextmanager
def asking(federation: Addressed, min_parties: int) -> Iterator[list[Opened]]:
    """A question that is open meanwhile; what it gave is there afterwards."""
    found: list[Opened] = []
    thread = threading.Thread(
        target=lambda: found.append(federation.ask(asked(min_parties=min_parties), lambda _: None))
    )
    thread.start()
    yield found
    thread.join(60)


def test_a_forged_refusal_is_not_taken_and_a_flood_is_not_kept() -> None:
    """The test is party-3."""
    plan = Layout(holdings_of(VALUES, 4), 2, 4, seed=1)
    with (
        Undermined(plan, played=3) as federation,
        federation.reach("coordinator", party(3)) as channel,
    ):
        post = MessagesStub(channel)
        stream = post.Receive(pb.Subscription())
        list(stream.initial_metadata())
        three, one = (np.array([n], dtype="<u4").tobytes() for n in (3, 1))
        CoordinatorStub(channel).Join(pb.JoinRequest(parties=three, records=one), timeout=SECONDS)

        def send(message: Message) -> list[str]:
            receipt = post.Send(pb.Parcel(message=message.encode()), timeout=SECONDS)
            return [refused.reason for refused in receipt.refused]

        with asking(federation, min_parties=3) as found:
            run = decode(next(stream).message, "coordinator").run

            def refuse(who: int, text: str) -> Message:
                return a_message(
                    Phase.REFUSE,
                    Role.PARTY,
                    Role.COORDINATOR,
                    (who,),
                    body=text.encode(),
                    run=run,
                    round_=2,
                )

            forged = refuse(0, "forged")
            assert refusal(lambda: send(forged)).name == "PERMISSION_DENIED"
            # Refusals that are none, as many as one likes, end nothing and are not kept …
            for _ in range(50):
                assert send(refuse(3, "x" * 301)) == ["a reason has at most 300 bytes"]
            assert found == []
            # … and one that is, is taken once.
            assert send(refuse(3, "we do not like it")) == []
            for _ in range(50):
                (reason,) = send(refuse(3, "nor this"))
                assert reason == "it refused before" or "is over" in reason
        stream.cancel()
    (opened,) = found
    assert opened.contributors.tolist() == [0, 1, 2]
    assert opened.refusals == ((3, "we do not like it"),)


def test_a_deployed_party_has_a_safe_policy_and_a_ledger_of_its_own(tmp_path: Path) -> None:
    """By the command line alone, as docs/deployment.md says."""
    policy = tmp_path / "policy.toml"
    policy.write_text("epsilon_per_question = 0.5\nepsilon_in_all = 0.75\n")
    room = Room(
        tmp_path,
        parties=["--policy", str(policy)],
        coordinator=["--max-records-per-party", "100"],
    )
    analyst = str(tmp_path / "fed" / "analyst")
    asking = [*MEAN, "--coordinator", room.coordinator, "--identity", analyst]
    patient = ["--deadline", str(DEADLINE)]
    try:
        exact = tally(*asking, "--epsilon", "inf", *patient)
        assert (exact.returncode, exact.stdout) == (3, "")
        assert "refuses: it takes part in no answer without noise" in exact.stderr
        assert "estimate" in room.ask(*MEAN, "--epsilon", "0.5", "--unit", "party")
        late = tally(*asking, "--epsilon", "0.5", *patient)
        assert "its ledger has no room" in late.stderr
        spent = answer("ledger", str(tmp_path / "party-0"), "--json")
        assert (spent["spent"], len(spent["spends"])) == (0.5, 1)
        for folder in ("store-0", "store-1", "party-0"):  # by the programs' own umask
            for path in (tmp_path / folder).rglob("*"):
                assert path.stat().st_mode & 0o077 == 0 or path.suffix == ".pem", path

        policy.write_text("epsilon_in_all = 5\n")
        policy.with_name("strict.toml").write_text('statistics = ["histogram"]\n')
        for i, chosen in enumerate(("policy.toml", "strict.toml")):
            room.parties[i].stop()
            room.parties[i] = room.party(i, "--policy", str(tmp_path / chosen))
        rest = room.ask(*MEAN, "--epsilon", "0.5", "--min-parties", "1", *patient)
        reason = "its policy does not allow the statistic mean"
        assert rest["refusals"] == [{"party": "party-1", "reason": reason}]
        assert f"party-1 refuses: {reason}" in rest["notes"]
        assert "1 of 2 parties contributed" in rest["notes"]

        room.parties[1].stop()
        room.parties[1] = room.party(1, "--data", "synthetic:scores?n=400")
        assert room.parties[1].process.wait(60) == 3
        words = "at most 100 records in this federation, not 200"
        assert words in room.parties[1].log.read_text()
    finally:
        room.stop()
