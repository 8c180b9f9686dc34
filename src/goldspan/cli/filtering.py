"""Options that say which runs of a store are meant."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from goldspan.errors import ConfigurationError
from goldspan.store.instants import instant

GoldenFilter = Annotated[str | None, typer.Option("--golden", metavar="ID", help="Runs judged by that golden.")]
AgentFilter = Annotated[str | None, typer.Option("--agent", metavar="NAME", help="Runs of that agent.")]
ServiceFilter = Annotated[str | None, typer.Option("--service", metavar="NAME", help="Runs of that service.")]
EnvironmentFilter = Annotated[
    str | None, typer.Option("--environment", metavar="NAME", help="Runs of that deployment environment.")
]
TextFilter = Annotated[str | None, typer.Option("--text", metavar="TEXT", help="Runs whose input has it.")]
SinceFilter = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Runs from then on: 2026-01-31, 2026-01-31T08:00, or 24h, 7d."),
]
UntilFilter = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Runs before then.")]


def moment(text: str | None, option: str) -> int | None:
    """A time as it is written, in nanoseconds since the Unix epoch. Raises `ConfigurationError` for what is none."""
    if text is None:
        return None
    try:
        return instant(text, time.time_ns())
    except ConfigurationError as error:
        raise ConfigurationError(f"{option}: {error}") from None
