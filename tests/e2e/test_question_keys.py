"""Questions by their keys: who may resume or cancel one, and keys that nobody used."""

from collections.abc import Iterator
from dataclasses import replace

import grpc
import pytest

from tallyroom.protocols.errors import RunFailed
from tallyroom.protocols.identity.certificates import Identity
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.wire.messages import Role
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.tally_pb2_grpc import CoordinatorStub, MessagesStub
from tallyroom.simulation.runtimes import Layout
from tests.e2e.addressed import ANALYST, COORDINATOR, Addressed, party
from tests.samples import holdings_of


@pytest.fixture(scope="module")
def addressed() -> Iterator[Addressed]:
    with Addressed(Layout(holdings_of([0.1, 0.3], 2), 2, 1, seed=1)) as federation:
        yield federation


@pytest.mark.parametrize(
    "identity", [party(0, 1), Identity(Role.SERVER, 0, 0), COORDINATOR], ids=lambda who: who.name
)
def test_only_an_analyst_resumes_or_cancels(addressed: Addressed, identity: Identity) -> None:
    with addressed.reach("coordinator", identity) as channel:
        desk = CoordinatorStub(channel)
        key = pb.QuestionKey(key="mean")
        with pytest.raises(grpc.RpcError) as refused:
            desk.Cancel(key, timeout=5)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        with pytest.raises(grpc.RpcError) as refused:
            list(desk.Resume(key, timeout=5))
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("identity", [party(0, 1), ANALYST], ids=lambda who: who.name)
def test_only_the_coordinator_hears_which_runs_a_server_keeps(
    addressed: Addressed, identity: Identity
) -> None:
    with addressed.reach("server-0", identity) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            MessagesStub(channel).Kept(pb.Subscription(), timeout=5)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_keys_that_cannot_be_and_keys_that_nobody_used(addressed: Addressed) -> None:
    with addressed.reach("coordinator", ANALYST) as channel:
        desk = CoordinatorStub(channel)
        for key in ("", "k" * 201):
            with pytest.raises(grpc.RpcError) as refused:
                desk.Cancel(pb.QuestionKey(key=key), timeout=5)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        (event,) = desk.Resume(pb.QuestionKey(key="never"), timeout=5)
        assert "this key is unknown" in event.failure.reason
        # Cancelled before it came: a question that was still on its way does not begin.
        early = pb.QuestionKey(key="early")
        assert desk.Cancel(early, timeout=5) == pb.Cancelled(
            cancelled=True, words="it had not begun"
        )
    asked = Question(
        Mean(value="value", lower=0.0, upper=1.0),
        "additive",
        None,
        Placement.EACH_SERVER,
        key="early",
    )
    with pytest.raises(RunFailed, match="it was cancelled"):
        addressed.ask(asked, lambda _: None)
    done = replace(asked, key="done")
    opened = addressed.ask(done, lambda _: None)
    with addressed.reach("coordinator", ANALYST) as channel:
        late = CoordinatorStub(channel).Cancel(pb.QuestionKey(key="done"), timeout=5)
        assert (late.cancelled, late.words) == (False, "it was over already")
    assert addressed.ask(done, lambda _: None).total.tolist() == opened.total.tolist()
