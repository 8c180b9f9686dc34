"""The options that several commands share. `--help` imports nothing else of goldspan but the model.

A command imports what it runs with inside its function.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from goldspan.errors import ConfigurationError
from goldspan.model import (
    CallDepth,
    CallOrder,
    CorrectnessMode,
    CountedAttempts,
    DuplicateCalls,
    ExtraCalls,
    RunUnit,
    UnknownPolicy,
)

Verdict = Literal["pass", "fail", "not_evaluated"]
ToolRole = Literal["called", "expected", "missing", "unexpected", "forbidden", "failed"]
"""These two repeat the types in `goldspan.store`, which is slow to import."""

_PATHS_ARGUMENT = typer.Argument(
    metavar="PATHS",
    help="Files or folders with traces and logs; - reads standard input. Formats: OTLP as protobuf, JSON or JSON "
    "lines, every format of the Collector's file exporter, and the JSON of Grafana Tempo and Jaeger; plain, gzip or "
    "zstd; and Parquet with spans as rows. The format is detected from the content. A URL such as s3://bucket/traces "
    "names a remote file or folder. score and extract also read a tool: phoenix://, mlflow://, "
    "langfuse://, tempo:// or jaeger://, with HOST:PORT.",
    show_default=False,
)
Paths = Annotated[list[str], _PATHS_ARGUMENT]
OptionalPaths = Annotated[list[str] | None, _PATHS_ARGUMENT]
UnitOption = Annotated[
    RunUnit,
    typer.Option(
        "--unit",
        metavar="UNIT",
        help="What is evaluated as one run: a request, a component (a part of a request that is marked, that a golden "
        "file declares, or that another agent carries out), or a conversation (all requests of a session).",
    ),
]
GoldenIdAttribute = Annotated[
    list[str] | None,
    typer.Option(
        "--golden-id-attribute",
        metavar="KEY",
        help="Span attribute that holds the id of a run's golden. May be repeated. Default: goldspan.golden.id, then "
        "test.case.name, or the variable GOLDSPAN_GOLDEN_ID_ATTRIBUTE.",
        show_default=False,
    ),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object per line instead of a table.")]

VerdictFilter = Annotated[Verdict | None, typer.Option("--verdict", help="Runs with this verdict.")]
MetricFilter = Annotated[
    str | None, typer.Option("--metric", metavar="NAME", help="Runs that have a score of this metric.")
]
BelowFilter = Annotated[
    float | None, typer.Option("--below", metavar="X", help="Runs whose score of --metric is below X.")
]
GoldenFilter = Annotated[
    str | None, typer.Option("--golden", metavar="ID", help="Runs that were evaluated with this golden.")
]
AgentFilter = Annotated[str | None, typer.Option("--agent", metavar="NAME", help="Runs of this agent.")]
ServiceFilter = Annotated[str | None, typer.Option("--service", metavar="NAME", help="Runs of this service.")]
EnvironmentFilter = Annotated[
    str | None, typer.Option("--environment", metavar="NAME", help="Runs of this deployment environment.")
]
ToolFilter = Annotated[
    str | None, typer.Option("--tool", metavar="NAME", help="Runs with this tool in the role of --tool-role.")
]
ToolRoleFilter = Annotated[
    ToolRole, typer.Option("--tool-role", help="What --tool was in the run: expected, called, missing and so on.")
]
UnitFilter = Annotated[RunUnit | None, typer.Option("--unit", help="Runs of this kind.")]
TextFilter = Annotated[str | None, typer.Option("--text", metavar="TEXT", help="Runs whose input contains TEXT.")]
SinceFilter = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="TIME", help="Runs that began at TIME or later: 2026-01-31, 2026-01-31T08:00, or 24h, 7d."
    ),
]
UntilFilter = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Runs that began before TIME.")]

STORE_FILE_NAME = "goldspan.db"
"""The name of the store in the data folder of a gateway, and in the folder of the demo."""
StoreArgument = Annotated[
    str,
    typer.Argument(
        metavar="STORE",
        help=f"The file of a store, a folder that holds {STORE_FILE_NAME}, such as the data folder of a gateway, or "
        "the URL of a database: postgresql://user@host/database.",
        show_default=False,
    ),
]

ConcurrencyOption = Annotated[
    int,
    typer.Option(
        "--concurrency",
        metavar="N",
        min=1,
        help="Runs evaluated concurrently; useful for custom metrics that wait for I/O.",
    ),
]
CasesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--cases",
        metavar="FILE",
        help="Evaluate rows with tools_called and expected_tools, or a golden_id, instead of traces: JSON lines, a "
        "JSON list or CSV. May be repeated.",
    ),
]
FailUnderOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-under",
        metavar="METRIC=X",
        help="Exit with 1 if the mean of the metric, or the pass rate `passed`, is below X.",
    ),
]
FailOnUnknownFlag = Annotated[
    bool | None,
    typer.Option(
        "--fail-on-unknown/--no-fail-on-unknown",
        help="Count runs that have a golden and could not be evaluated as not passed. Default: only if the variable CI "
        "is set. Without --fail-under: exit with 1 if there is such a run.",
    ),
]

_METRICS_PANEL = "Metrics"
_RULES_PANEL = "Rules that replace those in goldens"
_JUDGE_PANEL = "LLM judge"

MetricOption = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        "-m",
        metavar="NAME",
        help="Evaluate only this metric. Repeatable. tool_correctness, tool_recall, tool_precision, tool_f1, "
        "tool_order, argument_correctness, result_correctness, effect_correctness, tool_success, redundant_calls, "
        "unknown_tools, forbidden_tools, call_budget, or an installed one.",
        rich_help_panel=_METRICS_PANEL,
    ),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="PEER",
        help="Compute the metric as another tool does: deepeval, eval_ai_library, axion, ragas, strands, agentevals, "
        "openevals, google_adk, vertex, agentcore, pydantic_evals, galtea, mlflow, azure, promptfoo, "
        "langchain_benchmarks, bfcl.",
        rich_help_panel=_METRICS_PANEL,
    ),
]
ProfileSetting = Annotated[
    list[str] | None,
    typer.Option(
        "--profile-option",
        metavar="KEY=VALUE",
        help="An option of that tool, by its name there. May be repeated.",
        rich_help_panel=_METRICS_PANEL,
    ),
]
ThresholdOption = Annotated[
    list[str] | None,
    typer.Option(
        "--threshold",
        metavar="METRIC=X",
        help="A run fails if the metric is below X. Replaces the thresholds in goldens.",
        rich_help_panel=_METRICS_PANEL,
    ),
]
StrictFlag = Annotated[
    bool,
    typer.Option("--strict", help="Turn every score below 1 into 0, and require 1.", rich_help_panel=_METRICS_PANEL),
]
ModeOption = Annotated[
    CorrectnessMode | None,
    typer.Option(
        "--mode", help="How tool_correctness combines its parts into one score.", rich_help_panel=_RULES_PANEL
    ),
]
OrderOption = Annotated[
    CallOrder | None,
    typer.Option("--order", help="The order in which tools must be called.", rich_help_panel=_RULES_PANEL),
]
AttemptsOption = Annotated[
    CountedAttempts | None,
    typer.Option("--attempts", help="Which attempts at a repeated call count.", rich_help_panel=_RULES_PANEL),
]
ExtraOption = Annotated[
    ExtraCalls | None,
    typer.Option("--extra", help="Whether unexpected calls lower the score.", rich_help_panel=_RULES_PANEL),
]
DuplicatesOption = Annotated[
    DuplicateCalls | None,
    typer.Option(
        "--duplicates", help="Whether identical repeated calls count once or each time.", rich_help_panel=_RULES_PANEL
    ),
]
DepthOption = Annotated[
    CallDepth | None,
    typer.Option("--depth", help="Whether calls made by sub-agents count.", rich_help_panel=_RULES_PANEL),
]
UnknownOption = Annotated[
    UnknownPolicy | None,
    typer.Option(
        "--unknown",
        help="The verdict of a run with a requirement that cannot be evaluated; ignore uses the other requirements.",
        rich_help_panel=_RULES_PANEL,
    ),
]
ForbidOption = Annotated[
    list[str] | None,
    typer.Option(
        "--forbid",
        metavar="GLOB",
        help="Tools that must not be called. May be repeated.",
        rich_help_panel=_RULES_PANEL,
    ),
]
MaxCallsOption = Annotated[
    int | None,
    typer.Option(
        "--max-calls", metavar="N", min=0, help="The maximum number of calls in a run.", rich_help_panel=_RULES_PANEL
    ),
]


JudgeFlag = Annotated[
    bool,
    typer.Option(
        "--judge",
        help="Ask a model, for every run, whether the called tools were the best choice among the offered ones: the "
        "metric tool_selection. The variables GOLDSPAN_JUDGE_* set what these options leave out; the API key is set "
        "by a variable only. GOLDSPAN_JUDGE_SAMPLE has no effect here.",
        rich_help_panel=_JUDGE_PANEL,
    ),
]
JudgeModelOption = Annotated[
    str | None,
    typer.Option(
        "--judge-model",
        metavar="NAME",
        help="The model. Implies --judge. Default: GOLDSPAN_JUDGE_MODEL",
        rich_help_panel=_JUDGE_PANEL,
    ),
]
JudgeUrlOption = Annotated[
    str | None,
    typer.Option(
        "--judge-url",
        metavar="URL",
        help="Base URL of an OpenAI-compatible endpoint. Default: https://api.openai.com/v1",
        rich_help_panel=_JUDGE_PANEL,
    ),
]
JudgeCombinationOption = Annotated[
    Literal["apart", "min"] | None,
    typer.Option(
        "--judge-combination",
        help="min: tool_correctness, or the metric of --profile, becomes the lower of both scores. Default: apart",
        rich_help_panel=_JUDGE_PANEL,
    ),
]
JudgeVotesOption = Annotated[
    int | None,
    typer.Option(
        "--judge-votes",
        metavar="N",
        min=1,
        help="Number of votes for each run; the median counts. Default: 1",
        rich_help_panel=_JUDGE_PANEL,
    ),
]
JudgeThresholdOption = Annotated[
    float | None,
    typer.Option(
        "--judge-threshold",
        metavar="X",
        min=0,
        max=1,
        help="A run fails if its tool_selection is below X. A threshold in the golden takes precedence.",
        rich_help_panel=_JUDGE_PANEL,
    ),
]
JudgeToolsOption = Annotated[
    Path | None,
    typer.Option(
        "--judge-tools",
        metavar="FILE",
        help="The tools that were offered, for traces that do not record them: names, or definitions in the format of "
        "OpenAI, Anthropic or MCP (a response to tools/list); JSON or YAML.",
        rich_help_panel=_JUDGE_PANEL,
    ),
]
JudgeShowOption = Annotated[
    Literal["names", "arguments", "all"] | None,
    typer.Option(
        "--judge-show",
        help="What is sent of each call: names only, arguments too, or all with results. Default: all",
        rich_help_panel=_JUDGE_PANEL,
    ),
]
JudgeDailyTokensOption = Annotated[
    str | None,
    typer.Option(
        "--judge-daily-tokens",
        metavar="N",
        help="Budget of tokens for 24 hours, counted in --judge-cache; or off. Default: 1000000",
        rich_help_panel=_JUDGE_PANEL,
    ),
]
JudgeCacheOption = Annotated[
    Path | None,
    typer.Option(
        "--judge-cache",
        metavar="FILE",
        help="SQLite file that stores answers, so that no question is asked twice, and the tokens spent.",
        rich_help_panel=_JUDGE_PANEL,
    ),
]


def parse_time_option(text: str | None, option: str) -> int | None:
    """Parse a time into nanoseconds since the Unix epoch. Raises `ConfigurationError` for any other text."""
    if text is None:
        return None
    from goldspan.store.query_parameters import parse_time

    try:
        return parse_time(text, time.time_ns())
    except ConfigurationError as error:
        raise ConfigurationError(f"{option}: {error}") from None


_SQLITE_MAGIC = b"SQLite format 3\0"


def store_location(text: str | Path) -> str | Path:
    """Return the file of the store at a path, or the URL. Raises `ConfigurationError` where there is no file."""
    from goldspan.store.store_location import is_store_url

    if is_store_url(text):
        return text
    file = _file_at(Path(text))
    if not file.exists():
        raise ConfigurationError(f"{file}: no such store; `goldspan serve` and a store sink create one")
    return file


def find_store(text: str | Path) -> str | Path | None:
    """Return the location of the store, or `None` where the path is not an SQLite file and does not hold one."""
    from goldspan.store.store_location import is_store_url

    if is_store_url(text):
        return text
    file = _file_at(Path(text))
    if not file.is_file():
        return None
    with file.open("rb") as content:
        return file if content.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC else None


def display_location(location: str | Path) -> str:
    """Return how error messages name a store: a URL without passwords."""
    from goldspan.store.store_location import redacted_location

    return redacted_location(location)


def source_name(text: str) -> str:
    """Return how reports name a path or a URL: without folders, or without passwords."""
    from goldspan.store.store_location import is_store_url

    if is_store_url(text):
        return display_location(text)
    return "standard input" if text == "-" else Path(text).name or text


def _file_at(path: Path) -> Path:
    return path / STORE_FILE_NAME if path.is_dir() else path
