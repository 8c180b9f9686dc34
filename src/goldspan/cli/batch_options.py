"""The options with which `goldspan score` reads inputs that are larger than the memory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import typer

from goldspan.errors import ConfigurationError

_LARGE_PANEL = "Large inputs"

MemoryOption = Annotated[
    str,
    typer.Option(
        "--memory",
        metavar="SIZE",
        help="The memory for spans, such as 256MB or 2GB. Traces that need more are divided on disk; the results are "
        "the same.",
        rich_help_panel=_LARGE_PANEL,
    ),
]
JobsOption = Annotated[
    int,
    typer.Option(
        "--jobs",
        "-j",
        metavar="N",
        min=1,
        help="Number of processes, which share the memory of --memory.",
        rich_help_panel=_LARGE_PANEL,
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Write the results into the parts of a folder. A repeated command continues where an interrupted one "
        "ended.",
        rich_help_panel=_LARGE_PANEL,
    ),
]
OutFormatOption = Annotated[
    Literal["jsonl", "parquet"],
    typer.Option("--out-format", metavar="FORM", help="jsonl or parquet.", rich_help_panel=_LARGE_PANEL),
]
PartRunsOption = Annotated[
    int,
    typer.Option("--part-runs", metavar="N", min=1, help="Runs in a part of --out.", rich_help_panel=_LARGE_PANEL),
]

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def parse_size(text: str, option: str) -> int:
    """Parse a size such as `256MB` into bytes. Raises `ConfigurationError` for any other text, and for 0."""
    found = _SIZE.fullmatch(text.strip())
    size = 0 if found is None else int(float(found[1]) * _UNITS[found[2].lower()])
    if size < 1:
        raise ConfigurationError(f"{option} takes a size such as 256MB or 2GB, not {text!r}")
    return size
