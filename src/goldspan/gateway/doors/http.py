"""The gateway over HTTP: OTLP in, probes, and the routes of others, behind one authority.

Exports take the shortest way, past starlette: most requests are exports. Source of what is answered: the OTLP
specification, section "OTLP/HTTP" (https://opentelemetry.io/docs/specs/otlp/#otlphttp).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from goldspan import _guard
from goldspan.gateway.doors import entrance
from goldspan.gateway.doors.authority import is_page
from goldspan.gateway.doors.receiver import FULL_SECONDS, Gone
from goldspan.gateway.extra import needed
from goldspan.gateway.intake.answers import Answer, http_answer, quoted

with needed():
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route

if TYPE_CHECKING:
    from goldspan.gateway.doors.authority import Authority
    from goldspan.gateway.doors.receiver import Receiver
    from goldspan.gateway.signals import Media, Signal

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
RawHeaders = list[tuple[bytes, bytes]]

EXPORTS: dict[str, Signal] = {"/v1/traces": "traces", "/v1/logs": "logs", "/v1/metrics": "metrics"}
"""The paths of OTLP/HTTP."""

_MEDIA: dict[bytes, Media] = {
    b"application/x-protobuf": "protobuf",
    b"application/protobuf": "protobuf",
    b"application/json": "json",
}
_ACCEPTED = Answer(200)
_NONE: RawHeaders = []
_ALWAYS: RawHeaders = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]
_PAGES: RawHeaders = [
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
"""For what a browser may show: nothing that is answered here loads, embeds or runs anything."""
_PIECE = 64 * 2**10
_API = "/api/"
_API_CODES = {401: "unauthenticated", 403: "forbidden"}
_LOST = "no such path; OTLP is sent to /v1/traces, /v1/logs and /v1/metrics"


def application(
    receiver: Receiver, authority: Authority, *, routes: Sequence[Route] = (), ready: Callable[[], str | None]
) -> Application:
    """The ASGI application of a worker.

    `routes`: what others serve, behind the same authority. `ready`: None, or why no work should be sent here now.
    """
    return Application(receiver, authority, routes, ready)


class Application:
    """An ASGI application; every request passes its authority first, also one for a path that there is not."""

    def __init__(
        self, receiver: Receiver, authority: Authority, routes: Sequence[Route], ready: Callable[[], str | None]
    ) -> None:
        self._receiver = receiver
        self._authority = authority
        self._exports = {path: _Export(receiver, signal) for path, signal in EXPORTS.items()}
        self.routes: tuple[Route, ...] = (
            *(Route(path, export, methods=["POST"]) for path, export in self._exports.items()),
            Route("/healthz", _healthz),
            Route("/readyz", _readyz(ready)),
            *entrance.routes(authority),
            *routes,
        )
        """All that it answers to."""
        self._rest = Starlette(routes=self.routes, exception_handlers={HTTPException: _fault, Exception: _failed})
        self._rest.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        path: str = scope["path"]
        headers: RawHeaders = scope["headers"]
        refused = self._authority.refuse(path, headers, scheme=scope["scheme"])
        export = self._exports.get(path)
        if refused is not None and path.startswith(_API):
            await _refusal_of_the_api(refused)(scope, receive, _sealing(send))
        elif refused is not None and refused.status == 401 and is_page(path) and _wants_html(headers):
            await entrance.asking(path, scope["query_string"])(scope, receive, _sealing(send))
        elif refused is not None:
            signal = EXPORTS.get(path, "traces")
            if export is not None:
                self._receiver.count(signal, refused, transport="http")
            await _answer(send, refused, signal, _media_of(headers) or "json", asked=headers)
        elif export is not None and scope["method"] == "POST":
            await export(scope, receive, send)
        else:
            await self._pass(scope, receive, send)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._rest(scope, receive, _sealing(send))
        except Exception as error:  # a route of ours failed: that is for our log, not for a client
            with _guard.guard("answer a request"):
                raise error


class _Export:
    """The endpoint of one signal."""

    def __init__(self, receiver: Receiver, signal: Signal) -> None:
        self._receiver = receiver
        self._signal = signal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: RawHeaders = scope["headers"]
        media = _media_of(headers)
        if media is None:
            given = dict(headers).get(b"content-type", b"").decode("latin-1")
            answer = Answer(415, f"Content-Type is {quoted(given)}: send application/x-protobuf or application/json")
            self._receiver.count(self._signal, answer, transport="http")
        else:
            try:
                answer = await self._receiver.receive(self._signal, media, _Body(headers, receive), transport="http")
            except Gone:
                return
        await _answer(send, answer, self._signal, media or "json", asked=headers)


class _Body:
    """A body as ASGI hands it over."""

    __slots__ = ("_receive", "encoding", "length")

    def __init__(self, headers: RawHeaders, receive: Receive) -> None:
        self._receive = receive
        self.length: int | None = None
        encodings = []
        for name, value in headers:
            if name == b"content-length":
                self.length = int(value)  # the parser has seen to it that it is a number
            elif name == b"content-encoding":
                encodings.append(value.decode("latin-1"))
        self.encoding = ", ".join(encodings) if encodings else None

    async def piece(self) -> tuple[bytes, bool]:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise Gone
        return message["body"], message["more_body"]


def _sealing(send: Send) -> Send:
    """Adds the headers of security to what a route answers, where it has none of its own.

    It sends long answers piece by piece: each waits until the client has read most of those before it.
    """

    async def sealed(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            given = list(message.get("headers", ()))
            own = {name for name, _ in given}
            message["headers"] = given + [header for header in (*_ALWAYS, *_PAGES) if header[0] not in own]
        elif len(body := message.get("body", b"")) > _PIECE:
            last = (len(body) - 1) // _PIECE * _PIECE
            for begin in range(0, last, _PIECE):
                await send({**message, "body": body[begin : begin + _PIECE], "more_body": True})
            message["body"] = body[last:]
        await send(message)

    return sealed


def _wants_html(headers: RawHeaders) -> bool:
    """Whether somebody with a browser asks, and no program."""
    return any(name == b"accept" and b"text/html" in value for name, value in headers)


def _media_of(headers: RawHeaders) -> Media | None:
    """How the body is written, by its Content-Type: without parameters, in letters of any size."""
    for name, value in headers:
        if name == b"content-type":
            return _MEDIA.get(value) or _MEDIA.get(value.partition(b";")[0].strip().lower())
    return None


async def _answer(send: Send, answer: Answer, signal: Signal, media: Media, *, asked: RawHeaders = _NONE) -> None:
    """Send an answer of OTLP. `asked`: the headers of the request."""
    if answer == _ACCEPTED:
        status, (headers, body) = 200, _SUCCESS[signal, media]
    else:
        status, headers, body = _written(answer, signal, media)
        if answer.status == 408 or any(name == b"expect" for name, _ in asked):
            headers.append((b"connection", b"close"))  # whether the rest of its body comes, nobody knows
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _refusal_of_the_api(answer: Answer) -> Response:
    """An answer in the form of the API's own errors."""
    error = {"code": _API_CODES.get(answer.status, "invalid_request"), "message": answer.message}
    headers = {"www-authenticate": "Bearer"} if answer.status == 401 else None
    return JSONResponse({"error": error}, answer.status, headers)


def _written(answer: Answer, signal: Signal, media: Media) -> tuple[int, RawHeaders, bytes]:
    status, named, body = http_answer(answer, signal, media)
    headers = [(name.lower().encode(), value.encode()) for name, value in named.items()]
    headers += [(b"content-length", str(len(body)).encode()), *_ALWAYS]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return status, headers, body


def _success(signal: Signal, media: Media) -> tuple[RawHeaders, bytes]:
    _, headers, body = _written(_ACCEPTED, signal, media)
    return headers, body


_SUCCESS = {(signal, media): _success(signal, media) for signal in EXPORTS.values() for media in set(_MEDIA.values())}
"""What nearly every request is answered, made once."""


async def _healthz(request: Request) -> Response:
    return PlainTextResponse("ok")


def _readyz(ready: Callable[[], str | None]) -> Callable[[Request], Awaitable[Response]]:
    async def readyz(request: Request) -> Response:
        why_not = ready()
        if why_not is None:
            return PlainTextResponse("ready")
        return PlainTextResponse(why_not, 503, headers={"retry-after": "5"})

    return readyz


async def _fault(request: Request, fault: Exception) -> Response:
    """What starlette itself refuses: paths and methods that there are not."""
    assert isinstance(fault, HTTPException)
    if _wants_html(request.scope["headers"]) and (page := entrance.astray(request, fault.status_code)):
        return page
    message = _LOST if fault.status_code == 404 else fault.detail
    status, _, body = http_answer(Answer(fault.status_code, message), "traces", "json")
    return Response(body, status, fault.headers, "application/json")


async def _failed(request: Request, failure: Exception) -> Response:
    answer = Answer(503, "the gateway failed; its log says why", retry_after=FULL_SECONDS)
    status, headers, body = http_answer(answer, "traces", "json")
    return Response(body, status, headers)
