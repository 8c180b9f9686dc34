"""`goldspan score`: judge every run in some traces, or every row of a case file, by its golden."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import typer
from rich.text import Text

from goldspan.cli import asking, judging
from goldspan.cli.console import Results, output, warn
from goldspan.cli.gates import Gates, check_gates, limits, mean, not_evaluated
from goldspan.cli.reading import GoldenIdAttribute, JsonFlag, PathsIfAny, UnitOption, tell_wrong
from goldspan.cli.tables import capture_notice, conclusion, evaluation_blocks, summary, summary_table
from goldspan.errors import ConfigurationError
from goldspan.goldens import Goldens, load_goldens
from goldspan.model import Evaluation
from goldspan.model.markup import Span, Table, markdown
from goldspan.sinks.documents import evaluation_document, to_json

GATE_FAILED = 1
WRONG_ROWS = 2

Format = Literal["text", "json", "markdown"]

EXAMPLES = """
Examples:\n
  goldspan score traces.jsonl --goldens goldens.yaml\n
  goldspan score traces/ -g goldens.yaml --fail-under passed=0.95 --fail-under tool_recall=0.8\n
  goldspan score traces/ -g goldens.yaml --fail-under passed=1 --fail-on-unknown\n
  goldspan score traces/ -g goldens.yaml --unknown ignore\n
  goldspan score traces.pb.gz -g goldens.jsonl --attempts all --json > scores.jsonl\n
  goldspan score --cases cases.jsonl\n
  goldspan score --cases cases.csv --profile deepeval --profile-option should_consider_ordering=true\n
  goldspan score traces.jsonl --judge-model gpt-4.1-mini --judge-cache judge.db\n
  goldspan score --cases cases.csv -g goldens.yaml --format markdown >> $GITHUB_STEP_SUMMARY\n
"""


def score(
    paths: PathsIfAny = None,
    cases: judging.CasesOption = None,
    goldens: Annotated[
        list[str] | None,
        typer.Option(
            "--goldens", "-g", metavar="FILE", help="Golden file (YAML, JSON, JSON lines); may be given again."
        ),
    ] = None,
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
    judge: asking.JudgeFlag = False,
    judge_model: asking.JudgeModelOption = None,
    judge_url: asking.JudgeUrlOption = None,
    judge_tools: asking.JudgeToolsOption = None,
    judge_show: asking.JudgeShowOption = None,
    judge_votes: asking.JudgeVotesOption = None,
    judge_threshold: asking.JudgeThresholdOption = None,
    judge_combination: asking.JudgeCombinationOption = None,
    judge_daily_tokens: asking.JudgeDailyTokensOption = None,
    judge_cache: asking.JudgeCacheOption = None,
    fail_under: judging.FailUnderOption = None,
    fail_on_unknown: judging.FailOnUnknownFlag = None,
    unit: UnitOption = "request",
    golden_id_attribute: GoldenIdAttribute = None,
    concurrency: judging.ConcurrencyOption = 1,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=0, help="Runs shown, failed ones first; 0 shows all.")
    ] = 20,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Every score, how it came about, and the values that differ.")
    ] = False,
    format: Annotated[  # noqa: A002 - the name of the option
        Format, typer.Option("--format", metavar="FORM", help="How results are written: text, json or markdown.")
    ] = "text",
    as_json: JsonFlag = False,
) -> None:
    """Judge each run by its golden: expected and called side by side, scores, and why."""
    if bool(paths) == bool(cases):
        raise ConfigurationError("score what? Name either files with traces or --cases FILE.")
    known = load_goldens(*goldens) if goldens else None
    gates = limits(fail_under, "--fail-under")
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
    said_of_model = {"--fail-under": gates, "--metric": metric, "--threshold": manner.thresholds}
    manner, selection = manner.without_threshold(asking.TOOL_SELECTION)
    asked = asking.asking_of(
        judge,
        judge_tools,
        selection,
        model=judge_model,
        url=judge_url,
        show=judge_show,
        votes=judge_votes,
        threshold=judge_threshold,
        combination=judge_combination,
        daily_tokens=judge_daily_tokens,
        cache=judge_cache,
    )
    if asked is None:
        asking.check_unasked(said_of_model)
    measured = manner.measured(known)
    check_gates(gates, measured if asked is None else (*measured, asking.TOOL_SELECTION))
    model = None if asked is None else asked.begun(manner.lowered, measured)
    form: Format = "json" if as_json else format
    judged, wrong = judging.judged_in(
        paths,
        cases,
        manner.judge(known, verbose=verbose),
        goldens=known,
        unit=unit,
        golden_id_attributes=golden_id_attribute,
        concurrency=concurrency,
        then=iter if model is None else model.ask,
        streamed=form == "json",
    )
    evaluations = _written(judged, form, limit=limit, verbose=verbose)
    tell_wrong(wrong)
    _warn(evaluations, known)
    if model is not None:
        model.tell(evaluations)
    judged_runs = sum(evaluation.passed is not None for evaluation in evaluations)
    met = Gates(gates, fail_on_unknown).met(
        lambda name: mean(name, evaluations), judged_runs, not_evaluated(evaluations)
    )
    if wrong or not met:
        raise typer.Exit(WRONG_ROWS if wrong else GATE_FAILED)


def _written(judged: Iterable[Evaluation], form: Format, *, limit: int, verbose: bool) -> list[Evaluation]:
    """The evaluations, written to standard output: as JSON each as it comes, otherwise all of them at the end."""
    console = output()
    if form != "json":
        evaluations = list(judged)
        if evaluations:
            show = _show if form == "text" else _show_markdown
            show(evaluations, console, limit=limit, verbose=verbose)
        return evaluations
    evaluations = []
    for evaluation in judged:
        evaluations.append(evaluation)
        console.put(to_json(evaluation_document(evaluation)))
    return evaluations


def _show(evaluations: Sequence[Evaluation], console: Results, *, limit: int, verbose: bool) -> None:
    shown = _most_urgent(evaluations, limit)
    console.print(evaluation_blocks(shown, console, verbose=verbose))
    if left := _left(shown, evaluations):
        console.print(Text(f"{left}; --limit 0 shows all", style="dim"))
    console.print()
    console.print(summary_table(evaluations))
    console.print()
    console.print(conclusion(evaluations))


def _show_markdown(evaluations: Sequence[Evaluation], console: Results, *, limit: int, verbose: bool) -> None:
    shown = _most_urgent(evaluations, limit)
    rows = tuple(tuple((Span(cell),) for cell in row) for row in summary(evaluations))
    pieces = [
        markdown([(Span(conclusion(evaluations).plain),), Table(("metric", "mean", "runs", "passed"), rows)]),
        *(evaluation.to_markdown(values=verbose) for evaluation in shown),
    ]
    if left := _left(shown, evaluations):
        pieces.append(left)
    console.put("\n\n".join(pieces))


def _left(shown: Sequence[Evaluation], evaluations: Sequence[Evaluation]) -> str:
    """How many are not shown; empty where all are."""
    number = len(evaluations) - len(shown)
    return f"{number} more run{'s' * (number != 1)}" if number else ""


def _most_urgent(evaluations: Sequence[Evaluation], limit: int) -> Sequence[Evaluation]:
    """So many of them, those that failed before the others."""
    ordered = sorted(evaluations, key=lambda evaluation: _URGENCY[evaluation.passed])
    return ordered[:limit] if limit else ordered


_URGENCY = {False: 0, None: 1, True: 2}


def _warn(evaluations: Sequence[Evaluation], goldens: Goldens | None) -> None:
    """Say what probably is not meant: goldens that nothing was judged by, and runs that show too little."""
    if goldens is not None and evaluations and not any(evaluation.match for evaluation in evaluations):
        warn(f"none of the {len(goldens)} goldens belongs to any of these runs, neither by id nor by input")
    if notice := capture_notice([evaluation.run for evaluation in evaluations]):
        warn(f"{notice}: `goldspan extract` says what to do about it")
