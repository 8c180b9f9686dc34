"""The gateway over HTTP: OTLP in, probes, and the routes of others, behind one authority.

Exports take the shortest way, past starlette: most requests are exports. Source of what is answered: the OTLP
specification, section "OTLP/HTTP" (https://opentelemetry.io/docs/specs/otlp/#otlphttp).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote

from goldspan import _guard
from goldspan._extras import require_server_extra
from goldspan._version import __version__
from goldspan.gateway.decoding.export_response import ExportResponse, http_response, quote_input
from goldspan.gateway.receivers.authorization import SESSION_COOKIE, Authorizer, is_browser_page, is_login_path
from goldspan.gateway.receivers.ingest import FULL_RETRY_SECONDS, ClientDisconnected
from goldspan.web.http_routes import SECURITY_HEADERS
from goldspan.web.page_templates import render

if TYPE_CHECKING:
    from goldspan.gateway.receivers.authorization import Authorizer
    from goldspan.gateway.receivers.ingest import Receiver
    from goldspan.gateway.resource_limits import Media, Signal

with require_server_extra():
    from starlette.requests import Request
    from starlette.responses import RedirectResponse, Response
    from starlette.routing import Route

_MAX_FORM_BYTES = 8 * 2**10
"""Bytes that a form may have."""
_MAX_RETURN_PATH_CHARACTERS = 2_000
"""Characters of an address that is kept for afterwards: written in a form, it may be three times as long."""
_COOKIE_MAX_AGE_SECONDS = 30 * 86400
"""Seconds that a browser keeps the cookie."""
_INVALID_TOKEN_MESSAGE = "This is not, or no longer, a token that may read."


def login_routes(authority: Authorizer) -> list[Route]:
    """Where a token is handed in, and where a browser forgets it."""
    return [
        Route("/enter", _enter_endpoint(authority), methods=["POST"]),
        Route("/leave", _leave_endpoint, methods=["POST"]),
    ]


def login_page(path: str, query: bytes = b"") -> Response:
    """The page that asks for a token, in place of the one that somebody wanted to see."""
    return _login_form(quote(path, safe="/:") + (f"?{query.decode('latin-1')}" if query else ""))


def not_found_response(request: Request, status: int) -> Response | None:
    """What somebody with a browser is shown at a path, or by a method, that there is not; None: it is for programs."""
    path = request.url.path
    if is_login_path(path) and request.method == "GET":
        return RedirectResponse("/", 303, SECURITY_HEADERS)  # as after going back to where a token was handed in
    if not is_browser_page(path) or status != 404:
        return None
    told = {"title": "Not here", "why": "There is no such page.", "view": ""}
    body = render("fault.html", version=__version__, is_live=True, can_leave=False, **told)
    return Response(body, 404, SECURITY_HEADERS, "text/html")


def _login_form(return_path: str, *, problem: str | None = None) -> Response:
    headers = {**SECURITY_HEADERS, "WWW-Authenticate": "Bearer"}
    body = render("enter.html", wanted=_local_path(return_path), problem=problem)
    return Response(body.encode("utf-8", "replace"), 401, headers, "text/html")


def _enter_endpoint(authority: Authorizer) -> Callable[[Request], Awaitable[Response]]:
    async def enter(request: Request) -> Response:
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > _MAX_FORM_BYTES:
                return Response("the form is too long", 413, {**SECURITY_HEADERS, "Connection": "close"}, "text/plain")
        form = parse_qs(body.decode("utf-8", "replace"))
        wanted = _local_path(form.get("wanted", ["/"])[0])
        session = authority.session_cookie_for(form.get("token", [""])[0].strip())
        if session is None:
            return _login_form(wanted, problem=_INVALID_TOKEN_MESSAGE)
        answer = RedirectResponse(wanted, 303, SECURITY_HEADERS)
        secure = request.url.scheme == "https"
        answer.set_cookie(
            SESSION_COOKIE, session, _COOKIE_MAX_AGE_SECONDS, path="/", secure=secure, httponly=True, samesite="lax"
        )
        return answer

    return enter


async def _leave_endpoint(request: Request) -> Response:
    answer = RedirectResponse("/", 303, SECURITY_HEADERS)
    answer.delete_cookie(SESSION_COOKIE, path="/")
    return answer


def _local_path(address: str) -> str:
    """An address on this server: whatever leads elsewhere leads to the first page."""
    inside = address.startswith("/") and not address.startswith(("//", "/\\", "/enter", "/leave"))
    return address if inside and address.isprintable() and len(address) <= _MAX_RETURN_PATH_CHARACTERS else "/"


with require_server_extra():
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
RawHeaders = list[tuple[bytes, bytes]]

EXPORT_PATHS: dict[str, Signal] = {"/v1/traces": "traces", "/v1/logs": "logs", "/v1/metrics": "metrics"}
"""The paths of OTLP/HTTP."""

_MEDIA_BY_CONTENT_TYPE: dict[bytes, Media] = {
    b"application/x-protobuf": "protobuf",
    b"application/protobuf": "protobuf",
    b"application/json": "json",
}
_OK_RESPONSE = ExportResponse(200)
_NO_HEADERS: RawHeaders = []
_COMMON_HEADERS: RawHeaders = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]
_BROWSER_HEADERS: RawHeaders = [
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
"""For what a browser may show: nothing that is answered here loads, embeds or runs anything."""
_CHUNK_BYTES = 64 * 2**10
_API_PREFIX = "/api/"
_API_ERROR_CODES = {401: "unauthenticated", 403: "forbidden"}
_NOT_FOUND_MESSAGE = "no such path; OTLP is sent to /v1/traces, /v1/logs and /v1/metrics"


def create_application(
    receiver: Receiver,
    authority: Authorizer,
    *,
    routes: Sequence[Route] = (),
    not_ready_reason: Callable[[], str | None],
) -> HttpApplication:
    """The ASGI application of a worker.

    `routes`: what others serve, behind the same authority. `ready`: None, or why no work should be sent here now.
    """
    return HttpApplication(receiver, authority, routes, not_ready_reason)


class HttpApplication:
    """An ASGI application; every request passes its authority first, also one for a path that there is not."""

    def __init__(
        self,
        receiver: Receiver,
        authority: Authorizer,
        routes: Sequence[Route],
        not_ready_reason: Callable[[], str | None],
    ) -> None:
        self._receiver = receiver
        self._authority = authority
        self._exports = {path: _ExportEndpoint(receiver, signal) for path, signal in EXPORT_PATHS.items()}
        self.routes: tuple[Route, ...] = (
            *(Route(path, export, methods=["POST"]) for path, export in self._exports.items()),
            Route("/healthz", _healthz),
            Route("/readyz", _readyz(not_ready_reason)),
            *login_routes(authority),
            *routes,
        )
        """All that it answers to."""
        self._starlette = Starlette(
            routes=self.routes, exception_handlers={HTTPException: _http_error, Exception: _internal_error}
        )
        self._starlette.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        path: str = scope["path"]
        headers: RawHeaders = scope["headers"]
        refused = self._authority.refusal_for(path, headers, scheme=scope["scheme"])
        export = self._exports.get(path)
        if refused is not None and path.startswith(_API_PREFIX):
            await _api_error(refused)(scope, receive, _with_security_headers(send))
        elif refused is not None and refused.http_status == 401 and is_browser_page(path) and _accepts_html(headers):
            await login_page(path, scope["query_string"])(scope, receive, _with_security_headers(send))
        elif refused is not None:
            signal = EXPORT_PATHS.get(path, "traces")
            if export is not None:
                self._receiver.count_response(signal, refused, transport="http")
            await _send_response(send, refused, signal, _request_media(headers) or "json", request_headers=headers)
        elif export is not None and scope["method"] == "POST":
            await export(scope, receive, send)
        else:
            await self._dispatch(scope, receive, send)

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._starlette(scope, receive, _with_security_headers(send))
        except Exception as error:  # a route of ours failed: that is for our log, not for a client
            with _guard.suppress_errors("answer a request"):
                raise error


class _ExportEndpoint:
    """The endpoint of one signal."""

    def __init__(self, receiver: Receiver, signal: Signal) -> None:
        self._receiver = receiver
        self._signal = signal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: RawHeaders = scope["headers"]
        media = _request_media(headers)
        if media is None:
            given = dict(headers).get(b"content-type", b"").decode("latin-1")
            answer = ExportResponse(
                415, f"Content-Type is {quote_input(given)}: send application/x-protobuf or application/json"
            )
            self._receiver.count_response(self._signal, answer, transport="http")
        else:
            try:
                answer = await self._receiver.receive(
                    self._signal, media, _AsgiBody(headers, receive), transport="http"
                )
            except ClientDisconnected:
                return
        await _send_response(send, answer, self._signal, media or "json", request_headers=headers)


class _AsgiBody:
    """A body as ASGI hands it over."""

    __slots__ = ("_receive", "content_encoding", "content_length")

    def __init__(self, headers: RawHeaders, receive: Receive) -> None:
        self._receive = receive
        self.content_length: int | None = None
        encodings = []
        for name, value in headers:
            if name == b"content-length":
                self.content_length = int(value)  # the parser has seen to it that it is a number
            elif name == b"content-encoding":
                encodings.append(value.decode("latin-1"))
        self.content_encoding = ", ".join(encodings) if encodings else None

    async def read_chunk(self) -> tuple[bytes, bool]:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        return message["body"], message["more_body"]


def _with_security_headers(send: Send) -> Send:
    """Adds the headers of security to what a route answers, where it has none of its own.

    It sends long answers piece by piece: each waits until the client has read most of those before it.
    """

    async def sealed(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            given = list(message.get("headers", ()))
            own = {name for name, _ in given}
            message["headers"] = given + [
                header for header in (*_COMMON_HEADERS, *_BROWSER_HEADERS) if header[0] not in own
            ]
        elif len(body := message.get("body", b"")) > _CHUNK_BYTES:
            last = (len(body) - 1) // _CHUNK_BYTES * _CHUNK_BYTES
            for begin in range(0, last, _CHUNK_BYTES):
                await send({**message, "body": body[begin : begin + _CHUNK_BYTES], "more_body": True})
            message["body"] = body[last:]
        await send(message)

    return sealed


def _accepts_html(headers: RawHeaders) -> bool:
    """Whether somebody with a browser asks, and no program."""
    return any(name == b"accept" and b"text/html" in value for name, value in headers)


def _request_media(headers: RawHeaders) -> Media | None:
    """How the body is written, by its Content-Type: without parameters, in letters of any size."""
    for name, value in headers:
        if name == b"content-type":
            return _MEDIA_BY_CONTENT_TYPE.get(value) or _MEDIA_BY_CONTENT_TYPE.get(
                value.partition(b";")[0].strip().lower()
            )
    return None


async def _send_response(
    send: Send, response: ExportResponse, signal: Signal, media: Media, *, request_headers: RawHeaders = _NO_HEADERS
) -> None:
    """Send an answer of OTLP. `asked`: the headers of the request."""
    if response == _OK_RESPONSE:
        status, (headers, body) = 200, _ENCODED_SUCCESS[signal, media]
    else:
        status, headers, body = _encode_response(response, signal, media)
        if response.http_status == 408 or any(name == b"expect" for name, _ in request_headers):
            headers.append((b"connection", b"close"))  # whether the rest of its body comes, nobody knows
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _api_error(answer: ExportResponse) -> Response:
    """An answer in the form of the API's own errors."""
    error = {"code": _API_ERROR_CODES.get(answer.http_status, "invalid_request"), "message": answer.message}
    headers = {"www-authenticate": "Bearer"} if answer.http_status == 401 else None
    return JSONResponse({"error": error}, answer.http_status, headers)


def _encode_response(answer: ExportResponse, signal: Signal, media: Media) -> tuple[int, RawHeaders, bytes]:
    status, named, body = http_response(answer, signal, media)
    headers = [(name.lower().encode(), value.encode()) for name, value in named.items()]
    headers += [(b"content-length", str(len(body)).encode()), *_COMMON_HEADERS]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return status, headers, body


def _encode_success(signal: Signal, media: Media) -> tuple[RawHeaders, bytes]:
    _, headers, body = _encode_response(_OK_RESPONSE, signal, media)
    return headers, body


_ENCODED_SUCCESS = {
    (signal, media): _encode_success(signal, media)
    for signal in EXPORT_PATHS.values()
    for media in set(_MEDIA_BY_CONTENT_TYPE.values())
}
"""What nearly every request is answered, made once."""


async def _healthz(request: Request) -> Response:
    return PlainTextResponse("ok")


def _readyz(not_ready_reason: Callable[[], str | None]) -> Callable[[Request], Awaitable[Response]]:
    async def readyz(request: Request) -> Response:
        why_not = not_ready_reason()
        if why_not is None:
            return PlainTextResponse("ready")
        return PlainTextResponse(why_not, 503, headers={"retry-after": "5"})

    return readyz


async def _http_error(request: Request, error: Exception) -> Response:
    """What starlette itself refuses: paths and methods that there are not."""
    assert isinstance(error, HTTPException)
    if _accepts_html(request.scope["headers"]) and (page := not_found_response(request, error.status_code)):
        return page
    message = _NOT_FOUND_MESSAGE if error.status_code == 404 else error.detail
    status, _, body = http_response(ExportResponse(error.status_code, message), "traces", "json")
    return Response(body, status, error.headers, "application/json")


async def _internal_error(request: Request, error: Exception) -> Response:
    answer = ExportResponse(503, "the gateway failed; its log says why", retry_after=FULL_RETRY_SECONDS)
    status, headers, body = http_response(answer, "traces", "json")
    return Response(body, status, headers)
