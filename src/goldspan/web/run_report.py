"""Collects the data of a report over stored runs, and renders it as Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from goldspan.extraction.capture_diagnostics import Hint, merge_hints
from goldspan.goldens import Goldens
from goldspan.model import Evaluation, NotEvaluatedRun
from goldspan.model.markup import Block, Table, TextSpan, render_markdown, shorten_request, truncate
from goldspan.model.rendering import OUTCOME_SYMBOLS, heading_block, table_blocks
from goldspan.store import RunFilter, Store, StoredRun, open_store
from goldspan.store.store_protocol import ALL_RUNS
from goldspan.web.display_text import percent
from goldspan.web.golden_status import GoldenTable, PassRateEstimate, golden_table, pass_rate
from goldspan.web.run_details import RunDetails, run_details
from goldspan.web.run_list import RunEntry, run_entry, stored_capture_hints
from goldspan.web.unmatched_requests import UnmatchedRequests, unmatched_requests

MAX_LISTED = 1000
"""Failed runs, and other runs, that have a line in a list."""
MAX_SUMMARY_BYTES = 65_536
"""Bytes of the Markdown: GitHub's limit for a comment in characters. A job summary may be longer."""
_RESERVED_BYTES = 200
_MAX_EXPANDED_RUNS = 10
"""Failed runs in the Markdown that are visible at once; the others are in a collapsed section."""
_MAX_MARKDOWN_ROWS = 40
_MAX_MARKDOWN_RUNS = 100
_MAX_MARKDOWN_GOLDENS = 50
_MAX_MARKDOWN_HINTS = 20
_BATCH_SIZE = 500
"""Evaluations that are stored in one transaction."""

ReportObserver = Callable[[Iterable[StoredRun]], Iterable[StoredRun]]
"""Wraps the iteration over the runs, for example to print progress."""


@dataclass(frozen=True, slots=True)
class ReportHeader:
    """The title, the time and the sources of a report."""

    title: str
    created_ns: int
    """Nanoseconds since the Unix epoch."""
    sources: tuple[str, ...]
    """The names of the inputs."""
    filters: tuple[tuple[str, str], ...] = ()
    """The labels and values of the filters that select the runs."""


@dataclass(slots=True)
class MetricSummary:
    """One metric over the runs that have a score of it."""

    metric: str
    runs: int = 0
    """Runs in which the metric has a value."""
    passed: int = 0
    gated: int = 0
    """Runs in which the metric had a threshold to reach."""
    _sum: float = 0.0

    @property
    def mean(self) -> float | None:
        """The mean of the values, or `None` without a value."""
        return self._sum / self.runs if self.runs else None

    def add(self, score: Mapping[str, Any]) -> None:
        """Count the score of one run."""
        if score["value"] is not None:
            self.runs += 1
            self._sum += score["value"]
        if score["passed"] is not None:
            self.gated += 1
            self.passed += score["passed"]


@dataclass(slots=True)
class RunListing:
    """Listed runs, and the number of runs that are omitted."""

    entries: list[RunEntry] = field(default_factory=list)
    omitted: int = 0

    def add(self, run: StoredRun) -> None:
        """Append a run, or count it as omitted when the list is full."""
        if len(self.entries) < MAX_LISTED:
            self.entries.append(run_entry(run))
        else:
            self.omitted += 1


@dataclass(frozen=True, slots=True)
class Report:
    """The data of a report."""

    header: ReportHeader
    rate: PassRateEstimate
    metrics: tuple[MetricSummary, ...]
    goldens: GoldenTable
    """The goldens by pass rate, and the tools in their runs."""
    unmatched_goldens: tuple[str, ...]
    """Ids of the goldens in use that no run matched."""
    failed: tuple[RunDetails, ...]
    """The failed runs that are shown in detail, newest first."""
    more_failed: RunListing
    """The other failed runs."""
    others: RunListing
    """Runs that passed or were not evaluated."""
    health: tuple[tuple[Hint, int], ...]
    """Capture problems, each with the number of runs."""
    unmatched: UnmatchedRequests
    """Requests without a golden, in groups."""
    not_evaluated: tuple[NotEvaluatedRun, ...] = ()
    """Runs that have a golden and could not be evaluated."""

    def mean(self, metric: str) -> float | None:
        """The mean of a metric, or the pass rate for `passed`; `None` if no run has a value."""
        if metric == "passed":
            return self.rate.share
        return next((each.mean for each in self.metrics if each.metric == metric), None)


def build_report(
    store: Store,
    header: ReportHeader,
    *,
    goldens: Goldens | None = None,
    run_filter: RunFilter = ALL_RUNS,
    max_detailed: int = 50,
    observe: ReportObserver = iter,
) -> Report:
    """Return the report over the selected runs.

    Args:
        store: The runs.
        header: The title and the sources.
        goldens: The goldens in use, if they are known.
        run_filter: Selects the runs.
        max_detailed: The maximum number of failed runs in `Report.failed`.
        observe: Wraps the iteration over the runs.
    """
    builder = _ReportBuilder(max_detailed)
    for run in observe(store.iter_runs(run_filter)):
        builder.add(run)
    return Report(
        header=header,
        rate=pass_rate(store.count(run_filter)),
        metrics=tuple(builder.metrics.values()),
        goldens=golden_table(store, goldens, run_filter),
        unmatched_goldens=tuple(_unmatched_goldens(store, goldens)) if run_filter == ALL_RUNS else (),
        failed=tuple(builder.failed),
        more_failed=builder.more_failed,
        others=builder.others,
        health=tuple(merge_hints(builder.hints())),
        unmatched=unmatched_requests(store, run_filter),
        not_evaluated=tuple(builder.not_evaluated),
    )


@contextmanager
def temporary_store(evaluations: Iterable[Evaluation], *, keep_arguments: bool) -> Iterator[Store]:
    """A store of these evaluations that exists while the report is made."""
    with (
        TemporaryDirectory(prefix="goldspan-", ignore_cleanup_errors=True) as folder,
        open_store(Path(folder) / "goldspan.db", keep_arguments=keep_arguments) as store,
    ):
        remaining = _with_unique_ids(evaluations)
        while batch := list(islice(remaining, _BATCH_SIZE)):
            store.submit_many(batch)
        yield store


def _with_unique_ids(evaluations: Iterable[Evaluation]) -> Iterator[Evaluation]:
    """Number repeated run ids: rows of several files may share an id, and a store keeps one run per id."""
    seen: dict[str, int] = {}
    for evaluation in evaluations:
        run = evaluation.run
        seen[run.run_id] = number = seen.get(run.run_id, 0) + 1
        yield evaluation if number == 1 else replace(evaluation, run=replace(run, run_id=f"{run.run_id} ({number})"))


class _ReportBuilder:
    """Collects the parts of a report that need one pass over the runs."""

    def __init__(self, max_detailed: int) -> None:
        self.metrics: dict[str, MetricSummary] = {}
        self.failed: list[RunDetails] = []
        self.more_failed = RunListing()
        self.others = RunListing()
        self.not_evaluated: list[NotEvaluatedRun] = []
        self._hint_counts: dict[tuple[Hint, ...], int] = {}
        self._max_detailed = max_detailed

    def add(self, run: StoredRun) -> None:
        document = run.current.document
        for score in document["scores"]:
            metric = score["metric"]
            self.metrics.setdefault(metric, MetricSummary(metric)).add(score)
        if hints := tuple(stored_capture_hints(document)):
            self._hint_counts[hints] = self._hint_counts.get(hints, 0) + 1
        if document["passed"] is None and document["golden_id"] is not None:
            metrics = frozenset(score["metric"] for score in document["scores"] if score["value"] is None)
            self.not_evaluated.append(
                NotEvaluatedRun(document["run_id"], document["golden_id"], document["reason"], metrics)
            )
        if document["passed"] is not False:
            self.others.add(run)
        elif len(self.failed) < self._max_detailed and (details := run_details(run, (run.current,))) is not None:
            self.failed.append(details)
        else:
            self.more_failed.add(run)

    def hints(self) -> Iterator[Hint]:
        """Yield the hints of all runs. Equal sets of hints are stored once, with their count."""
        for hints, run_count in self._hint_counts.items():
            for _ in range(run_count):
                yield from hints


def _unmatched_goldens(store: Store, goldens: Goldens | None) -> Iterator[str]:
    matched = {group.name for group in store.count_by("golden")}
    return (golden.id for golden in goldens or () if golden.id not in matched)


# --- Markdown ---------------------------------------------------------------------------------------------------------


def render_markdown_report(report: Report) -> str:
    """Return the report as Markdown: totals first, then failed runs up to `MAX_SUMMARY_BYTES`."""
    title = render_markdown([(TextSpan(report.header.title),)])
    verdicts = render_markdown([tuple(_verdict_spans(report))])
    head = list(filter(None, (f"## {title}", verdicts, _metrics_table(report.metrics))))
    tail = list(filter(None, (_unmatched_goldens_list(report), _capture_health(report))))
    remaining_bytes = MAX_SUMMARY_BYTES - _RESERVED_BYTES - sum(map(_byte_length, [*head, *tail]))
    runs: list[str] = []
    for details in report.failed:
        text = render_markdown(_run_blocks(details))
        if _byte_length(text) > remaining_bytes:
            break
        remaining_bytes -= _byte_length(text)
        runs.append(text)
    remaining_runs = list(_remaining_runs(report, len(runs), remaining_bytes))
    return "\n\n".join([*head, *_collapse_runs(runs), *remaining_runs, *tail]) + "\n"


def _collapse_runs(runs: Sequence[str]) -> Iterator[str]:
    """Yield the first runs, and the others in a collapsed section."""
    yield from runs[:_MAX_EXPANDED_RUNS]
    if collapsed := runs[_MAX_EXPANDED_RUNS:]:
        yield f"<details><summary>{_run_count(len(collapsed), 'more failed run')} in full</summary>"
        yield from collapsed
        yield "</details>"


def _verdict_spans(report: Report) -> Iterator[TextSpan]:
    counts, rate = report.rate.counts, report.rate
    yield TextSpan(f"{_run_count(counts.total)}: {counts.passed} passed, {counts.failed} failed")
    yield TextSpan(f", {counts.not_evaluated} not evaluated" if counts.not_evaluated else "")
    if rate.low is not None:
        yield TextSpan(f". Pass rate {percent(rate.share)} (95 %: {percent(rate.low)} to {percent(rate.high)})")
    yield TextSpan(".")
    if report.header.filters:
        filters = ", ".join(f"{name} {truncate(text)}" for name, text in report.header.filters)
        yield TextSpan(f" Filters: {filters}.")


def _run_blocks(details: RunDetails) -> Iterator[Block]:
    document = details.document
    yield heading_block(details.mark, details.name, document["input"])
    omitted = details.omitted + len(details.rows[_MAX_MARKDOWN_ROWS:])
    has_golden = document["golden_match"] is not None
    yield from table_blocks(details.rows[:_MAX_MARKDOWN_ROWS], omitted, has_golden=has_golden)
    yield (TextSpan(document["reason"]),)


def _remaining_runs(report: Report, detailed_count: int, remaining_bytes: int) -> Iterator[str]:
    """Yield a table of the failed runs that are not shown in detail, and the number of runs that do not fit."""
    remaining = [
        (details.name, details.document["input"], details.document["reason"])
        for details in report.failed[detailed_count:]
    ]
    remaining += [(entry.name, entry.request, entry.reason) for entry in report.more_failed.entries]
    headings = ("also failed", "request", "reason")
    rows: list[tuple[tuple[TextSpan, ...], ...]] = []
    for name, request, reason in remaining[:_MAX_MARKDOWN_RUNS]:
        row = (
            (TextSpan(truncate(name), "name"),),
            (TextSpan(shorten_request(request)),),
            (TextSpan(truncate(reason, 200)),),
        )
        remaining_bytes -= _byte_length(render_markdown([Table((), (row,))]))
        if remaining_bytes < 0:
            break
        rows.append(row)
    if rows:
        yield render_markdown([Table(headings, tuple(rows))])
    if omitted := report.rate.counts.failed - detailed_count - len(rows):
        yield render_markdown([(TextSpan(f"{_run_count(omitted, 'more run')} failed."),)])


def _metrics_table(metrics: Iterable[MetricSummary]) -> str:
    rows = tuple(
        (
            (TextSpan(metric.metric, "name"),),
            (TextSpan("—" if metric.mean is None else f"{metric.mean:.4f}"),),
            (TextSpan(str(metric.runs)),),
            (TextSpan(f"{metric.passed} of {metric.gated}" if metric.gated else "—"),),
        )
        for metric in metrics
    )
    return render_markdown([Table(("metric", "mean", "runs", "passed"), rows)]) if rows else ""


def _unmatched_goldens_list(report: Report) -> str:
    if not report.unmatched_goldens:
        return ""
    names = [TextSpan(truncate(name), "name") for name in report.unmatched_goldens[:_MAX_MARKDOWN_GOLDENS]]
    separated = [span for name in names for span in (TextSpan(", "), name)][1:]
    omitted = len(report.unmatched_goldens) - len(names)
    end = TextSpan(f" and {omitted} more" if omitted else "")
    label = TextSpan(f"{OUTCOME_SYMBOLS[None].sign} Goldens without a run: ")
    return render_markdown([(label, *separated, end)])


def _capture_health(report: Report) -> str:
    """Return a table of the capture problems and their remedies."""
    total = report.rate.counts.total
    rows = tuple(
        ((TextSpan(hint.summary),), (TextSpan(f"{runs} of {total}"),), (TextSpan(" ".join(hint.advice.split())),))
        for hint, runs in report.health[:_MAX_MARKDOWN_HINTS]
    )
    return render_markdown([Table(("capture problem", "runs", "remedy"), rows)]) if rows else ""


def _run_count(number: int, word: str = "run") -> str:
    return f"{number} {word}{'s' * (number != 1)}"


def _byte_length(text: str) -> int:
    return len(text.encode("utf-8", "replace")) + 2
