"""A server of prio3, against its table and beyond it; and its parties."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tallyroom.protocols.aggregation.contract import Memory
from tallyroom.protocols.aggregation.exchange import Exchange
from tallyroom.protocols.aggregation.prio3.aggregator import Prio3
from tallyroom.protocols.aggregation.prio3.collector import Prio3Collector
from tallyroom.protocols.aggregation.prio3.server import STEP, Prio3Server
from tallyroom.protocols.aggregation.verifying_server import SERVER_STAGES, VerifyingStage
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.wire.machine import Continue, Done, Machine, Rejected, Step
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tests.protocols.aggregation.prio3_honest import (
    KEY,
    QUERY,
    RELEASE,
    ROSTERS,
    SERVER,
    SUBMIT,
    VECTORS,
    VERDICT,
    Recorder,
    bytes_of,
    changed,
    flipped,
    sent,
)
from tests.protocols.aggregation.prio3_runs import PARTIES, query_about, uneven_holdings
from tests.samples import a_message, bitmap

SERVER_HEARS = dict(zip(VerifyingStage, ([], [SUBMIT], [KEY], [VERDICT], [RELEASE]), strict=True))


def server_in(stage: VerifyingStage) -> Prio3Server:
    server = Prio3().server(QUERY, 0, Randomness.from_seed(1, "server-0"), Memory())
    assert isinstance(server, Prio3Server)
    server.start()
    for each, messages in SERVER_HEARS.items():
        for message in messages:
            assert not isinstance(server.receive(message), Rejected)
        if each is stage:
            break
    assert server.stage is stage
    return server


@pytest.mark.parametrize(("stage", "phase", "role"), list(product(VerifyingStage, Phase, Role)))
def test_a_server_takes_what_its_table_says_and_nothing_else(
    stage: VerifyingStage, phase: Phase, role: Role
) -> None:
    """In each stage it is told what is right there, or what it was told before."""
    server = server_in(stage)
    right = {Phase.SUBMIT: SUBMIT, Phase.RELEASE: RELEASE, Phase.VERIFY: KEY}
    if stage is VerifyingStage.CHECKING:
        right[Phase.VERIFY] = VERDICT
    excuse = a_message(Phase.EXCUSE, Role.COORDINATOR, Role.SERVER, body=bitmap(PARTIES, []))
    message = replace(right.get(phase, excuse), phase=phase, sender_role=role)
    step = server.receive(message)
    if SERVER_STAGES.get((stage, phase)) is role:
        assert isinstance(step, Continue)
    else:
        assert isinstance(step, Rejected)
        assert server.stage is stage


def test_the_table_is_the_protocol() -> None:
    coordinator = {phase for (_, phase), role in SERVER_STAGES.items() if role is Role.COORDINATOR}
    parties = {phase for (_, phase), role in SERVER_STAGES.items() if role is Role.PARTY}
    assert coordinator == {Phase.EXCUSE, Phase.VERIFY, Phase.RELEASE}
    assert parties == {Phase.SUBMIT}
    for stage in (VerifyingStage.COLLECTING, VerifyingStage.CLOSED, VerifyingStage.CHECKING):
        assert (stage, Phase.RELEASE) not in SERVER_STAGES, "nothing goes out unverified"
    assert (VerifyingStage.COLLECTING, Phase.VERIFY) not in SERVER_STAGES, (
        "the key stays secret till then"
    )


def test_a_party_expects_nothing() -> None:
    statistic = Histogram(lower=0.0, upper=1.0, bins=3)
    query = query_about(statistic)
    party = Prio3().party(query, uneven_holdings(0.0, 1.0), Randomness(bytes(16)))
    for phase, role in product(Phase, Role):
        assert isinstance(party.receive(a_message(phase, role, Role.PARTY)), Rejected)
    assert party.expire() == Done()


HEAD = STEP.size + 32 * 2
BAD_KEYS = {
    "empty": changed(KEY, b""),
    "a step alone": changed(KEY, STEP.pack(0)),
    "cut short": changed(KEY, bytes_of(KEY)[:-1]),
    "too long": changed(KEY, bytes_of(KEY) + b"\0"),
    "another step": flipped(KEY, 0),
    "a step far away": flipped(KEY, 3, 128),
    "a verdict": VERDICT,
    "without my contribution": flipped(KEY, STEP.size),
    "with a padding bit": flipped(KEY, HEAD),
    "over fewer than the minimum": changed(KEY, bytes_of(KEY)[:HEAD] + bitmap(PARTIES, [0])),
    "over nobody": changed(KEY, bytes_of(KEY)[:HEAD] + bytes(1)),
}
BAD_VERDICTS = {
    "empty": changed(VERDICT, b""),
    "cut short": changed(VERDICT, bytes_of(VERDICT)[:-1]),
    "too long": changed(VERDICT, bytes_of(VERDICT) + b"\0"),
    "with a padding bit": flipped(VERDICT, STEP.size),
    "the step after": flipped(VERDICT, 0, 3),
    "another key": flipped(KEY, HEAD - 1),
    "a key over others": changed(KEY, bytes_of(KEY)[:HEAD] + bitmap(PARTIES, [0, 1, 2, 3, 4])),
}


@pytest.mark.parametrize("name", BAD_KEYS)
def test_a_bad_key_is_refused_and_leaves_no_trace(name: str) -> None:
    server = server_in(VerifyingStage.CLOSED)
    assert isinstance(server.receive(BAD_KEYS[name]), Rejected)
    assert server.stage is VerifyingStage.CLOSED
    for message, answer in zip(SERVER.heard[1:], SERVER.answers[1:], strict=True):
        assert sent(server.receive(message)) == sent(answer)


@pytest.mark.parametrize("name", BAD_VERDICTS)
def test_a_bad_verdict_is_refused_and_leaves_no_trace(name: str) -> None:
    server = server_in(VerifyingStage.CHECKING)
    assert isinstance(server.receive(BAD_VERDICTS[name]), Rejected)
    assert server.stage is VerifyingStage.CHECKING
    for message, answer in zip(SERVER.heard[2:], SERVER.answers[2:], strict=True):
        assert sent(server.receive(message)) == sent(answer)


def test_more_reports_than_a_party_may_make_are_refused() -> None:
    """Whatever the coordinator overlooks."""
    server = Prio3().server(QUERY, 0, Randomness.from_seed(1, "server-0"), Memory())
    assert QUERY.max_records_per_party == 1
    two = np.hstack([SUBMIT.rows(), SUBMIT.rows()])
    refusal = server.receive(replace(SUBMIT, body=two))
    assert isinstance(refusal, Rejected)
    assert refusal.reason == "2 reports, where a party holds at most 1 records"


def test_only_those_who_submitted_are_verified() -> None:
    server = Prio3().server(QUERY, 0, Randomness.from_seed(1, "server-0"), Memory())
    assert server.receive(SUBMIT.select(np.arange(5))) == Continue()
    assert len(sent(server.expire())) == 1
    refused = server.receive(KEY)
    assert isinstance(refused, Rejected)
    assert "did not submit" in refused.reason
    others = changed(KEY, bytes_of(KEY)[:HEAD] + bitmap(PARTIES, [0, 1, 2, 3, 4]))
    assert len(sent(server.receive(others))) == 1


def test_a_restarted_server_says_the_same_to_the_byte() -> None:
    """Its state is a function of its messages and its randomness."""
    again = Prio3().server(QUERY, 0, Randomness.from_seed(1, "server-0"), Memory())
    again.start()
    for message, answer in zip(SERVER.heard, SERVER.answers, strict=True):
        assert sent(again.receive(message)) == sent(answer)


def test_what_was_said_before_is_taken_again_silently_at_any_later_time() -> None:
    for stage, repeats in (
        (VerifyingStage.CHECKING, [KEY]),
        (VerifyingStage.CHECKED, [KEY, VERDICT]),
        (VerifyingStage.RELEASED, [KEY, VERDICT]),
    ):
        server = server_in(stage)
        for message in repeats:
            assert server.receive(message) == Continue(repeated=True)
        assert server.stage is stage
    for stage in (VerifyingStage.CLOSED, VerifyingStage.CHECKING, VerifyingStage.CHECKED):
        assert server_in(stage).receive(SUBMIT) == Continue(repeated=True)
    assert sent(server_in(VerifyingStage.RELEASED).receive(RELEASE)) == sent(SERVER.answers[-1])


@pytest.mark.parametrize(
    "stage", [VerifyingStage.CHECKING, VerifyingStage.CHECKED, VerifyingStage.RELEASED]
)
def test_reports_are_verified_under_one_key_only(stage: VerifyingStage) -> None:
    server = server_in(stage)
    for other in (flipped(KEY, HEAD - 1), BAD_VERDICTS["a key over others"]):
        assert isinstance(server.receive(other), Rejected)
    assert server.stage is stage


def test_a_verdict_is_not_taken_back() -> None:
    server = server_in(VerifyingStage.CHECKED)
    assert isinstance(server.receive(flipped(VERDICT, STEP.size, 128)), Rejected)


def test_a_release_is_over_those_whom_this_server_accepted_only() -> None:
    """Told that party 0's proof is wrong, it will not release over party 0; over fewer it will."""
    server = server_in(VerifyingStage.CHECKING)
    step = server.receive(flipped(VERDICT, STEP.size, 128))
    assert isinstance(step, Continue)
    others = bitmap(PARTIES, [1, 2, 3, 4, 5])
    assert bytes_of(step.messages[0]) == STEP.pack(1) + others
    refused = server.receive(RELEASE)
    assert isinstance(refused, Rejected)
    assert "do not verify here" in refused.reason
    assert not isinstance(server.receive(changed(RELEASE, others)), Rejected)


def test_a_message_with_other_joint_randomness_is_no_acceptance() -> None:
    """The last report's seed in the verdict is changed: that server must not believe the bit."""
    server = server_in(VerifyingStage.CHECKING)
    step = server.receive(flipped(VERDICT, -1))
    assert isinstance(step, Continue)
    assert bytes_of(step.messages[0]) == STEP.pack(1) + bitmap(PARTIES, [0, 1, 2, 3, 4])


@pytest.mark.parametrize("members", [[0, 1, 2, 3, 4], [1, 2, 3, 4, 5], [0, 1, 3, 4, 5]])
def test_a_release_over_fewer_than_were_accepted_is_their_sum(members: list[int]) -> None:
    """What others did not accept is taken out of the sum again."""
    shares = []
    for index in range(2):
        step = recorded_server(index).receive(changed(RELEASE, bitmap(PARTIES, members)))
        assert isinstance(step, Continue)
        shares.append(step.messages[0])
    collector = Prio3().collector(QUERY, np.ones(PARTIES, dtype=np.int64), Randomness(bytes(16)))
    assert isinstance(collector, Prio3Collector)
    opened = collector.open({i: share.body[0] for i, share in enumerate(shares)})
    assert opened.tolist() == VECTORS[members].sum(axis=0).tolist()


def recorded_server(index: int) -> Machine:
    """A server of an honest run, right before the release."""
    exchange = Exchange(Prio3(), QUERY)
    held: list[Message] = []
    real = exchange.servers[index]

    class Held(Recorder):
        def receive(self, message: Message) -> Step:
            if message.phase is Phase.RELEASE:
                held.append(message)
                return Continue()
            return super().receive(message)

    exchange.servers[index] = Held(real)
    exchange.join(np.arange(PARTIES, dtype=np.uint32), VECTORS)
    exchange.run()
    assert len(held) == 1
    return real


def test_contributions_are_secret_random_and_each_servers_own() -> None:
    rosters = [bytes_of(message)[:32] for message in ROSTERS]
    other = Prio3().server(QUERY, 0, Randomness.from_seed(2, "server-0"), Memory())
    step = other.receive(SUBMIT)
    assert isinstance(step, Continue)
    assert len({*rosters, bytes_of(step.messages[0])[:32]}) == 3
    assert bytes_of(KEY)[STEP.size : HEAD] == b"".join(rosters)
    for secret in rosters:
        assert secret.hex() not in repr(server_in(VerifyingStage.CLOSED)) + repr(ROSTERS)
