"""`ProductClient` sends requests to a product, and `DeliveryError` says what a failure means."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, Protocol

from goldspan._http import BASE_URL_PATTERN, SecretRedactor, parse_retry_after, suppress_instrumentation, to_one_line
from goldspan._version import __version__
from goldspan.errors import ConfigurationError, MissingExtraError
from goldspan.integrations.product import ProductReply, ProductRequest

if TYPE_CHECKING:
    import httpx2

FailureKind = Literal["unavailable", "overloaded", "misconfigured", "not_found", "refused"]
"""What a failure means for the request.

`unavailable`: the product cannot be reached, or failed; repeat the request. `overloaded`: the product asks for a pause.
`misconfigured`: the address or the token is wrong; repeat the request after somebody corrected it. `not_found`: the
product does not know a trace or span (yet). `refused`: the product will never accept the request.
"""

TIMEOUT_SECONDS = 10.0
"""The maximum time to connect, and between two parts of a reply."""
MAX_REPLY_SECONDS = 30.0
MAX_REPLY_BYTES = 16 << 20
_MAX_MESSAGE_LENGTH = 300
_HEADER_VALUE_PATTERN = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")


class DeliveryError(Exception):
    """A product did not accept a request. The text is safe to log: it contains no token."""

    def __init__(
        self,
        kind: FailureKind,
        text: str,
        *,
        retry_after: float | None = None,
        reply: Any = None,
        unknown_run_ids: Collection[str] = (),
    ) -> None:
        super().__init__(text)
        self.kind = kind
        self.retry_after = retry_after
        """The seconds that the product asks to wait."""
        self.reply = reply
        """The JSON value of the reply, or its text if it is not JSON. It is foreign text: do not log it."""
        self.unknown_run_ids = unknown_run_ids
        """Of a failure `not_found`: the runs whose trace is unknown, if `Product.write` wrote all others."""


class ReplyTooLargeError(DeliveryError):
    """A reply is longer than the client accepts."""


class Endpoint(Protocol):
    """An HTTP API: a product, or a source of traces."""

    @property
    def name(self) -> str:
        """The name for messages."""

    @property
    def base_url(self) -> str:
        """The address, without a password or a query."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of every request. Their values are secret."""


class ProductClient:
    """Sends requests to one product. It follows no redirection, so the token reaches one host only.

    Args:
        product: The product, or another HTTP API.
        timeout: The maximum time to connect, and between two parts of a reply, in seconds.
        max_reply_bytes: The maximum length of a reply. Default: `MAX_REPLY_BYTES`
        max_reply_seconds: The maximum time to read a reply that arrives in small parts. Default: `MAX_REPLY_SECONDS`

    Raises:
        ConfigurationError: The base URL or a header is invalid.
        MissingExtraError: The extra `integrations` is not installed.
    """

    def __init__(
        self,
        product: Endpoint,
        *,
        timeout: float = TIMEOUT_SECONDS,
        max_reply_bytes: int | None = None,
        max_reply_seconds: float | None = None,
    ) -> None:
        if find_spec("httpx2") is None:  # importing it takes longer than an application may wait for
            raise MissingExtraError(f"the integration {product.name}", "integrations")
        if not BASE_URL_PATTERN.fullmatch(product.base_url):
            raise ConfigurationError(
                f"the address of {product.name} is written as https://host/path, without a password or a query"
            )
        headers = dict(product.headers)
        if not all(map(_HEADER_VALUE_PATTERN.fullmatch, headers.values())):
            raise ConfigurationError(f"the token of {product.name} contains characters that no HTTP header can have")
        self._secrets = SecretRedactor(None, headers)
        self._base_url = product.base_url.rstrip("/")
        self._product_name = product.name
        self._headers = {"user-agent": f"goldspan/{__version__}", **headers}
        self._timeout = timeout
        self._max_reply_bytes = max_reply_bytes
        self._max_reply_seconds = max_reply_seconds
        self._client: httpx2.Client | None = None

    def send(self, request: ProductRequest) -> ProductReply:
        """Send a request, and return the reply if its status is 2xx. Raises `DeliveryError` otherwise."""
        import httpx2

        if self._client is None:
            self._client = httpx2.Client(headers=self._headers, timeout=self._timeout, follow_redirects=False)
        content = None if request.body is None else json.dumps(request.body, allow_nan=False).encode()
        headers = {} if content is None else {"content-type": "application/json"}
        try:
            with (
                suppress_instrumentation(),
                self._secrets.redact_client_logs(),
                self._client.stream(
                    request.method,
                    self._base_url + request.path,
                    params=dict(request.query) or None,
                    content=content,
                    headers=headers,
                ) as response,
            ):
                body = self._read_bounded(response)
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
            text = self._clean(str(error)) or "the connection broke off"
            raise DeliveryError(
                "unavailable", f"{self._product_name}: {type(error).__name__}: {text} ({self._base_url})"
            ) from None
        status = response.status_code
        if 200 <= status < 300 or (status == 404 and request.absent_is_success):
            return ProductReply(status, _json_value(body))
        raise DeliveryError(
            _failure_kind(status),
            self._describe(request, status, body),
            retry_after=parse_retry_after(response.headers),
            reply=_json_value_or_text(body),
        )

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()

    def _read_bounded(self, response: httpx2.Response) -> bytes:
        max_bytes, max_seconds = self._max_reply_bytes or MAX_REPLY_BYTES, self._max_reply_seconds or MAX_REPLY_SECONDS
        until = time.monotonic() + max_seconds
        body = bytearray()
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > max_bytes:
                raise ReplyTooLargeError(
                    "unavailable", f"{self._product_name}: a reply is longer than {max_bytes} bytes"
                )
            if time.monotonic() > until:
                raise DeliveryError(
                    "unavailable",
                    f"{self._product_name}: a reply took longer than {max_seconds:g} seconds",
                )
        return bytes(body)

    def _describe(self, request: ProductRequest, status: int, body: bytes) -> str:
        message = self._clean(_error_message(body))
        return f"{self._product_name} answered {status} to {request.method} {request.path}" + (
            f": {message}" if message else ""
        )

    def _clean(self, text: str) -> str:
        """Return a foreign text in one line, shortened and without secrets."""
        return to_one_line(self._secrets.redact(text), _MAX_MESSAGE_LENGTH)


def _failure_kind(status: int) -> FailureKind:
    if status in (401, 403, 405, 407) or 300 <= status < 400:
        return "misconfigured"
    if status == 404:
        return "not_found"
    if status in (408, 425, 429, 503):
        return "overloaded"
    return "unavailable" if status >= 500 and status != 501 else "refused"  # 501: not implemented, and will not be soon


def _json_value(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _json_value_or_text(body: bytes) -> Any:
    value = _json_value(body)
    return body.decode("utf-8", "replace") if value is None else value


def _error_message(body: bytes) -> str:
    """Return the message of an error reply: of a JSON object the member that holds it, else the text."""
    value = _json_value(body)
    if isinstance(value, Mapping):
        for name in ("detail", "message", "error", "errors"):
            if value.get(name):
                return value[name] if isinstance(value[name], str) else json.dumps(value[name])
    return body.decode("utf-8", "replace")
