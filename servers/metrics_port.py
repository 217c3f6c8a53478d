"""The port that metrics are read at: a few readers at a time, and none for long.

Anybody who reaches it may connect and say nothing. Each reader that is served has a thread; more
than `MOST_READERS` are turned away, and one that is slow is cut off.
"""

import socket
import threading
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

MOST_READERS = 8
READ_SECONDS = 5.0


class _Handler(WSGIRequestHandler):
    timeout = READ_SECONDS

    def log_message(self, format: str, *args: object) -> None:
        """Readers are not logged: they come every few seconds."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self._readers = threading.BoundedSemaphore(MOST_READERS)
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._readers.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._readers.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that is gone or slow is none of the operator's business."""


class _Server6(_Server):
    address_family = socket.AF_INET6


def serve_metrics(host: str, port: int, registry: CollectorRegistry) -> tuple[_Server, Any]:
    """Raises `OSError` if it cannot listen there."""
    kind = _Server6 if ":" in host else _Server
    server = make_server(host, port, make_wsgi_app(registry), kind, _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    return server, thread
