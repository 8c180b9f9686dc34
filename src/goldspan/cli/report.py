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

from goldspan.cli import asking, filtering, judging
from goldspan.cli.console import counted, messages, output, warn
from goldspan.cli.gates import Gates, check_gates, limits
from goldspan.cli.reading import GoldenIdAttribute, tell_wrong
from goldspan.cli.score import GATE_FAILED, WRONG_ROWS
from goldspan.cli.view import STORE
from goldspan.errors import ConfigurationError
from goldspan.goldens import load_goldens
from goldspan.model import Evaluation, Unit
from goldspan.store import RunFilter, SqliteStore, open_store

if TYPE_CHECKING:
    from goldspan.web.report import Report

EXAMPLES = """
Examples:\n
  goldspan report traces.jsonl --goldens goldens.yaml\n
  goldspan report traces/ -g goldens.yaml --out agent.html --fail-under passed=0.95\n
  goldspan report traces.jsonl -g goldens.yaml --markdown - >> $GITHUB_STEP_SUMMARY\n
  goldspan report goldspan.db -g goldens.yaml --since 7d --agent support --title "Support, last week"\n
  goldspan report --cases cases.jsonl --values\n
"""
_OUT = Path("report.html")
_STANDARD = Path("-")
_AT_ONCE = 500
"""Evaluations that are kept in one transaction."""
_SQLITE = b"SQLite format 3\0"


def report(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="STORE|PATHS",
            help=f"The file of a store, or a folder with {STORE} in it; or files or folders with traces, to be judged "
            "as `goldspan score` does; - is standard input.",
            show_default=False,
        ),
    ] = None,
    cases: judging.CasesOption = None,
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
            help=f"The HTML file; - is standard output. Without it and --markdown: {_OUT}.",
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
    fail_under: judging.FailUnderOption = None,
    fail_on_unknown: judging.FailOnUnknownFlag = None,
    golden: filtering.GoldenFilter = None,
    agent: filtering.AgentFilter = None,
    service: filtering.ServiceFilter = None,
    environment: filtering.EnvironmentFilter = None,
    text: filtering.TextFilter = None,
    since: filtering.SinceFilter = None,
    until: filtering.UntilFilter = None,
    unit: Annotated[
        Unit | None, typer.Option("--unit", help="Runs of that kind. Of traces it is request where nothing is said.")
    ] = None,
    golden_id_attribute: GoldenIdAttribute = None,
    concurrency: judging.ConcurrencyOption = 1,
    metric: judging.MetricOption = None,
    profile: judging.ProfileOption = None,
    profile_option: judging.ProfileSetting = None,
    threshold: judging.ThresholdOption = None,
    strict: judging.StrictFlag = False,
    mode: judging.ModeOption = None,
    order: judging.OrderOption = None,
    attempts: judging.AttemptsOption = None,
    extra: judging.ExtraOption = None,
    duplicates: judging.DuplicatesOption = None,
    depth: judging.DepthOption = None,
    forbid: judging.ForbidOption = None,
    max_calls: judging.MaxCallsOption = None,
    unknown: judging.UnknownOption = None,
) -> None:
    """Write what there is to see of stored runs, or of traces, into one HTML file for CI artifacts and mail.

    It needs no other file, no script and no network. With --markdown alone, only that summary is written.
    """
    from goldspan.web.report import About, report_of  # slow to load

    _check(paths, cases, out, markdown)
    writers = _writers(out, markdown)
    known = load_goldens(*goldens) if goldens else None
    gates = limits(fail_under, "--fail-under")
    wanted = RunFilter(
        golden=golden,
        agent=agent,
        service=service,
        environment=environment,
        text=text,
        since_ns=filtering.moment(since, "--since"),
        until_ns=filtering.moment(until, "--until"),
    )
    said = {"golden": golden, "agent": agent, "service": service, "environment": environment, "text": text}
    manner = judging.manner_of(
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
        if file := _store_in(paths or []):
            if manner.is_said or golden_id_attribute or values:
                raise ConfigurationError(f"{file}: its runs are judged already; what you say of judging is for traces")
            store = opened.enter_context(open_store(file, read_only=True))
            check_gates(gates, store.metrics())
            wanted = replace(wanted, unit=unit)
        else:
            asking.check_unasked({"--fail-under": gates, "--metric": metric, "--threshold": manner.thresholds})
            check_gates(gates, manner.measured(known))
            judged, wrong = judging.judged_in(
                paths,
                cases,
                manner.judge(known),
                goldens=known,
                unit=unit or "request",
                golden_id_attributes=golden_id_attribute,
                concurrency=concurrency,
            )
            store = opened.enter_context(_kept(judged, values=values))
        said |= {"since": since, "until": until, "kind of run": unit}
        narrowed = tuple((name, told) for name, told in said.items() if told)
        total = store.count(wanted).total
        found = report_of(
            store,
            About(title, time.time_ns(), _named(paths or cases or []), narrowed),
            goldens=known,
            wanted=wanted,
            in_full=limit,
            watch=lambda runs: counted(runs, total, "gathering"),
        )
    for target, written in writers.items():
        _put(written(found), target)
    tell_wrong(wrong)
    if known is not None and found.rate.counts.total and not found.board.covered.total:
        warn(f"none of the {len(known)} goldens belongs to any of these runs, neither by id nor by input")
    judged_runs = found.rate.counts.passed + found.rate.counts.failed
    if not Gates(gates, fail_on_unknown).met(found.mean, judged_runs, found.not_evaluated) or wrong:
        raise typer.Exit(WRONG_ROWS if wrong else GATE_FAILED)


def _check(paths: list[str] | None, cases: list[str] | None, out: Path | None, markdown: Path | None) -> None:
    """Raises `ConfigurationError` where it is not clear what is meant, or what looks like no report would be lost."""
    if bool(paths) == bool(cases):
        raise ConfigurationError("report on what? Name a store, files with traces or --cases FILE.")
    if out == markdown == _STANDARD:
        raise ConfigurationError("--out and --markdown: only one of them can be standard output")
    for option, written, endings in (("--out", out, (".html", ".htm")), ("--markdown", markdown, (".md",))):
        if written is None or written.suffix.lower() in endings or not written.is_file():
            continue
        if written.stat().st_size:
            raise ConfigurationError(f"{option} {written}: it is there already, and does not end in {endings[0]}")


def _store_in(paths: list[str]) -> Path | None:
    """The file of the store that is named; `None`: there are traces. Raises `ConfigurationError` for both."""
    stores = [found for path in paths if path != "-" and (found := _store_at(Path(path)))]
    if stores and len(paths) > 1:
        raise ConfigurationError(f"{stores[0]}: a report is of one store, or else of files with traces")
    return stores[0] if stores else None


def _store_at(path: Path) -> Path | None:
    file = path / STORE if path.is_dir() else path
    if not file.is_file():
        return None
    with file.open("rb") as content:
        return file if content.read(len(_SQLITE)) == _SQLITE else None


@contextmanager
def _kept(judged: Iterable[Evaluation], *, values: bool) -> Iterator[SqliteStore]:
    """A store of these evaluations, for as long as the report is made of it."""
    with (
        TemporaryDirectory(prefix="goldspan-", ignore_cleanup_errors=True) as folder,
        open_store(Path(folder) / STORE, keep_arguments=values) as store,
    ):
        each = _told_apart(judged)
        while some := list(islice(each, _AT_ONCE)):
            store.submit_many(some)
        yield store


def _told_apart(judged: Iterable[Evaluation]) -> Iterator[Evaluation]:
    """Rows of several files may have the same id, and a store keeps one run of each."""
    seen: dict[str, int] = {}
    for evaluation in judged:
        run = evaluation.run
        seen[run.run_id] = number = seen.get(run.run_id, 0) + 1
        yield evaluation if number == 1 else replace(evaluation, run=replace(run, run_id=f"{run.run_id} ({number})"))


def _named(read: list[str]) -> tuple[str, ...]:
    return tuple("standard input" if path == "-" else Path(path).name or path for path in read)


def _writers(out: Path | None, markdown: Path | None) -> dict[Path, Callable[[Report], str]]:
    """What makes each file that is asked for. Raises `MissingExtraError` before any work is done."""
    writers: dict[Path, Callable[[Report], str]] = {}
    if markdown is not None:
        from goldspan.web.summary import as_markdown

        writers[markdown] = as_markdown
    if out is not None or markdown is None:
        from goldspan.web.standalone import as_html

        writers[out or _OUT] = as_html
    return writers


def _put(text: str, file: Path) -> None:
    if file == _STANDARD:
        output().put(text.removesuffix("\n"))
        return
    file.write_text(text, encoding="utf-8")
    messages().print(f"{file} is written", markup=False)
