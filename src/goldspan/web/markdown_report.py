"""Renders a report as Markdown for a pull request, short enough for a comment on GitHub."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from goldspan.model.rendering import (
    OUTCOME_SYMBOLS,
    Block,
    Table,
    TextSpan,
    heading_block,
    render_markdown,
    shorten_request,
    table_blocks,
    truncate,
)
from goldspan.web.display_text import percent
from goldspan.web.report_data import MetricSummary, Report
from goldspan.web.run_details import RunDetails

MAX_SUMMARY_BYTES = 65_536
"""Bytes of a summary: so many characters GitHub takes for a comment. The summary of a job may be longer."""
_RESERVED_BYTES = 200
_MAX_EXPANDED_RUNS = 10
"""So many failed runs are seen at once; the others are folded away."""
_MAX_ROWS = 40
_MAX_LISTED = 100
_MAX_UNMATCHED = 50
_MAX_HINTS = 20
"""So many rows of a comparison, further failed runs, goldens and hints are told."""


def render_markdown_report(report: Report) -> str:
    """The report: first what everybody wants to know, then run by run, as far as there is room."""
    title, verdicts = (
        render_markdown([(TextSpan(report.about.title),)]),
        render_markdown([tuple(_verdict_spans(report))]),
    )
    head = list(filter(None, (f"## {title}", verdicts, _metrics_table(report.metrics))))
    ends = list(filter(None, (_unmatched_goldens_list(report), _capture_health(report))))
    room = MAX_SUMMARY_BYTES - _RESERVED_BYTES - sum(map(_byte_length, [*head, *ends]))
    runs: list[str] = []
    for details in report.failed:
        told = render_markdown(_run_blocks(details))
        if _byte_length(told) > room:
            break
        room -= _byte_length(told)
        runs.append(told)
    further = list(_remaining_runs(report, len(runs), room))
    return "\n\n".join([*head, *_collapse_runs(runs), *further, *ends]) + "\n"


def _collapse_runs(runs: Sequence[str]) -> Iterator[str]:
    """The first of some runs, and the others where somebody wants to see them."""
    yield from runs[:_MAX_EXPANDED_RUNS]
    if others := runs[_MAX_EXPANDED_RUNS:]:
        yield f"<details><summary>{_run_count(len(others), 'more failed run')} in full</summary>"
        yield from others
        yield "</details>"


def _verdict_spans(report: Report) -> Iterator[TextSpan]:
    counts, rate = report.rate.counts, report.rate
    yield TextSpan(f"{_run_count(counts.total)}: {counts.passed} passed, {counts.failed} failed")
    yield TextSpan(f", {counts.not_evaluated} not evaluated" if counts.not_evaluated else "")
    if rate.low is not None:
        yield TextSpan(f". Pass rate {percent(rate.share)} (95 %: {percent(rate.low)} to {percent(rate.high)})")
    yield TextSpan(".")
    if report.about.said:
        said = ", ".join(f"{name} {truncate(text)}" for name, text in report.about.said)
        yield TextSpan(f" Only runs like this: {said}.")


def _run_blocks(details: RunDetails) -> Iterator[Block]:
    document = details.document
    yield heading_block(details.mark, details.name, document["input"])
    left = details.left + len(details.lines[_MAX_ROWS:])
    yield from table_blocks(details.lines[:_MAX_ROWS], left, has_golden=document["golden_match"] is not None)
    yield (TextSpan(document["reason"]),)


def _remaining_runs(report: Report, told: int, room: int) -> Iterator[str]:
    """The failed runs that are not shown in full: a row each for as many as there is room, and how many there are."""
    rest = [(details.name, details.document["input"], details.document["reason"]) for details in report.failed[told:]]
    rest += [(entry.name, entry.asked, entry.reason) for entry in report.further.entries]
    headings = ("also failed", "asked", "why")
    rows: list[tuple[tuple[TextSpan, ...], ...]] = []
    for name, request, reason in rest[:_MAX_LISTED]:
        row = (
            (TextSpan(truncate(name), "name"),),
            (TextSpan(shorten_request(request)),),
            (TextSpan(truncate(reason, 200)),),
        )
        room -= _byte_length(render_markdown([Table((), (row,))]))
        if room < 0:
            break
        rows.append(row)
    if rows:
        yield render_markdown([Table(headings, tuple(rows))])
    if left := report.rate.counts.failed - told - len(rows):
        yield render_markdown([(TextSpan(f"{_run_count(left, 'more run')} failed."),)])


def _metrics_table(metrics: Iterable[MetricSummary]) -> str:
    rows = tuple(
        (
            (TextSpan(metric.metric, "name"),),
            (TextSpan("—" if metric.mean is None else f"{metric.mean:.4f}"),),
            (TextSpan(str(metric.runs)),),
            (TextSpan(f"{metric.passed} of {metric.judged}" if metric.judged else "—"),),
        )
        for metric in metrics
    )
    return render_markdown([Table(("metric", "mean", "runs", "passed"), rows)]) if rows else ""


def _unmatched_goldens_list(report: Report) -> str:
    if not report.unmet:
        return ""
    names = [TextSpan(truncate(name), "name") for name in report.unmet[:_MAX_UNMATCHED]]
    apart = [piece for name in names for piece in (TextSpan(", "), name)][1:]
    more = len(report.unmet) - len(names)
    end = TextSpan(f" and {more} more" if more else "")
    return render_markdown([(TextSpan(f"{OUTCOME_SYMBOLS[None].sign} No run met: "), *apart, end)])


def _capture_health(report: Report) -> str:
    """What is amiss with the capture, and what to do."""
    total = report.rate.counts.total
    rows = tuple(
        ((TextSpan(hint.summary),), (TextSpan(f"{runs} of {total}"),), (TextSpan(" ".join(hint.advice.split())),))
        for hint, runs in report.health[:_MAX_HINTS]
    )
    return render_markdown([Table(("capture", "runs", "what to do"), rows)]) if rows else ""


def _run_count(number: int, word: str = "run") -> str:
    return f"{number} {word}{'s' * (number != 1)}"


def _byte_length(text: str) -> int:
    return len(text.encode("utf-8", "replace")) + 2
