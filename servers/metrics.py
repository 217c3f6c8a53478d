"""Metrics for a station's operator: counts, times and states in Prometheus' text format.

They contain method names and numbers only, nothing from the body of a message.
"""

import importlib.metadata
import logging
import math
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

import grpc
import grpc.aio
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
)

from tallyroom.protocols.errors import LocalError, NotWritten
from tallyroom.protocols.identity.certificates import Credentials, validity_of
from tallyroom.protocols.privacy.ledger import DEFAULT_CAP_DELTA
from tallyroom.protocols.run.participant import Participant
from tallyroom.protos.certified import Handler
from tallyroom.servers.health import Health
from tallyroom.servers.metrics_port import serve_metrics
from tallyroom.storage.ledger import Ledger

log = logging.getLogger(__name__)

_BUCKETS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)


class Metrics(grpc.aio.ServerInterceptor):
    """Counts the calls that it intercepts; `watch` adds a gauge that is read on demand."""

    def __init__(self, credentials: Callable[[], Credentials]) -> None:
        """`credentials` are asked for anew, as a party renews its own."""
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        Info("tally", "The program that runs.", registry=self._registry).info(
            {"version": importlib.metadata.version("tallyroom")}
        )
        self._runs = Counter(
            "tally_runs_ended", "Runs that came to an end.", ["outcome"], registry=self._registry
        )
        self._calls = Counter(
            "tally_calls", "Calls received, by method.", ["method"], registry=self._registry
        )
        self._failures = Counter(
            "tally_call_failures",
            "Calls that ended in a refusal or an error.",
            ["method"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "tally_call_seconds",
            "How long single calls took.",
            ["method"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self.watch(
            "tally_certificate_expiry_seconds",
            "When this station's certificate ends, in Unix time.",
            lambda: validity_of(credentials().certificate).ends.timestamp(),
        )

    def ended(self, outcome: str) -> None:
        """Counts a run; `outcome` is one of a few words."""
        self._runs.labels(outcome).inc()

    def watch(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        """Shows what it was when it could last be read."""
        last = [math.nan]

        def known() -> float:
            with suppress(NotWritten):
                last[0] = float(read())
            return last[0]

        Gauge(name, meaning, registry=self._registry).set_function(known)

    @contextmanager
    def serving(self, listen: str | None) -> Iterator[None]:
        """Serves GET /metrics at host:port; None serves nothing. Raises `LocalError`."""
        if listen is None:
            yield
            return
        host, port = parse_address(listen)
        try:
            server, thread = serve_metrics(host, port, self._registry)
        except OSError as error:
            raise LocalError(f"cannot serve metrics on {listen}: {error.strerror}") from None
        log.info("metrics on port %d", server.server_port)
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method.rpartition("/")[2]
        self._calls.labels(method).inc()
        if handler.request_streaming or handler.response_streaming:
            return handler
        inner = handler.unary_unary

        async def timed(request: object, context: object) -> object:
            began = time.perf_counter()
            try:
                return await inner(request, context)
            except BaseException:
                self._failures.labels(method).inc()
                raise
            finally:
                self._seconds.labels(method).observe(time.perf_counter() - began)

        return grpc.unary_unary_rpc_method_handler(
            timed, handler.request_deserializer, handler.response_serializer
        )


def watch_store(metrics: Metrics, health: Health, participant: Participant) -> None:
    metrics.watch(
        "tally_healthy",
        "1 while the store and the ledger can be written and no release waits; else 0.",
        lambda: not health.reason,
    )
    metrics.watch(
        "tally_runs_open", "Runs begun here and not over.", lambda: len(participant.open_runs())
    )
    metrics.watch(
        "tally_releases_waiting",
        "Releases that wait until the ledger can be written.",
        lambda: participant.waiting,
    )


def watch_ledger(metrics: Metrics, ledger: Ledger) -> None:
    metrics.watch(
        "tally_epsilon_spent",
        "The epsilon of all spends in this keeper's ledger; +Inf after a release without noise.",
        lambda: ledger.totals().epsilon(DEFAULT_CAP_DELTA),
    )
    metrics.watch(
        "tally_delta_spent",
        "The delta of all spends in this keeper's ledger.",
        lambda: float(ledger.totals().noisy.delta),
    )
    cap = ledger.filter.cap
    metrics.watch(
        "tally_epsilon_cap",
        "The most epsilon that this keeper lets out; +Inf without a cap.",
        lambda: cap.size if cap.bounded else math.inf,
    )
    metrics.watch(
        "tally_delta_cap",
        "The most delta that this keeper lets out; 1 without a cap.",
        lambda: float(cap.delta),
    )
    metrics.watch(
        "tally_releases_without_noise",
        "Releases in this keeper's ledger that are not private.",
        lambda: ledger.totals().exact,
    )


def parse_address(address: str) -> tuple[str, int]:
    """Splits host:port. Raises `LocalError`."""
    host, _, port = address.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        raise LocalError(f"{address!r} is not host:port")
    return host.strip("[]"), int(port)
