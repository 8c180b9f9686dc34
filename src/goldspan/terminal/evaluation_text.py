"""Formats evaluations as text, expected beside called tools, for terminals and test reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from goldspan.extraction.capture_diagnostics import Hint, capture_hints
from goldspan.goldens.lookup.golden_lookup import ANONYMOUS_GOLDEN_ID
from goldspan.model import Evaluation, Judgement, Match, Run, Score
from goldspan.model.markup import TextStyle, shorten_request
from goldspan.model.rendering import (
    AGREES,
    DIFFERS,
    MISPLACED,
    OUTCOME_SYMBOLS,
    SYMBOLS,
    RenderedRow,
    Symbol,
    render_row,
)
from goldspan.terminal.escapes import escape_control_characters

_METRIC_WIDTH = 22
"""Columns for the name of a metric."""
_NARROWEST, _WIDEST = 18, 40
"""Columns for the names of expected tools."""
_STYLES: dict[TextStyle, str] = {"good": "green", "odd": "yellow", "bad": "red", "alarm": "bold red", "quiet": "dim"}
_NO_MARK = Symbol("—", "-", "quiet", "")


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
    grid = _comparison_grid(shown, console, width)
    title = Text.assemble(
        _verdict_text(evaluation, console),
        " ",
        (escape_control_characters(_run_title(evaluation)), "bold"),
        _side_columns(evaluation),
        "  ",
    )
    lines: list[RenderableType] = [title.append_text(request_text(evaluation.run)), indented(grid)]
    lines.append(indented(Text(escape_control_characters(evaluation.reason), style="italic")))
    lines += [indented(Text(escape_control_characters(told), style="italic")) for told in _judgement_lines(evaluation)]
    return Group(*lines, *(_detail_blocks(evaluation, shown) if verbose else ()), Text())


def failure_block(evaluation: Evaluation, console: Console) -> RenderableType:
    """Format an evaluation that did not pass, for a test: the reason first, then both sides and what differs."""
    shown = [render_row(row, values=True) for row in evaluation.comparison.rows]
    width = min(max([_NARROWEST, *(len(line.expected or "") for line in shown)]), _WIDEST)
    lines: list[RenderableType] = [Text(escape_control_characters(evaluation.reason)), Text()]
    if shown:
        lines.append(Text(f"    {'expected':{width}}   called", style="bold"))
        lines.append(indented(_comparison_grid(shown, console, width)))
        lines += _difference_lines(shown)
        lines += [Text(), legend([evaluation], console)]
    if hints := capture_hints(evaluation.run):
        lines += [Text(), hints_text(hints)]
        lines += [indented(Text(hint.advice)) for hint in hints]
    return Group(*lines)


def _comparison_grid(shown: Iterable[RenderedRow], console: Console, width: int) -> Table:
    """Return the expected and the called tools, side by side; `width`: the columns of the expected tools."""
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
    return grid


def _difference_lines(shown: Iterable[RenderedRow]) -> Iterator[Text]:
    """Yield one line for each value that differs."""
    for line in shown:
        for difference in line.differences:
            yield Text(escape_control_characters(f"    {line.expected}.{difference}"))


def _judgement_lines(evaluation: Evaluation) -> Iterator[str]:
    """Yield the reasons of judge scores below 1 that the reason of the evaluation does not contain."""
    for score in evaluation.scores:
        faulty = score.judgement is not None and score.value is not None and score.value < 1
        if faulty and score.reason and score.reason not in evaluation.reason:
            yield score.reason


def _detail_blocks(evaluation: Evaluation, shown: Iterable[RenderedRow]) -> Iterable[RenderableType]:
    run_id, match = evaluation.run.run_id, _match_text(evaluation.match)
    yield dim_text(f"    {escape_control_characters(run_id)}   {escape_control_characters(match)}")
    yield from _difference_lines(shown)
    for score in evaluation.scores:
        yield Text(f"    {escape_control_characters(score.metric):{_METRIC_WIDTH}}").append_text(_score_text(score))
        told = (*score.steps, *(_judgement_fields(score.judgement) if score.judgement is not None else ()))
        yield from (dim_text(escape_control_characters(f"    {'':{_METRIC_WIDTH}}{step}")) for step in told)
    if hints := capture_hints(evaluation.run):
        yield indented(hints_text(hints))


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
    return verdict_counts(Counter(evaluation.passed for evaluation in evaluations), noun=noun)


def verdict_counts(verdicts: Counter[bool | None], *, noun: str = "runs") -> Text:
    """Return the numbers of runs by verdict as a sentence."""
    passed, failed, unjudged = verdicts[True], verdicts[False], verdicts[None]
    said = Text(f"{noun}: {verdicts.total()}, of which ").append(f"{passed} passed", style="green").append(", ")
    said.append(f"{failed} failed", style="red" if failed else "")
    return said.append(f", {unjudged} not evaluated", style="yellow") if unjudged else said


def mark_symbol(mark: Symbol, console: Console) -> Text:
    """Return a mark in its colour, in ASCII where the terminal cannot show Unicode."""
    unicode = (console.encoding or "ascii").lower().startswith("utf")
    return Text(mark.sign if unicode else mark.plain, style=_STYLES.get(mark.tone, ""))


def _verdict_text(evaluation: Evaluation, console: Console) -> Text:
    return mark_symbol(OUTCOME_SYMBOLS[evaluation.passed], console)


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


def _score_text(score: Score) -> Text:
    if score.error is not None:
        return Text(f"error: {escape_control_characters(score.error)}", style="red")
    if score.value is None:
        return Text(f"—  {escape_control_characters(score.reason or '')}", style="dim")
    said = Text(f"{score.value:.4f}", style={True: "green", False: "red", None: ""}[score.passed])
    return said if score.threshold is None else said.append(f"  (at least {score.threshold:g})", style="dim")


def request_text(run: Run) -> Text:
    """Return the start of the request."""
    return dim_text(escape_control_characters(shorten_request(run.input)))


def hints_text(hints: Iterable[Hint]) -> Text:
    """Return the problems in the capture of a run."""
    return Text(escape_control_characters(f"capture: {'; '.join(hint.summary for hint in hints)}"), style="yellow")


def indented(content: RenderableType, by: int = 4) -> Padding:
    """Return the content with spaces before each line."""
    return Padding(content, (0, 0, 0, by), expand=False)


def dim_text(text: str) -> Text:
    """Return text in a weak colour."""
    return Text(text, style="dim")
