"""A report as Markdown for a pull request, short enough for a comment on GitHub."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from goldspan.model.markup import Block, Span, Table, markdown
from goldspan.model.rendering import VERDICTS, asked, heading, short, table_of
from goldspan.web.report import Measured, Report
from goldspan.web.runs import Details
from goldspan.web.texts import percent

MOST = 65_536
"""Bytes of a summary: so many characters GitHub takes for a comment. The summary of a job may be longer."""
_ROOM_FOR_THE_END = 200
_OPEN = 10
"""So many failed runs are seen at once; the others are folded away."""
_MOST_ROWS = 40
_MOST_LISTED = 100
_MOST_UNMET = 50
_MOST_HINTS = 20
"""So many rows of a comparison, further failed runs, goldens and hints are told."""


def as_markdown(report: Report) -> str:
    """The report: first what everybody wants to know, then run by run, as far as there is room."""
    title, verdicts = markdown([(Span(report.about.title),)]), markdown([tuple(_verdicts(report))])
    head = list(filter(None, (f"## {title}", verdicts, _metrics(report.metrics))))
    ends = list(filter(None, (_unmet(report), _health(report))))
    room = MOST - _ROOM_FOR_THE_END - sum(map(_size, [*head, *ends]))
    runs: list[str] = []
    for details in report.failed:
        told = markdown(_run(details))
        if _size(told) > room:
            break
        room -= _size(told)
        runs.append(told)
    further = list(_further(report, len(runs), room))
    return "\n\n".join([*head, *_folded(runs), *further, *ends]) + "\n"


def _folded(runs: Sequence[str]) -> Iterator[str]:
    """The first of some runs, and the others where somebody wants to see them."""
    yield from runs[:_OPEN]
    if others := runs[_OPEN:]:
        yield f"<details><summary>{_runs(len(others), 'more failed run')} in full</summary>"
        yield from others
        yield "</details>"


def _verdicts(report: Report) -> Iterator[Span]:
    counts, rate = report.rate.counts, report.rate
    yield Span(f"{_runs(counts.total)}: {counts.passed} passed, {counts.failed} failed")
    yield Span(f", {counts.not_evaluated} not evaluated" if counts.not_evaluated else "")
    if rate.low is not None:
        yield Span(f". Pass rate {percent(rate.share)} (95 %: {percent(rate.low)} to {percent(rate.high)})")
    yield Span(".")
    if report.about.said:
        said = ", ".join(f"{name} {short(text)}" for name, text in report.about.said)
        yield Span(f" Only runs like this: {said}.")


def _run(details: Details) -> Iterator[Block]:
    document = details.document
    yield heading(details.mark, details.name, document["input"])
    left = details.left + len(details.lines[_MOST_ROWS:])
    yield from table_of(details.lines[:_MOST_ROWS], left, of_golden=document["golden_match"] is not None)
    yield (Span(document["reason"]),)


def _further(report: Report, told: int, room: int) -> Iterator[str]:
    """The failed runs that are not shown in full: a row each for as many as there is room, and how many there are."""
    rest = [(details.name, details.document["input"], details.document["reason"]) for details in report.failed[told:]]
    rest += [(entry.name, entry.asked, entry.reason) for entry in report.further.entries]
    headings = ("also failed", "asked", "why")
    rows: list[tuple[tuple[Span, ...], ...]] = []
    for name, request, reason in rest[:_MOST_LISTED]:
        row = ((Span(short(name), "name"),), (Span(asked(request)),), (Span(short(reason, 200)),))
        room -= _size(markdown([Table((), (row,))]))
        if room < 0:
            break
        rows.append(row)
    if rows:
        yield markdown([Table(headings, tuple(rows))])
    if left := report.rate.counts.failed - told - len(rows):
        yield markdown([(Span(f"{_runs(left, 'more run')} failed."),)])


def _metrics(metrics: Iterable[Measured]) -> str:
    rows = tuple(
        (
            (Span(metric.metric, "name"),),
            (Span("—" if metric.mean is None else f"{metric.mean:.4f}"),),
            (Span(str(metric.runs)),),
            (Span(f"{metric.passed} of {metric.judged}" if metric.judged else "—"),),
        )
        for metric in metrics
    )
    return markdown([Table(("metric", "mean", "runs", "passed"), rows)]) if rows else ""


def _unmet(report: Report) -> str:
    if not report.unmet:
        return ""
    names = [Span(short(name), "name") for name in report.unmet[:_MOST_UNMET]]
    apart = [piece for name in names for piece in (Span(", "), name)][1:]
    more = len(report.unmet) - len(names)
    end = Span(f" and {more} more" if more else "")
    return markdown([(Span(f"{VERDICTS[None].sign} No run met: "), *apart, end)])


def _health(report: Report) -> str:
    """What is amiss with the capture, and what to do."""
    total = report.rate.counts.total
    rows = tuple(
        ((Span(hint.found),), (Span(f"{runs} of {total}"),), (Span(" ".join(hint.advice.split())),))
        for hint, runs in report.health[:_MOST_HINTS]
    )
    return markdown([Table(("capture", "runs", "what to do"), rows)]) if rows else ""


def _runs(number: int, word: str = "run") -> str:
    return f"{number} {word}{'s' * (number != 1)}"


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace")) + 2
