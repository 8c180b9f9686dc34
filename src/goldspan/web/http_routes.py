"""Serves the page over HTTP: its routes, for the gateway and for `goldspan view`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from goldspan._extras import require_extra
from goldspan.errors import GoldspanError
from goldspan.web.page_templates import ASSETS_PATH, load_asset
from goldspan.web.pages import PageResponse, Pages

POLL_INTERVAL_S = 0.5
"""Seconds from one look into the store to the next."""
_KEEPALIVE_S = 15.0
"""Seconds after which something is sent even when nothing is new, so that a connection that is gone is noticed."""
_MAX_STREAM_S = 100.0
"""Seconds after which a stream ends; browsers come back by themselves. Servers bound how long an answer may take."""


async def server_sent_events(
    last_sequence_number: Callable[[], Awaitable[int]],
    after: int,
    is_ending: Callable[[], bool],
    *,
    interval: float = POLL_INTERVAL_S,
) -> AsyncIterator[bytes]:
    """Events that say up to which place the store has grown, each once, until `ends` says that it is over.

    A store that cannot be read now is asked again later: `newest` raises nothing, and answers the place before.
    """
    yield b"retry: 1000\n\n"
    quiet = lasted = 0.0
    while not is_ending() and lasted < _MAX_STREAM_S:
        now = await last_sequence_number()
        if now > after:
            after, quiet = now, 0.0
            yield f"event: arrived\nid: {now}\ndata: {now}\n\n".encode()
        elif quiet >= _KEEPALIVE_S:
            quiet = 0.0
            yield b": nothing new\n\n"
        await asyncio.sleep(interval)
        quiet += interval
        lasted += interval


with require_extra("web"):
    from starlette.concurrency import run_in_threadpool
    from starlette.convertors import PathConvertor, register_url_convertor
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Content security: everything comes from here, and nothing that stands inside a page is run or styles it."""
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Referrer-Policy": "same-origin",  # with none at all, browsers send forms as if from nowhere: `Origin: null`
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
MAX_CONCURRENT_VIEWS = 4
"""So many views are made at once; further requests wait for their turn."""
MAX_STREAMS = 64
"""So many may listen at once; others are told to come back."""
_CACHE_FOREVER = "public, max-age=31536000, immutable"


class AnyTextConvertor(PathConvertor):
    """A part of a path that may have line breaks in it, beside slashes."""

    regex = r"[\s\S]*"


register_url_convertor("any_text", AnyTextConvertor())


def page_routes(site: Pages, *, is_ending: Callable[[], bool]) -> list[Route]:
    """The routes of the page. `ends` tells when open streams are to end."""
    pages = _PageEndpoints(site, is_ending)
    return [
        Route("/", pages.live),
        Route("/runs/{run_id:any_text}", pages.run),
        Route("/goldens", pages.goldens),
        Route("/goldens/{golden_id:any_text}", pages.golden),
        Route("/uncovered", pages.uncovered),
        Route("/trend", pages.trend),
        Route("/suggestions/{field}", pages.suggestions),
        Route("/news", pages.news),
        Route(ASSETS_PATH + "{name}", pages.asset),
        Route("/favicon.ico", pages.icon),
    ]


class _PageEndpoints:
    """The endpoints."""

    def __init__(self, site: Pages, ends: Callable[[], bool]) -> None:
        self._site = site
        self._is_ending = ends
        self._view_slots = asyncio.Semaphore(MAX_CONCURRENT_VIEWS)
        self._streams = 0

    async def live(self, request: Request) -> Response:
        return await self._view(request, lambda: self._site.live(request.query_params.multi_items()))

    async def run(self, request: Request) -> Response:
        run_id = request.path_params["run_id"]
        return await self._view(request, lambda: self._site.run(run_id, request.query_params.multi_items()))

    async def goldens(self, request: Request) -> Response:
        return await self._view(request, lambda: self._site.goldens(request.query_params.multi_items()))

    async def golden(self, request: Request) -> Response:
        golden_id = request.path_params["golden_id"]
        return await self._view(request, lambda: self._site.golden(golden_id, request.query_params.multi_items()))

    async def uncovered(self, request: Request) -> Response:
        return await self._view(request, lambda: self._site.uncovered(request.query_params.multi_items()))

    async def trend(self, request: Request) -> Response:
        return await self._view(request, lambda: self._site.trend(request.query_params.multi_items()))

    async def suggestions(self, request: Request) -> Response:
        field = request.path_params["field"]
        return await self._view(request, lambda: self._site.suggestions(field))

    async def _view(self, request: Request, view: Callable[[], PageResponse]) -> Response:
        waits = self._view_slots.locked()
        async with self._view_slots:
            if waits and await request.is_disconnected():  # who types asks again and again, and takes back what was
                return Response(status_code=503, headers=SECURITY_HEADERS)
            answer = await run_in_threadpool(self._site.respond, view)
        return Response(answer.body.encode("utf-8", "replace"), answer.status, SECURITY_HEADERS, answer.media_type)

    async def news(self, request: Request) -> Response:
        """The stream of news, from the place `after` on, or from where a stream broke off."""
        if self._streams >= MAX_STREAMS:
            return Response("too many listen already", 503, {**SECURITY_HEADERS, "Retry-After": "30"}, "text/plain")
        said = request.headers.get("last-event-id") or request.query_params.get("after", "")
        place = (
            int(said) if said.isascii() and said.isdecimal() and len(said) < 19 else await self._last_sequence_number(0)
        )
        if await self._last_sequence_number(place) < place:
            place = -1  # of another store, that this one stands in for: all of it is new, if only that it is empty
        return StreamingResponse(self._stream_events(place), 200, SECURITY_HEADERS, "text/event-stream")

    async def _stream_events(self, after: int) -> AsyncIterator[bytes]:
        self._streams += 1
        try:
            async for event in server_sent_events(lambda: self._last_sequence_number(after), after, self._is_ending):
                yield event
        finally:
            self._streams -= 1

    async def _last_sequence_number(self, otherwise: int) -> int:
        with suppress(GoldspanError):
            return await run_in_threadpool(self._site.last_sequence_number)
        return otherwise

    async def asset(self, request: Request) -> Response:
        found = load_asset(request.path_params["name"])
        if found is None:
            return await self._view(request, self._site.not_found)
        kept = _CACHE_FOREVER if request.query_params.get("v") == found.version else "no-cache"
        return Response(found.body, 200, {**SECURITY_HEADERS, "Cache-Control": kept}, found.media_type)

    async def icon(self, request: Request) -> Response:
        found = load_asset("icon.svg")
        assert found is not None
        return Response(found.body, 200, {**SECURITY_HEADERS, "Cache-Control": "max-age=86400"}, found.media_type)
