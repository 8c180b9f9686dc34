"""Who may do what: one decision for every route of HTTP and every method of gRPC.

There are two rights. *Ingest* is sending telemetry: `/v1/*` and the OTLP services. *Reading* is everything else, for
runs hold what users said. A token gives one of them, never both.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

from goldspan.gateway.intake.answers import Answer, quoted

Right = Literal["ingest", "read"]
Headers = Iterable[tuple[bytes, bytes]]
"""Names in lower case, as ASGI hands them over; the metadata of a gRPC call written the same way."""

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""What may be asked without a token, from anywhere: probes of an orchestrator have none, and learn one word."""
COOKIE = "goldspan"
"""By which a browser that handed in a read token shows that it did."""
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})

_ENTRANCE = ("/enter", "/leave", "/favicon.ico")
_ASSETS = "/assets/"
_FOR_PROGRAMS = ("/api/", "/metrics")
"""What is read with the token itself, and never with a cookie: a browser sends that along unasked."""
_INGEST = ("/v1/", "/opentelemetry.proto.collector.")
_NO_TOKEN = Answer(401, "a bearer token is needed: send the header 'Authorization: Bearer TOKEN'")
_WRONG_TOKEN = Answer(401, "this bearer token is not, or no longer, one of the gateway's")
_NO_HOST = Answer(400, "exactly one Host header is needed")
_OF_NO_USE = {
    "ingest": Answer(403, "this token is for reading; sending telemetry needs one of the gateway's ingest tokens"),
    "read": Answer(403, "this token is for sending telemetry; reading needs one of the gateway's read tokens"),
}


def right_of(path: str) -> Right | None:
    """The right that a path, or a method of gRPC, needs; None where everybody may."""
    if path in OPEN_PATHS or is_entrance(path):
        return None
    return "ingest" if path.startswith(_INGEST) else "read"


def is_entrance(path: str) -> bool:
    """Whether it is where a token is handed in, or a file that belongs to every page and tells nothing of runs."""
    return path in _ENTRANCE or path.startswith(_ASSETS)


def is_page(path: str) -> bool:
    """Whether it is for people with a browser, who may come with a cookie instead of a token."""
    return right_of(path) == "read" and not path.startswith(_FOR_PROGRAMS)


def host_of(header: str) -> str:
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
class Authority:
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
    _tokens: tuple[tuple[bytes, Right], ...] = field(init=False, repr=False)
    _sessions: tuple[bytes, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        hosts = None if self.allowed_hosts is None else frozenset(host_of(host) for host in self.allowed_hosts)
        object.__setattr__(self, "_hosts", hosts)
        origins = frozenset(origin.lower().rstrip("/") for origin in self.allowed_origins)
        object.__setattr__(self, "_origins", origins)
        kinds: tuple[tuple[Collection[str], Right], ...] = ((self.ingest_tokens, "ingest"), (self.read_tokens, "read"))
        tokens = tuple((_digest(token.encode()), right) for tokens, right in kinds for token in tokens)
        object.__setattr__(self, "_tokens", tokens)
        object.__setattr__(self, "_sessions", tuple(_session(token.encode()) for token in self.read_tokens))

    @property
    def asks_for_tokens(self) -> bool:
        """Whether nothing but the open paths answers without a token."""
        return bool(self._tokens)

    def session_for(self, token: str) -> str | None:
        """What a browser is given for a token, to come back with; None where it is none that may read."""
        told = _session(token.encode())
        return told.decode() if self._knows(told) else None

    def _knows(self, session: bytes) -> bool:
        return any(hmac.compare_digest(known, session) for known in self._sessions)

    def refuse(self, path: str, headers: Headers, *, scheme: str = "http", over_grpc: bool = False) -> Answer | None:
        """Why a request to this path (or method of gRPC) is refused; None where it may pass.

        Answers 400, 401 and 403. Where it came from is looked at first, so that a page of somebody else learns nothing
        about tokens. `scheme`: `https` where it came over TLS, for a page of the other kind is one of somebody else.
        Calls `over_grpc` do not show their host, and no page can make one.
        """
        if path in OPEN_PATHS:
            return None
        right = right_of(path)
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
        refused = None if over_grpc else self._refuse_host(hosts)
        if refused is None and origins:
            refused = self._refuse_origin(origins, hosts, scheme)
        if refused is not None or not self._tokens or right is None:
            return refused
        if cookies and not credentials and is_page(path) and any(map(self._knows, _sessions_in(cookies))):
            return None
        return self._refuse_credentials(right, credentials)

    def _refuse_host(self, hosts: list[bytes]) -> Answer | None:
        if self._hosts is None:
            return None
        if len(hosts) != 1:
            return _NO_HOST
        host = host_of(hosts[0].decode("latin-1"))
        if host in self._hosts:
            return None
        return Answer(403, f"the gateway is not to be called {quoted(host)}; allow that with --allowed-host")

    def _refuse_origin(self, origins: list[bytes], hosts: list[bytes], scheme: str) -> Answer | None:
        origin = origins[0].decode("latin-1").lower()
        own = hosts[0].decode("latin-1").lower() if len(hosts) == 1 else None
        same = own is not None and origin == f"{scheme}://{own}"
        if len(origins) == 1 and (same or origin in self._origins):
            return None
        return Answer(403, f"pages of {quoted(origin)} may not use the gateway; allow that with --allowed-origin")

    def _refuse_credentials(self, right: Right, credentials: list[bytes]) -> Answer | None:
        scheme, _, token = credentials[0].partition(b" ") if len(credentials) == 1 else (b"", b"", b"")
        if scheme.lower() != b"bearer" or not token.strip():
            return _NO_TOKEN
        digest = _digest(token.strip())
        rights = {given for known, given in self._tokens if hmac.compare_digest(known, digest)}
        if right in rights:
            return None
        return _OF_NO_USE[right] if rights else _WRONG_TOKEN


def _session(token: bytes) -> bytes:
    """What stands for a token in a cookie; the token cannot be found from it, nor be replaced by it elsewhere."""
    return hmac.new(token, b"goldspan page", sha256).hexdigest().encode()


def _sessions_in(cookies: Iterable[bytes]) -> Iterator[bytes]:
    """All of that name: other paths, and other programs on the same host, may have set one as well."""
    pairs = (pair.strip().partition(b"=") for cookie in cookies for pair in cookie.split(b";"))
    return (value for name, _, value in pairs if name == COOKIE.encode())


def _digest(token: bytes) -> bytes:
    """Of one length for all tokens, so that comparing them tells nothing about a token's length either."""
    return sha256(token).digest()
