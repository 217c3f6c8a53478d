"""What is final is what the other side means; all else is tried again."""

import grpc
import pytest

from tallyroom.protos.retry import may_succeed_later


class Failed(grpc.RpcError):
    def __init__(self, status: grpc.StatusCode) -> None:
        super().__init__()
        self._status = status

    def code(self) -> grpc.StatusCode:
        return self._status


@pytest.mark.parametrize("status", [s for s in grpc.StatusCode if s is not grpc.StatusCode.OK])
def test_a_process_that_stops_or_has_no_room_may_answer_later(status: grpc.StatusCode) -> None:
    decided = status.name in {
        "PERMISSION_DENIED",
        "UNAUTHENTICATED",
        "INVALID_ARGUMENT",
        "UNIMPLEMENTED",
    }
    assert may_succeed_later(Failed(status)) is not decided
