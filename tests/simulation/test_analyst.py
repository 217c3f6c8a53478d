"""The analyst's side of the wire, when the coordinator dies in the middle of a sentence."""

from collections.abc import Iterator

import grpc
import pytest

from tallyroom.protocols.errors import RunFailed
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.evidence import EvidenceReader
from tallyroom.simulation.analyst import Analyst

SHARES = [pb.Event(share=pb.SignedShare(server=server, share=b"x")) for server in (0, 1)]
ANSWER = pb.Event(answer=pb.Answer(records=3))


class Gone(grpc.RpcError):
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "connection lost"


class Stream:
    """What a call gives: some events, and then its end or the coordinator's."""

    def __init__(self, events: list[pb.Event], dies: bool) -> None:
        self._events, self._dies = events, dies

    def __iter__(self) -> Iterator[pb.Event]:
        yield from self._events
        if self._dies:
            raise Gone

    def cancel(self) -> None:
        pass


def heard(streams: list[Stream], monkeypatch: pytest.MonkeyPatch) -> list[pb.Event]:
    """What the analyst makes of a coordinator that is called again and again."""
    analyst = object.__new__(Analyst)
    analyst._authority, analyst._durable = b"ours", True
    monkeypatch.setattr(Analyst, "describe", lambda self, seconds: pb.Description())
    calls = iter(streams)
    return list(analyst._listen(lambda: next(calls)))


@pytest.mark.parametrize("before", [SHARES[:1], SHARES])
def test_shares_that_are_sent_again_count_once(
    before: list[pb.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    events = heard([Stream(before, dies=True), Stream([*SHARES, ANSWER], dies=False)], monkeypatch)
    reader = EvidenceReader()
    for event in events[:-1]:
        reader.take(event.share)
    (opening,) = reader.finish(events[-1].answer).openings
    assert [answer.server for answer in opening.answers] == [0, 1]
    assert events[-1].answer.authority == b"ours"


def test_a_coordinator_that_keeps_nothing_is_not_called_again() -> None:
    analyst = object.__new__(Analyst)
    analyst._authority, analyst._durable = b"ours", False
    with pytest.raises(RunFailed, match="connection lost"):
        list(analyst._listen(lambda: Stream(SHARES, dies=True)))
