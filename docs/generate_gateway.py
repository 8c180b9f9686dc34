"""Generates the tables of `docs/gateway.md` and `docs/kafka.md` from the code of the gateway, for `make docs`.

A table is between two comments, `<!-- table: NAME -->` and `<!-- end -->`. The rest of a page is written by hand. A
test checks that the tables are current.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from goldspan.cli.serve import serve
from goldspan.gateway.gateway_counters import COUNTERS
from goldspan.gateway.internal_telemetry import register_gauges
from goldspan.gateway.kafka.kafka_worker import register_kafka_gauges
from goldspan.gateway.openapi import OPERATIONS
from goldspan.gateway.resource_limits import GIB, KIB, LIMITS, MIB
from goldspan.gateway.settings.gateway_settings import GatewaySettings, JudgeConfig
from goldspan.gateway.settings.kafka_config import KafkaConfig
from goldspan.store.query_parameters import PAGE_PARAMETERS

PAGES = [Path(__file__).with_name(name) for name in ("gateway.md", "kafka.md")]

_TABLE = re.compile(r"(?<=<!-- table: )(\w+) -->\n.*?(?=<!-- end -->)", re.DOTALL)
_CODE = re.compile(r"(?<![\w`/.])((?:[a-z]+_)+[a-z]+|GOLDSPAN_[A-Z_]+)(?![\w`/])")
"""Names of settings in descriptions, which the page formats as code."""


def page(text: str) -> str:
    """Return the page with its tables generated again."""
    return _TABLE.sub(lambda match: f"{match[1]} -->\n\n{_TABLES[match[1]]()}\n", text)


def limits() -> str:
    """Return the table of limits, with the response at each limit."""
    rows = [
        (
            f"`{limit.name}`",
            _number(limit.default, limit.unit),
            limit.effect,
            str(limit.http_status or ""),
            f"`{limit.grpc_code}`" if limit.grpc_code else "",
        )
        for limit in LIMITS
    ]
    return _table(("limit", "default", "if exceeded", "HTTP", "gRPC"), rows)


def settings() -> str:
    """Return the table of settings, with their flags."""
    parameters = inspect.signature(serve).parameters
    rows = []
    for name, field in GatewaySettings.model_fields.items():
        flag = next((flag for flag in (name, name.removesuffix("s")) if flag in parameters), None)
        meaning = _CODE.sub(r"`\1`", " ".join((field.description or "").split()))
        rows.append((f"`{name}`", f"`--{flag.replace('_', '-')}`" if flag else "", meaning, _default(name)))
    return _table(("setting", "flag", "meaning", "default"), rows)


def judge() -> str:
    """Return the table of the judge's settings."""
    rows = [
        (f"`{name}`", _CODE.sub(r"`\1`", " ".join((field.description or "").split())), _format_value(field.default))
        for name, field in JudgeConfig.model_fields.items()
    ]
    return _table(("setting", "meaning", "default"), rows)


def kafka() -> str:
    """Return the table of the settings of Kafka."""
    parameters = inspect.signature(serve).parameters
    rows = []
    for name, field in KafkaConfig.model_fields.items():
        flag = f"`--kafka-{name.replace('_', '-')}`" if f"kafka_{name}" in parameters else ""
        meaning = _CODE.sub(r"`\1`", " ".join((field.description or "").split()))
        rows.append((f"`{name}`", flag, meaning, _format_value(field.default)))
    return _table(("setting", "flag", "meaning", "default"), rows)


def counters() -> str:
    """Return the table of counters."""
    return _table(
        ("counter", "meaning"), [(f"`{counter.name}`", _CODE.sub(r"`\1`", counter.description)) for counter in COUNTERS]
    )


def gauges() -> str:
    """Return the table of gauges."""
    gauges: list[tuple[str, str]] = []

    class RecordingMeterProvider:
        """Records the gauges that are registered."""

        def get_meter(self, *_: object, **__: object) -> RecordingMeterProvider:
            return self

        def create_observable_gauge(self, name: str, _: object, *, unit: str, description: str) -> None:
            gauges.append((f"`{name}`", _CODE.sub(r"`\1`", description)))

    recorder: Any = RecordingMeterProvider()
    register_gauges(recorder, recorder, {}, [], lambda: 0)
    register_kafka_gauges(recorder, None, None)
    return _table(("gauge", "meaning"), gauges)


def operations() -> str:
    """Return the table of the API's operations."""
    return _table(
        ("request", "response"),
        [(f"`{operation.method} {operation.path}`", operation.summary) for operation in OPERATIONS],
    )


def parameters() -> str:
    """Return the table of the filters of runs."""
    return _table(
        ("parameter", "meaning"), [(f"`{parameter.name}`", parameter.description) for parameter in PAGE_PARAMETERS]
    )


_TABLES = {
    "limits": limits,
    "settings": settings,
    "judge": judge,
    "kafka": kafka,
    "counters": counters,
    "gauges": gauges,
    "operations": operations,
    "parameters": parameters,
}


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    def lines() -> Iterator[str]:
        yield f"| {' | '.join(head)} |"
        yield f"|{'---|' * len(head)}"
        for row in rows:
            cells = (cell.replace("|", r"\|") for cell in row)
            yield f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")

    return "\n".join(lines()) + "\n"


def _default(name: str) -> str:
    value = GatewaySettings.model_fields[name].get_default(call_default_factory=True)
    if name == "limits":
        return "see [limits](#limits)"
    if name == "judge":
        return "off; see [a judge](#a-judge)"
    if name == "kafka":
        return "off; see [Kafka](kafka.md)"
    if name == "telemetry":
        return "off"
    return _format_value(value)


def _format_value(value: Any) -> str:
    if value is None:
        return "`null`"
    if value in ((), {}):
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value)
    return f"{value:g}" if isinstance(value, float) else f"`{value}`" if not isinstance(value, int) else str(value)


def _number(value: float, unit: str) -> str:
    if unit == "bytes":
        size, name = next((size, name) for size, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")) if value >= size)
        return f"{value / size:g} {name}"
    return f"{value:,.0f} {unit}"


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
