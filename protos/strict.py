"""What no protobuf can be read from is the caller's fault, and is said so."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

Handler = Any
"""grpc.RpcMethodHandler: its types leave out the fields that an interceptor needs."""
Context = grpc.aio.ServicerContext[Any, Any]


class Strict(grpc.aio.ServerInterceptor):
    """Ends calls whose request cannot be read with INVALID_ARGUMENT.

    Without it gRPC takes such a request for an error of ours, and logs a page for every one.
    """

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_streaming:
            return handler
        kind = "unary_stream" if handler.response_streaming else "unary_unary"
        inner = getattr(handler, kind)

        def read(data: bytes) -> object:
            try:
                return handler.request_deserializer(data)
            except DecodeError:
                return None

        async def single(request: object, context: Context) -> object:
            await _refuse_unread(request, context)
            return await inner(request, context)

        async def several(request: object, context: Context) -> AsyncIterator[object]:
            await _refuse_unread(request, context)
            async with aclosing(inner(request, context)) as answers:
                async for answer in answers:
                    yield answer

        behaviour = several if inspect.isasyncgenfunction(inner) else single
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(behaviour, read, handler.response_serializer)


async def _refuse_unread(request: object, context: Context) -> None:
    if request is None:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request cannot be read")
