"""Runs and evaluations as tables for a terminal: what was expected beside what was called, aligned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from goldspan.cli.console import clean
from goldspan.extraction.hints import Hint, advise, gathered
from goldspan.goldens.statements import ANONYMOUS
from goldspan.model import COUNTED_KINDS, Evaluation, Judgement, Match, Run, Score, ToolCall
from goldspan.model.markup import Kind
from goldspan.model.rendering import AGREES, DIFFERS, MARKS, MISPLACED, VERDICTS, Line, Mark, asked, line_of

_ERROR = 100
"""Characters shown of an error."""
_METRIC = 22
"""Columns for the name of a metric."""
_RUN = 40
"""Columns, at most, for what a run is."""
_NARROWEST, _WIDEST = 18, 40
"""Columns for the names of expected tools."""


_STYLES: dict[Kind, str] = {"good": "green", "odd": "yellow", "bad": "red", "alarm": "bold red", "quiet": "dim"}
_NOTES: dict[str, str] = {
    "requested": "only a model's message shows the call",
    "denied": "asked for and not carried out, does not count",
    "deferred": "asked for and not carried out, does not count",
    "hosted": "carried out by the model's provider",
    **dict.fromkeys(("agent", "handoff", "retrieval", "answer"), "counts only where a golden names it"),
}
"""What the words behind a tool's name mean."""
_NOTHING = Mark("—", "-", "quiet", "")


def evaluation_blocks(evaluations: Sequence[Evaluation], console: Console, *, verbose: bool = False) -> RenderableType:
    """Runs one below the other, expected and called side by side, in columns that are the same for all of them."""
    names = (row.expected.name for evaluation in evaluations for row in evaluation.comparison.rows if row.expected)
    width = min(max([_NARROWEST, *map(len, names)]), _WIDEST)
    heading = Text(f"    {'expected':{width}}   called\n", style="bold")
    blocks = [evaluation_block(evaluation, console, width=width, verbose=verbose) for evaluation in evaluations]
    return Group(heading, *blocks, legend(evaluations, console))


def evaluation_block(
    evaluation: Evaluation, console: Console, *, width: int = _NARROWEST, verbose: bool = False
) -> RenderableType:
    """One run: its verdict, the question, expected and called side by side, and the reason.

    Verbose, also every score with the steps to it, the values that differ, and how the golden was found.
    """
    shown = [line_of(row, values=verbose) for row in evaluation.comparison.rows]
    grid = Table.grid()
    grid.add_column(no_wrap=True, width=width, overflow="ellipsis")
    grid.add_column()
    grid.add_column(no_wrap=True, overflow="ellipsis")
    for line in shown:
        expected = Text(clean(line.expected)) if line.expected is not None else sign(_NOTHING, console)
        grid.add_row(expected, Text.assemble(" ", sign(line.mark, console), " "), _called(line, console))
    title = Text.assemble(
        _verdict(evaluation, console), " ", (clean(_name(evaluation)), "bold"), _beside(evaluation), "  "
    )
    lines: list[RenderableType] = [title.append_text(_asked(evaluation.run)), _indented(grid)]
    lines.append(_indented(Text(clean(evaluation.reason), style="italic")))
    lines += [_indented(Text(clean(told), style="italic")) for told in _opinions(evaluation)]
    return Group(*lines, *(_details(evaluation, shown) if verbose else ()), Text())


def _opinions(evaluation: Evaluation) -> Iterator[str]:
    """What models find fault with, where the reason does not say it already."""
    for score in evaluation.scores:
        faulty = score.judgement is not None and score.value is not None and score.value < 1
        if faulty and score.reason and score.reason not in evaluation.reason:
            yield score.reason


def _details(evaluation: Evaluation, shown: Iterable[Line]) -> Iterable[RenderableType]:
    yield _quiet(f"    {clean(evaluation.run.run_id)}   {clean(_found(evaluation.match))}")
    for line in shown:
        yield from (Text(clean(f"    {line.expected}.{difference}")) for difference in line.differences)
    for score in evaluation.scores:
        yield Text(f"    {clean(score.metric):{_METRIC}}").append_text(_score(score))
        told = (*score.steps, *(_judgement(score.judgement) if score.judgement is not None else ()))
        yield from (_quiet(clean(f"    {'':{_METRIC}}{step}")) for step in told)
    if hints := advise(evaluation.run):
        yield _indented(_amiss(hints))


def _judgement(judgement: Judgement) -> Iterator[str]:
    """What a model said in its own words, and how it was asked."""
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


def _name(evaluation: Evaluation) -> str:
    """The golden or, where a run brought expectations of its own, what the run is."""
    run, match = evaluation.run, evaluation.match
    if match is not None and match.how == "given" and match.golden.id == ANONYMOUS:
        return run.component or run.agent or run.service or evaluation.name
    return evaluation.name


def _beside(evaluation: Evaluation) -> tuple[str, str]:
    """In brackets what the golden does not tell: the component, where it is for any, and that its text is only near."""
    run, match = evaluation.run, evaluation.match
    known = _name(evaluation) == run.component or (match is not None and match.golden.component is not None)
    told = [f"component {run.component}"] if run.component and not known else []
    told += [f"near text, {match.similarity:.2f}"] if match is not None and match.how == "near" else []
    return clean(f" ({'; '.join(told)})" if told else ""), "dim"


def _found(match: Match | None) -> str:
    """Which golden the run is judged by, and how it was found."""
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
    """What the signs mean that stand between expected and called."""
    used = {line_of(row).mark for evaluation in evaluations for row in evaluation.comparison.rows}
    told = (sign(mark, console).append(f" {mark.meaning}") for mark in MARKS if mark in used)
    return Text("   ").join(told)


def conclusion(evaluations: Sequence[Evaluation], *, what: str = "runs") -> Text:
    """How many passed, failed and could not be judged."""
    verdicts = [evaluation.passed for evaluation in evaluations]
    passed, failed, unjudged = verdicts.count(True), verdicts.count(False), verdicts.count(None)
    said = Text(f"{what}: {len(verdicts)}, of which ").append(f"{passed} passed", style="green").append(", ")
    said.append(f"{failed} failed", style="red" if failed else "")
    return said.append(f", {unjudged} not evaluated", style="yellow") if unjudged else said


def summary_table(evaluations: Sequence[Evaluation]) -> Table:
    """For each metric: its mean, over how many runs, and how many passed."""
    table = _table()
    table.add_column("metric")
    for heading in ("mean", "runs", "passed"):
        table.add_column(heading, justify="right")
    for row in summary(evaluations):
        table.add_row(*map(clean, row))
    return table


def summary(evaluations: Iterable[Evaluation]) -> Iterator[tuple[str, str, str, str]]:
    """The rows of that table. Not every run need have been measured by the same metrics."""
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
    """One entry for each run: who, what was asked, the tools it used, and what is amiss with its capture."""
    table = _table(leading=1)
    table.add_column("run", max_width=_RUN)
    table.add_column("tools used")
    for run in runs:
        who = Text.assemble(clean(run.component or run.agent or run.service or "run"), "\n", _asked(run))
        lines = [_call(call) for call in run.tool_calls] or [_quiet("no tool")]
        if hints := advise(run):
            lines.append(_amiss(hints))
        table.add_row(who, Text("\n").join(lines))
    return table


def notes_legend(runs: Iterable[Run]) -> RenderableType:
    """What the words mean that stand behind the names of tools; empty where there are none."""
    used = {note for run in runs for call in run.tool_calls for note in _notes(call)}
    notes_of: dict[str, list[str]] = {}
    for note, meaning in _NOTES.items():
        if note in used:
            notes_of.setdefault(meaning, []).append(note)
    told = [_quiet(f"{', '.join(notes)}: {meaning}") for meaning, notes in notes_of.items()]
    return Group(Text(), *told) if told else Group()


def capture_block(runs: Sequence[Run]) -> RenderableType:
    """What is amiss with the capture of some runs, each kind once, and what to do about it; empty where nothing is."""
    found = gathered(hint for run in runs for hint in advise(run))
    lines: list[RenderableType] = [Text("\ncapture", style="bold")] if found else []
    for hint, count in found:
        title = Text(clean(hint.found), style="yellow").append(_share(count, len(runs)), style="dim")
        lines += [_indented(title, 2), _indented(Text(hint.advice))]
    return Group(*lines)


def capture_notice(runs: Sequence[Run]) -> str:
    """What is amiss with the capture of some runs, in one sentence; empty where nothing is."""
    found = gathered(hint for run in runs for hint in advise(run))
    return "; ".join(f"{hint.found}{_share(count, len(runs))}" for hint, count in found)


def _table(*, leading: int = 0) -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", leading=leading)


def sign(mark: Mark, console: Console) -> Text:
    """A mark in its colour, as the terminal can show it."""
    unicode = (console.encoding or "ascii").lower().startswith("utf")
    return Text(mark.sign if unicode else mark.plain, style=_STYLES.get(mark.tone, ""))


def _verdict(evaluation: Evaluation, console: Console) -> Text:
    return sign(VERDICTS[evaluation.passed], console)


def _asked(run: Run) -> Text:
    return _quiet(clean(asked(run.input)))


def _called(line: Line, console: Console) -> Text:
    """What was called, and in brackets what the sign before it does not tell."""
    said = sign(_NOTHING, console)
    if line.called is not None:
        said = Text(
            clean(line.called),
            style="" if line.mark in (AGREES, DIFFERS, MISPLACED) else _STYLES.get(line.mark.tone, ""),
        )
    notes = [", ".join(line.differing)] if line.differing else []
    told = clean("; ".join(notes + list(line.notes)))
    return said.append(f" ({told})", style="dim") if told else said


def _call(call: ToolCall) -> Text:
    line = Text(clean(call.name))
    notes = _notes(call)
    notes += [f"server {call.server}"] if call.server else []
    notes += ["arguments unreadable"] if call.raw_arguments is not None and call.kind in COUNTED_KINDS else []
    notes += [f"failed: {_brief(call.error)}"] if call.error is not None else []
    notes += ["reads like an error"] if call.error is None and call.error_guess is not None else []
    return line.append(f"  ({clean('; '.join(notes))})", style="dim") if notes else line


def _notes(call: ToolCall) -> list[str]:
    notes: list[str] = [call.kind] if call.kind != "tool" else []
    notes += ["requested"] if call.evidence == "requested" and call.made else []
    notes += [call.outcome] if call.outcome is not None and not call.made else []
    return notes


def _brief(error: str) -> str:
    """The first line of an error, which may come with its traceback."""
    first = error.strip().partition("\n")[0]
    return first if len(first) <= _ERROR else f"{first[: _ERROR - 1]}…"


def _score(score: Score) -> Text:
    if score.error is not None:
        return Text(f"error: {clean(score.error)}", style="red")
    if score.value is None:
        return Text(f"—  {clean(score.reason or '')}", style="dim")
    said = Text(f"{score.value:.4f}", style={True: "green", False: "red", None: ""}[score.passed])
    return said if score.threshold is None else said.append(f"  (at least {score.threshold:g})", style="dim")


def _amiss(hints: Iterable[Hint]) -> Text:
    return Text(clean(f"capture: {'; '.join(hint.found for hint in hints)}"), style="yellow")


def _share(count: int, total: int) -> str:
    """Of how many runs something tells, where there are several."""
    return "" if total == 1 else f" (all {total} runs)" if count == total else f" ({count} of {total} runs)"


def _indented(content: RenderableType, by: int = 4) -> Padding:
    return Padding(content, (0, 0, 0, by), expand=False)


def _quiet(text: str) -> Text:
    return Text(text, style="dim")
