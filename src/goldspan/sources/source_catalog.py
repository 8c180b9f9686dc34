"""`create_source`: the source of a URL such as `phoenix://localhost:6006?project=shop`."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from goldspan.errors import ConfigurationError

if TYPE_CHECKING:
    from goldspan.sources.trace_source import TraceSource

SOURCES: Mapping[str, tuple[str, str]] = {
    "phoenix": ("phoenix_source", "PhoenixSource"),
    "mlflow": ("mlflow_source", "MLflowSource"),
    "langfuse": ("langfuse_source", "LangfuseSource"),
    "tempo": ("tempo_source", "TempoSource"),
    "jaeger": ("jaeger_source", "JaegerSource"),
}
"""The module and the class of each source, by the scheme of its URL."""
_URL_PATTERN = re.compile(rf"({'|'.join(SOURCES)})(\+https?)?:(//.*)?", re.DOTALL)


def is_source_url(text: str) -> bool:
    """Return whether a text is the URL of a trace source, and not the path of a file."""
    return _URL_PATTERN.fullmatch(text) is not None


def create_source(url: str, environment: Mapping[str, str] = os.environ) -> TraceSource:
    """Return the source of a URL.

    `phoenix://HOST[:PORT][/PATH][?PARAMETER=VALUE]` uses HTTP for this machine and HTTPS for every other; with
    `phoenix+http://` or `phoenix+https://` the URL decides. `phoenix://` is the address in the tool's own variables.

    Raises:
        ConfigurationError: The URL has credentials, an unknown parameter or no host, or a variable is missing.
    """
    found = _URL_PATTERN.fullmatch(url)
    if found is None:
        raise ConfigurationError(f"{url[:60]!r} is not the URL of a trace source: {', '.join(SOURCES)}")
    scheme, transport = found[1], (found[2] or "").removeprefix("+")
    try:
        parts = urlsplit(f"//{(found[3] or '').removeprefix('//')}")
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigurationError(f"the URL of {scheme} is invalid: {error}") from None
    module, class_name = SOURCES[scheme]
    source_class: type[TraceSource] = getattr(import_module(f"goldspan.sources.{module}"), class_name)
    if "@" in parts.netloc:
        raise ConfigurationError(f"the URL of {scheme} contains credentials; {_where_tokens_are(source_class)}")
    parameters: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in source_class.parameters:
            known = ", ".join(source_class.parameters) or "none"
            raise ConfigurationError(f"the URL of {scheme} has no parameter {name!r}; its parameters: {known}")
        if name in parameters:
            raise ConfigurationError(f"the URL of {scheme} has the parameter {name!r} twice")
        parameters[name] = value
    if parts.fragment:
        raise ConfigurationError(f"the URL of {scheme} must not have a fragment (#)")
    if host is None and (parts.netloc or parts.path.strip("/")):
        raise ConfigurationError(f"the URL of {scheme} has no host; write {scheme}://HOST:PORT")
    base_url = None
    if host is not None:
        transport = transport or ("http" if _is_this_machine(host) else "https")
        base_url = f"{transport}://{parts.netloc}{parts.path.rstrip('/')}"
    return source_class.create(base_url, parameters, environment)


def _where_tokens_are(source_class: type[TraceSource]) -> str:
    return f"tokens are only in variables: {', '.join(source_class.variables)}"


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
