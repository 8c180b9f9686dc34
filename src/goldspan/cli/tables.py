"""Runs and evaluations as tables for a terminal: what was expected beside what was called, aligned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from goldspan.cli.console import clean
from goldspan.extraction.hints import Hint, advise, gathered
from goldspan.model import COUNTED_KINDS, Evaluation, Row, Run, Score, ToolCall, Verdict
from goldspan.scoring.matching import NO_GOLDEN

_INPUT = 70
"""Characters shown of a request's text."""
_ERROR = 100
"""Characters shown of an error."""
_RUN = 40
"""Columns, at most, for what a run is."""
_NARROWEST, _WIDEST = 18, 40
"""Columns for the names of expected tools."""


class Mark(NamedTuple):
    """A sign and its colour; the plain sign is for terminals that cannot show the other."""

    sign: str
    plain: str
    style: str


_PASSED, _FAILED, _UNJUDGED = Mark("✓", "+", "green"), Mark("✗", "x", "red"), Mark("○", "o", "yellow")
_DIFFERS, _MISPLACED = Mark("≠", "#", "yellow"), Mark("↕", "~", "yellow")
_VERDICTS: dict[Verdict, Mark] = {
    "paired": Mark("=", "=", "green"),
    "missing": Mark("✗", "x", "red"),
    "unexpected": Mark("+", "+", "yellow"),
    "superseded": Mark("↻", "r", "dim"),
    "tolerated": Mark("·", ".", "dim"),
    "forbidden": Mark("!", "!", "bold red"),
}
_MEANINGS: dict[Mark, str] = {
    _VERDICTS["paired"]: "expected and called",
    _DIFFERS: "other arguments",
    _MISPLACED: "out of order",
    _VERDICTS["missing"]: "missing",
    _VERDICTS["unexpected"]: "not expected",
    _VERDICTS["superseded"]: "failed, does not count",
    _VERDICTS["tolerated"]: "does not count",
    _VERDICTS["forbidden"]: "forbidden",
}
_NOTES: dict[str, str] = {
    "requested": "only a model's message shows the call",
    "denied": "asked for and not carried out, does not count",
    "deferred": "asked for and not carried out, does not count",
    "hosted": "carried out by the model's provider",
    **dict.fromkeys(("agent", "handoff", "retrieval", "answer"), "counts only where a golden names it"),
}
"""What the words behind a tool's name mean."""
_NOTHING = Mark("—", "-", "dim")


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

    Verbose, also every score, the arguments that differ with their values, and how the golden was found.
    """
    grid = Table.grid()
    grid.add_column(no_wrap=True, width=width, overflow="ellipsis")
    grid.add_column()
    grid.add_column(no_wrap=True, overflow="ellipsis")
    for row in evaluation.comparison.rows:
        nothing = _sign(_NOTHING, console)
        expected, called = _expected(row) or nothing, _called(row) or nothing
        grid.add_row(expected, Text.assemble(" ", _sign(_mark(row), console), " "), called)
    title = Text.assemble(_verdict(evaluation, console), " ", (clean(_name(evaluation)), "bold"), "  ")
    lines: list[RenderableType] = [title.append_text(_asked(evaluation.run)), _indented(grid)]
    lines.append(_indented(Text(clean(evaluation.reason), style="italic")))
    return Group(*lines, *(_details(evaluation) if verbose else ()), Text())


def _details(evaluation: Evaluation) -> Iterable[RenderableType]:
    match = evaluation.match
    found = f"golden {match.golden.id} by {match.how}" if match else "no golden"
    yield _quiet(f"    {evaluation.run.run_id}   {clean(found)}")
    for pair in evaluation.comparison.pairs:
        for difference in pair.agreement.differences if pair.agreement else ():
            told = f"    {pair.expected.name if pair.expected else ''}.{difference.key}: "
            yield Text(clean(f"{told}expected {difference.expected!r}, called with {difference.called!r}"))
    for score in evaluation.scores:
        yield Text(f"    {score.metric:22}").append_text(_score(score))
    if hints := advise(evaluation.run):
        yield _indented(_amiss(hints))


def legend(evaluations: Iterable[Evaluation], console: Console) -> Text:
    """What the signs mean that stand between expected and called."""
    used = {_mark(row) for evaluation in evaluations for row in evaluation.comparison.rows}
    told = (_sign(mark, console).append(f" {meaning}") for mark, meaning in _MEANINGS.items() if mark in used)
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
    for scores in zip(*(evaluation.scores for evaluation in evaluations), strict=True):
        values = [score.value for score in scores if score.value is not None]
        verdicts = [score.passed for score in scores if score.passed is not None]
        mean = f"{sum(values) / len(values):.4f}" if values else "—"
        passed = f"{sum(verdicts)} of {len(verdicts)}" if verdicts else "—"
        table.add_row(scores[0].metric, mean, str(len(values)), passed)
    return table


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


def _sign(mark: Mark, console: Console) -> Text:
    unicode = (console.encoding or "ascii").lower().startswith("utf")
    return Text(mark.sign if unicode else mark.plain, style=mark.style)


def _verdict(evaluation: Evaluation, console: Console) -> Text:
    return _sign({True: _PASSED, False: _FAILED, None: _UNJUDGED}[evaluation.passed], console)


def _name(evaluation: Evaluation) -> str:
    run = evaluation.run
    return evaluation.match.golden.id if evaluation.match else run.golden_id or run.component or run.agent or "run"


def _asked(run: Run) -> Text:
    words = clean(" ".join((run.input or "").split()))
    return _quiet(words if len(words) <= _INPUT else f"{words[: _INPUT - 1]}…")


def _mark(row: Row) -> Mark:
    if row.agreement is not None and row.agreement.differences:
        return _DIFFERS
    return _MISPLACED if row.verdict == "paired" and row.in_order is False else _VERDICTS[row.verdict]


def _expected(row: Row) -> Text | None:
    return Text(clean(row.expected.name)) if row.expected else None


def _called(row: Row) -> Text | None:
    if row.called is None:
        return None
    said = Text(clean(row.called.name), style=_VERDICTS[row.verdict].style if row.verdict != "paired" else "")
    keys = [difference.key for difference in row.agreement.differences] if row.agreement else []
    notes = [", ".join(keys)] if keys else []
    notes += ["failed"] if row.called.error is not None else []
    notes += [row.note] if row.verdict == "tolerated" and row.note and row.note != NO_GOLDEN else []
    return said.append(f" ({clean('; '.join(notes))})", style="dim") if notes else said


def _call(call: ToolCall) -> Text:
    line = Text(clean(call.name))
    notes = _notes(call)
    notes += [f"server {call.server}"] if call.server else []
    notes += ["arguments unreadable"] if call.raw_arguments is not None and call.kind in COUNTED_KINDS else []
    notes += [f"failed: {_brief(call.error)}"] if call.error is not None else []
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
