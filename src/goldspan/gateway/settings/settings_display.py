"""Prints the settings as YAML, their JSON Schema and the startup log lines, without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from goldspan._version import __version__
from goldspan.gateway.exporting.backends import Backend
from goldspan.gateway.settings.gateway_settings import GatewaySettings, JudgeConfig
from goldspan.gateway.settings.kafka_config import KafkaConfig
from goldspan.gateway.settings.setting_types import RESULT_OUTPUTS
from goldspan.goldens.golden_files import golden_formats
from goldspan.goldens.spelling import join_words
from goldspan.integrations.catalog import create_product
from goldspan.store.store_location import redacted_location

_VARIABLE_REFERENCE = re.compile(r"([A-Za-z-]+ )?\$\{[^}]*\}")
"""The value of a header that refers to a variable and contains no secret."""
_PLAIN_YAML = re.compile(r"[A-Za-z0-9/._~+-][A-Za-z0-9/._~+:-]*")
"""Text that needs no quotes in YAML, unless YAML parses it as another type."""


def print_config(settings: GatewaySettings) -> str:
    """Returns the settings as a goldspan.yaml, each with its origin. Secrets are marked as hidden."""
    lines = ["# The effective settings of `goldspan serve`, each with its origin."]
    for name in GatewaySettings.model_fields:
        lines += _field_lines(settings, name)
    return "\n".join(lines) + "\n"


def settings_json_schema() -> dict[str, Any]:
    """Returns the JSON Schema of goldspan.yaml, for editors and other programs."""
    schema = GatewaySettings.model_json_schema()
    schema["$defs"]["ResourceLimits"]["additionalProperties"] = False  # some versions of pydantic omit it
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _field_lines(settings: GatewaySettings, name: str) -> Iterator[str]:
    value = getattr(settings, name)
    comment = f"  # {settings.origin_of(name)}"
    if name in ("token", "read_token"):
        yield f"{name}: null{comment}" if value is None else f"# {name} is hidden{comment}"
    elif name == "store" and value is not None:
        shown = redacted_location(value)
        yield f"store: {_to_yaml(shown)}{comment}{'; its password is hidden' if shown != value else ''}"
    elif name in ("limits", "judge", "telemetry", "kafka"):
        yield f"{name}:"
        section = asdict(value) if name == "limits" else dict(value)
        for key, field_value in section.items():
            origin = settings.origin_of(f"{name}.{key}")
            if key in ("api_key", "password") and field_value is not None:
                yield f"  # {key} is hidden  # {origin}"
                continue
            shown = _headers_to_yaml(field_value) if key == "headers" else _to_yaml(field_value)
            yield f"  {key}: {shown}  # {origin}"
    elif name == "forward" and value:
        yield f"forward:{comment}"
        for back_end in value:
            yield from _back_end_lines(back_end)
    else:
        yield f"{name}: {_to_yaml(value)}{comment}"


def _back_end_lines(entry: str | Mapping[str, Any]) -> Iterator[str]:
    if isinstance(entry, str):
        yield f"  - {_to_yaml(entry)}"
        return
    for index, (key, value) in enumerate(entry.items()):
        shown = _headers_to_yaml(value) if key == "headers" else _to_yaml(value)
        yield f"  {'- ' if index == 0 else '  '}{key}: {shown}"


def _headers_to_yaml(headers: Mapping[str, Any] | None) -> str:
    headers = headers or {}
    shown = {name: value for name, value in headers.items() if _VARIABLE_REFERENCE.fullmatch(str(value))}
    hidden = [name for name in headers if name not in shown]
    return _to_yaml(shown) + (f"  # hidden: {', '.join(hidden)}" if hidden else "")


def _to_yaml(value: Any) -> str:
    """Returns a value as YAML on one line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_to_yaml(key)}: {_to_yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple | set | frozenset):
        return "[" + ", ".join(map(_to_yaml, value)) + "]"
    if isinstance(value, str | Path):
        text = str(value)
        if _PLAIN_YAML.fullmatch(text) and not text.endswith(":") and golden_formats.parse_yaml(text) == text:
            return text
        return yaml.safe_dump(text, default_style='"', width=2**31, allow_unicode=True).rstrip("\n")
    return f"{value:g}" if isinstance(value, float) and value.is_integer() else str(value)


# --- startup ------------------------------------------------------------------------------------------------------


def startup_lines(settings: GatewaySettings, http_port: int, grpc_port: int | None) -> list[str]:
    """Returns the lines logged at startup: addresses, access, back ends, store and disabled features.

    The ports are those that were bound; `grpc_port` is `None` if gRPC is off.
    """
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    scheme = "https" if settings.tls_cert else "http"
    back_ends = settings.back_ends
    lines = [f"goldspan {__version__} listens on {scheme}://{host}:{http_port} (the page, OTLP/HTTP, API, /metrics)"]
    if grpc_port is not None:
        lines.append(f"OTLP/gRPC on {host}:{grpc_port}{' (TLS)' if settings.tls_cert else ''}")
    lines.append(f"access: {_describe_access(settings)}")
    lines += [f"forwards to {_describe_back_end(back_end)}" for back_end in back_ends]
    if back_ends:
        lines.append(
            f"results to {'the same back ends' if len(back_ends) > 1 else 'it'}: {join_words(settings.results)}"
        )
    products = map(create_product, settings.products)
    lines += [f"writes scores to {product.name} ({product.base_url})" for product in products]
    lines.append(f"goldens: {', '.join(settings.goldens) or 'none; runs are stored but not evaluated'}")
    lines.append(f"store: {redacted_location(settings.store_location)}, {_describe_retention(settings)}")
    if settings.mcp:
        lines.append(f"coding assistants read at {scheme}://{host}:{http_port}/mcp")
    if settings.judge.model is not None:
        lines.append(f"judge: {_describe_judge(settings.judge)}")
    if settings.kafka.brokers:
        lines.append(_describe_kafka(settings.kafka))
    if settings.workers > 1:
        lines.append(f"{settings.workers} workers")
    lines.append(f"off: {', '.join(_disabled_features(settings, grpc_port)) or 'nothing'}")
    return lines


def _describe_access(settings: GatewaySettings) -> str:
    ingest, read = len(settings.ingest_tokens), len(settings.read_tokens)
    clients = "this machine only" if settings.is_loopback else "every client that can connect"
    if not (ingest or read):
        return f"{clients}, without a token"
    tokens = [f"{number} that may {action}" for number, action in ((ingest, "send"), (read, "read")) if number]
    nobody = "" if ingest and read else f"; nobody may {'read' if ingest else 'send'}"
    return f"{clients}, with a token ({' and '.join(tokens)}{nobody})"


def _describe_back_end(back_end: Backend) -> str:
    target = back_end.endpoint if back_end.protocol == "http" else f"{back_end.endpoint} (gRPC)"
    name = f"{back_end.name}: " if back_end.name not in target else ""
    signals = "" if len(back_end.signals) == 3 else f", {join_words(sorted(back_end.signals))} only"
    plain = ", in plain text" if back_end.insecure else ""
    return f"{name}{target}{signals}{plain}"


def _describe_kafka(kafka: KafkaConfig) -> str:
    topics = join_words([kafka.topic, kafka.logs_topic] if kafka.logs_topic else [kafka.topic])
    results = f"; writes evaluations to {kafka.results_topic}" if kafka.results_topic else ""
    return f"reads {topics} from Kafka at {', '.join(kafka.brokers)} as group {kafka.group}{results}"


def _describe_retention(settings: GatewaySettings) -> str:
    bounds = [f"{settings.keep_days:g} days"] if settings.keep_days else []
    bounds += [f"{settings.max_store_bytes} bytes"] if settings.max_store_bytes else []
    kept = f"kept for {' and up to '.join(bounds)}" if settings.keep_days else f"kept up to {''.join(bounds)}"
    values = "with arguments and results" if settings.keep_arguments else "without arguments and results"
    return f"{kept if bounds else 'kept without limit'}, {values}"


def _describe_judge(judge: JudgeConfig) -> str:
    """Describes the model, its share of runs, its budget and the data that is sent to it."""
    budgets = [f"{judge.daily_tokens} tokens"] if judge.daily_tokens is not None else []
    budgets += [f"{judge.daily_cost:g} US dollars"] if judge.daily_cost is not None else []
    shown = {"names": "names of tools", "arguments": "names and arguments", "all": "arguments and results"}[judge.show]
    return (
        f"{judge.model} at {judge.endpoint_host} judges {judge.sample * 100:.3g} % of the runs, within "
        f"{f'{join_words(budgets)} a day' if budgets else 'no budget'}; it receives the "
        f"requests and answers of agents, and of their calls {shown}"
    )


def _disabled_features(settings: GatewaySettings, grpc_port: int | None) -> Iterator[str]:
    if grpc_port is None:
        yield "gRPC (grpc_port)"
    if not settings.tls_cert:
        yield "TLS (tls_cert, tls_key)"
    if not settings.forward:
        yield "forwarding (forward)"
    else:
        yield from (f"{output} to back ends (results)" for output in RESULT_OUTPUTS if output not in settings.results)
    if not settings.products:
        yield "writing scores to products (products)"
    if settings.judge.model is None:
        yield "the judge (judge.model)"
    if not settings.telemetry.endpoint:
        yield "own metrics over OTLP (telemetry)"
