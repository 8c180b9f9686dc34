"""The gateway over gRPC: the three Export methods of OTLP, on raw bytes.

gRPC neither parses nor inflates what it hands over here. The same reading and the same limits as over HTTP are then
what a message meets, and none is inflated before it is known who sent it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from goldspan.errors import ConfigurationError
from goldspan.gateway.doors.receiver import Gone
from goldspan.gateway.doors.turns import Turn, Turns
from goldspan.gateway.extra import needed
from goldspan.gateway.intake.answers import Answer, Refused, grpc_answer, too_large

with needed():
    import grpc  # type: ignore[import-untyped]
    import grpc.aio  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from goldspan.gateway.doors.authority import Authority
    from goldspan.gateway.doors.connections import Tls
    from goldspan.gateway.doors.receiver import Receiver
    from goldspan.gateway.limits import Limits
    from goldspan.gateway.signals import Signal

METHODS: dict[str, Signal] = {
    "/opentelemetry.proto.collector.trace.v1.TraceService/Export": "traces",
    "/opentelemetry.proto.collector.logs.v1.LogsService/Export": "logs",
    "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export": "metrics",
}
"""The methods of OTLP/gRPC (https://opentelemetry.io/docs/specs/otlp/#otlpgrpc)."""

_STATUS = {code.value[0]: code for code in grpc.StatusCode}
_GZIP = b"\x1f\x8b"
_DEFLATE = 8
_PIECE = 64 * 2**10
"""How much of a compressed message is inflated before it is looked at how much that made."""
_COUNTED_BYTES = 2**20
"""Messages that are too long by no more than this are counted; gRPC itself refuses longer ones, and does not say so."""


async def start_rpc(
    receiver: Receiver,
    authority: Authority,
    limits: Limits,
    *,
    host: str,
    port: int,
    tls: Tls | None = None,
    reuse_port: bool = False,
) -> tuple[grpc.aio.Server, int]:
    """Serve OTLP/gRPC in the running event loop: the server, and the port it listens on (0 takes a free one).

    `await server.stop(seconds)` refuses new calls with UNAVAILABLE at once, and ends those under way after so long.
    Raises `ConfigurationError` for an address, a port or a certificate that cannot be used.
    """
    server = grpc.aio.server(options=_options(limits, reuse_port=reuse_port))
    server.add_generic_rpc_handlers((_Services(receiver, authority, limits),))
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        credentials = _credentials(tls) if tls else None
        bound = server.add_secure_port(address, credentials) if tls else server.add_insecure_port(address)
    except RuntimeError as error:
        raise ConfigurationError(f"cannot listen on {host}, port {port}, for gRPC: {error}") from None
    await server.start()
    return server, bound


def _options(limits: Limits, *, reuse_port: bool) -> list[tuple[str, int]]:
    """What gRPC itself sees to: bounds on connections, headers and the messages as they are sent."""
    return [
        ("grpc.max_receive_message_length", limits.max_body_bytes + _COUNTED_BYTES),
        ("grpc.per_message_decompression", 0),
        ("grpc.max_metadata_size", limits.max_header_bytes),
        ("grpc.absolute_max_metadata_size", limits.max_header_bytes),
        ("grpc.max_allowed_incoming_connections", limits.max_connections),
        ("grpc.server_handshake_timeout_ms", round(1000 * limits.header_seconds)),
        ("grpc.max_connection_idle_ms", round(1000 * limits.keep_alive_seconds)),
        ("grpc.so_reuseport", int(reuse_port)),
    ]


def _credentials(tls: Tls) -> grpc.ServerCredentials:
    tls.context()  # says what is wrong with the files; gRPC only that something is
    return grpc.ssl_server_credentials([(tls.key_file.read_bytes(), tls.cert_file.read_bytes())])


class _Services(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Finds the handler of a call, once its authority let it through: also for a method that there is not."""

    def __init__(self, receiver: Receiver, authority: Authority, limits: Limits) -> None:
        self._authority = authority
        self._receiver = receiver
        self._longest = limits.max_body_bytes
        number = max(1, limits.max_received_bytes // limits.max_body_bytes)
        self._turns = Turns(number, most_waiting=limits.max_requests)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """The handler of a call; None for a method that there is not."""
        method = handler_call_details.method
        signal = METHODS.get(method)
        headers = _headers(handler_call_details.invocation_metadata)
        refused = self._authority.refuse(method, headers, over_grpc=True)
        if refused is not None:
            self._receiver.count(signal or "traces", refused, transport="grpc")
            return _refusal(refused)
        return None if signal is None else _handler(_Export(self._receiver, signal, self._turns, self._longest).receive)


def _headers(metadata: Sequence[tuple[str, str | bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value if isinstance(value, bytes) else value.encode()) for name, value in metadata]


def _handler(behaviour: Any) -> grpc.RpcMethodHandler:
    """A handler that asks for the one message itself: on the wire a unary call is no different from a stream of one.

    So nothing of a message is taken in before the call is admitted.
    """
    return grpc.stream_unary_rpc_method_handler(behaviour)


def _refusal(answer: Answer) -> grpc.RpcMethodHandler:
    async def refuse(_: object, context: grpc.aio.ServicerContext) -> bytes:
        return await _answer(context, answer, "traces")

    return _handler(refuse)


class _Export:
    """The method of one signal."""

    def __init__(self, receiver: Receiver, signal: Signal, turns: Turns, longest: int) -> None:
        self._receiver = receiver
        self._signal = signal
        self._turns = turns
        self._longest = longest

    async def receive(self, _: object, context: grpc.aio.ServicerContext) -> bytes:
        """Answer one call."""
        try:
            answer = await self._receive(context)
        except Refused as refused:
            answer = refused.answer
            self._receiver.count(self._signal, answer, transport="grpc")
        except Gone:
            answer = Answer(400, "a call has one message")
        return await _answer(context, answer, self._signal)

    async def _receive(self, context: grpc.aio.ServicerContext) -> Answer:
        turn = await self._turns.take(context.peer().rpartition(":")[0])
        try:
            body = _Message(context, turn, self._longest)
            return await self._receiver.receive(self._signal, "protobuf", body, transport="grpc")
        finally:
            turn.end()  # it was refused before its message was read, where it is not over yet


class _Message:
    """A message as gRPC hands it over: as it was sent, with nothing about how it was compressed."""

    def __init__(self, context: grpc.aio.ServicerContext, turn: Turn, longest: int) -> None:
        self.length: int | None = None
        self.encoding: str | None = None
        self._context = context
        self._turn = turn
        self._longest = longest
        self._message: bytes | None = None
        self._given = 0

    async def piece(self) -> tuple[bytes, bool]:
        if self._message is None:
            self._message = await self._read()
            self.encoding = _encoding_of(self._message)
            if self.encoding is None:
                return self._message, False
        piece = self._message[self._given : self._given + _PIECE]
        self._given += len(piece)
        return piece, self._given < len(self._message)

    async def _read(self) -> bytes:
        with self._turn:
            message: bytes = await self._context.read()
        if message is grpc.aio.EOF:
            raise Gone
        if len(message) > self._longest:
            raise too_large("max_body_bytes", f"the message is longer than {self._longest:,} bytes")
        return message


def _encoding_of(message: bytes) -> str | None:
    """How a message was compressed: gRPC knows gzip and zlib (`deflate`), and each begins in its own way.

    An export request begins with 0x0A: the number and the type of its only field.
    """
    if message.startswith(_GZIP):
        return "gzip"
    if len(message) > 1 and message[0] & 0x0F == _DEFLATE and int.from_bytes(message[:2], "big") % 31 == 0:
        return "deflate"  # RFC 1950, section 2.2
    return None


async def _answer(context: grpc.aio.ServicerContext, answer: Answer, signal: Signal) -> bytes:
    code, details, response, metadata = grpc_answer(answer, signal)
    if code:
        await context.abort(_STATUS[code], details, metadata)
    return response
