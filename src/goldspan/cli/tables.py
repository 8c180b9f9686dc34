"""Prints evaluations and their summary, and formats runs, for the commands that show them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from goldspan.cli.console import ResultsConsole, stdout_console
from goldspan.cli.evaluation_summary import EvaluationSummary
from goldspan.extraction.capture_diagnostics import Hint, capture_hints, merge_hints
from goldspan.model import COUNTED_TOOL_KINDS, Evaluation, Run, ToolCall
from goldspan.model.markup import Table as MarkdownTable
from goldspan.model.markup import TextSpan, render_markdown
from goldspan.terminal.escapes import escape_control_characters
from goldspan.terminal.evaluation_text import (
    dim_text,
    evaluation_blocks,
    hints_text,
    indented,
    request_text,
    verdict_counts,
)

if TYPE_CHECKING:
    from goldspan.testing.check_reports import CheckOutcome
    from goldspan.testing.gates import GateResult

_MAX_ERROR_LENGTH = 100
"""Characters of an error that are shown."""
_MAX_RUN_WIDTH = 40
"""Maximum columns for the description of a run."""
_MAX_FAULTY_GOLDENS = 50


_NOTE_MEANINGS: dict[str, str] = {
    "requested": "only a model's message shows the call",
    "denied": "asked for and not carried out, does not count",
    "deferred": "asked for and not carried out, does not count",
    "hosted": "carried out by the model's provider",
    **dict.fromkeys(("agent", "handoff", "retrieval", "answer"), "counts only where a golden names it"),
}
"""The meaning of the notes after a tool's name."""


ScoreFormat = Literal["text", "json", "markdown", "none"]


def print_evaluations(
    results: Iterable[Evaluation], form: ScoreFormat, *, limit: int, verbose: bool
) -> EvaluationSummary:
    """Print the evaluations and return their summary. JSON is printed as each arrives, the other formats at the end."""
    summary = EvaluationSummary(None if form == "json" else limit)
    if form != "json":
        for evaluation in results:
            summary.add(evaluation)
        print_summary(summary, form, verbose=verbose)
        return summary
    from goldspan.sinks.serialization import evaluation_document, to_json  # deferred: imports OpenTelemetry

    console = stdout_console()
    for evaluation in summary.observe(results):
        console.write_line(to_json(evaluation_document(evaluation)))
    return summary


def keep_all(evaluations: Iterable[Evaluation], kept: list[Evaluation]) -> Iterator[Evaluation]:
    """Yield the evaluations, and add each to a list."""
    for evaluation in evaluations:
        kept.append(evaluation)
        yield evaluation


def print_summary(summary: EvaluationSummary, form: ScoreFormat, *, verbose: bool) -> None:
    """Print the evaluations that a summary keeps, and its counts, as text or Markdown."""
    if summary and form in ("text", "markdown"):
        (_print_text if form == "text" else _print_markdown)(summary, stdout_console(), verbose=verbose)


def _print_text(summary: EvaluationSummary, console: ResultsConsole, *, verbose: bool) -> None:
    shown = summary.shown
    console.print(evaluation_blocks(shown, console, verbose=verbose))
    if omitted := _omitted_note(shown, summary):
        console.print(Text(f"{omitted}; --limit 0 shows all", style="dim"))
    console.print()
    console.print(_summary_table(summary))
    console.print()
    console.print(verdict_counts(summary.verdicts))


def _print_markdown(summary: EvaluationSummary, console: ResultsConsole, *, verbose: bool) -> None:
    shown = summary.shown
    rows = tuple(tuple((TextSpan(cell),) for cell in row) for row in _score_rows(summary))
    blocks = [
        render_markdown(
            [
                (TextSpan(verdict_counts(summary.verdicts).plain),),
                MarkdownTable(("metric", "mean", "runs", "passed"), rows),
            ]
        ),
        *(evaluation.to_markdown(values=verbose) for evaluation in shown),
    ]
    if omitted := _omitted_note(shown, summary):
        blocks.append(omitted)
    console.write_line("\n\n".join(blocks))


def _omitted_note(shown: Sequence[Evaluation], summary: EvaluationSummary) -> str:
    """Return how many runs are not shown; empty where all are."""
    number = len(summary) - len(shown)
    return f"{number} more run{'s' * (number != 1)}" if number else ""


def _summary_table(summary: EvaluationSummary) -> Table:
    """Return a table with the mean of each metric, its number of runs, and how many passed."""
    table = new_table()
    table.add_column("metric")
    for heading in ("mean", "runs", "passed"):
        table.add_column(heading, justify="right")
    for row in _score_rows(summary):
        table.add_row(*map(escape_control_characters, row))
    return table


def _score_rows(summary: EvaluationSummary) -> Iterator[tuple[str, str, str, str]]:
    """Yield the rows of the summary table. Runs may have different metrics."""
    for metric, scores in summary.scores.items():
        mean = "—" if scores.mean is None else f"{scores.mean:.4f}"
        passed = f"{scores.passed} of {scores.verdicts}" if scores.verdicts else "—"
        yield metric, mean, str(scores.values), passed


def runs_table(runs: Iterable[Run]) -> Table:
    """Return a table of runs: name, request, called tools, and problems in the capture."""
    table = new_table(leading=1)
    table.add_column("run", max_width=_MAX_RUN_WIDTH)
    table.add_column("tools used")
    for run in runs:
        who = Text.assemble(
            escape_control_characters(run.component or run.agent or run.service or "run"), "\n", request_text(run)
        )
        lines = [_call_text(call) for call in run.tool_calls] or [dim_text("no tool")]
        if hints := capture_hints(run):
            lines.append(hints_text(hints))
        table.add_row(who, Text("\n").join(lines))
    return table


def notes_legend(runs: Iterable[Run]) -> RenderableType:
    """Return the meanings of the notes after tool names; empty without notes."""
    used = {note for run in runs for call in run.tool_calls for note in _call_notes(call)}
    notes_of: dict[str, list[str]] = {}
    for note, meaning in _NOTE_MEANINGS.items():
        if note in used:
            notes_of.setdefault(meaning, []).append(note)
    told = [dim_text(f"{', '.join(notes)}: {meaning}") for meaning, notes in notes_of.items()]
    return Group(Text(), *told) if told else Group()


def capture_block(runs: Sequence[Run]) -> RenderableType:
    """Return the problems in the capture of runs, each kind once, with its remedy; empty without problems."""
    found = merge_hints(hint for run in runs for hint in capture_hints(run))
    lines: list[RenderableType] = [Text("\ncapture", style="bold")] if found else []
    for hint, count in found:
        title = Text(escape_control_characters(hint.summary), style="yellow").append(
            _share_text(count, len(runs)), style="dim"
        )
        lines += [indented(title, 2), indented(Text(hint.advice))]
    return Group(*lines)


def capture_notice(runs: Sequence[Run]) -> str:
    """Return the problems in the capture of runs as one sentence; empty without problems."""
    return capture_sentence(merge_hints(hint for run in runs for hint in capture_hints(run)), len(runs))


def capture_sentence(hints: Iterable[tuple[Hint, int]], runs: int) -> str:
    """Return hints, each with the number of affected runs, as one sentence; empty without hints."""
    return "; ".join(f"{hint.summary}{_share_text(count, runs)}" for hint, count in hints)


def new_table(*, leading: int = 0) -> Table:
    """Return an empty table in the style of all tables."""
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", leading=leading)


def _call_text(call: ToolCall) -> Text:
    line = Text(escape_control_characters(call.name))
    notes = _call_notes(call)
    notes += [f"server {call.server}"] if call.server else []
    notes += ["arguments unreadable"] if call.raw_arguments is not None and call.kind in COUNTED_TOOL_KINDS else []
    notes += [f"failed: {_short_error(call.error)}"] if call.error is not None else []
    notes += ["reads like an error"] if call.error is None and call.error_guess is not None else []
    return line.append(f"  ({escape_control_characters('; '.join(notes))})", style="dim") if notes else line


def _call_notes(call: ToolCall) -> list[str]:
    notes: list[str] = [call.kind] if call.kind != "tool" else []
    notes += ["requested"] if call.evidence == "requested" and call.was_made else []
    notes += [call.outcome] if call.outcome is not None and not call.was_made else []
    return notes


def _short_error(error: str) -> str:
    """Return the first line of an error, which may contain a traceback."""
    first = error.strip().partition("\n")[0]
    return first if len(first) <= _MAX_ERROR_LENGTH else f"{first[: _MAX_ERROR_LENGTH - 1]}…"


def _share_text(count: int, total: int) -> str:
    """Return the number of affected runs; empty for a single run."""
    return "" if total == 1 else f" (all {total} runs)" if count == total else f" ({count} of {total} runs)"


def check_blocks(outcome: CheckOutcome) -> RenderableType:
    """Format the outcome of a check: goldens that did not pass, what was required, the baseline, and the verdict."""
    from goldspan.testing.check_reports import baseline_rows, baseline_sentence, counts_sentence

    blocks: list[RenderableType] = []
    if faulty := outcome.faulty_goldens:
        table = new_table()
        table.add_column("golden", max_width=_MAX_RUN_WIDTH)
        table.add_column("")
        table.add_column("reason")
        for golden in faulty[:_MAX_FAULTY_GOLDENS]:
            is_worse = Text("worse", style="red") if golden.is_worse else ""
            table.add_row(
                escape_control_characters(golden.golden_id), is_worse, Text(escape_control_characters(golden.sentence))
            )
        blocks += [table, Text()]
        if (omitted := len(faulty) - _MAX_FAULTY_GOLDENS) > 0:
            blocks.append(dim_text(f"{omitted} more goldens did not pass; --format json names all\n"))
    if outcome.gates:
        blocks += [_gates_table(outcome.gates), Text()]
    if outcome.baseline is not None:
        table = new_table()
        table.add_column(baseline_sentence(outcome.baseline).rstrip("."))
        for heading in ("baseline", "now", "p", ""):
            table.add_column(heading, justify="right")
        for *cells, verdict in baseline_rows(outcome.baseline):
            table.add_row(*map(escape_control_characters, cells), Text(verdict, style="red"))
        blocks += [table, Text()]
    blocks.append(Text(counts_sentence(outcome.results)))
    blocks += [Text(f"failed: {escape_control_characters(failure)}", style="bold red") for failure in outcome.failures]
    if outcome.passed:
        blocks.append(Text("The check passed.", style="green"))
    return Group(*blocks)


def _gates_table(gates: Iterable[GateResult]) -> Table:
    table = new_table()
    table.add_column("required")
    for heading in ("at least", "is", ""):
        table.add_column(heading, justify="right")
    for result in gates:
        value = "—" if result.value is None else f"{result.value:.4f}"
        verdict = Text("met", style="green") if result.is_met else Text("not met", style="red")
        table.add_row(escape_control_characters(result.gate.label), f"{result.gate.minimum:g}", value, verdict)
    return table
