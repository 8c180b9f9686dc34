"""Where received telemetry is forwarded to, as people write it down: a URL, or a mapping with everything about it."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NoReturn, get_args
from urllib.parse import SplitResult, urlsplit

from goldspan.errors import ConfigurationError
from goldspan.gateway.signals import Signal
from goldspan.goldens.words import did_you_mean, listed, shown

Protocol = Literal["http", "grpc"]
Compression = Literal["none", "gzip"]

SIGNALS: tuple[Signal, ...] = get_args(Signal)
MAX_TIMEOUT_SECONDS = 600.0

_SCHEMES: Mapping[str, tuple[Protocol, bool, int]] = {
    "http": ("http", True, 80),
    "https": ("http", False, 443),
    "grpc": ("grpc", True, 4317),
    "grpcs": ("grpc", False, 4317),
}
"""The protocol, whether it is plain text, and the port where none is given."""
_EXAMPLE = "write http://host:4318, https://host:4318, grpc://host:4317 or grpcs://host:4317"
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_HEADER_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")  # RFC 9110, section 5.6.2, in lower case
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")
_OUR_HEADERS = frozenset(
    {"connection", "content-encoding", "content-length", "content-type", "host", "te", "transfer-encoding"}
)
_SHORTEST_SECRET = 6
"""Shorter words than this are no secrets, and leaving them out of texts would make those unreadable."""


@dataclass(frozen=True, slots=True)
class BackEnd:
    """One OTLP back end. `parse` makes them; no text about one, its `repr` included, shows the values of headers."""

    name: str
    """What it is called in the log, in counters and in the journal; by default its host and port."""
    endpoint: str
    """HTTP: the base URL, to which `/v1/traces` and the like are appended. gRPC: host and port."""
    protocol: Protocol = "http"
    insecure: bool = False
    """Whether it is spoken to in plain text: `http://` and `grpc://`."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with each request, by name in lower case."""
    compression: Compression = "none"
    ca_file: str | None = None
    """PEM file with the authorities that are trusted instead of the system's."""
    certificate_file: str | None = None
    """PEM file with the certificate that is shown to the back end."""
    key_file: str | None = None
    """PEM file with its private key, where that is not in the same file."""
    timeout_seconds: float = 10.0
    """How long one request may take."""
    signals: frozenset[Signal] = frozenset(SIGNALS)
    """What it is sent."""

    @staticmethod
    def parse(
        given: str | Mapping[str, Any], *, where: str = "forward", environment: Mapping[str, str] = os.environ
    ) -> BackEnd:
        """A back end from a URL, or from a mapping with an `endpoint` and any of the other fields.

        `${NAME}` in the value of a header is that variable of the `environment`. `protocol: grpc` lets `http://` and
        `https://` stand for `grpc://` and `grpcs://`, as the variables of OTLP exporters do.

        Raises `ConfigurationError` for what is wrong; its text begins with `where` it stands.
        """
        if isinstance(given, str):
            given = {"endpoint": given}
        if not isinstance(given, Mapping):
            raise ConfigurationError(f"{where}: a back end is a URL or a mapping with an endpoint, not {shown(given)}")
        return _Reader(given, where, environment).backend()

    @property
    def consumers(self) -> Mapping[Signal, str]:
        """Under what name its place in the journal is kept, by signal: each has an endpoint of its own."""
        return {signal: f"forward/{self.name}/{signal}" for signal in SIGNALS if signal in self.signals}

    @property
    def address(self) -> tuple[str, int]:
        """Host, in lower case and without brackets, and port."""
        url = urlsplit(self.endpoint if "://" in self.endpoint else f"//{self.endpoint}")
        usual = 443 if url.scheme == "https" else 80
        return (url.hostname or "").lower(), url.port or usual

    def redacted(self, text: str) -> str:
        """A text from outside, in which the back end may have repeated what it was sent, without its secrets."""
        for value in self.headers.values():
            for secret in (value, *value.split()):
                if len(secret) >= _SHORTEST_SECRET:
                    text = text.replace(secret, "***")
        return text


def tls_context(backend: BackEnd) -> ssl.SSLContext:
    """How a back end is spoken to over TLS."""
    context = ssl.create_default_context(cafile=backend.ca_file)
    if backend.certificate_file:
        context.load_cert_chain(backend.certificate_file, backend.key_file)
    return context


def parse_backends(
    given: Iterable[str | Mapping[str, Any]],
    *,
    where: str = "forward",
    environment: Mapping[str, str] = os.environ,
) -> tuple[BackEnd, ...]:
    """Several back ends; raises `ConfigurationError` also for two of the same name, whose places would be one."""
    backends = tuple(
        BackEnd.parse(each, where=f"{where}[{at}]", environment=environment) for at, each in enumerate(given)
    )
    names = [backend.name for backend in backends]
    for at, name in enumerate(names):
        if name in names[:at]:
            raise ConfigurationError(
                f"{where}[{at}]: there is a back end {name!r} already; give one of them another 'name'"
            )
    return backends


class _Reader:
    """Reads one mapping, field by field, and says what is wrong with it."""

    def __init__(self, given: Mapping[str, Any], where: str, environment: Mapping[str, str]) -> None:
        self._given = given
        self._where = where
        self._environment = environment

    def backend(self) -> BackEnd:
        known = [known.name for known in fields(BackEnd) if known.name != "insecure"]
        for key in self._given:
            if key not in known:
                hint = did_you_mean(key, known) or f" There are {listed(known)}."
                raise ConfigurationError(f"{self._where}: unknown key {shown(key)}.{hint}")
        url, scheme = self._endpoint()
        told, insecure, usual_port = _SCHEMES[scheme]
        protocol: Protocol = self._choice("protocol", get_args(Protocol), told)
        if told == "grpc" and protocol == "http":
            self._fail("protocol", f"'http' contradicts the endpoint's {scheme}://")
        place = self._place(url, 4317 if protocol == "grpc" else usual_port)
        files = {name: self._file(name, insecure) for name in ("ca_file", "certificate_file", "key_file")}
        if files["key_file"] and not files["certificate_file"]:
            self._fail("key_file", "a key is of no use without certificate_file")
        backend = BackEnd(
            name=self._name(place),
            endpoint=place if protocol == "grpc" else self._base(url),
            protocol=protocol,
            insecure=insecure,
            headers=self._headers(protocol),
            compression=self._choice("compression", get_args(Compression), "none"),
            timeout_seconds=self._timeout(),
            signals=self._signals(),
            **files,
        )
        if any(files.values()):
            self._check_tls(backend)
        return backend

    def _check_tls(self, backend: BackEnd) -> None:
        try:
            tls_context(backend)
        except (OSError, ValueError) as error:
            given = listed(repr(key) for key in ("ca_file", "certificate_file", "key_file") if self._given.get(key))
            raise ConfigurationError(f"{self._where}, {given}: no PEM files that belong together ({error})") from error

    def _fail(self, key: str, why: str) -> NoReturn:
        raise ConfigurationError(f"{self._where}, {key!r}: {why}")

    def _endpoint(self) -> tuple[SplitResult, str]:
        given = self._given.get("endpoint")
        if not isinstance(given, str) or not given.strip():
            self._fail("endpoint", f"there is none; {_EXAMPLE}")
        try:
            url = urlsplit(given.strip())
            scheme, _ = url.scheme.lower(), url.port
        except ValueError:
            self._fail("endpoint", f"no URL; {_EXAMPLE}")
        if "@" in url.netloc:  # the text must not repeat it
            self._fail("endpoint", "a URL is no place for a password; put it into 'headers', as ${NAME}")
        if scheme not in _SCHEMES or not url.hostname:
            self._fail("endpoint", f"{shown(given)} is no URL of a back end; {_EXAMPLE}")
        if url.query or url.fragment:
            self._fail("endpoint", "nothing can follow the path of it; put keys into 'headers', as ${NAME}")
        return url, scheme

    def _place(self, url: SplitResult, usual_port: int) -> str:
        host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname
        return f"{host}:{url.port or usual_port}"

    def _base(self, url: SplitResult) -> str:
        path = url.path.rstrip("/")
        for signal in SIGNALS:
            if path.endswith(f"/v1/{signal}"):
                self._fail("endpoint", f"/v1/{signal} is appended to it; leave that out")
        return f"{url.scheme.lower()}://{url.netloc}{path}"

    def _name(self, place: str) -> str:
        name = self._given.get("name")
        if name is None:
            return place
        if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > 100:
            self._fail("name", f"a name is a short text, not {shown(name)}")
        return name

    def _choice(self, key: str, choices: tuple[Any, ...], default: str) -> Any:
        chosen = self._given.get(key)
        if chosen is None:
            return default
        if chosen not in choices:
            self._fail(key, f"{listed(map(repr, choices), last='or')}, not {shown(chosen)}")
        return chosen

    def _timeout(self) -> float:
        given = self._given.get("timeout_seconds")
        if given is None:
            return 10.0
        number = isinstance(given, int | float) and not isinstance(given, bool)
        if not number or not 0 < given <= MAX_TIMEOUT_SECONDS:
            self._fail("timeout_seconds", f"seconds up to {MAX_TIMEOUT_SECONDS:g}, not {shown(given)}")
        return float(given)

    def _signals(self) -> frozenset[Signal]:
        given = self._given.get("signals")
        if given is None:
            return frozenset(SIGNALS)
        signals = [given] if isinstance(given, str) else given
        if not isinstance(signals, list | tuple | set | frozenset) or not signals:
            self._fail("signals", f"a list of {listed(SIGNALS)}, not {shown(given)}")
        for signal in signals:
            if signal not in SIGNALS:
                self._fail("signals", f"{shown(signal)} is none of {listed(SIGNALS)}")
        return frozenset(signals)

    def _file(self, key: str, insecure: bool) -> str | None:
        given = self._given.get(key)
        if given is None:
            return None
        if insecure:
            self._fail(key, "the endpoint is spoken to in plain text; write https:// or grpcs://")
        try:
            with open(given, "rb"):
                return str(given)
        except (OSError, TypeError) as error:
            self._fail(key, f"cannot be read: {error}")

    def _headers(self, protocol: Protocol) -> dict[str, str]:
        given = self._given.get("headers")
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            self._fail("headers", "a mapping of names to values")  # what it is instead may be a secret
        headers: dict[str, str] = {}
        for name, value in given.items():
            lower = name.lower() if isinstance(name, str) else ""
            if not _HEADER_NAME.fullmatch(lower):
                self._fail("headers", f"{shown(name)} is no name of a header")
            if lower in _OUR_HEADERS or (protocol == "grpc" and (lower.startswith("grpc-") or lower.endswith("-bin"))):
                self._fail("headers", f"{name} is not for settings to say")
            headers[lower] = self._header_value(name, value)
        return headers

    def _header_value(self, name: str, value: object) -> str:
        if not isinstance(value, str):
            self._fail("headers", f"the value of {name} is text")
        whole = _VARIABLE.sub(lambda found: self._variable(name, found[1]), value).strip()
        if not _HEADER_VALUE.fullmatch(whole):
            self._fail("headers", f"the value of {name} has characters in it that no header can have")
        return whole

    def _variable(self, header: str, name: str) -> str:
        value = self._environment.get(name)
        if not value:
            self._fail("headers", f"{header} needs the environment variable {name}, which is not set")
        return value
