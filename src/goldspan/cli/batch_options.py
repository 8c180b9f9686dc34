"""The options with which `goldspan score` reads inputs that are larger than the memory."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

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
    str | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Write the results into the parts of a folder. A repeated command continues where an interrupted one "
        "ended. With --engine spark, a new folder or URL that Spark writes.",
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
EngineOption = Annotated[
    Literal["local", "spark"],
    typer.Option(
        "--engine",
        metavar="NAME",
        help="local: the processes of this command. spark: Apache Spark, with the verdicts of docs/spark.md.",
        rich_help_panel=_LARGE_PANEL,
    ),
]
SparkMasterOption = Annotated[
    str | None,
    typer.Option(
        "--spark-master",
        metavar="URL",
        help="Spark's master, such as local[4] or spark://host:7077. Default: that of spark-submit, else local[*]",
        show_default=False,
        rich_help_panel=_LARGE_PANEL,
    ),
]
SparkConfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--spark-conf",
        metavar="KEY=VALUE",
        help="A setting of Spark, such as spark.executor.memory=4g. May be repeated.",
        rich_help_panel=_LARGE_PANEL,
    ),
]
DEFAULT_MEMORY = "256MB"

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def parse_size(text: str, option: str) -> int:
    """Parse a size such as `256MB` into bytes. Raises `ConfigurationError` for any other text, and for 0."""
    found = _SIZE.fullmatch(text.strip())
    size = 0 if found is None else int(float(found[1]) * _UNITS[found[2].lower()])
    if size < 1:
        raise ConfigurationError(f"{option} takes a size such as 256MB or 2GB, not {text!r}")
    return size


class SparkOptions(NamedTuple):
    """How Spark runs, and where it writes the results."""

    master: str | None
    """`None`: that of `spark-submit` or of Spark's configuration, else all cores of this machine."""
    settings: Mapping[str, str]
    out: str | None
    """A folder or URL that Spark can write."""
    out_format: Literal["jsonl", "parquet"]


def spark_options_from(
    engine: Literal["local", "spark"],
    master: str | None,
    settings: Sequence[str] | None,
    out: str | None,
    out_format: Literal["jsonl", "parquet"],
    *,
    cases: Sequence[str] | None,
    jobs: int,
    memory: str,
) -> SparkOptions | None:
    """Return the options of Spark; `None` for another engine. Raises `ConfigurationError` for a wrong combination."""
    if engine != "spark":
        if master is not None or settings:
            raise ConfigurationError("--spark-master and --spark-conf need --engine spark")
        return None
    if cases:
        raise ConfigurationError("--engine spark needs traces; --concurrency evaluates rows of --cases concurrently")
    if jobs > 1 or memory != DEFAULT_MEMORY:
        raise ConfigurationError(
            "--jobs and --memory do not apply to --engine spark: --spark-master local[4] uses four cores, and "
            "--spark-conf spark.executor.memory=4g sets the memory"
        )
    return SparkOptions(master, _parse_spark_settings(settings or ()), out, out_format)


def _parse_spark_settings(texts: Sequence[str]) -> dict[str, str]:
    settings = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise ConfigurationError(f"--spark-conf takes KEY=VALUE, such as spark.executor.memory=4g, not {text!r}")
        settings[key.strip()] = value
    return settings
