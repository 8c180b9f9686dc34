"""How somebody with a browser gets in where tokens are asked for: once with a token, and then with a cookie.

Programs send their token with every request; a browser cannot. The cookie is made of the token and cannot be turned
back into it, opens the page alone and not the API, and is worth nothing once the token is none any more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs, quote

from goldspan._version import __version__
from goldspan.gateway.doors.authority import COOKIE, Authority, is_entrance, is_page
from goldspan.gateway.extra import needed
from goldspan.web.routing import HEADERS
from goldspan.web.templates import render

with needed():
    from starlette.requests import Request
    from starlette.responses import RedirectResponse, Response
    from starlette.routing import Route

_MOST = 8 * 2**10
"""Bytes that a form may have."""
_LONGEST = 2_000
"""Characters of an address that is kept for afterwards: written in a form, it may be three times as long."""
_KEPT = 30 * 86400
"""Seconds that a browser keeps the cookie."""
_WRONG = "This is not, or no longer, a token that may read."


def routes(authority: Authority) -> list[Route]:
    """Where a token is handed in, and where a browser forgets it."""
    return [Route("/enter", _entering(authority), methods=["POST"]), Route("/leave", _leave, methods=["POST"])]


def asking(path: str, query: bytes = b"") -> Response:
    """The page that asks for a token, in place of the one that somebody wanted to see."""
    return _form(quote(path, safe="/:") + (f"?{query.decode('latin-1')}" if query else ""))


def astray(request: Request, status: int) -> Response | None:
    """What somebody with a browser is shown at a path, or by a method, that there is not; None: it is for programs."""
    path = request.url.path
    if is_entrance(path) and request.method == "GET":
        return RedirectResponse("/", 303, HEADERS)  # as after going back to where a token was handed in
    if not is_page(path) or status != 404:
        return None
    told = {"title": "Not here", "why": "There is no such page.", "view": ""}
    body = render("fault.html", version=__version__, is_live=True, can_leave=False, **told)
    return Response(body, 404, HEADERS, "text/html")


def _form(wanted: str, *, problem: str | None = None) -> Response:
    headers = {**HEADERS, "WWW-Authenticate": "Bearer"}
    body = render("enter.html", wanted=_local(wanted), problem=problem)
    return Response(body.encode("utf-8", "replace"), 401, headers, "text/html")


def _entering(authority: Authority) -> Callable[[Request], Awaitable[Response]]:
    async def enter(request: Request) -> Response:
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > _MOST:
                return Response("the form is too long", 413, {**HEADERS, "Connection": "close"}, "text/plain")
        form = parse_qs(body.decode("utf-8", "replace"))
        wanted = _local(form.get("wanted", ["/"])[0])
        session = authority.session_for(form.get("token", [""])[0].strip())
        if session is None:
            return _form(wanted, problem=_WRONG)
        answer = RedirectResponse(wanted, 303, HEADERS)
        secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, session, _KEPT, path="/", secure=secure, httponly=True, samesite="lax")
        return answer

    return enter


async def _leave(request: Request) -> Response:
    answer = RedirectResponse("/", 303, HEADERS)
    answer.delete_cookie(COOKIE, path="/")
    return answer


def _local(address: str) -> str:
    """An address on this server: whatever leads elsewhere leads to the first page."""
    inside = address.startswith("/") and not address.startswith(("//", "/\\", "/enter", "/leave"))
    return address if inside and address.isprintable() and len(address) <= _LONGEST else "/"
