"""Write the tables of `docs/gateway.md` from what the gateway says of itself: `make docs`, checked by the tests.

A table stands between two comments, `<!-- table: NAME -->` and `<!-- end -->`; all else in the page is written by hand.
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
from goldspan.gateway.openapi import OPERATIONS
from goldspan.gateway.resource_limits import GIB, KIB, LIMITS, MIB
from goldspan.gateway.settings.gateway_settings import GatewaySettings, JudgeConfig
from goldspan.store.query_parameters import PAGE_PARAMETERS as OF_RUNS

PAGE = Path(__file__).with_name("gateway.md")

_TABLE = re.compile(r"(?<=<!-- table: )(\w+) -->\n.*?(?=<!-- end -->)", re.DOTALL)
_CODE = re.compile(r"(?<![\w`/.])((?:[a-z]+_)+[a-z]+|GOLDSPAN_[A-Z_]+)(?![\w`/])")
"""Names of settings in descriptions, which are code in the page."""


def page(written: str) -> str:
    """The page as it was, with its tables made anew."""
    return _TABLE.sub(lambda found: f"{found[1]} -->\n\n{_TABLES[found[1]]()}\n", written)


def limits() -> str:
    """What is bounded, and what happens at each bound."""
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
    return _table(("limit", "default", "beyond it", "HTTP", "gRPC"), rows)


def settings() -> str:
    """What can be said, where."""
    parameters = inspect.signature(serve).parameters
    rows = []
    for name, field in GatewaySettings.model_fields.items():
        flag = next((each for each in (name, name.removesuffix("s")) if each in parameters), None)
        meaning = _CODE.sub(r"`\1`", " ".join((field.description or "").split()))
        rows.append((f"`{name}`", f"`--{flag.replace('_', '-')}`" if flag else "", meaning, _default(name)))
    return _table(("setting", "flag", "meaning", "default"), rows)


def judge() -> str:
    """What can be said of a judge."""
    rows = [
        (f"`{name}`", _CODE.sub(r"`\1`", " ".join((field.description or "").split())), _written(field.default))
        for name, field in JudgeConfig.model_fields.items()
    ]
    return _table(("setting", "meaning", "default"), rows)


def counters() -> str:
    """What is counted, and what to do about it."""
    return _table(
        ("counter", "meaning"), [(f"`{each.name}`", _CODE.sub(r"`\1`", each.description)) for each in COUNTERS]
    )


def gauges() -> str:
    """What can be looked at, and what to do where it grows."""
    noted: list[tuple[str, str]] = []

    class Noting:
        def get_meter(self, *_: object, **__: object) -> Noting:
            return self

        def create_observable_gauge(self, name: str, _: object, *, unit: str, description: str) -> None:
            noted.append((f"`{name}`", _CODE.sub(r"`\1`", description)))

    nothing: Any = Noting()
    register_gauges(nothing, nothing, {}, [])
    return _table(("gauge", "meaning"), noted)


def operations() -> str:
    """What the API does."""
    return _table(("request", "answer"), [(f"`{each.method} {each.path}`", each.summary) for each in OPERATIONS])


def parameters() -> str:
    """What may be asked of runs."""
    return _table(("parameter", "meaning"), [(f"`{each.name}`", each.description) for each in OF_RUNS])


_TABLES = {
    "limits": limits,
    "settings": settings,
    "judge": judge,
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
    if name == "telemetry":
        return "off"
    return _written(value)


def _written(value: Any) -> str:
    if value is None:
        return "`null`"
    if value in ((), {}):
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(f"`{each}`" for each in value)
    return f"{value:g}" if isinstance(value, float) else f"`{value}`" if not isinstance(value, int) else str(value)


def _number(value: float, unit: str) -> str:
    if unit == "bytes":
        size, name = next((size, name) for size, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")) if value >= size)
        return f"{value / size:g} {name}"
    return f"{value:,.0f} {unit}"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(page(text), encoding="utf-8")
