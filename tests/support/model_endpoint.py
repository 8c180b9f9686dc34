"""A model endpoint compatible with OpenAI's, over real HTTP, that keeps its requests and can simulate faults."""

from __future__ import annotations

import json
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Protocol

_PIECE = 64 * 1024
_CLOSES_WITHIN_S = 0.5


@dataclass(frozen=True)
class Received:
    """A received request."""

    path: str
    headers: dict[str, str]
    """By their names in lower case; repeated headers are joined by commas."""
    body: Any
    """The parsed JSON, or None without a body."""
    at: float
    """When it was complete, on the monotonic clock."""


class Reply(Protocol):
    """The reaction to a request."""

    def send(self, exchange: Exchange) -> None: ...


Behaviour = Callable[[Received, int], Reply] | Sequence[Reply]
"""A function of a request and its number, from 0; or a sequence of replies, of which the last one is repeated."""


class Exchange:
    """An open request, and the connection to its client."""

    def __init__(self, model: Model, handler: BaseHTTPRequestHandler) -> None:
        self._model = model
        self._handler = handler

    def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Set the status and the headers. They are sent with the first bytes of the body."""
        self._handler.send_response_only(status)
        for name, value in headers.items():
            self._handler.send_header(name, value)

    def write(self, data: bytes, *, last: bool = False, before: bytes = b"", after: bytes = b"") -> None:
        """Send a part of the body. `before` and `after` are the framing of the protocol, and are not counted.

        The request is no longer open when its last part is sent, because a client that has read it may send the next
        request at once.
        """
        if last:
            self._model._ends(self)
        if head := getattr(self._handler, "_headers_buffer", None):
            head.extend([b"\r\n", before, data, after])
            self._handler.flush_headers()
        else:
            self._handler.wfile.write(before + data + after)
        self._model._count(len(data))

    def wait(self, seconds: float) -> bool:
        """Wait for `seconds`. Return False, and earlier, if the client has disconnected."""
        until = time.monotonic() + seconds
        while not self._model._closing.wait(max(0.0, min(0.01, until - time.monotonic()))):
            if self.is_abandoned():
                return False
            if time.monotonic() >= until:
                return True
        return False

    def is_abandoned(self) -> bool:
        """Whether the client has closed its connection."""
        try:
            return not self._handler.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def hang_up(self) -> None:
        """Close the connection after what was sent so far."""
        self._handler.close_connection = True


@dataclass(frozen=True)
class Whole:
    """A status, headers and a body that fits in memory."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    """A wrong content-length is sent unchanged, and the connection is closed after the body."""

    @property
    def announced(self) -> dict[str, str]:
        """All headers that are sent."""
        given = {name.lower(): value for name, value in self.headers.items()}
        return {"content-type": "application/json", "content-length": str(len(self.body))} | given

    def send(self, exchange: Exchange) -> None:
        exchange.start(self.status, self.announced)
        exchange.write(self.body, last=True)
        if self.announced["content-length"] != str(len(self.body)):
            exchange.hang_up()


@dataclass(frozen=True)
class Hanging:
    """No reply, and then the end of the connection."""

    seconds: float

    def send(self, exchange: Exchange) -> None:
        exchange.wait(self.seconds)
        exchange.hang_up()


@dataclass(frozen=True)
class Dripping:
    """A reply in small pieces."""

    reply: Whole
    pause: float
    size: int

    def send(self, exchange: Exchange) -> None:
        body = self.reply.body
        exchange.start(self.reply.status, self.reply.announced)
        exchange.write(b"", last=not body)
        for start in range(0, len(body), self.size):
            if not exchange.wait(self.pause):
                return exchange.hang_up()
            exchange.write(body[start : start + self.size], last=start + self.size >= len(body))
        return None


@dataclass(frozen=True)
class Huge:
    """A completion of `size` bytes, generated while it is sent."""

    size: int
    status: int
    chunked: bool

    def send(self, exchange: Exchange) -> None:
        length = {"transfer-encoding": "chunked"} if self.chunked else {"content-length": str(self.size)}
        exchange.start(self.status, {"content-type": "application/json"} | length)
        left = self.size
        for piece in _long_completion(self.size):
            left -= len(piece)
            if self.chunked:
                end = b"\r\n" if left else b"\r\n0\r\n\r\n"
                exchange.write(piece, last=not left, before=b"%x\r\n" % len(piece), after=end)
            else:
                exchange.write(piece, last=not left)


@dataclass(frozen=True)
class Later:
    """A delayed reply."""

    seconds: float
    reply: Reply

    def send(self, exchange: Exchange) -> None:
        if exchange.wait(self.seconds):
            self.reply.send(exchange)
        else:
            exchange.hang_up()


def opinion(
    score: Any,
    better_tool: Any = None,
    reason: Any = "The call does what was asked.",
    *,
    prompt_tokens: int = 100,
    completion_tokens: int = 20,
    model: str = "tiny-judge",
) -> Whole:
    """Build a valid assessment."""
    text = json.dumps({"reason": reason, "better_tool": better_tool, "score": score})
    return content(text, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens, model=model)


def content(
    text: str | None,
    *,
    refusal: str | None = None,
    finish_reason: str | None = "stop",
    prompt_tokens: int = 100,
    completion_tokens: int = 20,
    usage: Mapping[str, Any] | Literal["counted"] | None = "counted",
    model: str = "tiny-judge",
) -> Whole:
    """Build a completion with any text as its content.

    The usage consists of the two numbers of tokens, unless `usage` is given; None omits it.
    """
    completion = _completion(text, refusal=refusal, finish_reason=finish_reason, model=model)
    if usage == "counted":
        total = prompt_tokens + completion_tokens
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, "total_tokens": total}
    if usage is not None:
        completion["usage"] = dict(usage)
    return raw(json.dumps(completion).encode())


def raw(body: bytes, status: int = 200, headers: Mapping[str, str] = {}) -> Whole:
    """Reply with any bytes as the body; the headers state JSON by default."""
    return Whole(body, status, headers)


def failure(
    status: int,
    *,
    retry_after: str | None = None,
    message: str = "The model has failed.",
    code: str | None = None,
    type: str = "server_error",  # noqa: A002 - the name of the field in the body
) -> Whole:
    """Reply with an error in OpenAI's format."""
    error = {"message": message, "type": type, "param": None, "code": code}
    return raw(json.dumps({"error": error}).encode(), status, {"retry-after": retry_after} if retry_after else {})


def hang(seconds: float = 30) -> Hanging:
    """Accept the request, and close the connection after `seconds` without a reply."""
    return Hanging(seconds)


def drip(reply: Whole | bytes, *, pause: float = 0.05, size: int = 1) -> Dripping:
    """Send a reply, or a body, in pieces of `size` bytes, with a pause before each piece."""
    return Dripping(reply if isinstance(reply, Whole) else raw(reply), pause, size)


def huge(size: int, status: int = 200, *, chunked: bool = False) -> Huge:
    """Reply with a valid completion whose body has exactly `size` bytes; `chunked` omits the content-length."""
    _filling(size)
    return Huge(size, status, chunked)


@cache
def gzip_bomb(inflated_bytes: int) -> Whole:
    """Reply with a valid completion that has exactly `inflated_bytes` bytes uncompressed, and few compressed."""
    gzip = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    body = b"".join([*map(gzip.compress, _long_completion(inflated_bytes)), gzip.flush()])
    return raw(body, headers={"content-encoding": "gzip"})


def cut() -> Whole:
    """Send the first half of an assessment, and close the connection."""
    body = opinion(1.0).body
    return raw(body[: len(body) // 2], headers={"content-length": str(len(body))})


def redirect(url: str, status: int = 307) -> Whole:
    """Redirect the client."""
    return raw(b"", status, {"location": url})


def after(seconds: float, reply: Reply) -> Later:
    """Reply after a delay."""
    return Later(seconds, reply)


class Model:
    """The endpoint, its requests and its counters."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.requests: list[Received] = []
        """All requests in order of arrival, including those to an unknown path."""
        self.most_at_once = 0
        """The largest number of requests open at the same time. A request that its client cancelled is not open."""
        self.sent_bytes = 0
        """Sent bytes of the bodies of all replies."""
        self.errors: list[BaseException] = []
        """Errors of the behaviour and requests that are not JSON. Most are mistakes of the test."""
        self._behaviour = behaviour
        self._open: set[Exchange] = set()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Refuse further connections, and close all open ones."""
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _receive(self, received: Received, exchange: Exchange) -> int:
        """Keep a new open request, and return its number."""
        with self._lock:
            self.requests.append(received)
            self._open = {one for one in self._open if not one.is_abandoned()} | {exchange}
            self.most_at_once = max(self.most_at_once, len(self._open))
            return len(self.requests) - 1

    def _ends(self, exchange: Exchange) -> None:
        with self._lock:
            self._open.discard(exchange)

    def _count(self, sent: int) -> None:
        with self._lock:
            self.sent_bytes += sent

    def _reply(self, received: Received, number: int, method: str) -> Reply:
        if received.path.partition("?")[0] != "/v1/chat/completions":
            return failure(404, message="There is nothing here.", type="invalid_request_error")
        if method != "POST":
            return failure(405, message="Only POST is allowed here.", type="invalid_request_error")
        if isinstance(self._behaviour, Sequence):
            return self._behaviour[min(number, len(self._behaviour) - 1)]
        return self._behaviour(received, number)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def handle(self) -> None:
                with suppress(OSError):  # the client has disconnected, or the model is being closed
                    super().handle()

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"] or 0)
                body = self.rfile.read(length)
                if len(body) < length:
                    self.close_connection = True
                    return
                exchange = Exchange(model, self)
                try:
                    self._answer(exchange, body)
                finally:
                    model._ends(exchange)

            def do_GET(self) -> None:
                self.do_POST()

            def _answer(self, exchange: Exchange, body: bytes) -> None:
                headers: dict[str, str] = {}
                for name, value in self.headers.items():
                    headers[name.lower()] = f"{headers[name.lower()]}, {value}" if name.lower() in headers else value
                try:
                    received = Received(self.path, headers, json.loads(body) if body else None, time.monotonic())
                    number = model._receive(received, exchange)
                    reply = model._reply(received, number, self.command)
                except BaseException as error:  # noqa: BLE001 - `serving` raises it in the test
                    model.errors.append(error)
                    reply = failure(500, message=f"The test has a mistake: {error!r}")
                reply.send(exchange)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # A small buffer: what a client does not read stays here, not in the buffers of the system.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _PIECE)
        self._clients: list[tuple[threading.Thread, socket.socket]] = []

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(target=self.process_request_thread, args=(request, client_address), daemon=True)
        self._clients = [client for client in self._clients if client[0].is_alive()] + [(thread, request)]
        thread.start()

    def server_close(self) -> None:
        super().server_close()
        for _, connection in self._clients:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        until = time.monotonic() + _CLOSES_WITHIN_S
        for thread, _ in self._clients:
            thread.join(max(0.0, until - time.monotonic()))


@contextmanager
def serving(behaviour: Behaviour) -> Iterator[Model]:
    """Serve a model at its URL. At the end of the block, errors of the behaviour are raised."""
    model = Model(behaviour)
    try:
        yield model
    finally:
        model.close()
    for error in model.errors:
        raise error


def _completion(text: str | None, *, refusal: str | None, finish_reason: str | None, model: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, "refusal": refusal}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_750_000_000,
        "model": model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}],
    }


def _filling(size: int) -> tuple[bytes, int, bytes]:
    """Return the start of a completion of `size` bytes, the length of its text, and its end."""
    start, _, end = content("|").body.partition(b"|")
    if size < len(start + end):
        raise ValueError(f"a completion has {len(start + end)} bytes at least, not {size}")
    return start, size - len(start + end), end


def _long_completion(size: int) -> Iterator[bytes]:
    """Yield a completion of `size` bytes in pieces."""
    start, length, end = _filling(size)
    yield start
    piece = b"x" * _PIECE
    for _ in range(length // _PIECE):
        yield piece
    if length % _PIECE:
        yield piece[: length % _PIECE]
    yield end
