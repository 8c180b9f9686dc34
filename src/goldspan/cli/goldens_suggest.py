"""`goldspan goldens suggest`: writes goldens for the requests of good runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from goldspan.cli import options
from goldspan.cli.console import print_warning, stderr_console, stdout_console, with_known_total, with_progress_bar
from goldspan.errors import ConfigurationError
from goldspan.model import Run, RunUnit

if TYPE_CHECKING:
    from goldspan.curation.golden_suggestion import Suggestion, Suggestions
    from goldspan.curation.run_conditions import RunConditions

EXAMPLES = """
Examples:\n
  goldspan goldens suggest goldspan.db --out suggested.yaml\n
  goldspan goldens suggest goldspan-data --where verdict=pass --where since=30d --min-support 0.95\n
  goldspan goldens suggest goldspan.db --where 'tool_selection>=0.8' --forbid\n
  goldspan goldens suggest traces.jsonl --results rewards.csv --where reward=1\n
  goldspan goldens suggest goldspan.db --write-tool 'book_*' --write-tool 'cancel_*'\n
  goldspan goldens suggest goldspan.db --goldens goldens.yaml --where 'rating>=4' --out more.yaml\n
"""


def suggest(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="STORE|TRACES",
            help=f"The file of a store, or a folder that holds {options.STORE_FILE_NAME}; or files or folders with "
            "traces, as `goldspan score` reads them.",
            show_default=False,
        ),
    ],
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            "-w",
            metavar="CONDITION",
            help="Which runs are good: a filter of the API such as verdict=pass, agent=support or since=7d; or a "
            "condition such as tool_recall>=0.8 on a metric, an attribute, a key of the metadata, or a column of "
            "--results. May be repeated; all must hold. Default: verdict=pass for a store and for --results, else "
            "all runs.",
            show_default=False,
        ),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(
            "--results",
            metavar="FILE",
            help="Results of the runs in traces: rows with run_id or trace_id, in JSON lines, JSON or CSV, such as the "
            "output of `goldspan score --json`.",
            show_default=False,
        ),
    ] = None,
    min_support: Annotated[
        float,
        typer.Option(
            "--min-support", metavar="X", help="The share of the good runs in which a rule holds and that must pass."
        ),
    ] = 0.9,
    min_runs: Annotated[
        int, typer.Option("--min-runs", metavar="N", help="The least number of good runs for a golden.")
    ] = 2,
    similarity: Annotated[
        float,
        typer.Option(
            "--similarity", metavar="PERCENT", help="The least similarity of two texts that ask for the same."
        ),
    ] = 80.0,
    arguments: Annotated[
        bool, typer.Option("--arguments/--no-arguments", help="Whether the goldens expect arguments.")
    ] = True,
    forbid: Annotated[
        bool, typer.Option("--forbid", help="Forbid the tools that were offered and that no good run called.")
    ] = False,
    write_tool: Annotated[
        list[str] | None,
        typer.Option(
            "--write-tool",
            metavar="GLOB",
            help="A tool with side effects. May be repeated. With it, only the calls of these tools are expected: "
            "goldens tolerate all other calls, and a further side effect fails the run.",
        ),
    ] = None,
    goldens: Annotated[
        list[Path] | None,
        typer.Option(
            "--goldens",
            "-g",
            metavar="FILE",
            help="Golden file with which the suggested goldens will be used: the tools that it declares apply, with "
            "their aliases and servers, and its ids are not reused. May be repeated.",
            show_default=False,
        ),
    ] = None,
    unit: options.UnitOption = "request",
    golden_id_attribute: options.GoldenIdAttribute = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="The file to write. Default: standard output."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
) -> None:
    """Suggest goldens from good runs, as YAML with comments that state the support.

    Requests that ask for the same are grouped: those that name the same golden, then those with equal or similar
    texts. A golden states what the good runs of its group have in common, and at least --min-support of them pass it.

    Exit status: 0 goldens were written, 1 there are none, 2 an option is wrong or the input cannot be read.
    """
    from goldspan.curation.golden_suggestion import SuggestionOptions, suggest_goldens
    from goldspan.curation.run_conditions import tools_of

    if out is not None and out.exists() and not force:
        raise ConfigurationError(f"{out}: the file exists; --force overwrites it")
    settings = SuggestionOptions(min_support, min_runs, similarity, arguments, forbid, tuple(write_tool or ()))
    if goldens:
        from goldspan.goldens import load_goldens

        settings = replace(settings, existing=load_goldens(*goldens, on_warning=print_warning))
    runs, others = _read_runs(paths, where, results, unit, golden_id_attribute, forbid=forbid)
    suggestions = suggest_goldens(
        runs,
        settings,
        offered=tools_of(others),
        watch=lambda groups: with_known_total(groups, "suggesting"),
    )
    text = _as_yaml(suggestions.items, has_existing=bool(goldens))
    if not suggestions.items:
        print_warning(f"no golden: {_left_out(suggestions)}")
        raise typer.Exit(1)
    if out is None:
        stdout_console().write_line(text.rstrip("\n"))
    else:
        out.write_text(text, encoding="utf-8")
    stderr_console().print(_summary(suggestions, out), markup=False)


def _read_runs(
    paths: list[str],
    where: list[str] | None,
    results: Path | None,
    unit: RunUnit,
    golden_id_attributes: list[str] | None,
    *,
    forbid: bool,
) -> tuple[list[Run], list[Run]]:
    """Return the good runs, and further runs whose tools `forbid` may name."""
    from goldspan.cli.input_reading import load_runs_with_progress
    from goldspan.curation.run_conditions import parse_conditions, read_results, select_runs

    conditions = parse_conditions(where or ())
    store = options.find_store(paths[0]) if len(paths) == 1 else None
    if store is not None:
        if results is not None:
            raise ConfigurationError("--results belongs to traces; a store holds the scores of its runs")
        return _read_store(store, conditions, unit, is_default=not where, forbid=forbid)
    rows = None if results is None else read_results(results)
    if rows is not None and not where:
        conditions = parse_conditions(["verdict=pass"])
    runs = list(load_runs_with_progress(paths, unit=unit, golden_id_attributes=golden_id_attributes))
    return list(select_runs(runs, conditions, rows)), runs


def _read_store(
    location: str | Path, conditions: RunConditions, unit: RunUnit, *, is_default: bool, forbid: bool
) -> tuple[list[Run], list[Run]]:
    from goldspan.curation.run_conditions import RunConditions, stored_runs
    from goldspan.store import RunFilter, open_store

    run_filter = replace(conditions.run_filter, unit=conditions.run_filter.unit or unit)
    if is_default:
        run_filter = replace(run_filter, verdict="pass")
    selected = RunConditions(run_filter, conditions.values)
    with open_store(location, read_only=True) as store:
        total = store.count(run_filter).total
        runs = list(with_progress_bar(stored_runs(store, selected), total, "reading runs"))
        others = list(stored_runs(store, RunConditions(RunFilter(unit=run_filter.unit)))) if forbid else []
    return runs, others


def _as_yaml(suggestions: Sequence[Suggestion], *, has_existing: bool) -> str:
    """Return a golden file. A golden that YAML cannot express loses its arguments."""
    from goldspan.goldens.golden_files.golden_writer import (
        UnwritableError,
        draft_to_yaml,
        golden_with_comments_to_yaml,
    )

    parts = []
    for suggestion in suggestions:
        try:
            part = golden_with_comments_to_yaml(suggestion.golden, suggestion.comments, suggestion.item_comments)
        except UnwritableError:
            part = draft_to_yaml(suggestion.golden)
        parts.append(part)
    note = "# for use with the golden files of --goldens, whose declared tools apply\n" if has_existing else ""
    return f"{note}version: 1\ngoldens:\n" + "\n".join(parts)


def _summary(suggestions: Suggestions, out: Path | None) -> str:
    number = len(suggestions.items)
    covered = sum(suggestion.runs for suggestion in suggestions.items)
    written = f" written to {out}" if out is not None else ""
    left_out = _left_out(suggestions)
    summary = f"{_count(number, 'golden')}{written}, from {covered} of {_count(suggestions.runs, 'good run')}"
    return f"{summary}; left out: {left_out}" if left_out else summary


def _left_out(suggestions: Suggestions) -> str:
    if not suggestions.runs:
        return "no run is good; --where selects others"
    reasons = []
    if suggestions.small_groups:
        groups, runs = _count(suggestions.small_groups, "group"), _count(suggestions.runs_of_small_groups, "run")
        reasons.append(f"{runs} in {groups} with too few runs")
    if suggestions.runs_without_request:
        reasons.append(f"{_count(suggestions.runs_without_request, 'run')} without a request")
    if suggestions.groups_without_rules:
        reasons.append(f"{_count(suggestions.groups_without_rules, 'group')} without common calls")
    return ", ".join(reasons)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
