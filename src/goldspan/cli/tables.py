"""Prints evaluations, and formats runs and evaluations for a terminal with their tools aligned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from goldspan.cli.console import ResultsConsole, escape_control_characters, stdout_console
from goldspan.extraction.capture_diagnostics import Hint, capture_hints, merge_hints
from goldspan.goldens.lookup.golden_lookup import ANONYMOUS_GOLDEN_ID
from goldspan.model import COUNTED_TOOL_KINDS, Evaluation, Judgement, Match, Run, Score, ToolCall
from goldspan.model.rendering import (
    AGREES,
    DIFFERS,
    MISPLACED,
    OUTCOME_SYMBOLS,
    SYMBOLS,
    RenderedRow,
    Symbol,
    TextSpan,
    TextStyle,
    render_markdown,
    render_row,
    shorten_request,
)
from goldspan.model.rendering import Table as MarkdownTable

_MAX_ERROR_LENGTH = 100
"""Characters of an error that are shown."""
_METRIC_WIDTH = 22
"""Columns for the name of a metric."""
_MAX_RUN_WIDTH = 40
"""Maximum columns for the description of a run."""
_NARROWEST, _WIDEST = 18, 40
"""Columns for the names of expected tools."""


_STYLES: dict[TextStyle, str] = {"good": "green", "odd": "yellow", "bad": "red", "alarm": "bold red", "quiet": "dim"}
_NOTE_MEANINGS: dict[str, str] = {
    "requested": "only a model's message shows the call",
    "denied": "asked for and not carried out, does not count",
    "deferred": "asked for and not carried out, does not count",
    "hosted": "carried out by the model's provider",
    **dict.fromkeys(("agent", "handoff", "retrieval", "answer"), "counts only where a golden names it"),
}
"""The meaning of the notes after a tool's name."""
_NO_MARK = Symbol("—", "-", "quiet", "")


ScoreFormat = Literal["text", "json", "markdown"]


def print_evaluations(
    results: Iterable[Evaluation], form: ScoreFormat, *, limit: int, verbose: bool
) -> list[Evaluation]:
    """Print the evaluations and return them. JSON is printed as each arrives, the other formats at the end."""
    console = stdout_console()
    if form != "json":
        evaluations = list(results)
        if evaluations:
            show = _print_text if form == "text" else _print_markdown
            show(evaluations, console, limit=limit, verbose=verbose)
        return evaluations
    from goldspan.sinks.serialization import evaluation_document, to_json  # deferred: imports OpenTelemetry

    evaluations = []
    for evaluation in results:
        evaluations.append(evaluation)
        console.write_line(to_json(evaluation_document(evaluation)))
    return evaluations


def _print_text(evaluations: Sequence[Evaluation], console: ResultsConsole, *, limit: int, verbose: bool) -> None:
    shown = _most_urgent(evaluations, limit)
    console.print(evaluation_blocks(shown, console, verbose=verbose))
    if omitted := _omitted_note(shown, evaluations):
        console.print(Text(f"{omitted}; --limit 0 shows all", style="dim"))
    console.print()
    console.print(summary_table(evaluations))
    console.print()
    console.print(verdict_summary(evaluations))


def _print_markdown(evaluations: Sequence[Evaluation], console: ResultsConsole, *, limit: int, verbose: bool) -> None:
    shown = _most_urgent(evaluations, limit)
    rows = tuple(tuple((TextSpan(cell),) for cell in row) for row in score_summary(evaluations))
    blocks = [
        render_markdown(
            [(TextSpan(verdict_summary(evaluations).plain),), MarkdownTable(("metric", "mean", "runs", "passed"), rows)]
        ),
        *(evaluation.to_markdown(values=verbose) for evaluation in shown),
    ]
    if omitted := _omitted_note(shown, evaluations):
        blocks.append(omitted)
    console.write_line("\n\n".join(blocks))


def _omitted_note(shown: Sequence[Evaluation], evaluations: Sequence[Evaluation]) -> str:
    """Return how many runs are not shown; empty where all are."""
    number = len(evaluations) - len(shown)
    return f"{number} more run{'s' * (number != 1)}" if number else ""


def _most_urgent(evaluations: Sequence[Evaluation], limit: int) -> Sequence[Evaluation]:
    """Return the first `limit` evaluations, failed ones first; all of them for 0."""
    ordered = sorted(evaluations, key=lambda evaluation: _URGENCY[evaluation.passed])
    return ordered[:limit] if limit else ordered


_URGENCY = {False: 0, None: 1, True: 2}


def evaluation_blocks(evaluations: Sequence[Evaluation], console: Console, *, verbose: bool = False) -> RenderableType:
    """Format evaluations one below the other, with expected and called tools in common columns."""
    names = (row.expected.name for evaluation in evaluations for row in evaluation.comparison.rows if row.expected)
    width = min(max([_NARROWEST, *map(len, names)]), _WIDEST)
    heading = Text(f"    {'expected':{width}}   called\n", style="bold")
    blocks = [evaluation_block(evaluation, console, width=width, verbose=verbose) for evaluation in evaluations]
    return Group(heading, *blocks, legend(evaluations, console))


def evaluation_block(
    evaluation: Evaluation, console: Console, *, width: int = _NARROWEST, verbose: bool = False
) -> RenderableType:
    """Format one evaluation: verdict, request, expected and called tools side by side, and the reason.

    `verbose` adds every score with its derivation, the values that differ, and how the golden was found.
    """
    shown = [render_row(row, values=verbose) for row in evaluation.comparison.rows]
    grid = Table.grid()
    grid.add_column(no_wrap=True, width=width, overflow="ellipsis")
    grid.add_column()
    grid.add_column(no_wrap=True, overflow="ellipsis")
    for line in shown:
        expected = (
            Text(escape_control_characters(line.expected))
            if line.expected is not None
            else mark_symbol(_NO_MARK, console)
        )
        grid.add_row(expected, Text.assemble(" ", mark_symbol(line.mark, console), " "), _called_text(line, console))
    title = Text.assemble(
        _verdict_text(evaluation, console),
        " ",
        (escape_control_characters(_run_title(evaluation)), "bold"),
        _side_columns(evaluation),
        "  ",
    )
    lines: list[RenderableType] = [title.append_text(_request_text(evaluation.run)), _indented(grid)]
    lines.append(_indented(Text(escape_control_characters(evaluation.reason), style="italic")))
    lines += [_indented(Text(escape_control_characters(told), style="italic")) for told in _judgement_lines(evaluation)]
    return Group(*lines, *(_detail_blocks(evaluation, shown) if verbose else ()), Text())


def _judgement_lines(evaluation: Evaluation) -> Iterator[str]:
    """Yield the reasons of judge scores below 1 that the reason of the evaluation does not contain."""
    for score in evaluation.scores:
        faulty = score.judgement is not None and score.value is not None and score.value < 1
        if faulty and score.reason and score.reason not in evaluation.reason:
            yield score.reason


def _detail_blocks(evaluation: Evaluation, shown: Iterable[RenderedRow]) -> Iterable[RenderableType]:
    run_id, match = evaluation.run.run_id, _match_text(evaluation.match)
    yield _dim_text(f"    {escape_control_characters(run_id)}   {escape_control_characters(match)}")
    for line in shown:
        yield from (
            Text(escape_control_characters(f"    {line.expected}.{difference}")) for difference in line.differences
        )
    for score in evaluation.scores:
        yield Text(f"    {escape_control_characters(score.metric):{_METRIC_WIDTH}}").append_text(_score_text(score))
        told = (*score.steps, *(_judgement_fields(score.judgement) if score.judgement is not None else ()))
        yield from (_dim_text(escape_control_characters(f"    {'':{_METRIC_WIDTH}}{step}")) for step in told)
    if hints := capture_hints(evaluation.run):
        yield _indented(_hints_text(hints))


def _judgement_fields(judgement: Judgement) -> Iterator[str]:
    """Yield the words of the judge, its settings and its cost."""
    if judgement.words:
        yield f"{judgement.model}: {judgement.words}"
    numbers = {"temperature": judgement.temperature, "seed": judgement.seed, "rubric": judgement.rubric}
    asked = [f"{name} {number:g}" for name, number in numbers.items() if number is not None]
    if len(judgement.votes) > 1:
        asked.append(f"votes {', '.join(f'{vote:g}' for vote in judgement.votes)}")
    if judgement.cached:
        asked.append("known from before" if judgement.cached == len(judgement.votes) else f"{judgement.cached} known")
    if judgement.input_tokens is not None and judgement.output_tokens is not None:
        asked.append(f"{judgement.input_tokens:,} tokens in, {judgement.output_tokens:,} out")
    if judgement.cost is not None:
        asked.append(f"${judgement.cost:.4f}")
    yield f"asked with {', '.join(asked)}"


def _run_title(evaluation: Evaluation) -> str:
    """Return the golden, or the name of the run where the run itself states its expected tools."""
    run, match = evaluation.run, evaluation.match
    if match is not None and match.how == "given" and match.golden.id == ANONYMOUS_GOLDEN_ID:
        return run.component or run.agent or run.service or evaluation.name
    return evaluation.name


def _side_columns(evaluation: Evaluation) -> tuple[str, str]:
    """Return, in brackets, the component if the golden names none, and the similarity of a match by near text."""
    run, match = evaluation.run, evaluation.match
    known = _run_title(evaluation) == run.component or (match is not None and match.golden.component is not None)
    told = [f"component {run.component}"] if run.component and not known else []
    told += [f"near text, {match.similarity:.2f}"] if match is not None and match.how == "near" else []
    return escape_control_characters(f" ({'; '.join(told)})" if told else ""), "dim"


def _match_text(match: Match | None) -> str:
    """Return the golden of the run and how it was found."""
    if match is None:
        return "no golden"
    if match.how == "given":
        return "judged by its own expected tools"
    name = match.golden.id
    if match.how == "near":
        return f"golden {name} by near text, {match.similarity:.2f}"
    if match.how == "when":
        return f"golden {name} by {'rule' if match.golden.when is not None else 'component'}"
    return f"policy {name}" if match.how == "policy" else f"golden {name} by {match.how}"


def legend(evaluations: Iterable[Evaluation], console: Console) -> Text:
    """Return the meanings of the signs between expected and called tools."""
    used = {render_row(row).mark for evaluation in evaluations for row in evaluation.comparison.rows}
    told = (mark_symbol(mark, console).append(f" {mark.meaning}") for mark in SYMBOLS if mark in used)
    return Text("   ").join(told)


def verdict_summary(evaluations: Sequence[Evaluation], *, noun: str = "runs") -> Text:
    """Return how many runs passed, failed and were not evaluated."""
    verdicts = [evaluation.passed for evaluation in evaluations]
    passed, failed, unjudged = verdicts.count(True), verdicts.count(False), verdicts.count(None)
    said = Text(f"{noun}: {len(verdicts)}, of which ").append(f"{passed} passed", style="green").append(", ")
    said.append(f"{failed} failed", style="red" if failed else "")
    return said.append(f", {unjudged} not evaluated", style="yellow") if unjudged else said


def summary_table(evaluations: Sequence[Evaluation]) -> Table:
    """Return a table with the mean of each metric, its number of runs, and how many passed."""
    table = _new_table()
    table.add_column("metric")
    for heading in ("mean", "runs", "passed"):
        table.add_column(heading, justify="right")
    for row in score_summary(evaluations):
        table.add_row(*map(escape_control_characters, row))
    return table


def score_summary(evaluations: Iterable[Evaluation]) -> Iterator[tuple[str, str, str, str]]:
    """Yield the rows of the summary table. Runs may have different metrics."""
    scores_of: dict[str, list[Score]] = {}
    for evaluation in evaluations:
        for score in evaluation.scores:
            scores_of.setdefault(score.metric, []).append(score)
    for metric, scores in scores_of.items():
        values = [score.value for score in scores if score.value is not None]
        verdicts = [score.passed for score in scores if score.passed is not None]
        mean = f"{sum(values) / len(values):.4f}" if values else "—"
        yield metric, mean, str(len(values)), f"{sum(verdicts)} of {len(verdicts)}" if verdicts else "—"


def runs_table(runs: Iterable[Run]) -> Table:
    """Return a table of runs: name, request, called tools, and problems in the capture."""
    table = _new_table(leading=1)
    table.add_column("run", max_width=_MAX_RUN_WIDTH)
    table.add_column("tools used")
    for run in runs:
        who = Text.assemble(
            escape_control_characters(run.component or run.agent or run.service or "run"), "\n", _request_text(run)
        )
        lines = [_call_text(call) for call in run.tool_calls] or [_dim_text("no tool")]
        if hints := capture_hints(run):
            lines.append(_hints_text(hints))
        table.add_row(who, Text("\n").join(lines))
    return table


def notes_legend(runs: Iterable[Run]) -> RenderableType:
    """Return the meanings of the notes after tool names; empty without notes."""
    used = {note for run in runs for call in run.tool_calls for note in _call_notes(call)}
    notes_of: dict[str, list[str]] = {}
    for note, meaning in _NOTE_MEANINGS.items():
        if note in used:
            notes_of.setdefault(meaning, []).append(note)
    told = [_dim_text(f"{', '.join(notes)}: {meaning}") for meaning, notes in notes_of.items()]
    return Group(Text(), *told) if told else Group()


def capture_block(runs: Sequence[Run]) -> RenderableType:
    """Return the problems in the capture of runs, each kind once, with its remedy; empty without problems."""
    found = merge_hints(hint for run in runs for hint in capture_hints(run))
    lines: list[RenderableType] = [Text("\ncapture", style="bold")] if found else []
    for hint, count in found:
        title = Text(escape_control_characters(hint.summary), style="yellow").append(
            _share_text(count, len(runs)), style="dim"
        )
        lines += [_indented(title, 2), _indented(Text(hint.advice))]
    return Group(*lines)


def capture_notice(runs: Sequence[Run]) -> str:
    """Return the problems in the capture of runs as one sentence; empty without problems."""
    found = merge_hints(hint for run in runs for hint in capture_hints(run))
    return "; ".join(f"{hint.summary}{_share_text(count, len(runs))}" for hint, count in found)


def _new_table(*, leading: int = 0) -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", leading=leading)


def mark_symbol(mark: Symbol, console: Console) -> Text:
    """Return a mark in its colour, in ASCII where the terminal cannot show Unicode."""
    unicode = (console.encoding or "ascii").lower().startswith("utf")
    return Text(mark.sign if unicode else mark.plain, style=_STYLES.get(mark.tone, ""))


def _verdict_text(evaluation: Evaluation, console: Console) -> Text:
    return mark_symbol(OUTCOME_SYMBOLS[evaluation.passed], console)


def _request_text(run: Run) -> Text:
    return _dim_text(escape_control_characters(shorten_request(run.input)))


def _called_text(line: RenderedRow, console: Console) -> Text:
    """Return the called tool and, in brackets, its differences and notes."""
    said = mark_symbol(_NO_MARK, console)
    if line.called is not None:
        said = Text(
            escape_control_characters(line.called),
            style="" if line.mark in (AGREES, DIFFERS, MISPLACED) else _STYLES.get(line.mark.tone, ""),
        )
    notes = [", ".join(line.differing)] if line.differing else []
    told = escape_control_characters("; ".join(notes + list(line.notes)))
    return said.append(f" ({told})", style="dim") if told else said


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


def _score_text(score: Score) -> Text:
    if score.error is not None:
        return Text(f"error: {escape_control_characters(score.error)}", style="red")
    if score.value is None:
        return Text(f"—  {escape_control_characters(score.reason or '')}", style="dim")
    said = Text(f"{score.value:.4f}", style={True: "green", False: "red", None: ""}[score.passed])
    return said if score.threshold is None else said.append(f"  (at least {score.threshold:g})", style="dim")


def _hints_text(hints: Iterable[Hint]) -> Text:
    return Text(escape_control_characters(f"capture: {'; '.join(hint.summary for hint in hints)}"), style="yellow")


def _share_text(count: int, total: int) -> str:
    """Return the number of affected runs; empty for a single run."""
    return "" if total == 1 else f" (all {total} runs)" if count == total else f" ({count} of {total} runs)"


def _indented(content: RenderableType, by: int = 4) -> Padding:
    return Padding(content, (0, 0, 0, by), expand=False)


def _dim_text(text: str) -> Text:
    return Text(text, style="dim")
