"""Receives OTLP over gRPC: the three Export methods, and the admission of concurrent messages.

gRPC delivers messages as raw bytes, neither parsed nor decompressed. They are decoded as over HTTP, with the same
limits, and the server decompresses a message only after it has authorized the sender.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from goldspan._extras import require_extra
from goldspan.errors import ConfigurationError
from goldspan.gateway.decoding.export_response import ExportResponse, RequestRefused, grpc_response, too_large
from goldspan.gateway.receivers.ingest import ClientDisconnected

with require_extra("server"):
    import grpc  # type: ignore[import-untyped]
    import grpc.aio  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from goldspan.gateway.receivers.authorization import Authorizer
    from goldspan.gateway.receivers.http_server import TlsConfig
    from goldspan.gateway.receivers.ingest import Receiver
    from goldspan.gateway.resource_limits import ResourceLimits, Signal

EXPORT_METHODS: dict[str, Signal] = {
    "/opentelemetry.proto.collector.trace.v1.TraceService/Export": "traces",
    "/opentelemetry.proto.collector.logs.v1.LogsService/Export": "logs",
    "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export": "metrics",
}
"""The methods of OTLP/gRPC (https://opentelemetry.io/docs/specs/otlp/#otlpgrpc)."""

_STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}
_GZIP_MAGIC = b"\x1f\x8b"
_DEFLATE_METHOD = 8
_CHUNK_BYTES = 64 * 2**10
"""Bytes of a compressed message to decompress before the decompressed size is checked."""
_OVERSIZE_TOLERANCE_BYTES = 2**20
"""Messages that exceed the limit by up to this number of bytes are refused here and counted. gRPC refuses longer ones
itself and does not report them."""
SLOT_WAIT_SECONDS = 1.0
"""How long a call waits for a slot before it is refused with a request to retry."""
SLOW_MESSAGE_SECONDS = 2.0
"""How long a message may take while others wait."""
OVER_SHARE_SECONDS = 0.5
"""The same for a host that has more than its share of the slots, while other hosts wait."""
_CHECK_INTERVAL_SECONDS = 0.1
_HOST_SHARE_DIVISOR = 4
"""The share of a host, while others wait, is the number of slots divided by this."""
_LIMIT = "max_received_bytes"


def _too_many_messages(message: str, seconds: float) -> ExportResponse:
    return ExportResponse(429, f"{message} ({_LIMIT})", retry_after=seconds, limit=_LIMIT)


_NO_SLOT = _too_many_messages("too many messages at once", SLOT_WAIT_SECONDS)
_SLOT_REVOKED = _too_many_messages("the message arrived too slowly while others were waiting", SLOT_WAIT_SECONDS)


async def start_grpc_server(
    receiver: Receiver,
    authorizer: Authorizer,
    limits: ResourceLimits,
    *,
    host: str,
    port: int,
    tls: TlsConfig | None = None,
    reuse_port: bool = False,
) -> tuple[grpc.aio.Server, int]:
    """Serve OTLP/gRPC in the running event loop.

    `await server.stop(seconds)` refuses new calls with UNAVAILABLE at once, and aborts running calls after that time.

    Args:
        receiver: Receives the messages.
        authorizer: Authorizes the calls.
        limits: The limits of messages and connections.
        host: The address to listen on.
        port: The port to listen on; 0 chooses a free one.
        tls: The certificate; None to serve without TLS.
        reuse_port: Whether other processes listen on the same port.

    Returns:
        The server, and the port that it listens on.

    Raises:
        ConfigurationError: The address, the port or the certificate cannot be used.
    """
    server = grpc.aio.server(options=_server_options(limits, reuse_port=reuse_port))
    server.add_generic_rpc_handlers((_OtlpServices(receiver, authorizer, limits),))
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        credentials = _credentials(tls) if tls else None
        bound = server.add_secure_port(address, credentials) if tls else server.add_insecure_port(address)
    except RuntimeError as error:
        raise ConfigurationError(f"cannot listen on {host}, port {port}, for gRPC: {error}") from None
    await server.start()
    return server, bound


def _server_options(limits: ResourceLimits, *, reuse_port: bool) -> list[tuple[str, int]]:
    """Return the limits that gRPC itself enforces: on connections, headers and compressed messages."""
    return [
        ("grpc.max_receive_message_length", limits.max_body_bytes + _OVERSIZE_TOLERANCE_BYTES),
        ("grpc.per_message_decompression", 0),
        ("grpc.max_metadata_size", limits.max_header_bytes),
        ("grpc.absolute_max_metadata_size", limits.max_header_bytes),
        ("grpc.max_allowed_incoming_connections", limits.max_connections),
        ("grpc.server_handshake_timeout_ms", round(1000 * limits.header_seconds)),
        ("grpc.max_connection_idle_ms", round(1000 * limits.keep_alive_seconds)),
        ("grpc.so_reuseport", int(reuse_port)),
    ]


def _credentials(tls: TlsConfig) -> grpc.ServerCredentials:
    tls.create_context()  # reports what is wrong with the files, which gRPC does not
    return grpc.ssl_server_credentials([(tls.key_file.read_bytes(), tls.cert_file.read_bytes())])


class _OtlpServices(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Authorizes each call, including calls of unknown methods, and returns its handler."""

    def __init__(self, receiver: Receiver, authorizer: Authorizer, limits: ResourceLimits) -> None:
        self._authorizer = authorizer
        self._receiver = receiver
        self._max_message_bytes = limits.max_body_bytes
        slots = max(1, limits.max_received_bytes // limits.max_body_bytes)
        self._admission = GrpcAdmission(slots, max_waiting=limits.max_requests)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Return the handler of a call; None for an unknown method."""
        method = handler_call_details.method
        signal = EXPORT_METHODS.get(method)
        headers = _metadata_headers(handler_call_details.invocation_metadata)
        refusal = self._authorizer.refusal_for(method, headers, is_grpc=True)
        if refusal is not None:
            self._receiver.count_response(signal or "traces", refusal, transport="grpc")
            return _refusal_handler(refusal)
        return (
            None
            if signal is None
            else _raw_handler(_ExportMethod(self._receiver, signal, self._admission, self._max_message_bytes).receive)
        )


def _metadata_headers(metadata: Sequence[tuple[str, str | bytes]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value if isinstance(value, bytes) else value.encode()) for name, value in metadata]


def _raw_handler(behavior: Any) -> grpc.RpcMethodHandler:
    """Return a handler that reads the message of a call itself, so that it reads nothing before admission.

    On the wire, a unary call is the same as a stream of one message.
    """
    return grpc.stream_unary_rpc_method_handler(behavior)


def _refusal_handler(response: ExportResponse) -> grpc.RpcMethodHandler:
    async def refuse(_: object, context: grpc.aio.ServicerContext) -> bytes:
        return await _send_response(context, response, "traces")

    return _raw_handler(refuse)


class _ExportMethod:
    """The Export method of one signal."""

    def __init__(self, receiver: Receiver, signal: Signal, admission: GrpcAdmission, max_message_bytes: int) -> None:
        self._receiver = receiver
        self._signal = signal
        self._admission = admission
        self._max_message_bytes = max_message_bytes

    async def receive(self, _: object, context: grpc.aio.ServicerContext) -> bytes:
        """Handle one call."""
        try:
            response = await self._receive_message(context)
        except RequestRefused as refused:
            response = refused.response
            self._receiver.count_response(self._signal, response, transport="grpc")
        except ClientDisconnected:
            response = ExportResponse(400, "a call must have exactly one message")
        return await _send_response(context, response, self._signal)

    async def _receive_message(self, context: grpc.aio.ServicerContext) -> ExportResponse:
        slot = await self._admission.acquire(context.peer().rpartition(":")[0])
        try:
            body = _MessageBody(context, slot, self._max_message_bytes)
            return await self._receiver.receive(self._signal, "protobuf", body, transport="grpc")
        finally:
            slot.release()  # no effect unless the call was refused before its message was read


class _MessageBody:
    """The request body of a gRPC message, as it was sent; gRPC does not report its compression."""

    def __init__(self, context: grpc.aio.ServicerContext, slot: ReceiveSlot, max_message_bytes: int) -> None:
        self.content_length: int | None = None
        self.content_encoding: str | None = None
        self._context = context
        self._slot = slot
        self._max_message_bytes = max_message_bytes
        self._message: bytes | None = None
        self._position = 0

    async def read_chunk(self) -> tuple[bytes, bool]:
        if self._message is None:
            self._message = await self._read()
            self.content_encoding = _detect_compression(self._message)
            if self.content_encoding is None:
                return self._message, False
        chunk = self._message[self._position : self._position + _CHUNK_BYTES]
        self._position += len(chunk)
        return chunk, self._position < len(self._message)

    async def _read(self) -> bytes:
        with self._slot:
            message: bytes = await self._context.read()
        if message is grpc.aio.EOF:
            raise ClientDisconnected
        if len(message) > self._max_message_bytes:
            raise too_large("max_body_bytes", f"the message is longer than {self._max_message_bytes:,} bytes")
        return message


def _detect_compression(message: bytes) -> str | None:
    """Return the compression of a message by its first bytes: gRPC supports gzip and zlib (`deflate`).

    An uncompressed export request begins with 0x0A: the number and the type of its only field.
    """
    if message.startswith(_GZIP_MAGIC):
        return "gzip"
    if len(message) > 1 and message[0] & 0x0F == _DEFLATE_METHOD and int.from_bytes(message[:2], "big") % 31 == 0:
        return "deflate"  # RFC 1950, section 2.2
    return None


async def _send_response(context: grpc.aio.ServicerContext, response: ExportResponse, signal: Signal) -> bytes:
    code, details, message, metadata = grpc_response(response, signal)
    if code:
        await context.abort(_STATUS_CODES[code], details, metadata)
    return message


class GrpcAdmission:
    """Grants a fixed number of slots in one event loop; at most `max_waiting` calls wait for one."""

    def __init__(self, slots: int, *, max_waiting: int) -> None:
        self._free = slots
        self._share = max(1, slots // _HOST_SHARE_DIVISOR)
        self._max_waiting = max_waiting
        self._granted: dict[ReceiveSlot, None] = {}  # the oldest first
        self._granted_by_host: Counter[str] = Counter()
        self._waiting: dict[asyncio.Future[ReceiveSlot], str] = {}
        self._check_timer: asyncio.TimerHandle | None = None

    async def acquire(self, host: str) -> ReceiveSlot:
        """Return a slot for one message. Raises `RequestRefused` (429) if none is free within `SLOT_WAIT_SECONDS`."""
        if self._free:
            return self._grant(host)
        if len(self._waiting) >= self._max_waiting:
            raise RequestRefused(_NO_SLOT)
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[ReceiveSlot] = loop.create_future()
        self._waiting[waiter] = host
        self._schedule_check()
        timer = loop.call_later(SLOT_WAIT_SECONDS, self._time_out, waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                waiter.result().release()  # granted too late
            raise
        finally:
            timer.cancel()
            self._waiting.pop(waiter, None)

    def _time_out(self, waiter: asyncio.Future[ReceiveSlot]) -> None:
        if not waiter.done():
            del self._waiting[waiter]
            waiter.set_exception(RequestRefused(_NO_SLOT))

    def _grant(self, host: str) -> ReceiveSlot:
        self._free -= 1
        self._granted_by_host[host] += 1
        slot = ReceiveSlot(self, host)
        self._granted[slot] = None
        return slot

    def release(self, slot: ReceiveSlot) -> None:
        """Release a slot and grant it to the longest waiting call; calls of hosts below their share come first."""
        if slot not in self._granted:
            return
        del self._granted[slot]
        self._free += 1
        self._granted_by_host[slot.host] -= 1
        if not self._granted_by_host[slot.host]:
            del self._granted_by_host[slot.host]
        waiting = [waiter for waiter in self._waiting if not waiter.done()]
        if waiting:
            below_share = (waiter for waiter in waiting if self._granted_by_host[self._waiting[waiter]] < self._share)
            chosen = next(below_share, waiting[0])
            chosen.set_result(self._grant(self._waiting.pop(chosen)))

    def _schedule_check(self) -> None:
        """Revoke slow slots, and check again later while calls wait."""
        if self._check_timer is None:
            self._check_timer = asyncio.get_running_loop().call_later(_CHECK_INTERVAL_SECONDS, self._run_check)
            self._revoke_slow_slots()

    def _run_check(self) -> None:
        self._check_timer = None
        if self._waiting:
            self._schedule_check()

    def _revoke_slow_slots(self) -> None:
        now = asyncio.get_running_loop().time()
        needed = len(self._waiting)
        waiting_hosts = set(self._waiting.values())
        for slot in list(self._granted):
            if not needed:
                break
            is_over_share = self._granted_by_host[slot.host] > self._share and waiting_hosts != {slot.host}
            if slot.started_at is not None and now - slot.started_at >= (
                OVER_SHARE_SECONDS if is_over_share else SLOW_MESSAGE_SECONDS
            ):
                slot.revoke()
                needed -= 1


class ReceiveSlot:
    """The slot of one message, entered with `with` while the message is read. Only that time counts as slow."""

    __slots__ = ("_admission", "_revoked", "_task", "host", "started_at")

    def __init__(self, admission: GrpcAdmission, host: str) -> None:
        self.host = host
        self.started_at: float | None = None
        """When reading began; None before and afterwards."""
        self._admission = admission
        self._revoked = False

    def release(self) -> None:
        """Release the slot, whether or not reading began."""
        self.started_at = None
        self._admission.release(self)

    def revoke(self) -> None:
        """Revoke the slot for a waiting call: the reader gets `RequestRefused` (429)."""
        self.started_at = None
        self._revoked = True
        self._task.cancel()
        self._admission.release(self)

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self.started_at = asyncio.get_running_loop().time()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()
        if self._revoked and kind is not None and issubclass(kind, asyncio.CancelledError):
            if sys.version_info >= (3, 11):  # a task counts its cancellation requests
                self._task.uncancel()
            raise RequestRefused(_SLOT_REVOKED) from None
