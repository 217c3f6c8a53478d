"""Who may speak to whom over mutual TLS, and as whom."""

import datetime as dt
import hashlib
from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tallyroom.protocols.identity.certificates import Authority, Credentials, Identity
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.wire.messages import MAX_WIRE_BYTES, Phase, Role
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.channel import open_blocking_channel
from tallyroom.protos.tally_pb2_grpc import CoordinatorStub, MessagesStub
from tallyroom.simulation.runtimes import Layout
from tests.e2e.addressed import (
    ANALYST,
    COORDINATOR,
    LIFETIME,
    SECONDS,
    SERVER,
    Addressed,
    party,
    refusal,
)
from tests.samples import RUN, a_message, a_query, holdings_of


@pytest.fixture(scope="module")
def federation() -> Iterator[Addressed]:
    with Addressed(Layout(holdings_of([0.1, 0.3, 0.6, 0.9], 4), 2, 2, seed=1)) as started:
        yield started


def submission(*senders: int, run: bytes = RUN) -> pb.Parcel:
    message = a_message(Phase.SUBMIT, Role.PARTY, Role.SERVER, senders, body=bytes(32), run=run)
    return pb.Parcel(message=message.encode())


def open_run(federation: Addressed, nonce: bytes) -> bytes:
    """The coordinator's certificate puts a query to server-0. Returns the run's name."""
    query = a_query(nonce=nonce)
    message = a_message(
        Phase.QUERY, Role.COORDINATOR, Role.SERVER, body=query.encode(), run=query.run
    )
    with federation.reach("server-0", COORDINATOR) as channel:
        receipt = MessagesStub(channel).Send(pb.Parcel(message=message.encode()), timeout=SECONDS)
        assert not receipt.refused
    return query.run


def submissions_counted(federation: Addressed, run: bytes) -> int:
    with federation.reach("server-0", COORDINATOR) as channel:
        count: int = MessagesStub(channel).Status(pb.RunRef(run=run), timeout=SECONDS).submissions
        return count


@pytest.mark.parametrize(
    ("identity", "senders"),
    [
        (party(1), (0,)),
        (party(1, 2), (0,)),
        (party(1, 2), (1, 2, 3)),
        (party(0, 2), (3,)),
        (Identity(Role.SERVER, 0, 0), (0,)),
        (COORDINATOR, (0,)),
        (ANALYST, (0,)),
    ],
    ids=str,
)
def test_a_forged_sender_is_denied_and_nothing_is_counted(
    federation: Addressed, identity: Identity, senders: tuple[int, ...]
) -> None:
    nonce = hashlib.sha256(f"{identity}{senders}".encode()).digest()[:8]
    run = open_run(federation, nonce)
    with federation.reach("server-0", identity) as channel:
        code = refusal(
            lambda: MessagesStub(channel).Send(submission(*senders, run=run), timeout=SECONDS)
        )
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert submissions_counted(federation, run) == 0


def test_the_same_submission_by_its_owner_is_counted(federation: Addressed) -> None:
    run = open_run(federation, b"honest-1")
    with federation.reach("server-0", party(0, 1)) as channel:
        receipt = MessagesStub(channel).Send(submission(0, run=run), timeout=SECONDS)
    assert not receipt.refused
    assert submissions_counted(federation, run) == 1


def test_a_party_may_not_put_a_query(federation: Addressed) -> None:
    query = a_query(nonce=b"by party")
    message = a_message(Phase.QUERY, Role.PARTY, Role.SERVER, body=query.encode(), run=query.run)
    with federation.reach("server-0", party(0)) as channel:
        receipt = MessagesStub(channel).Send(pb.Parcel(message=message.encode()), timeout=SECONDS)
    assert [r.reason for r in receipt.refused] == ["only the coordinator asks"]


@pytest.mark.parametrize("identity", [party(0), SERVER, COORDINATOR], ids=str)
def test_only_an_analyst_asks_the_desk(federation: Addressed, identity: Identity) -> None:
    question = Question(a_query().statistic, "additive", None, Placement.EACH_SERVER)
    with federation.reach("coordinator", identity) as channel:
        stream = CoordinatorStub(channel).Ask(pb.Question(json=question.encode()), timeout=SECONDS)
        assert refusal(lambda: list(stream)) is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("identity", [party(0), SERVER, ANALYST], ids=str)
@pytest.mark.parametrize("station", ["server-0", "coordinator"])
def test_only_the_coordinator_sees_how_a_run_goes(
    federation: Addressed, identity: Identity, station: str
) -> None:
    with federation.reach(station, identity) as channel:
        for call in (MessagesStub(channel).Status, MessagesStub(channel).Accounts):
            code = refusal(lambda call=call: call(pb.RunRef(run=RUN), timeout=SECONDS))  # type: ignore[misc]
            assert code is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("identity", [party(0), party(1, 2), ANALYST, SERVER], ids=str)
def test_nobody_joins_as_other_parties(federation: Addressed, identity: Identity) -> None:
    ids = (3).to_bytes(4, "little")
    request = pb.JoinRequest(parties=ids, records=(1).to_bytes(4, "little"))
    with federation.reach("coordinator", identity) as channel:
        code = refusal(lambda: CoordinatorStub(channel).Join(request, timeout=SECONDS))
    assert code is grpc.StatusCode.PERMISSION_DENIED


def test_another_federations_certificate_is_refused(federation: Addressed) -> None:
    now = dt.datetime.now(dt.UTC)
    stranger = Authority.create("other", now, LIFETIME).issue(COORDINATOR, now, LIFETIME)
    ours = federation.issue(COORDINATOR)
    mixed = Credentials(COORDINATOR, stranger.certificate, ours.authority, stranger.key)
    with open_blocking_channel(federation.addresses["server-0"], SERVER, mixed) as channel:
        code = refusal(lambda: MessagesStub(channel).Status(pb.RunRef(run=RUN), timeout=SECONDS))
    assert code is grpc.StatusCode.UNAVAILABLE


def test_a_server_that_is_not_the_one_expected_is_not_spoken_to(federation: Addressed) -> None:
    credentials = federation.issue(COORDINATOR)
    with open_blocking_channel(federation.addresses["server-1"], SERVER, credentials) as channel:
        code = refusal(lambda: MessagesStub(channel).Status(pb.RunRef(run=RUN), timeout=SECONDS))
    assert code is grpc.StatusCode.UNAVAILABLE


def test_without_tls_or_without_a_certificate_there_is_no_call(federation: Addressed) -> None:
    address = federation.addresses["server-0"]
    with grpc.insecure_channel(address) as plain:
        code = refusal(lambda: MessagesStub(plain).Status(pb.RunRef(run=RUN), timeout=SECONDS))
        assert code is grpc.StatusCode.UNAVAILABLE
    tls = grpc.ssl_channel_credentials(federation.issue(COORDINATOR).authority)
    options = [("grpc.ssl_target_name_override", "server-0")]
    with grpc.secure_channel(address, tls, options) as anonymous:
        code = refusal(lambda: MessagesStub(anonymous).Status(pb.RunRef(run=RUN), timeout=SECONDS))
        assert code is grpc.StatusCode.UNAVAILABLE


def test_messages_past_the_limit_are_refused(federation: Addressed) -> None:
    mine = federation.issue(party(0))
    tls = grpc.ssl_channel_credentials(mine.authority, mine.key, mine.certificate)
    options = [("grpc.ssl_target_name_override", "server-0")]
    with grpc.secure_channel(federation.addresses["server-0"], tls, options) as channel:
        parcel = pb.Parcel(message=bytes(MAX_WIRE_BYTES + (1 << 20)))
        code = refusal(lambda: MessagesStub(channel).Send(parcel, timeout=SECONDS))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("data", [b"", b"x", bytes(100), submission(0).message + b"\0"], ids=len)
def test_malformed_messages_are_invalid(federation: Addressed, data: bytes) -> None:
    with federation.reach("server-0", party(0)) as channel:
        code = refusal(lambda: MessagesStub(channel).Send(pb.Parcel(message=data), timeout=SECONDS))
    assert code is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("station", ["server-0", "server-1", "coordinator"])
def test_stations_say_that_they_serve(federation: Addressed, station: str) -> None:
    with federation.reach(station, party(0)) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service=""), timeout=SECONDS
        )
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
