"""`goldspan report`: runs as one HTML file that stands alone, and as Markdown for a pull request."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from goldspan.cli import input_options, judge_options, scoring_options
from goldspan.cli.console import print_warning, stderr_console, stdout_console, with_progress_bar
from goldspan.cli.input_options import GoldenIdAttribute, print_row_errors
from goldspan.cli.score import GATE_FAILED, INVALID_ROWS
from goldspan.cli.scoring_options import Gates, parse_thresholds, validate_gates
from goldspan.cli.view import STORE_FILE_NAME
from goldspan.errors import ConfigurationError
from goldspan.goldens import load_goldens
from goldspan.model import Evaluation, RunUnit
from goldspan.store import RunFilter, SqliteStore, open_store

if TYPE_CHECKING:
    from goldspan.web.report_data import Report

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
_BATCH_SIZE = 500
"""Evaluations that are kept in one transaction."""
_SQLITE_MAGIC = b"SQLite format 3\0"


def report(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="STORE|PATHS",
            help=f"The file of a store, or a folder with {STORE_FILE_NAME} in it; or files or folders with traces, to be judged "
            "as `goldspan score` does; - is standard input.",
            show_default=False,
        ),
    ] = None,
    cases: scoring_options.CasesOption = None,
    goldens: Annotated[
        list[str] | None,
        typer.Option(
            "--goldens",
            "-g",
            metavar="FILE",
            help="Golden file, to judge traces by and to tell which were never met; may be given again.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help=f"The HTML file; - is standard output. Without it and --markdown: {_DEFAULT_OUT}.",
            show_default=False,
        ),
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(
            "--markdown", metavar="FILE", help="A summary in Markdown; - is standard output.", show_default=False
        ),
    ] = None,
    title: Annotated[str, typer.Option("--title", metavar="TEXT", help="What stands above it.")] = "goldspan report",
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=0, help="Failed runs shown in full; the others have a line each.")
    ] = 50,
    values: Annotated[
        bool,
        typer.Option("--values", help="Show arguments and results of traces. What a store keeps is always shown."),
    ] = False,
    fail_under: scoring_options.FailUnderOption = None,
    fail_on_unknown: scoring_options.FailOnUnknownFlag = None,
    golden: input_options.GoldenFilter = None,
    agent: input_options.AgentFilter = None,
    service: input_options.ServiceFilter = None,
    environment: input_options.EnvironmentFilter = None,
    text: input_options.TextFilter = None,
    since: input_options.SinceFilter = None,
    until: input_options.UntilFilter = None,
    unit: Annotated[
        RunUnit | None, typer.Option("--unit", help="Runs of that kind. Of traces it is request where nothing is said.")
    ] = None,
    golden_id_attribute: GoldenIdAttribute = None,
    concurrency: scoring_options.ConcurrencyOption = 1,
    metric: scoring_options.MetricOption = None,
    profile: scoring_options.ProfileOption = None,
    profile_option: scoring_options.ProfileSetting = None,
    threshold: scoring_options.ThresholdOption = None,
    strict: scoring_options.StrictFlag = False,
    mode: scoring_options.ModeOption = None,
    order: scoring_options.OrderOption = None,
    attempts: scoring_options.AttemptsOption = None,
    extra: scoring_options.ExtraOption = None,
    duplicates: scoring_options.DuplicatesOption = None,
    depth: scoring_options.DepthOption = None,
    forbid: scoring_options.ForbidOption = None,
    max_calls: scoring_options.MaxCallsOption = None,
    unknown: scoring_options.UnknownOption = None,
) -> None:
    """Write what there is to see of stored runs, or of traces, into one HTML file for CI artifacts and mail.

    It needs no other file, no script and no network. With --markdown alone, only that summary is written.
    """
    from goldspan.web.report_data import ReportHeader, build_report  # slow to load

    _validate_arguments(paths, cases, out, markdown)
    writers = _report_writers(out, markdown)
    known = load_goldens(*goldens) if goldens else None
    gates = parse_thresholds(fail_under, "--fail-under")
    wanted = RunFilter(
        golden=golden,
        agent=agent,
        service=service,
        environment=environment,
        text=text,
        since_ns=input_options.parse_time_option(since, "--since"),
        until_ns=input_options.parse_time_option(until, "--until"),
    )
    said = {"golden": golden, "agent": agent, "service": service, "environment": environment, "text": text}
    manner = scoring_options.scoring_options_from(
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
    wrong: list[str] = []
    with ExitStack() as opened:
        if file := _find_store(paths or []):
            if manner.is_any_set or golden_id_attribute or values:
                raise ConfigurationError(f"{file}: its runs are judged already; what you say of judging is for traces")
            store = opened.enter_context(open_store(file, read_only=True))
            validate_gates(gates, store.metrics())
            wanted = replace(wanted, unit=unit)
        else:
            judge_options.require_judge_flag(
                {"--fail-under": gates, "--metric": metric, "--threshold": manner.thresholds}
            )
            validate_gates(gates, manner.metric_names(known))
            judged, wrong = scoring_options.evaluate_inputs(
                paths,
                cases,
                manner.evaluator(known),
                goldens=known,
                unit=unit or "request",
                golden_id_attributes=golden_id_attribute,
                concurrency=concurrency,
            )
            store = opened.enter_context(_temporary_store(judged, values=values))
        said |= {"since": since, "until": until, "kind of run": unit}
        narrowed = tuple((name, told) for name, told in said.items() if told)
        total = store.count(wanted).total
        found = build_report(
            store,
            ReportHeader(title, time.time_ns(), _source_names(paths or cases or []), narrowed),
            goldens=known,
            run_filter=wanted,
            max_detailed=limit,
            observe=lambda runs: with_progress_bar(runs, total, "gathering"),
        )
    for target, written in writers.items():
        _write_report(written(found), target)
    print_row_errors(wrong)
    if known is not None and found.rate.counts.total and not found.board.covered.total:
        print_warning(f"none of the {len(known)} goldens belongs to any of these runs, neither by id nor by input")
    judged_runs = found.rate.counts.passed + found.rate.counts.failed
    if not Gates(gates, fail_on_unknown).are_met(found.mean, judged_runs, found.not_evaluated) or wrong:
        raise typer.Exit(INVALID_ROWS if wrong else GATE_FAILED)


def _validate_arguments(
    paths: list[str] | None, cases: list[str] | None, out: Path | None, markdown: Path | None
) -> None:
    """Raises `ConfigurationError` where it is not clear what is meant, or what looks like no report would be lost."""
    if bool(paths) == bool(cases):
        raise ConfigurationError("report on what? Name a store, files with traces or --cases FILE.")
    if out == markdown == _STDOUT:
        raise ConfigurationError("--out and --markdown: only one of them can be standard output")
    for option, written, endings in (("--out", out, (".html", ".htm")), ("--markdown", markdown, (".md",))):
        if written is None or written.suffix.lower() in endings or not written.is_file():
            continue
        if written.stat().st_size:
            raise ConfigurationError(f"{option} {written}: it is there already, and does not end in {endings[0]}")


def _find_store(paths: list[str]) -> Path | None:
    """The file of the store that is named; `None`: there are traces. Raises `ConfigurationError` for both."""
    stores = [found for path in paths if path != "-" and (found := _store_file(Path(path)))]
    if stores and len(paths) > 1:
        raise ConfigurationError(f"{stores[0]}: a report is of one store, or else of files with traces")
    return stores[0] if stores else None


def _store_file(path: Path) -> Path | None:
    file = path / STORE_FILE_NAME if path.is_dir() else path
    if not file.is_file():
        return None
    with file.open("rb") as content:
        return file if content.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC else None


@contextmanager
def _temporary_store(judged: Iterable[Evaluation], *, values: bool) -> Iterator[SqliteStore]:
    """A store of these evaluations, for as long as the report is made of it."""
    with (
        TemporaryDirectory(prefix="goldspan-", ignore_cleanup_errors=True) as folder,
        open_store(Path(folder) / STORE_FILE_NAME, keep_arguments=values) as store,
    ):
        each = _with_unique_ids(judged)
        while some := list(islice(each, _BATCH_SIZE)):
            store.submit_many(some)
        yield store


def _with_unique_ids(judged: Iterable[Evaluation]) -> Iterator[Evaluation]:
    """Rows of several files may have the same id, and a store keeps one run of each."""
    seen: dict[str, int] = {}
    for evaluation in judged:
        run = evaluation.run
        seen[run.run_id] = number = seen.get(run.run_id, 0) + 1
        yield evaluation if number == 1 else replace(evaluation, run=replace(run, run_id=f"{run.run_id} ({number})"))


def _source_names(read: list[str]) -> tuple[str, ...]:
    return tuple("standard input" if path == "-" else Path(path).name or path for path in read)


def _report_writers(out: Path | None, markdown: Path | None) -> dict[Path, Callable[[Report], str]]:
    """What makes each file that is asked for. Raises `MissingExtraError` before any work is done."""
    writers: dict[Path, Callable[[Report], str]] = {}
    if markdown is not None:
        from goldspan.web.markdown_report import render_markdown_report

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
