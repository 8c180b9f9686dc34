"""Requests to a back end over OTLP/HTTP, on connections that are kept."""

from __future__ import annotations

import gzip
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, LocationParseError, ReadTimeoutError

from goldspan._version import __version__
from goldspan.errors import ConfigurationError
from goldspan.gateway.forwarding.backends import BackEnd, tls_context
from goldspan.gateway.forwarding.outcomes import Outcome, http_outcome, one_line
from goldspan.gateway.forwarding.parts import Part
from goldspan.gateway.signals import Signal

_MAX_ANSWER_BYTES = 2**16
"""No answer of OTLP is longer, and of what is, the rest stays unread."""
_CONTENT_TYPES = {"protobuf": "application/x-protobuf", "json": "application/json"}
_GZIP_LEVEL = 1  # of spans hardly larger than with level 6 (38 % and 36 % of what they were), for half of the CPU


class HttpSender:
    """Posts to `<endpoint>/v1/<signal>` on up to so many `connections` at once.

    Redirections are not followed: they would carry the headers somewhere else. The proxies of the environment
    (`HTTPS_PROXY`, `NO_PROXY` and so on) are used.

    Raises `ConfigurationError` for a proxy that cannot be used.
    """

    def __init__(self, backend: BackEnd, connections: int) -> None:
        self._backend = backend
        self._pool = _pool(backend, connections)
        self._headers = {"user-agent": f"goldspan/{__version__}", **backend.headers}
        if backend.compression == "gzip":
            self._headers["content-encoding"] = "gzip"
        seconds = backend.timeout_seconds
        self._timeout = urllib3.Timeout(connect=seconds, read=seconds)

    def send(self, signal: Signal, part: Part) -> Outcome:
        """Post one request, and read the answer to it."""
        compressed = self._backend.compression == "gzip"
        try:
            return self._post(signal, part, gzip.compress(part.body, _GZIP_LEVEL, mtime=0) if compressed else part.body)
        except (ConnectTimeoutError, ReadTimeoutError):
            return Outcome("failed", "timed out", f"no answer within {self._backend.timeout_seconds:g} s")
        except (HTTPError, OSError) as error:
            return Outcome("failed", type(error).__name__, one_line(str(error)))

    def close(self) -> None:
        """Close the connections that are idle; the others are closed when they are done."""
        self._pool.clear()

    def _post(self, signal: Signal, part: Part, body: bytes) -> Outcome:
        response = self._pool.request(
            "POST",
            f"{self._backend.endpoint}/v1/{signal}",
            body=body,
            headers={**self._headers, "content-type": _CONTENT_TYPES[part.media]},
            preload_content=False,
            redirect=False,
            retries=False,
            timeout=self._timeout,
        )
        try:
            answer = response.read(_MAX_ANSWER_BYTES, decode_content=True)
            whole = not response.read(1, decode_content=True)
        except BaseException:
            response.close()
            raise
        if whole:
            response.release_conn()
        else:
            response.close()
        return http_outcome(response.status, signal, {k.lower(): v for k, v in response.headers.items()}, answer)


def _pool(backend: BackEnd, connections: int) -> urllib3.PoolManager:
    options: dict[str, Any] = {"num_pools": 1, "maxsize": connections}
    if not backend.insecure:
        options["ssl_context"] = tls_context(backend)
    url = urlsplit(backend.endpoint)
    proxy = getproxies().get(url.scheme)
    if not proxy or proxy_bypass(url.netloc):
        return urllib3.PoolManager(**options)
    try:
        address = urllib3.util.parse_url(proxy if "://" in proxy else f"http://{proxy}")
        secret = urllib3.make_headers(proxy_basic_auth=address.auth) if address.auth else None
        return urllib3.ProxyManager(address.url, proxy_headers=secret, **options)
    except (LocationParseError, HTTPError):
        raise ConfigurationError(
            f"back end {backend.name!r}: the environment's proxy for {url.scheme}:// is no URL that can be used"
        ) from None
