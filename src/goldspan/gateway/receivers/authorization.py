"""Authorizes each HTTP request and gRPC call by its token, host and origin; for both receivers.

There are two permissions. `ingest` permits sending telemetry: `/v1/*` and the OTLP services. `read` permits everything
else, because runs contain texts of users. A token grants one of them, never both.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Literal

from goldspan.errors import ConfigurationError
from goldspan.gateway.decoding.export_response import ExportResponse, quote_input

Permission = Literal["ingest", "read"]
Headers = Iterable[tuple[bytes, bytes]]
"""Lower-case names and their values, as in ASGI; the metadata of a gRPC call has the same form."""

PUBLIC_PATHS = frozenset({"/healthz", "/readyz"})
"""Paths that need no token and no known host: an orchestrator's probes have neither, and the response is one word."""
SESSION_COOKIE = "goldspan"
"""Name of the cookie that proves that a browser submitted a read token."""
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})

_TOKEN_PATTERN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, section 2.1
_LOGIN_PATHS = ("/enter", "/leave", "/favicon.ico")
_ASSETS_PREFIX = "/assets/"
_API_PREFIXES = ("/api/", "/metrics", "/mcp")
"""Paths that accept a token only, never a cookie: a browser sends a cookie with any request."""
_INGEST_PREFIXES = ("/v1/", "/opentelemetry.proto.collector.")
_MISSING_TOKEN = ExportResponse(401, "a bearer token is required: send the header 'Authorization: Bearer TOKEN'")
_UNKNOWN_TOKEN = ExportResponse(401, "the gateway does not know this bearer token")
_MISSING_HOST = ExportResponse(400, "exactly one Host header is required")
_WRONG_PERMISSION = {
    "ingest": ExportResponse(403, "this token permits reading only; sending telemetry requires an ingest token"),
    "read": ExportResponse(403, "this token permits sending telemetry only; reading requires a read token"),
}


def required_permission(path: str) -> Permission | None:
    """Return the permission that a path or gRPC method requires; None if it is public."""
    if path in PUBLIC_PATHS or is_login_path(path):
        return None
    return "ingest" if path.startswith(_INGEST_PREFIXES) else "read"


def is_login_path(path: str) -> bool:
    """Return whether a path belongs to the login, or is a static file, which contains no data of runs."""
    return path in _LOGIN_PATHS or path.startswith(_ASSETS_PREFIX)


def is_browser_page(path: str) -> bool:
    """Return whether a path is a page, for which a browser may send a cookie instead of a token."""
    return required_permission(path) == "read" and not path.startswith(_API_PREFIXES)


def host_without_port(header: str) -> str:
    """Return the host of a Host header, in lower case, without its port, the brackets of IPv6 and a final dot.

    >>> host_without_port("[::1]:4318"), host_without_port("LocalHost.:4318")
    ('::1', 'localhost')
    """
    host = header.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    if host.count(":") > 1:
        return host  # an IPv6 address without brackets is invalid here, but it has no port
    return host.partition(":")[0].removesuffix(".")


@dataclass(frozen=True, slots=True)
class Authorizer:
    """Checks the token, host and origin of requests.

    Several tokens can grant the same permission, so that clients can be given a new token one after the other. Without
    any token, every client has both permissions, which is meant for the loopback interface. With tokens of one kind
    only, no client has the other permission.
    """

    ingest_tokens: Collection[str] = field(default=(), repr=False)
    read_tokens: Collection[str] = field(default=(), repr=False)
    allowed_hosts: Collection[str] | None = None
    """Accepted values of Host, without ports. They prevent DNS rebinding: a page of another site whose name
    resolves to this machine still sends its own name. None accepts any host: with tokens, or if names are unknown."""
    allowed_origins: Collection[str] = ()
    """Accepted origins in addition to the gateway's own, as browsers send them: `https://grafana.example`."""
    _hosts: frozenset[str] | None = field(init=False, repr=False)
    _origins: frozenset[str] = field(init=False, repr=False)
    _tokens: tuple[tuple[bytes, Permission], ...] = field(init=False, repr=False)
    _sessions: tuple[bytes, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        hosts = (
            None if self.allowed_hosts is None else frozenset(host_without_port(host) for host in self.allowed_hosts)
        )
        object.__setattr__(self, "_hosts", hosts)
        origins = frozenset(origin.lower().rstrip("/") for origin in self.allowed_origins)
        object.__setattr__(self, "_origins", origins)
        granted: tuple[tuple[Collection[str], Permission], ...] = (
            (self.ingest_tokens, "ingest"),
            (self.read_tokens, "read"),
        )
        tokens = tuple(
            (_token_digest(token.encode()), permission) for tokens, permission in granted for token in tokens
        )
        object.__setattr__(self, "_tokens", tokens)
        object.__setattr__(self, "_sessions", tuple(_session_value(token.encode()) for token in self.read_tokens))

    @property
    def requires_token(self) -> bool:
        """Whether all paths except the public ones require a token."""
        return bool(self._tokens)

    def session_cookie_for(self, token: str) -> str | None:
        """Return the value of the session cookie for a token; None if it is not a read token."""
        session = _session_value(token.encode())
        return session.decode() if self._is_valid_session(session) else None

    def _is_valid_session(self, session: bytes) -> bool:
        return any(hmac.compare_digest(known, session) for known in self._sessions)

    def refusal_for(
        self, path: str, headers: Headers, *, scheme: str = "http", is_grpc: bool = False
    ) -> ExportResponse | None:
        """Return the response (400, 401 or 403) that refuses a request, or None if the request is authorized.

        Host and origin are checked before the token, so that the page of another origin learns nothing about tokens.

        Args:
            path: The path of an HTTP request, or the method of a gRPC call.
            headers: Its headers or metadata.
            scheme: `https` for a request over TLS. An origin with another scheme is another origin.
            is_grpc: Whether it is a gRPC call. Its host is not checked, because no page can make such a call.
        """
        if path in PUBLIC_PATHS:
            return None
        permission = required_permission(path)
        hosts: list[bytes] = []
        origins: list[bytes] = []
        credentials: list[bytes] = []
        cookies: list[bytes] = []
        for name, value in headers:
            if name == b"authorization":
                credentials.append(value)
            elif name == b"cookie":
                cookies.append(value)
            elif name == b"host":
                hosts.append(value)
            elif name == b"origin":
                origins.append(value)
        refused = None if is_grpc else self._refuse_host(hosts)
        if refused is None and origins:
            refused = self._refuse_origin(origins, hosts, scheme)
        if refused is not None or not self._tokens or permission is None:
            return refused
        if (
            cookies
            and not credentials
            and is_browser_page(path)
            and any(map(self._is_valid_session, _session_cookies(cookies)))
        ):
            return None
        return self._refuse_credentials(permission, credentials)

    def _refuse_host(self, hosts: list[bytes]) -> ExportResponse | None:
        if self._hosts is None:
            return None
        if len(hosts) != 1:
            return _MISSING_HOST
        host = host_without_port(hosts[0].decode("latin-1"))
        if host in self._hosts:
            return None
        return ExportResponse(
            403, f"the gateway does not accept the host {quote_input(host)}; allow it with --allowed-host"
        )

    def _refuse_origin(self, origins: list[bytes], hosts: list[bytes], scheme: str) -> ExportResponse | None:
        origin = origins[0].decode("latin-1").lower()
        own_host = hosts[0].decode("latin-1").lower() if len(hosts) == 1 else None
        is_own = own_host is not None and origin == f"{scheme}://{own_host}"
        if len(origins) == 1 and (is_own or origin in self._origins):
            return None
        return ExportResponse(
            403, f"the gateway does not accept the origin {quote_input(origin)}; allow it with --allowed-origin"
        )

    def _refuse_credentials(self, permission: Permission, credentials: list[bytes]) -> ExportResponse | None:
        scheme, _, token = credentials[0].partition(b" ") if len(credentials) == 1 else (b"", b"", b"")
        if scheme.lower() != b"bearer" or not token.strip():
            return _MISSING_TOKEN
        digest = _token_digest(token.strip())
        granted = {known_permission for known, known_permission in self._tokens if hmac.compare_digest(known, digest)}
        if permission in granted:
            return None
        return _WRONG_PERMISSION[permission] if granted else _UNKNOWN_TOKEN


def read_token_file(path: Path, setting: str) -> list[str]:
    """Return the tokens in a file. Raises `ConfigurationError`, which names the setting and the file."""
    where = f"{setting}: {path}"
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{where} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{where} is not UTF-8 text") from None
    return parse_tokens(text, where)


def parse_tokens(text: str, source: str) -> list[str]:
    """Return the tokens in a text, one a line. Raises `ConfigurationError` if there are none or one is malformed."""
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1)]
    tokens = [(number, line) for number, line in lines if line and not line.startswith("#")]
    if not tokens:
        raise ConfigurationError(f"{source} contains no token")
    for number, token in tokens:
        if not _TOKEN_PATTERN.fullmatch(token):
            raise ConfigurationError(f"{source}, line {number}: a token may contain only letters, digits and -._~+/")
    return [token for _, token in tokens]


def _session_value(token: bytes) -> bytes:
    """Return the cookie value for a token. It does not reveal the token, and is not accepted in its place elsewhere."""
    return hmac.new(token, b"goldspan page", sha256).hexdigest().encode()


def _session_cookies(cookies: Iterable[bytes]) -> Iterator[bytes]:
    """Return all cookies of that name: other paths and other programs on the same host may set one too."""
    pairs = (pair.strip().partition(b"=") for cookie in cookies for pair in cookie.split(b";"))
    return (value for name, _, value in pairs if name == SESSION_COOKIE.encode())


def _token_digest(token: bytes) -> bytes:
    """Hash a token, so that the time of a comparison does not reveal the token's length either."""
    return sha256(token).digest()
