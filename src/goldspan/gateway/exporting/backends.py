"""Parses and validates the configuration of OTLP back ends for the gateway settings."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NoReturn, get_args
from urllib.parse import SplitResult, urlsplit

from goldspan.errors import ConfigurationError
from goldspan.gateway.resource_limits import Signal
from goldspan.goldens.spelling import did_you_mean, join_words, short_repr

OtlpProtocol = Literal["http", "grpc"]
Compression = Literal["none", "gzip"]

SIGNALS: tuple[Signal, ...] = get_args(Signal)
MAX_TIMEOUT_SECONDS = 600.0

_SCHEMES: Mapping[str, tuple[OtlpProtocol, bool, int]] = {
    "http": ("http", True, 80),
    "https": ("http", False, 443),
    "grpc": ("grpc", True, 4317),
    "grpcs": ("grpc", False, 4317),
}
"""By URL scheme: the protocol, whether it is plain text, and the default port."""
_ENDPOINT_EXAMPLE = "write http://host:4318, https://host:4318, grpc://host:4317 or grpcs://host:4317"
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_HEADER_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")  # RFC 9110, section 5.6.2, in lower case
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")
_RESERVED_HEADERS = frozenset(
    {"connection", "content-encoding", "content-length", "content-type", "host", "te", "transfer-encoding"}
)
_MIN_SECRET_LENGTH = 6
"""Shorter values are not redacted: they are hardly secrets, and their redaction would make texts unreadable."""


@dataclass(frozen=True, slots=True)
class Backend:
    """One OTLP back end, created by `parse`. No text about it, including its `repr`, shows the values of headers."""

    name: str
    """Its name in the log, the counters and the journal; by default its host and port."""
    endpoint: str
    """HTTP: the base URL, to which `/v1/traces` and the like are appended. gRPC: host and port."""
    protocol: OtlpProtocol = "http"
    insecure: bool = False
    """Whether the connection is plain text: `http://` and `grpc://`."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers of each request, by lower-case name."""
    compression: Compression = "none"
    ca_file: str | None = None
    """PEM file with the certificate authorities to trust instead of the system's."""
    certificate_file: str | None = None
    """PEM file with the client certificate."""
    key_file: str | None = None
    """PEM file with the private key, if it is not in `certificate_file`."""
    timeout_seconds: float = 10.0
    """Timeout of one request."""
    signals: frozenset[Signal] = frozenset(SIGNALS)
    """The signals to export to it."""

    @staticmethod
    def parse(
        value: str | Mapping[str, Any], *, location: str = "forward", environment: Mapping[str, str] = os.environ
    ) -> Backend:
        """Create a back end from a URL, or from a mapping with an `endpoint` and any of the other fields.

        `${NAME}` in the value of a header is replaced by that variable of `environment`. With `protocol: grpc`,
        `http://` and `https://` mean `grpc://` and `grpcs://`, as in the environment variables of OTLP exporters.

        Raises `ConfigurationError` for an invalid value; its message begins with `location`.
        """
        if isinstance(value, str):
            value = {"endpoint": value}
        if not isinstance(value, Mapping):
            raise ConfigurationError(
                f"{location}: a back end is a URL or a mapping with an endpoint, not {short_repr(value)}"
            )
        return _BackendParser(value, location, environment).parse()

    @property
    def consumers(self) -> Mapping[Signal, str]:
        """Names of its consumers in the journal, by signal: each signal has its own cursor."""
        return {signal: f"forward/{self.name}/{signal}" for signal in SIGNALS if signal in self.signals}

    @property
    def address(self) -> tuple[str, int]:
        """The host, in lower case and without brackets, and the port."""
        url = urlsplit(self.endpoint if "://" in self.endpoint else f"//{self.endpoint}")
        default_port = 443 if url.scheme == "https" else 80
        return (url.hostname or "").lower(), url.port or default_port

    def redact(self, text: str) -> str:
        """Remove the secrets of the headers from a text in which the back end may have repeated them."""
        for value in self.headers.values():
            for secret in (value, *value.split()):
                if len(secret) >= _MIN_SECRET_LENGTH:
                    text = text.replace(secret, "***")
        return text


def create_tls_context(backend: Backend) -> ssl.SSLContext:
    """Return the TLS context for connections to the back end."""
    context = ssl.create_default_context(cafile=backend.ca_file)
    if backend.certificate_file:
        context.load_cert_chain(backend.certificate_file, backend.key_file)
    return context


def parse_backends(
    values: Iterable[str | Mapping[str, Any]],
    *,
    location: str = "forward",
    environment: Mapping[str, str] = os.environ,
) -> tuple[Backend, ...]:
    """Parse several back ends. Raises `ConfigurationError` also for a duplicate name: it would share a cursor."""
    backends = tuple(
        Backend.parse(value, location=f"{location}[{index}]", environment=environment)
        for index, value in enumerate(values)
    )
    names = [backend.name for backend in backends]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ConfigurationError(
                f"{location}[{index}]: another back end has the name {name!r}; set a different 'name'"
            )
    return backends


class _BackendParser:
    """Parses one mapping field by field. Raises `ConfigurationError` for an invalid field."""

    def __init__(self, values: Mapping[str, Any], location: str, environment: Mapping[str, str]) -> None:
        self._values = values
        self._location = location
        self._environment = environment

    def parse(self) -> Backend:
        known = [known_field.name for known_field in fields(Backend) if known_field.name != "insecure"]
        for key in self._values:
            if key not in known:
                hint = did_you_mean(key, known) or f" The keys are {join_words(known)}."
                raise ConfigurationError(f"{self._location}: unknown key {short_repr(key)}.{hint}")
        url, scheme = self._endpoint()
        scheme_protocol, insecure, default_port = _SCHEMES[scheme]
        protocol: OtlpProtocol = self._choice("protocol", get_args(OtlpProtocol), scheme_protocol)
        if scheme_protocol == "grpc" and protocol == "http":
            self._raise_error("protocol", f"'http' contradicts the endpoint's {scheme}://")
        host_and_port = self._host_and_port(url, 4317 if protocol == "grpc" else default_port)
        files = {name: self._readable_file(name, insecure) for name in ("ca_file", "certificate_file", "key_file")}
        if files["key_file"] and not files["certificate_file"]:
            self._raise_error("key_file", "requires certificate_file")
        backend = Backend(
            name=self._name(host_and_port),
            endpoint=host_and_port if protocol == "grpc" else self._base_url(url),
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

    def _check_tls(self, backend: Backend) -> None:
        try:
            create_tls_context(backend)
        except (OSError, ValueError) as error:
            file_keys = join_words(
                repr(key) for key in ("ca_file", "certificate_file", "key_file") if self._values.get(key)
            )
            raise ConfigurationError(
                f"{self._location}, {file_keys}: the PEM files cannot be used ({error})"
            ) from error

    def _raise_error(self, key: str, reason: str) -> NoReturn:
        raise ConfigurationError(f"{self._location}, {key!r}: {reason}")

    def _endpoint(self) -> tuple[SplitResult, str]:
        endpoint = self._values.get("endpoint")
        if not isinstance(endpoint, str) or not endpoint.strip():
            self._raise_error("endpoint", f"is missing; {_ENDPOINT_EXAMPLE}")
        try:
            url = urlsplit(endpoint.strip())
            scheme, _ = url.scheme.lower(), url.port
        except ValueError:
            self._raise_error("endpoint", f"is not a URL; {_ENDPOINT_EXAMPLE}")
        if "@" in url.netloc:  # the message must not repeat the password
            self._raise_error("endpoint", "must not contain a password; set it in 'headers', as ${NAME}")
        if scheme not in _SCHEMES or not url.hostname:
            self._raise_error("endpoint", f"{short_repr(endpoint)} is not the URL of a back end; {_ENDPOINT_EXAMPLE}")
        if url.query or url.fragment:
            self._raise_error("endpoint", "must end with its path; set keys in 'headers', as ${NAME}")
        return url, scheme

    def _host_and_port(self, url: SplitResult, default_port: int) -> str:
        host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname
        return f"{host}:{url.port or default_port}"

    def _base_url(self, url: SplitResult) -> str:
        path = url.path.rstrip("/")
        for signal in SIGNALS:
            if path.endswith(f"/v1/{signal}"):
                self._raise_error("endpoint", f"must not end in /v1/{signal}, which the gateway appends")
        return f"{url.scheme.lower()}://{url.netloc}{path}"

    def _name(self, default: str) -> str:
        name = self._values.get("name")
        if name is None:
            return default
        if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > 100:
            self._raise_error("name", f"must be a text of at most 100 characters, not {short_repr(name)}")
        return name

    def _choice(self, key: str, choices: tuple[Any, ...], default: str) -> Any:
        chosen = self._values.get(key)
        if chosen is None:
            return default
        if chosen not in choices:
            self._raise_error(key, f"must be {join_words(map(repr, choices), last='or')}, not {short_repr(chosen)}")
        return chosen

    def _timeout(self) -> float:
        seconds = self._values.get("timeout_seconds")
        if seconds is None:
            return 10.0
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not is_number or not 0 < seconds <= MAX_TIMEOUT_SECONDS:
            self._raise_error(
                "timeout_seconds", f"must be above 0 and at most {MAX_TIMEOUT_SECONDS:g}, not {short_repr(seconds)}"
            )
        return float(seconds)

    def _signals(self) -> frozenset[Signal]:
        configured = self._values.get("signals")
        if configured is None:
            return frozenset(SIGNALS)
        signals = [configured] if isinstance(configured, str) else configured
        if not isinstance(signals, list | tuple | set | frozenset) or not signals:
            self._raise_error("signals", f"must be a list of {join_words(SIGNALS)}, not {short_repr(configured)}")
        for signal in signals:
            if signal not in SIGNALS:
                self._raise_error("signals", f"{short_repr(signal)} is not one of {join_words(SIGNALS)}")
        return frozenset(signals)

    def _readable_file(self, key: str, insecure: bool) -> str | None:
        path = self._values.get(key)
        if path is None:
            return None
        if insecure:
            self._raise_error(key, "has no effect on a plain text connection; write https:// or grpcs://")
        try:
            with open(path, "rb"):
                return str(path)
        except (OSError, TypeError) as error:
            self._raise_error(key, f"cannot be read: {error}")

    def _headers(self, protocol: OtlpProtocol) -> dict[str, str]:
        configured = self._values.get("headers")
        if configured is None:
            return {}
        if not isinstance(configured, Mapping):
            self._raise_error("headers", "must be a mapping of names to values")  # the actual value may be a secret
        headers: dict[str, str] = {}
        for name, value in configured.items():
            lower = name.lower() if isinstance(name, str) else ""
            if not _HEADER_NAME.fullmatch(lower):
                self._raise_error("headers", f"{short_repr(name)} is not a header name")
            if lower in _RESERVED_HEADERS or (
                protocol == "grpc" and (lower.startswith("grpc-") or lower.endswith("-bin"))
            ):
                self._raise_error("headers", f"the gateway sets {name} itself")
            headers[lower] = self._header_value(name, value)
        return headers

    def _header_value(self, name: str, value: object) -> str:
        if not isinstance(value, str):
            self._raise_error("headers", f"the value of {name} must be text")
        expanded = _VARIABLE.sub(lambda match: self._environment_variable(name, match[1]), value).strip()
        if not _HEADER_VALUE.fullmatch(expanded):
            self._raise_error("headers", f"the value of {name} contains characters that a header must not contain")
        return expanded

    def _environment_variable(self, header: str, name: str) -> str:
        value = self._environment.get(name)
        if not value:
            self._raise_error("headers", f"{header} requires the environment variable {name}, which is not set")
        return value
