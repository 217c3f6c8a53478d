"""Which calls are made again after they failed."""

import grpc

DECISIONS = frozenset(
    {
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
"""What the other side means. Every other status may come of a process that stops, starts or has no
room, or of a proxy in front of it: the same call may succeed later."""


def may_succeed_later(error: grpc.RpcError) -> bool:
    return error.code() not in DECISIONS
