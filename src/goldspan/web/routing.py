"""The page over HTTP: its routes, for the gateway and for `goldspan view`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from goldspan.errors import GoldspanError
from goldspan.web.assets import FOLDER, asset
from goldspan.web.extra import needed
from goldspan.web.site import Answer, Site
from goldspan.web.stream import news

with needed():
    from starlette.concurrency import run_in_threadpool
    from starlette.convertors import PathConvertor, register_url_convertor
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Content security: everything comes from here, and nothing that stands inside a page is run or styles it."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",  # with none at all, browsers send forms as if from nowhere: `Origin: null`
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
VIEWS_AT_ONCE = 4
"""So many views are made at once; further requests wait for their turn."""
STREAMS_AT_ONCE = 64
"""So many may listen at once; others are told to come back."""
_FOR_GOOD = "public, max-age=31536000, immutable"


class AnyText(PathConvertor):
    """A part of a path that may have line breaks in it, beside slashes."""

    regex = r"[\s\S]*"


register_url_convertor("any_text", AnyText())


def routes(site: Site, *, ends: Callable[[], bool]) -> list[Route]:
    """The routes of the page. `ends` tells when open streams are to end."""
    pages = _Pages(site, ends)
    return [
        Route("/", pages.live),
        Route("/runs/{run_id:any_text}", pages.run),
        Route("/goldens", pages.goldens),
        Route("/goldens/{golden_id:any_text}", pages.golden),
        Route("/uncovered", pages.uncovered),
        Route("/trend", pages.trend),
        Route("/suggestions/{field}", pages.suggestions),
        Route("/news", pages.news),
        Route(FOLDER + "{name}", pages.asset),
        Route("/favicon.ico", pages.icon),
    ]


class _Pages:
    """The endpoints."""

    def __init__(self, site: Site, ends: Callable[[], bool]) -> None:
        self._site = site
        self._ends = ends
        self._turns = asyncio.Semaphore(VIEWS_AT_ONCE)
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

    async def _view(self, request: Request, view: Callable[[], Answer]) -> Response:
        waits = self._turns.locked()
        async with self._turns:
            if waits and await request.is_disconnected():  # who types asks again and again, and takes back what was
                return Response(status_code=503, headers=HEADERS)
            answer = await run_in_threadpool(self._site.answer, view)
        return Response(answer.body.encode("utf-8", "replace"), answer.status, HEADERS, answer.media)

    async def news(self, request: Request) -> Response:
        """The stream of news, from the place `after` on, or from where a stream broke off."""
        if self._streams >= STREAMS_AT_ONCE:
            return Response("too many listen already", 503, {**HEADERS, "Retry-After": "30"}, "text/plain")
        said = request.headers.get("last-event-id") or request.query_params.get("after", "")
        place = int(said) if said.isascii() and said.isdecimal() and len(said) < 19 else await self._newest(0)
        if await self._newest(place) < place:
            place = -1  # of another store, that this one stands in for: all of it is new, if only that it is empty
        return StreamingResponse(self._heard(place), 200, HEADERS, "text/event-stream")

    async def _heard(self, after: int) -> AsyncIterator[bytes]:
        self._streams += 1
        try:
            async for event in news(lambda: self._newest(after), after, self._ends):
                yield event
        finally:
            self._streams -= 1

    async def _newest(self, otherwise: int) -> int:
        with suppress(GoldspanError):
            return await run_in_threadpool(self._site.newest_arrival)
        return otherwise

    async def asset(self, request: Request) -> Response:
        found = asset(request.path_params["name"])
        if found is None:
            return await self._view(request, self._site.missing)
        kept = _FOR_GOOD if request.query_params.get("v") == found.version else "no-cache"
        return Response(found.body, 200, {**HEADERS, "Cache-Control": kept}, found.media)

    async def icon(self, request: Request) -> Response:
        found = asset("icon.svg")
        assert found is not None
        return Response(found.body, 200, {**HEADERS, "Cache-Control": "max-age=86400"}, found.media)
