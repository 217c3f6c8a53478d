"""Callers are who an authority's signature says they are, at every call of every server.

TLS takes a certificate that any of the federation's authorities signed, and cannot tell which role
each of them may speak of. This can.
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.identity.certificates import Trust

log = logging.getLogger(__name__)

Handler = Any
"""grpc.RpcMethodHandler: its types leave out the fields that an interceptor needs."""
Context = grpc.aio.ServicerContext[Any, Any]


def certificate_of(context: Context) -> bytes:
    """The PEM that the caller showed, which TLS has verified; empty if there is none."""
    certificates = list(context.auth_context().get("x509_pem_cert", []))
    return bytes(certificates[0]) if certificates else b""


class Certified(grpc.aio.ServerInterceptor):
    """Ends calls of those whose certificate is not signed by who may say that they are that."""

    def __init__(self, trust: Trust) -> None:
        self._trust = trust

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        handler = await continuation(handler_call_details)
        return None if handler is None else guarded(handler, self._check)

    async def _check(self, context: Context) -> None:
        try:
            self._trust.identity_of(certificate_of(context))
        except PeerError as error:
            log.warning("refused a caller: %s", error.reason)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))


def guarded(
    handler: Handler, check: Callable[[Context], Awaitable[None]], every: float | None = None
) -> Handler:
    """The same handler, with `check` before a call, and every so many seconds in a stream."""
    kind = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")[
        2 * handler.request_streaming + handler.response_streaming
    ]
    inner = getattr(handler, kind)

    async def single(request: object, context: Context) -> object:
        await check(context)
        return await inner(request, context)

    async def several(request: object, context: Context) -> AsyncIterator[object]:
        await check(context)
        answers = inner(request, context)
        waiting: asyncio.Future[object] | None = None
        try:
            while True:
                waiting = waiting or asyncio.ensure_future(anext(answers))
                done, _ = await asyncio.wait([waiting], timeout=every)
                if not done:
                    await check(context)
                    continue
                try:
                    answer = waiting.result()
                except StopAsyncIteration:
                    return
                waiting = None
                yield answer
        finally:
            if waiting is not None:
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
            await answers.aclose()

    streams = handler.response_streaming and inspect.isasyncgenfunction(inner)
    make = getattr(grpc, f"{kind}_rpc_method_handler")
    return make(
        several if streams else single, handler.request_deserializer, handler.response_serializer
    )
