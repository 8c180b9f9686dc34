"""`goldspan goldens diff` and `stale`: compare goldens with each other and with stored runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from goldspan.cli import options
from goldspan.cli.console import (
    print_warning,
    stdout_console,
    with_known_total,
    with_progress_bar,
)
from goldspan.model import Run, RunUnit
from goldspan.terminal.escapes import escape_control_characters

if TYPE_CHECKING:
    from goldspan.curation.golden_diff import GoldenChange, VerdictDiff
    from goldspan.goldens import Goldens
    from goldspan.store import StoredRun

DIFF_EXAMPLES = """
Examples:\n
  goldspan goldens diff goldens.yaml goldens-new.yaml\n
  goldspan goldens diff goldens.yaml goldens-new.yaml --on goldspan.db --where since=7d\n
  goldspan goldens diff goldens.yaml suggested.yaml --on traces.jsonl --json --fail-on-change\n
"""
STALE_EXAMPLES = """
Examples:\n
  goldspan goldens stale goldens.yaml goldspan.db\n
  goldspan goldens stale goldens.yaml goldspan-data --since 90d --json\n
"""
FOUND_EXIT_STATUS = 1
_STYLES = {"added": "green", "removed": "red", "changed": "yellow"}


def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help="The golden file before.", show_default=False)],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The golden file after.", show_default=False)],
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on",
            metavar="STORE|TRACES",
            help="Runs that are evaluated with both files: a store, or files or folders with traces. May be repeated.",
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            "-w",
            metavar="CONDITION",
            help="Runs of --on that meet the condition, as in `goldspan goldens suggest`. May be repeated.",
        ),
    ] = None,
    unit: options.UnitOption = "request",
    golden_id_attribute: options.GoldenIdAttribute = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=0, help="Runs with another verdict to show; 0 shows all.")
    ] = 20,
    fail_on_change: Annotated[
        bool,
        typer.Option(
            "--fail-on-change", help="Exit with 1 if the verdict of a run changes; without --on, if a golden does."
        ),
    ] = False,
    as_json: options.JsonFlag = False,
) -> None:
    """Compare two golden files by what they state and, with --on, by their verdicts on the same runs.

    Exit status: 0 fine, 1 something changed and --fail-on-change is set, 2 a file cannot be read.
    """
    from goldspan.curation.golden_diff import diff_goldens, diff_verdicts
    from goldspan.goldens import load_goldens

    before, after = load_goldens(old, on_warning=_ignore), load_goldens(new, on_warning=_ignore)
    changes = diff_goldens(before, after)
    verdicts = None
    if on:
        runs = _runs_of(on, where, unit, golden_id_attribute, after)
        verdicts = diff_verdicts(before, after, with_known_total(runs, "evaluating"))
    if as_json:
        _write_json(changes, verdicts)
    else:
        _print_changes(changes)
        if verdicts is not None:
            _print_verdicts(verdicts, limit)
    has_changed = bool(changes) if verdicts is None else any(one.old != one.new for one in verdicts.changes)
    if fail_on_change and has_changed:
        raise typer.Exit(FOUND_EXIT_STATUS)


def _ignore(warning: str) -> None:
    """Ignore a warning about undefined keys: `goldspan goldens check` prints it."""


def _runs_of(
    paths: list[str], where: list[str] | None, unit: RunUnit, attributes: list[str] | None, goldens: Goldens
) -> list[Run]:
    from goldspan.cli.input_reading import load_runs_with_progress
    from goldspan.curation.run_conditions import parse_conditions, select_runs, stored_runs
    from goldspan.store import open_store

    conditions = parse_conditions(where or ())
    runs: list[Run] = []
    traces = []
    for path in paths:
        store = options.find_store(path)
        if store is None:
            traces.append(path)
            continue
        run_filter = replace(conditions.run_filter, unit=conditions.run_filter.unit or unit)
        with open_store(store, read_only=True) as opened:
            total = opened.count(run_filter).total
            selected = stored_runs(opened, replace(conditions, run_filter=run_filter))
            runs += with_progress_bar(selected, total, "reading runs")
    if traces:
        found = load_runs_with_progress(traces, unit=unit, golden_id_attributes=attributes, goldens=goldens)
        runs += select_runs(found, conditions)
    return runs


def _write_json(changes: list[GoldenChange], verdicts: VerdictDiff | None) -> None:
    from goldspan.sinks.serialization import to_json

    console = stdout_console()
    for change in changes:
        document = {"change": change.kind, "golden": change.golden_id, "sentences": list(change.sentences)}
        console.write_line(to_json(document))
    if verdicts is not None:
        for verdict in verdicts.changes:
            console.write_line(to_json({"change": "verdict", **asdict(verdict)}))
        counts = [{"old": old, "new": new, "runs": count} for (old, new), count in sorted(verdicts.counts.items())]
        console.write_line(to_json({"change": "summary", "runs": verdicts.runs, "verdicts": counts}))


def _print_changes(changes: list[GoldenChange]) -> None:
    console = stdout_console()
    for change in changes:
        heading = Text.assemble((change.kind, _STYLES[change.kind]), f" {escape_control_characters(change.golden_id)}")
        if change.kind != "changed":
            heading.append(f": {escape_control_characters('; '.join(change.sentences))}")
        console.print(heading, soft_wrap=True)
        if change.kind == "changed":
            for sentence in change.sentences:
                console.print(Text(f"  {escape_control_characters(sentence)}"), soft_wrap=True)
    counts = {kind: sum(change.kind == kind for change in changes) for kind in _STYLES}
    console.print(Text("goldens: " + ", ".join(f"{count} {kind}" for kind, count in counts.items())))


def _print_verdicts(verdicts: VerdictDiff, limit: int) -> None:
    console = stdout_console()
    changed = [change for change in verdicts.changes if change.old != change.new]
    for change in changed[: limit or None]:
        golden = change.new_golden or change.old_golden
        line = Text(f"{escape_control_characters(change.run_id)} ({golden}): {change.old} -> {change.new}. ")
        console.print(line.append(escape_control_characters(change.reason)), soft_wrap=True)
    if limit and len(changed) > limit:
        console.print(Text(f"... and {len(changed) - limit} more; --limit 0 shows all"))
    moved = sum(change.old == change.new for change in verdicts.changes)
    transitions = [f"{old} -> {new} {count}" for (old, new), count in sorted(verdicts.counts.items()) if old != new]
    if moved:
        transitions.append(f"same verdict by another golden {moved}")
    console.print(Text(f"{verdicts.runs} runs: {', '.join(transitions) or 'no verdict changes'}"))


# --- stale goldens ----------------------------------------------------------------------------------------------------


def stale(
    goldens: Annotated[
        list[str], typer.Argument(metavar="GOLDENS... STORE", help="Golden files, then a store.", show_default=False)
    ],
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="The runs to look at: those that began at TIME or later.")
    ] = "30d",
    as_json: options.JsonFlag = False,
) -> None:
    """Find goldens that no recent run matched, whose tools are gone, or that state what has become the exception.

    A golden is reported if no run matched it; if one of its tools was neither called nor offered; if at least nine
    tenths of its runs choose the same alternative; or if at least half of its runs break it in the same way. The last
    two need at least 10 runs.

    Exit status: 0 nothing was found, 1 something was found, 2 a file cannot be read.
    """
    from goldspan.curation.stale_goldens import find_stale_goldens
    from goldspan.errors import ConfigurationError
    from goldspan.goldens import load_goldens
    from goldspan.sinks.serialization import to_json
    from goldspan.store import RunFilter, open_store
    from goldspan.store.query_parameters import format_time

    *files, place = goldens
    if not files:
        raise ConfigurationError("name golden files and then a store: goldspan goldens stale goldens.yaml goldspan.db")
    loaded = load_goldens(*files, on_warning=_ignore)
    run_filter = RunFilter(since_ns=options.parse_time_option(since, "--since"))
    with open_store(options.store_location(place), read_only=True) as store:
        total = store.count(run_filter).total
        last_matched = {
            group.name: format_time(group.last_ns)[:19] + "Z" for group in store.count_by("golden") if group.name
        }
        runs = with_progress_bar(_runs_with_golden(store.iter_runs(run_filter)), total, "comparing")
        findings = find_stale_goldens(loaded, runs, last_matched)
    console = stdout_console()
    for finding in findings:
        if as_json:
            document = {
                "finding": finding.kind,
                "golden": finding.golden_id,
                "message": finding.sentence,
                "runs": finding.runs,
            }
            console.write_line(to_json(document))
        else:
            line = f"golden {finding.golden_id!r}: {finding.sentence}."
            console.print(Text(escape_control_characters(line)), soft_wrap=True)
    if not total:
        print_warning(f"the store has no run since {since}")
    if not as_json:
        number = len({finding.golden_id for finding in findings})
        console.print(Text(f"{len(loaded)} goldens and {total} runs read: {number or 'nothing'} found"))
    if findings:
        raise typer.Exit(FOUND_EXIT_STATUS)


def _runs_with_golden(stored: Iterable[StoredRun]) -> Iterator[tuple[Run, str | None]]:
    from goldspan.store.run_records import run_from_document

    for each in stored:
        document = each.current.document
        yield run_from_document(document), document["golden_id"]
