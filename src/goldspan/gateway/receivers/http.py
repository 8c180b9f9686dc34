"""The ASGI application of the gateway: OTLP/HTTP, probes, browser login and the routes of the API.

Every request is authorized first. Exports then bypass starlette, because most requests are exports. Their responses
follow the OTLP specification, section "OTLP/HTTP" (https://opentelemetry.io/docs/specs/otlp/#otlphttp).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote

from goldspan import _guard
from goldspan._extras import require_extra
from goldspan._version import __version__
from goldspan.gateway.decoding.export_response import ExportResponse, http_response, quote_input
from goldspan.gateway.receivers.authorization import SESSION_COOKIE, is_browser_page, is_login_path
from goldspan.gateway.receivers.ingest import FULL_RETRY_SECONDS, ClientDisconnected
from goldspan.web.http_routes import SECURITY_HEADERS
from goldspan.web.page_templates import render

with require_extra("server"):
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
    from starlette.routing import Route

if TYPE_CHECKING:
    from goldspan.gateway.receivers.authorization import Authorizer
    from goldspan.gateway.receivers.ingest import Receiver
    from goldspan.gateway.resource_limits import Media, Signal

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
"""For responses that a browser may render. By default a response loads, embeds and runs nothing."""
_CHUNK_BYTES = 64 * 2**10
_API_PREFIX = "/api/"
_API_ERROR_CODES = {401: "unauthenticated", 403: "forbidden"}
_NOT_FOUND_MESSAGE = "the path does not exist; send OTLP to /v1/traces, /v1/logs or /v1/metrics"
_MAX_FORM_BYTES = 8 * 2**10
"""Maximum size of the login form."""
_MAX_RETURN_PATH_CHARACTERS = 2_000
"""Maximum length of the address to return to after the login; up to three times as long in the form."""
_COOKIE_MAX_AGE_SECONDS = 30 * 86400
"""How long a browser keeps the session cookie."""
_INVALID_TOKEN_MESSAGE = "This token does not permit reading."


def create_application(
    receiver: Receiver,
    authorizer: Authorizer,
    *,
    routes: Sequence[Route] = (),
    not_ready_reason: Callable[[], str | None],
    degraded_reason: Callable[[], str | None] = lambda: None,
) -> HttpApplication:
    """Return the ASGI application of a worker.

    `routes` are additional routes behind the same authorization. `not_ready_reason` returns None, or why the worker
    should receive no requests now. `degraded_reason` returns None, or what does not work although it should.
    """
    return HttpApplication(receiver, authorizer, routes, not_ready_reason, degraded_reason)


class HttpApplication:
    """An ASGI application that authorizes every request first, including requests for unknown paths."""

    def __init__(
        self,
        receiver: Receiver,
        authorizer: Authorizer,
        routes: Sequence[Route],
        not_ready_reason: Callable[[], str | None],
        degraded_reason: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._receiver = receiver
        self._authorizer = authorizer
        self._exports = {path: _ExportEndpoint(receiver, signal) for path, signal in EXPORT_PATHS.items()}
        self.routes: tuple[Route, ...] = (
            *(Route(path, export, methods=["POST"]) for path, export in self._exports.items()),
            Route("/healthz", _healthz),
            Route("/readyz", _readyz(not_ready_reason, degraded_reason)),
            *login_routes(authorizer),
            *routes,
        )
        """All routes of the application."""
        self._starlette = Starlette(
            routes=self.routes, exception_handlers={HTTPException: _http_error, Exception: _internal_error}
        )
        self._starlette.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        path: str = scope["path"]
        headers: RawHeaders = scope["headers"]
        refusal = self._authorizer.refusal_for(path, headers, scheme=scope["scheme"])
        export = self._exports.get(path)
        if refusal is not None and path.startswith(_API_PREFIX):
            await _api_error(refusal)(scope, receive, _with_security_headers(send))
        elif refusal is not None and refusal.http_status == 401 and is_browser_page(path) and _accepts_html(headers):
            await login_page(path, scope["query_string"])(scope, receive, _with_security_headers(send))
        elif refusal is not None:
            signal = EXPORT_PATHS.get(path, "traces")
            if export is not None:
                self._receiver.count_response(signal, refusal, transport="http")
            await _send_response(send, refusal, signal, _request_media(headers) or "json", request_headers=headers)
        elif export is not None and scope["method"] == "POST":
            await export(scope, receive, send)
        else:
            await self._dispatch(scope, receive, send)

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._starlette(scope, receive, _with_security_headers(send))
        except Exception as error:  # a failed route is logged here; the client gets no details
            with _guard.suppress_errors("answer a request"):
                raise error


class _ExportEndpoint:
    """The export endpoint of one signal."""

    def __init__(self, receiver: Receiver, signal: Signal) -> None:
        self._receiver = receiver
        self._signal = signal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: RawHeaders = scope["headers"]
        media = _request_media(headers)
        if media is None:
            content_type = dict(headers).get(b"content-type", b"").decode("latin-1")
            response = ExportResponse(
                415, f"Content-Type is {quote_input(content_type)}: send application/x-protobuf or application/json"
            )
            self._receiver.count_response(self._signal, response, transport="http")
        else:
            try:
                response = await self._receiver.receive(
                    self._signal, media, _AsgiBody(headers, receive), transport="http"
                )
            except ClientDisconnected:
                return
        await _send_response(send, response, self._signal, media or "json", request_headers=headers)


class _AsgiBody:
    """The request body of an ASGI request."""

    __slots__ = ("_receive", "content_encoding", "content_length")

    def __init__(self, headers: RawHeaders, receive: Receive) -> None:
        self._receive = receive
        self.content_length: int | None = None
        encodings = []
        for name, value in headers:
            if name == b"content-length":
                self.content_length = int(value)  # the parser has verified that it is a number
            elif name == b"content-encoding":
                encodings.append(value.decode("latin-1"))
        self.content_encoding = ", ".join(encodings) if encodings else None

    async def read_chunk(self) -> tuple[bytes, bool]:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        return message["body"], message["more_body"]


def _with_security_headers(send: Send) -> Send:
    """Return a `send` that adds the security headers that a response does not set itself.

    It sends long bodies in chunks. Each waits until the client has read most of the chunks before it.
    """

    async def send_with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            names = {name for name, _ in headers}
            message["headers"] = headers + [
                header for header in (*_COMMON_HEADERS, *_BROWSER_HEADERS) if header[0] not in names
            ]
        elif len(body := message.get("body", b"")) > _CHUNK_BYTES:
            last = (len(body) - 1) // _CHUNK_BYTES * _CHUNK_BYTES
            for begin in range(0, last, _CHUNK_BYTES):
                await send({**message, "body": body[begin : begin + _CHUNK_BYTES], "more_body": True})
            message["body"] = body[last:]
        await send(message)

    return send_with_headers


def _accepts_html(headers: RawHeaders) -> bool:
    """Return whether the client is a browser, which accepts HTML."""
    return any(name == b"accept" and b"text/html" in value for name, value in headers)


def _request_media(headers: RawHeaders) -> Media | None:
    """Return the encoding of the body by its Content-Type, ignoring parameters and case; None if unsupported."""
    for name, value in headers:
        if name == b"content-type":
            return _MEDIA_BY_CONTENT_TYPE.get(value) or _MEDIA_BY_CONTENT_TYPE.get(
                value.partition(b";")[0].strip().lower()
            )
    return None


async def _send_response(
    send: Send, response: ExportResponse, signal: Signal, media: Media, *, request_headers: RawHeaders = _NO_HEADERS
) -> None:
    """Send an OTLP response to a request with these headers."""
    if response == _OK_RESPONSE:
        status, (headers, body) = 200, _ENCODED_SUCCESS[signal, media]
    else:
        status, headers, body = _encode_response(response, signal, media)
        if response.http_status == 408 or any(name == b"expect" for name, _ in request_headers):
            headers.append((b"connection", b"close"))  # the rest of the body may or may not follow
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _api_error(response: ExportResponse) -> Response:
    """Return a refusal in the error format of the API."""
    error = {"code": _API_ERROR_CODES.get(response.http_status, "invalid_request"), "message": response.message}
    headers = {"www-authenticate": "Bearer"} if response.http_status == 401 else None
    return JSONResponse({"error": error}, response.http_status, headers)


def _encode_response(response: ExportResponse, signal: Signal, media: Media) -> tuple[int, RawHeaders, bytes]:
    status, header_map, body = http_response(response, signal, media)
    headers = [(name.lower().encode(), value.encode()) for name, value in header_map.items()]
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
"""The response of nearly every request, encoded once."""


async def _healthz(request: Request) -> Response:
    return PlainTextResponse("ok")


def _readyz(
    not_ready_reason: Callable[[], str | None], degraded_reason: Callable[[], str | None]
) -> Callable[[Request], Awaitable[Response]]:
    async def readyz(request: Request) -> Response:
        reason = not_ready_reason()
        if reason is None:
            problem = degraded_reason()
            return PlainTextResponse("ready" if problem is None else f"ready, but {problem}")
        return PlainTextResponse(reason, 503, headers={"retry-after": "5"})

    return readyz


async def _http_error(request: Request, error: Exception) -> Response:
    """Respond to the requests that starlette refuses: unknown paths and methods."""
    assert isinstance(error, HTTPException)
    if _accepts_html(request.scope["headers"]) and (page := not_found_response(request, error.status_code)):
        return page
    message = _NOT_FOUND_MESSAGE if error.status_code == 404 else error.detail
    status, _, body = http_response(ExportResponse(error.status_code, message), "traces", "json")
    return Response(body, status, error.headers, "application/json")


async def _internal_error(request: Request, error: Exception) -> Response:
    response = ExportResponse(503, "the gateway failed; its log has the reason", retry_after=FULL_RETRY_SECONDS)
    status, headers, body = http_response(response, "traces", "json")
    return Response(body, status, headers)


def login_routes(authorizer: Authorizer) -> list[Route]:
    """Return the routes of the browser login: submit a token, and log out."""
    return [
        Route("/enter", _enter_endpoint(authorizer), methods=["POST"]),
        Route("/leave", _leave_endpoint, methods=["POST"]),
    ]


def login_page(path: str, query: bytes = b"") -> Response:
    """Return the login page, which redirects to the requested address after the login."""
    return _login_form(quote(path, safe="/:") + (f"?{query.decode('latin-1')}" if query else ""))


def not_found_response(request: Request, status: int) -> Response | None:
    """Return the response of a browser's request for an unknown path or method; None if the path is for programs."""
    path = request.url.path
    if is_login_path(path) and request.method == "GET":
        return RedirectResponse("/", 303, SECURITY_HEADERS)  # for example after going back in the history to the login
    if not is_browser_page(path) or status != 404:
        return None
    texts = {"title": "Page not found", "why": "This page does not exist.", "view": ""}
    body = render("fault.html", version=__version__, is_live=True, can_leave=False, **texts)
    return Response(body, 404, SECURITY_HEADERS, "text/html")


def _login_form(return_path: str, *, problem: str | None = None) -> Response:
    headers = {**SECURITY_HEADERS, "WWW-Authenticate": "Bearer"}
    body = render("enter.html", wanted=_local_path(return_path), problem=problem)
    return Response(body.encode("utf-8", "replace"), 401, headers, "text/html")


def _enter_endpoint(authorizer: Authorizer) -> Callable[[Request], Awaitable[Response]]:
    async def enter(request: Request) -> Response:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MAX_FORM_BYTES:
                return Response("the form is too long", 413, {**SECURITY_HEADERS, "Connection": "close"}, "text/plain")
        form = parse_qs(body.decode("utf-8", "replace"))
        return_path = _local_path(form.get("wanted", ["/"])[0])
        session = authorizer.session_cookie_for(form.get("token", [""])[0].strip())
        if session is None:
            return _login_form(return_path, problem=_INVALID_TOKEN_MESSAGE)
        response = RedirectResponse(return_path, 303, SECURITY_HEADERS)
        is_secure = request.url.scheme == "https"
        response.set_cookie(
            SESSION_COOKIE, session, _COOKIE_MAX_AGE_SECONDS, path="/", secure=is_secure, httponly=True, samesite="lax"
        )
        return response

    return enter


async def _leave_endpoint(request: Request) -> Response:
    response = RedirectResponse("/", 303, SECURITY_HEADERS)
    response.delete_cookie(SESSION_COOKIE, path="/")
    return response


def _local_path(address: str) -> str:
    """Return an address if it is a page of this server, otherwise `/`."""
    is_local = address.startswith("/") and not address.startswith(("//", "/\\", "/enter", "/leave"))
    return address if is_local and address.isprintable() and len(address) <= _MAX_RETURN_PATH_CHARACTERS else "/"
