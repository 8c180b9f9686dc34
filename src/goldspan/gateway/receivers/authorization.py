"""Who may do what: one decision for every route of HTTP and every method of gRPC.

There are two rights. *Ingest* is sending telemetry: `/v1/*` and the OTLP services. *Reading* is everything else, for
runs hold what users said. A token gives one of them, never both.
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

_TOKEN_PATTERN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, section 2.1


def read_token_file(path: Path, setting: str) -> list[str]:
    """The tokens in a file. Raises `ConfigurationError`, which names the place of the setting and the file."""
    where = f"{setting}: {path}"
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{where} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{where} is no text") from None
    return parse_tokens(text, where)


def parse_tokens(text: str, source: str) -> list[str]:
    """The tokens in a text. Raises `ConfigurationError` where there are none, or what is there can be no token."""
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1)]
    tokens = [(number, line) for number, line in lines if line and not line.startswith("#")]
    if not tokens:
        raise ConfigurationError(f"{source} holds no token")
    for number, token in tokens:
        if not _TOKEN_PATTERN.fullmatch(token):
            raise ConfigurationError(f"{source}, line {number}: a token is made of letters, digits and -._~+/ only")
    return [token for _, token in tokens]


Permission = Literal["ingest", "read"]
Headers = Iterable[tuple[bytes, bytes]]
"""Names in lower case, as ASGI hands them over; the metadata of a gRPC call written the same way."""

PUBLIC_PATHS = frozenset({"/healthz", "/readyz"})
"""What may be asked without a token, from anywhere: probes of an orchestrator have none, and learn one word."""
SESSION_COOKIE = "goldspan"
"""By which a browser that handed in a read token shows that it did."""
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})

_LOGIN_PATHS = ("/enter", "/leave", "/favicon.ico")
_ASSETS_PREFIX = "/assets/"
_API_PREFIXES = ("/api/", "/metrics")
"""What is read with the token itself, and never with a cookie: a browser sends that along unasked."""
_INGEST_PREFIXES = ("/v1/", "/opentelemetry.proto.collector.")
_MISSING_TOKEN = ExportResponse(401, "a bearer token is needed: send the header 'Authorization: Bearer TOKEN'")
_UNKNOWN_TOKEN = ExportResponse(401, "this bearer token is not, or no longer, one of the gateway's")
_MISSING_HOST = ExportResponse(400, "exactly one Host header is needed")
_WRONG_PERMISSION = {
    "ingest": ExportResponse(
        403, "this token is for reading; sending telemetry needs one of the gateway's ingest tokens"
    ),
    "read": ExportResponse(403, "this token is for sending telemetry; reading needs one of the gateway's read tokens"),
}


def required_permission(path: str) -> Permission | None:
    """The right that a path, or a method of gRPC, needs; None where everybody may."""
    if path in PUBLIC_PATHS or is_login_path(path):
        return None
    return "ingest" if path.startswith(_INGEST_PREFIXES) else "read"


def is_login_path(path: str) -> bool:
    """Whether it is where a token is handed in, or a file that belongs to every page and tells nothing of runs."""
    return path in _LOGIN_PATHS or path.startswith(_ASSETS_PREFIX)


def is_browser_page(path: str) -> bool:
    """Whether it is for people with a browser, who may come with a cookie instead of a token."""
    return required_permission(path) == "read" and not path.startswith(_API_PREFIXES)


def host_without_port(header: str) -> str:
    """The host of a Host header, lower case, without its port, the brackets of IPv6 and a final dot.

    >>> host_of("[::1]:4318"), host_of("LocalHost.:4318")
    ('::1', 'localhost')
    """
    host = header.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    if host.count(":") > 1:
        return host  # an IPv6 address without brackets is no Host header, but it has no port either
    return host.partition(":")[0].removesuffix(".")


@dataclass(frozen=True, slots=True)
class Authorizer:
    """Tokens, hosts and origins, and whether they let a request through.

    Several tokens of a kind let all of them in, so that they can be changed one after the other. With no token at all
    everybody may do everything: that is for the loopback. With tokens of one kind only, the other right is nobody's.
    """

    ingest_tokens: Collection[str] = field(default=(), repr=False)
    read_tokens: Collection[str] = field(default=(), repr=False)
    allowed_hosts: Collection[str] | None = None
    """What may stand in Host, without ports. A page of somebody else whose name suddenly means this machine (DNS
    rebinding) still sends its own name. None: anything, for where a token is asked or names are not known."""
    allowed_origins: Collection[str] = ()
    """Origins of browsers beside the gateway's own, as browsers write them: `https://grafana.example`."""
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
        kinds: tuple[tuple[Collection[str], Permission], ...] = (
            (self.ingest_tokens, "ingest"),
            (self.read_tokens, "read"),
        )
        tokens = tuple((_token_digest(token.encode()), right) for tokens, right in kinds for token in tokens)
        object.__setattr__(self, "_tokens", tokens)
        object.__setattr__(self, "_sessions", tuple(_session_value(token.encode()) for token in self.read_tokens))

    @property
    def requires_token(self) -> bool:
        """Whether nothing but the open paths answers without a token."""
        return bool(self._tokens)

    def session_cookie_for(self, token: str) -> str | None:
        """What a browser is given for a token, to come back with; None where it is none that may read."""
        told = _session_value(token.encode())
        return told.decode() if self._is_valid_session(told) else None

    def _is_valid_session(self, session: bytes) -> bool:
        return any(hmac.compare_digest(known, session) for known in self._sessions)

    def refusal_for(
        self, path: str, headers: Headers, *, scheme: str = "http", is_grpc: bool = False
    ) -> ExportResponse | None:
        """Why a request to this path (or method of gRPC) is refused; None where it may pass.

        Answers 400, 401 and 403. Where it came from is looked at first, so that a page of somebody else learns nothing
        about tokens. `scheme`: `https` where it came over TLS, for a page of the other kind is one of somebody else.
        Calls `over_grpc` do not show their host, and no page can make one.
        """
        if path in PUBLIC_PATHS:
            return None
        right = required_permission(path)
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
        if refused is not None or not self._tokens or right is None:
            return refused
        if (
            cookies
            and not credentials
            and is_browser_page(path)
            and any(map(self._is_valid_session, _session_cookies(cookies)))
        ):
            return None
        return self._refuse_credentials(right, credentials)

    def _refuse_host(self, hosts: list[bytes]) -> ExportResponse | None:
        if self._hosts is None:
            return None
        if len(hosts) != 1:
            return _MISSING_HOST
        host = host_without_port(hosts[0].decode("latin-1"))
        if host in self._hosts:
            return None
        return ExportResponse(
            403, f"the gateway is not to be called {quote_input(host)}; allow that with --allowed-host"
        )

    def _refuse_origin(self, origins: list[bytes], hosts: list[bytes], scheme: str) -> ExportResponse | None:
        origin = origins[0].decode("latin-1").lower()
        own = hosts[0].decode("latin-1").lower() if len(hosts) == 1 else None
        same = own is not None and origin == f"{scheme}://{own}"
        if len(origins) == 1 and (same or origin in self._origins):
            return None
        return ExportResponse(
            403, f"pages of {quote_input(origin)} may not use the gateway; allow that with --allowed-origin"
        )

    def _refuse_credentials(self, permission: Permission, credentials: list[bytes]) -> ExportResponse | None:
        scheme, _, token = credentials[0].partition(b" ") if len(credentials) == 1 else (b"", b"", b"")
        if scheme.lower() != b"bearer" or not token.strip():
            return _MISSING_TOKEN
        digest = _token_digest(token.strip())
        rights = {given for known, given in self._tokens if hmac.compare_digest(known, digest)}
        if permission in rights:
            return None
        return _WRONG_PERMISSION[permission] if rights else _UNKNOWN_TOKEN


def _session_value(token: bytes) -> bytes:
    """What stands for a token in a cookie; the token cannot be found from it, nor be replaced by it elsewhere."""
    return hmac.new(token, b"goldspan page", sha256).hexdigest().encode()


def _session_cookies(cookies: Iterable[bytes]) -> Iterator[bytes]:
    """All of that name: other paths, and other programs on the same host, may have set one as well."""
    pairs = (pair.strip().partition(b"=") for cookie in cookies for pair in cookie.split(b";"))
    return (value for name, _, value in pairs if name == SESSION_COOKIE.encode())


def _token_digest(token: bytes) -> bytes:
    """Of one length for all tokens, so that comparing them tells nothing about a token's length either."""
    return sha256(token).digest()
