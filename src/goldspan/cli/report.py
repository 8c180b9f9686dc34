"""`goldspan report`: writes runs to one self-contained HTML file, and to Markdown for a pull request."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from goldspan.cli import options
from goldspan.cli.console import print_warning, stderr_console, stdout_console, with_progress_bar
from goldspan.cli.score import GATE_FAILED, INVALID_ROWS
from goldspan.errors import ConfigurationError
from goldspan.model import RunUnit

if TYPE_CHECKING:
    from goldspan.web.run_report import Report

EXAMPLES = """
Examples:\n
  goldspan report traces.jsonl --goldens goldens.yaml\n
  goldspan report traces/ -g goldens.yaml --out agent.html --fail-under passed=0.95\n
  goldspan report traces.jsonl -g goldens.yaml --markdown - >> $GITHUB_STEP_SUMMARY\n
  goldspan report goldspan.db -g goldens.yaml --since 7d --agent support --title "Support, last week"\n
  goldspan report --cases cases.jsonl --values\n
"""
_DEFAULT_OUT = Path("report.html")
_STDOUT = Path("-")


def report(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="STORE|PATHS",
            help=f"The file of a store, or a folder that holds {options.STORE_FILE_NAME}, such as a gateway's data "
            "folder, or the URL of a database; or files or folders with traces, which are evaluated as `goldspan "
            "score` does; - reads standard input.",
            show_default=False,
        ),
    ] = None,
    cases: options.CasesOption = None,
    goldens: Annotated[
        list[str] | None,
        typer.Option(
            "--goldens",
            "-g",
            metavar="FILE",
            help="Golden file: traces are evaluated with it, and goldens without runs are listed. May be repeated.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help=f"The HTML file to write; - writes standard output. Default without --markdown: {_DEFAULT_OUT}.",
            show_default=False,
        ),
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(
            "--markdown",
            metavar="FILE",
            help="The Markdown summary to write; - writes standard output.",
            show_default=False,
        ),
    ] = None,
    title: Annotated[
        str, typer.Option("--title", metavar="TEXT", help="The heading of the report.")
    ] = "goldspan report",
    limit: Annotated[
        int,
        typer.Option("--limit", metavar="N", min=0, help="Failed runs shown in full; the others get one line each."),
    ] = 50,
    values: Annotated[
        bool,
        typer.Option("--values", help="Show the arguments and results in traces. Those in a store are always shown."),
    ] = False,
    fail_under: options.FailUnderOption = None,
    fail_on_unknown: options.FailOnUnknownFlag = None,
    golden: options.GoldenFilter = None,
    agent: options.AgentFilter = None,
    service: options.ServiceFilter = None,
    environment: options.EnvironmentFilter = None,
    text: options.TextFilter = None,
    since: options.SinceFilter = None,
    until: options.UntilFilter = None,
    unit: Annotated[
        RunUnit | None, typer.Option("--unit", help="Runs of this kind. Default for traces: request.")
    ] = None,
    golden_id_attribute: options.GoldenIdAttribute = None,
    concurrency: options.ConcurrencyOption = 1,
    metric: options.MetricOption = None,
    profile: options.ProfileOption = None,
    profile_option: options.ProfileSetting = None,
    threshold: options.ThresholdOption = None,
    strict: options.StrictFlag = False,
    mode: options.ModeOption = None,
    order: options.OrderOption = None,
    attempts: options.AttemptsOption = None,
    extra: options.ExtraOption = None,
    duplicates: options.DuplicatesOption = None,
    depth: options.DepthOption = None,
    forbid: options.ForbidOption = None,
    max_calls: options.MaxCallsOption = None,
    unknown: options.UnknownOption = None,
) -> None:
    """Write a report on stored runs, or on traces, as one HTML file for CI artifacts and mail.

    The file is self-contained: it needs no other file, no script and no network. With --markdown alone, only the
    Markdown summary is written.
    """
    from goldspan.cli import judge_options, scoring_options
    from goldspan.cli.evaluation_summary import NotEvaluatedRuns
    from goldspan.cli.input_reading import print_row_errors
    from goldspan.goldens import load_goldens
    from goldspan.store import RunFilter, open_store
    from goldspan.web.run_report import ReportHeader, build_report, temporary_store

    _validate_arguments(paths, cases, out, markdown)
    writers = _report_writers(out, markdown)
    loaded_goldens = load_goldens(*goldens) if goldens else None
    gates = scoring_options.parse_thresholds(fail_under, "--fail-under")
    run_filter = RunFilter(
        golden=golden,
        agent=agent,
        service=service,
        environment=environment,
        text=text,
        since_ns=options.parse_time_option(since, "--since"),
        until_ns=options.parse_time_option(until, "--until"),
    )
    filter_values = {"golden": golden, "agent": agent, "service": service, "environment": environment, "text": text}
    scoring = scoring_options.scoring_options_from(
        metric,
        profile,
        profile_option,
        threshold,
        strict=strict,
        mode=mode,
        order=order,
        attempts=attempts,
        extra=extra,
        duplicates=duplicates,
        depth=depth,
        forbid=forbid,
        max_calls=max_calls,
        unknown=unknown,
    )
    row_errors: list[str] = []
    with ExitStack() as stack:
        if location := _find_store(paths or []):
            if scoring.is_any_set or golden_id_attribute or values:
                raise ConfigurationError(
                    f"{options.display_location(location)}: a store holds evaluated runs; options that change the "
                    "evaluation apply to traces only"
                )
            store = stack.enter_context(open_store(location, read_only=True))
            scoring_options.validate_gates(gates, store.metrics())
            run_filter = replace(run_filter, unit=unit)
        else:
            judge_options.require_judge_flag(
                {"--fail-under": gates, "--metric": metric, "--threshold": scoring.thresholds}
            )
            scoring_options.validate_gates(gates, scoring.metric_names(loaded_goldens))
            evaluations, row_errors = scoring_options.evaluate_inputs(
                paths,
                cases,
                scoring.evaluator(loaded_goldens),
                goldens=loaded_goldens,
                unit=unit or "request",
                golden_id_attributes=golden_id_attribute,
                concurrency=concurrency,
            )
            store = stack.enter_context(temporary_store(evaluations, keep_arguments=values))
        filter_values |= {"since": since, "until": until, "kind of run": unit}
        filters = tuple((name, value) for name, value in filter_values.items() if value)
        total = store.count(run_filter).total
        result = build_report(
            store,
            ReportHeader(title, time.time_ns(), _source_names(paths or cases or []), filters),
            goldens=loaded_goldens,
            run_filter=run_filter,
            max_detailed=limit,
            observe=lambda runs: with_progress_bar(runs, total, "gathering"),
        )
    for target, render in writers.items():
        _write_report(render(result), target)
    print_row_errors(row_errors)
    if loaded_goldens is not None and result.rate.counts.total and not result.goldens.covered.total:
        print_warning(scoring_options.no_match_warning(loaded_goldens))
    evaluated = result.rate.counts.passed + result.rate.counts.failed
    are_met = scoring_options.Gates(gates, fail_on_unknown).are_met(
        result.mean, evaluated, NotEvaluatedRuns.of(result.not_evaluated)
    )
    if row_errors or not are_met:
        raise typer.Exit(INVALID_ROWS if row_errors else GATE_FAILED)


def _validate_arguments(
    paths: list[str] | None, cases: list[str] | None, out: Path | None, markdown: Path | None
) -> None:
    """Raises `ConfigurationError` for an ambiguous input, and for an output file that does not look like a report."""
    if bool(paths) == bool(cases):
        raise ConfigurationError("name what to report on: a store, files with traces, or --cases FILE")
    if out == markdown == _STDOUT:
        raise ConfigurationError("--out and --markdown: only one of them can write standard output")
    for option, path, endings in (("--out", out, (".html", ".htm")), ("--markdown", markdown, (".md",))):
        if path is None or path.suffix.lower() in endings or not path.is_file():
            continue
        if path.stat().st_size:
            raise ConfigurationError(f"{option} {path}: the file exists and does not end in {endings[0]}")


def _find_store(paths: list[str]) -> str | Path | None:
    """Return the store, or `None` for traces. Raises `ConfigurationError` for a store among other paths."""
    stores = [found for path in paths if path != "-" and (found := options.find_store(path))]
    if stores and len(paths) > 1:
        raise ConfigurationError(
            f"{options.source_name(str(stores[0]))}: a report takes one store, or files with traces"
        )
    return stores[0] if stores else None


def _source_names(paths: list[str]) -> tuple[str, ...]:
    return tuple(map(options.source_name, paths))


def _report_writers(out: Path | None, markdown: Path | None) -> dict[Path, Callable[[Report], str]]:
    """Return the renderer of each output file. Raises `MissingExtraError` before any work is done."""
    writers: dict[Path, Callable[[Report], str]] = {}
    if markdown is not None:
        from goldspan.web.run_report import render_markdown_report

        writers[markdown] = render_markdown_report
    if out is not None or markdown is None:
        from goldspan.web.html_report import render_html

        writers[out or _DEFAULT_OUT] = render_html
    return writers


def _write_report(text: str, file: Path) -> None:
    if file == _STDOUT:
        stdout_console().write_line(text.removesuffix("\n"))
        return
    file.write_text(text, encoding="utf-8")
    stderr_console().print(f"{file} is written", markup=False)
