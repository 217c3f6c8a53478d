"""The page's server: one static page, a few JSON resources, and a stream of events.

Whoever has the token may look and start simulations. The token is exchanged for a cookie once, so
that it does not stay in an address. Requests must name the host that they are meant for, and those
that start something must come from the page itself, so other sites in the same browser can do
neither.
"""

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from tallyroom.protocols.errors import LocalError
from tallyroom.simulation.reports.trust import promises
from tallyroom.simulation.result import version
from tallyroom.simulation.web import form
from tallyroom.simulation.web.federation import Deployed
from tallyroom.simulation.web.folder import FILES, RunFolder
from tallyroom.simulation.web.jobs import Jobs

STATIC = Path(__file__).parent / "static"
POLL_SECONDS = 0.4
HEARTBEAT_POLLS = 25
FEDERATION_POLLS = 8
MOST_STREAMS = 32
MOST_BODY = 64 * 1024
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
REPORT_POLICY = "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'"
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
ASSETS = {"app.js": "text/javascript", "draw.js": "text/javascript", "style.css": "text/css"}


@dataclass
class Page:
    """`local` says whether only this machine can reach the page."""

    folder: Path
    token: str
    hosts: list[str]
    local: bool = True
    deployed: Deployed | None = None
    cookie: str = "tallyroom"

    def __post_init__(self) -> None:
        self.runs = RunFolder(self.folder)
        self.jobs = Jobs(self.folder)
        self._streams = 0
        self._federation: dict[str, object] | None = None

    def app(self) -> Starlette:
        asked: list[tuple[str, Callable[[Request], Any], str]] = [
            ("/api/catalogue", self.catalogue, "GET"),
            ("/api/options/{action}/{statistic}", self.options, "GET"),
            ("/api/runs", self.listed, "GET"),
            ("/api/runs", self.begin, "POST"),
            ("/api/runs/{name}", self.detail, "GET"),
            ("/api/events", self.events, "GET"),
            ("/files/{name}/{file}", self.file, "GET"),
            ("/static/{file}", self.asset, "GET"),
        ]
        routes = [Route("/", self.home, methods=["GET"])]
        routes += [Route(path, self._guarded(call), methods=[how]) for path, call, how in asked]
        hosts = Middleware(TrustedHostMiddleware, allowed_hosts=self.hosts, www_redirect=False)
        return Starlette(routes=routes, middleware=[hosts])

    # --- access ---

    def _allowed(self, request: Request) -> bool:
        shown = request.cookies.get(self.cookie, "")
        return hmac.compare_digest(shown.encode(), self.token.encode())

    def _guarded(self, call: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def guarded(request: Request) -> Response:
            if not self._allowed(request):
                return PlainTextResponse("open the address that tally serve printed", 403, HEADERS)
            try:
                response: Response = await call(request)
            except LocalError as error:
                response = JSONResponse({"error": str(error)}, 400)
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        return guarded

    async def home(self, request: Request) -> Response:
        given = request.query_params.get("token")
        if given is not None:
            if not hmac.compare_digest(given.encode(), self.token.encode()):
                return PlainTextResponse("wrong token", 403, HEADERS)
            response: Response = RedirectResponse("/", 303, HEADERS)
            response.set_cookie(self.cookie, self.token, httponly=True, samesite="strict", path="/")
            return response
        if not self._allowed(request):
            words = "open the address that tally serve printed: it has the token"
            return PlainTextResponse(words, 403, HEADERS)
        return FileResponse(STATIC / "index.html", headers=HEADERS, media_type="text/html")

    # --- resources ---

    async def asset(self, request: Request) -> Response:
        name = request.path_params["file"]
        if name not in ASSETS:
            return PlainTextResponse("there is no such file", 404)
        return FileResponse(STATIC / name, media_type=ASSETS[name])

    async def catalogue(self, _: Request) -> Response:
        described = await run_in_threadpool(
            lambda: {
                "version": version(),
                "statistics": form.catalogue(),
                "aggregators": promises(),
                "folder": self.folder.name,
                "deployed": self.deployed is not None,
            }
        )
        return JSONResponse(described)

    async def options(self, request: Request) -> Response:
        action, statistic = request.path_params["action"], request.path_params["statistic"]
        if action not in form.ACTIONS:
            return JSONResponse({"error": "the action must be run or compare"}, 404)
        return JSONResponse(await run_in_threadpool(form.options_of, action, statistic))

    async def listed(self, _: Request) -> Response:
        seen = await run_in_threadpool(self.runs.all)
        return JSONResponse([each.summary() for each in seen])

    async def detail(self, request: Request) -> Response:
        seen = await run_in_threadpool(self.runs.one, request.path_params["name"])
        if seen is None:
            return JSONResponse({"error": "there is no such run"}, 404)
        return JSONResponse(seen.detail())

    async def file(self, request: Request) -> Response:
        name = request.path_params["file"]
        path = self.runs.file(request.path_params["name"], name)
        if path is None:
            return PlainTextResponse("there is no such file", 404)
        own = {"Content-Security-Policy": REPORT_POLICY} if name.endswith(".html") else {}
        return FileResponse(path, media_type=FILES[name], headers=own)

    async def begin(self, request: Request) -> Response:
        """Starts a simulation; never anything in a deployed federation."""
        origin = request.headers.get("origin", "")
        if origin.partition("://")[2] != request.headers.get("host"):
            return JSONResponse({"error": "runs can be started only from the page itself"}, 403)
        if self.deployed is not None:
            return JSONResponse({"error": "a page of a deployed federation starts no runs"}, 403)
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_BODY:
                return JSONResponse({"error": "the form is too long"}, 413)
        try:
            asked = json.loads(body)
        except (ValueError, RecursionError):
            return JSONResponse({"error": "the request is not JSON"}, 400)
        words = await run_in_threadpool(form.arguments, asked, self.local)
        return JSONResponse({"name": self.jobs.start(words)}, 201)

    # --- events ---

    async def events(self, request: Request) -> Response:
        if self._streams >= MOST_STREAMS:
            return PlainTextResponse("too many pages are open", 503)
        stream = self._stream(request, request.query_params.get("run", ""))
        return StreamingResponse(stream, media_type="text/event-stream")

    async def _stream(self, request: Request, run: str) -> AsyncIterator[str]:
        """Sends the list and one run, each whenever it changes."""
        self._streams += 1
        last: dict[str, str] = {}
        polls = 0
        try:
            while not await request.is_disconnected():
                seen = await run_in_threadpool(self.runs.all)
                found: dict[str, object] = {"runs": [each.summary() for each in seen]}
                chosen = next((each for each in seen if each.name == run), None)
                if chosen is not None:
                    found["run"] = chosen.detail()
                if self.deployed is not None and polls % FEDERATION_POLLS == 0:
                    found["federation"] = await run_in_threadpool(self.deployed.look)
                for event, value in found.items():
                    text = json.dumps(value)
                    if last.get(event) != text:
                        last[event] = text
                        yield f"event: {event}\ndata: {text}\n\n"
                polls += 1
                if polls % HEARTBEAT_POLLS == 0:
                    yield ": still here\n\n"
                await asyncio.sleep(POLL_SECONDS)
        finally:
            self._streams -= 1
