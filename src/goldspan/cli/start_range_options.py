"""The options `--since` and `--until` of `score` and `extract`: which runs of the traces are read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from goldspan.cli.options import parse_time_option
from goldspan.errors import ConfigurationError

if TYPE_CHECKING:
    from goldspan.otlp.start_range import StartRange

_PANEL = "Range of time"

SinceRangeOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Read the runs that started at TIME or later: 2026-01-31, 2026-01-31T08:00, or 24h, 7d before now. Spans "
        "that started more than an hour outside the range are not read, so longer runs may lack some. Default: all "
        "runs in files, and the last 24h of a tool",
        rich_help_panel=_PANEL,
    ),
]
UntilRangeOption = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="TIME",
        help="Read the runs that started before TIME. Default: all runs in files, and until now of a tool",
        rich_help_panel=_PANEL,
    ),
]


def parse_start_range(since: str | None, until: str | None) -> StartRange:
    """Return the range that the options name. Raises `ConfigurationError` if one is no time, or the range is empty."""
    from goldspan.otlp.start_range import StartRange

    found = StartRange(parse_time_option(since, "--since"), parse_time_option(until, "--until"))
    if found.since_ns is not None and found.until_ns is not None and found.since_ns >= found.until_ns:
        raise ConfigurationError("--since must be a time before --until")
    return found


def range_of_files(start_range: StartRange, paths: Iterable[str]) -> StartRange:
    """Return the range in which runs are kept. Those of a tool are kept all: it was asked for its traces in the range.

    Where files are read too, the range applies to all runs.
    """
    from goldspan.otlp.start_range import ALL_STARTS
    from goldspan.sources.source_catalog import is_source_url

    return ALL_STARTS if all(map(is_source_url, paths)) else start_range
