"""Serves the page over HTTP: its routes for the gateway, and a server for `goldspan view`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from goldspan._extras import require_extra
from goldspan.errors import ConfigurationError, GoldspanError
from goldspan.web.page_templates import ASSETS_PATH, load_asset
from goldspan.web.pages import PageResponse, Pages

with require_extra("web"):
    import uvicorn
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.convertors import PathConvertor, register_url_convertor
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

POLL_INTERVAL_S = 0.5
"""Seconds between two queries for new runs."""
_KEEPALIVE_S = 15.0
"""Seconds without an event after which the stream sends a comment, so that a closed connection is detected."""
_MAX_STREAM_S = 100.0
"""Seconds after which a stream ends, because servers limit the duration of a response. Browsers reconnect."""
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""All scripts, styles and data come from this server; inline scripts and styles are not allowed."""
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Referrer-Policy": "same-origin",  # with `no-referrer`, browsers send forms with `Origin: null`
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
MAX_CONCURRENT_VIEWS = 4
"""Views that are rendered concurrently; further requests wait."""
MAX_STREAMS = 64
"""Streams that are open at the same time; further clients get 503 with `Retry-After`."""
_CACHE_FOREVER = "public, max-age=31536000, immutable"


class AnyTextConvertor(PathConvertor):
    """A part of a path that may contain slashes and line breaks."""

    regex = r"[\s\S]*"


register_url_convertor("any_text", AnyTextConvertor())


def page_routes(pages: Pages, *, is_ending: Callable[[], bool]) -> list[Route]:
    """Return the routes of the page. Open streams end when `is_ending` returns `True`."""
    endpoints = _PageEndpoints(pages, is_ending)
    return [
        Route("/", endpoints.live),
        Route("/runs/{run_id:any_text}", endpoints.run),
        Route("/goldens", endpoints.goldens),
        Route("/goldens/{golden_id:any_text}", endpoints.golden),
        Route("/uncovered", endpoints.uncovered),
        Route("/trend", endpoints.trend),
        Route("/suggestions/{field}", endpoints.suggestions),
        Route("/news", endpoints.news),
        Route(ASSETS_PATH + "{name}", endpoints.asset),
        Route("/favicon.ico", endpoints.icon),
    ]


class _PageEndpoints:
    def __init__(self, pages: Pages, is_ending: Callable[[], bool]) -> None:
        self._pages = pages
        self._is_ending = is_ending
        self._view_slots = asyncio.Semaphore(MAX_CONCURRENT_VIEWS)
        self._streams = 0

    async def live(self, request: Request) -> Response:
        return await self._view(request, lambda: self._pages.live(request.query_params.multi_items()))

    async def run(self, request: Request) -> Response:
        run_id = request.path_params["run_id"]
        return await self._view(request, lambda: self._pages.run(run_id, request.query_params.multi_items()))

    async def goldens(self, request: Request) -> Response:
        return await self._view(request, lambda: self._pages.goldens(request.query_params.multi_items()))

    async def golden(self, request: Request) -> Response:
        golden_id = request.path_params["golden_id"]
        return await self._view(request, lambda: self._pages.golden(golden_id, request.query_params.multi_items()))

    async def uncovered(self, request: Request) -> Response:
        return await self._view(request, lambda: self._pages.uncovered(request.query_params.multi_items()))

    async def trend(self, request: Request) -> Response:
        return await self._view(request, lambda: self._pages.trend(request.query_params.multi_items()))

    async def suggestions(self, request: Request) -> Response:
        field = request.path_params["field"]
        return await self._view(request, lambda: self._pages.suggestions(field))

    async def _view(self, request: Request, view: Callable[[], PageResponse]) -> Response:
        has_waited = self._view_slots.locked()
        async with self._view_slots:
            # A browser cancels its requests for a list while the user types.
            if has_waited and await request.is_disconnected():
                return Response(status_code=503, headers=SECURITY_HEADERS)
            response = await run_in_threadpool(self._pages.respond, view)
        return Response(
            response.body.encode("utf-8", "replace"), response.status, SECURITY_HEADERS, response.media_type
        )

    async def news(self, request: Request) -> Response:
        """Stream the numbers of newly stored runs, after `Last-Event-ID` or the parameter `after`."""
        if self._streams >= MAX_STREAMS:
            return Response("too many open streams", 503, {**SECURITY_HEADERS, "Retry-After": "30"}, "text/plain")
        text = request.headers.get("last-event-id") or request.query_params.get("after", "")
        is_number = text.isascii() and text.isdecimal() and len(text) < 19
        after = int(text) if is_number else await self._last_sequence_number(0)
        if await self._last_sequence_number(after) < after:
            after = (
                -1
            )  # the number is from a store that this one has replaced: announce everything, even an empty store
        return StreamingResponse(self._stream_events(after), 200, SECURITY_HEADERS, "text/event-stream")

    async def _stream_events(self, after: int) -> AsyncIterator[bytes]:
        self._streams += 1
        try:
            async for event in server_sent_events(lambda: self._last_sequence_number(after), after, self._is_ending):
                yield event
        finally:
            self._streams -= 1

    async def _last_sequence_number(self, default: int) -> int:
        with suppress(GoldspanError):
            return await run_in_threadpool(self._pages.last_sequence_number)
        return default

    async def asset(self, request: Request) -> Response:
        asset = load_asset(request.path_params["name"])
        if asset is None:
            return await self._view(request, self._pages.not_found)
        cache_control = _CACHE_FOREVER if request.query_params.get("v") == asset.version else "no-cache"
        return Response(asset.body, 200, {**SECURITY_HEADERS, "Cache-Control": cache_control}, asset.media_type)

    async def icon(self, request: Request) -> Response:
        asset = load_asset("icon.svg")
        assert asset is not None
        return Response(asset.body, 200, {**SECURITY_HEADERS, "Cache-Control": "max-age=86400"}, asset.media_type)


async def server_sent_events(
    last_sequence_number: Callable[[], Awaitable[int]],
    after: int,
    is_ending: Callable[[], bool],
    *,
    interval: float = POLL_INTERVAL_S,
) -> AsyncIterator[bytes]:
    """Yield an event for each new highest sequence number of the store, until `is_ending` returns `True`.

    `last_sequence_number` must not raise: while the store cannot be read, it returns the previous number.
    """
    yield b"retry: 1000\n\n"
    idle_s = elapsed_s = 0.0
    while not is_ending() and elapsed_s < _MAX_STREAM_S:
        newest = await last_sequence_number()
        if newest > after:
            after, idle_s = newest, 0.0
            yield f"event: arrived\nid: {newest}\ndata: {newest}\n\n".encode()
        elif idle_s >= _KEEPALIVE_S:
            idle_s = 0.0
            yield b": nothing new\n\n"
        await asyncio.sleep(interval)
        idle_s += interval
        elapsed_s += interval


# --- the server of `goldspan view` ------------------------------------------------------------------------------------

HOST = "127.0.0.1"
_ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]
"""Accepted values of the header `Host`. They prevent DNS rebinding: a foreign page sends its own name."""
_SHUTDOWN_TIMEOUT_S = 2
"""Seconds that open streams have to end."""


class LocalServer:
    """Serves the page on loopback. The constructor binds the port; `serve` answers until Ctrl-C or SIGTERM.

    Port 0 selects a free port. Raises `ConfigurationError` for a port that another program uses.
    """

    def __init__(self, pages: Pages, port: int) -> None:
        self._socket = _listening_socket(port)
        self._server = uvicorn.Server(
            uvicorn.Config(
                asgi_application(pages, is_ending=lambda: self._server.should_exit),
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT_S,
            )
        )

    @property
    def address(self) -> str:
        """The URL of the page."""
        return f"http://{HOST}:{self._socket.getsockname()[1]}/"

    def serve(self) -> None:
        """Answer requests until the server is stopped."""
        with self._socket:
            self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Stop `serve`, which runs in another thread."""
        self._server.should_exit = True


def asgi_application(pages: Pages, *, is_ending: Callable[[], bool]) -> Starlette:
    """Return the page as an ASGI application for callers on this machine."""

    async def not_found(request: Request, error: Exception) -> Response:
        response = pages.not_found()
        return Response(response.body, response.status, SECURITY_HEADERS, response.media_type)

    return Starlette(
        routes=page_routes(pages, is_ending=is_ending),
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=_ALLOWED_HOSTS, www_redirect=False)],
        exception_handlers={404: not_found},
    )


def _listening_socket(port: int) -> socket.socket:
    listener = socket.socket()
    try:
        listener.bind((HOST, port))
        listener.listen(64)
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"port {port} cannot be used ({error.strerror}); select another one with --port, or 0 for a free one"
        ) from None
    return listener
