"""Whether a caller speaks as we do: its first words say which version it runs.

The words travel as the user agent of every call, and a station refuses others before it reads what
they say. So whoever was not upgraded with the rest hears that, and not that a message is malformed.
"""

import importlib.metadata
import logging
import re
from collections.abc import Awaitable, Callable

import grpc
import grpc.aio

from tallyroom.protos.certified import Context, Handler, guarded

log = logging.getLogger(__name__)

PROTOCOL = 1
"""Goes up with every change after which processes of before and after cannot work together."""
USER_AGENT = f"tallyroom/{importlib.metadata.version('tallyroom')} protocol/{PROTOCOL}"
_SPOKEN = re.compile(r"tallyroom/([0-9A-Za-z.+]{1,40}) protocol/([0-9]{1,9})(?![^ ])")
_HEALTH = "/grpc.health.v1.Health/"
"""Probes of other makers may ask for it: it is the same for all versions."""


def mismatch(user_agent: str) -> str | None:
    """Why a caller with these first words cannot be understood; None if it can."""
    found = _SPOKEN.search(user_agent)
    if found is not None and int(found[2]) == PROTOCOL:
        return None
    theirs = "another program" if found is None else f"Tallyroom {found[1]}, protocol {found[2]}"
    ours, _, number = USER_AGENT.removeprefix("tallyroom/").partition(" protocol/")
    return (
        f"the caller runs {theirs}; this station runs Tallyroom {ours}, protocol {number}: "
        "install the same version everywhere"
    )


class SameVersion(grpc.aio.ServerInterceptor):
    """Ends calls of those who run another version, with both versions in the reason."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        handler = await continuation(handler_call_details)
        if handler is None or handler_call_details.method.startswith(_HEALTH):
            return handler
        metadata = dict(handler_call_details.invocation_metadata or ())
        reason = mismatch(str(metadata.get("user-agent", "")))
        return handler if reason is None else guarded(handler, _refusing(reason))


def _refusing(reason: str) -> Callable[[Context], Awaitable[None]]:
    async def refuse(context: Context) -> None:
        log.warning("refused a caller: %s", reason)
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, reason)

    return refuse
