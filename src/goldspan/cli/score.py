"""`goldspan score`: evaluates every run in traces, or every row of a case file, against its golden."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import typer
from rich.text import Text

from goldspan.cli import judge_options, scoring_options
from goldspan.cli.console import ResultsConsole, print_warning, stdout_console
from goldspan.cli.input_options import GoldenIdAttribute, JsonFlag, OptionalPaths, UnitOption, print_row_errors
from goldspan.cli.scoring_options import Gates, mean_score, not_evaluated_runs, parse_thresholds, validate_gates
from goldspan.cli.tables import capture_notice, evaluation_blocks, score_summary, summary_table, verdict_summary
from goldspan.errors import ConfigurationError
from goldspan.goldens import Goldens, load_goldens
from goldspan.model import Evaluation
from goldspan.model.rendering import Table, TextSpan, render_markdown
from goldspan.sinks.serialization import evaluation_document, to_json

GATE_FAILED = 1
INVALID_ROWS = 2

ScoreFormat = Literal["text", "json", "markdown"]

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
    paths: OptionalPaths = None,
    cases: scoring_options.CasesOption = None,
    goldens: Annotated[
        list[str] | None,
        typer.Option(
            "--goldens", "-g", metavar="FILE", help="Golden file in YAML, JSON or JSON lines. May be repeated."
        ),
    ] = None,
    metric: scoring_options.MetricOption = None,
    profile: scoring_options.ProfileOption = None,
    profile_option: scoring_options.ProfileSetting = None,
    threshold: scoring_options.ThresholdOption = None,
    strict: scoring_options.StrictFlag = False,
    mode: scoring_options.ModeOption = None,
    order: scoring_options.OrderOption = None,
    attempts: scoring_options.AttemptsOption = None,
    extra: scoring_options.ExtraOption = None,
    duplicates: scoring_options.DuplicatesOption = None,
    depth: scoring_options.DepthOption = None,
    forbid: scoring_options.ForbidOption = None,
    max_calls: scoring_options.MaxCallsOption = None,
    unknown: scoring_options.UnknownOption = None,
    judge: judge_options.JudgeFlag = False,
    judge_model: judge_options.JudgeModelOption = None,
    judge_url: judge_options.JudgeUrlOption = None,
    judge_tools: judge_options.JudgeToolsOption = None,
    judge_show: judge_options.JudgeShowOption = None,
    judge_votes: judge_options.JudgeVotesOption = None,
    judge_threshold: judge_options.JudgeThresholdOption = None,
    judge_combination: judge_options.JudgeCombinationOption = None,
    judge_daily_tokens: judge_options.JudgeDailyTokensOption = None,
    judge_cache: judge_options.JudgeCacheOption = None,
    fail_under: scoring_options.FailUnderOption = None,
    fail_on_unknown: scoring_options.FailOnUnknownFlag = None,
    unit: UnitOption = "request",
    golden_id_attribute: GoldenIdAttribute = None,
    concurrency: scoring_options.ConcurrencyOption = 1,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=0, help="Runs to show, failed ones first; 0 shows all.")
    ] = 20,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Also show every score with its derivation, and the values that differ."),
    ] = False,
    format: Annotated[  # noqa: A002 - the name of the option
        ScoreFormat, typer.Option("--format", metavar="FORM", help="Output format: text, json or markdown.")
    ] = "text",
    as_json: JsonFlag = False,
) -> None:
    """Compare the tool calls of each run with its golden, and print expected and called tools, scores and reasons.

    Exit status: 0 fine, 1 a gate failed, 2 an option is wrong or the input cannot be read.
    """
    if bool(paths) == bool(cases):
        raise ConfigurationError("name what to score: files with traces, or --cases FILE")
    loaded_goldens = load_goldens(*goldens) if goldens else None
    gates = parse_thresholds(fail_under, "--fail-under")
    options = scoring_options.scoring_options_from(
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
    metrics_by_option = {"--fail-under": gates, "--metric": metric, "--threshold": options.thresholds}
    options, selection_threshold = options.pop_threshold(judge_options.TOOL_SELECTION)
    judging = judge_options.judge_options_from(
        judge,
        judge_tools,
        selection_threshold,
        model=judge_model,
        url=judge_url,
        show=judge_show,
        votes=judge_votes,
        threshold=judge_threshold,
        combination=judge_combination,
        daily_tokens=judge_daily_tokens,
        cache=judge_cache,
    )
    if judging is None:
        judge_options.require_judge_flag(metrics_by_option)
    metric_names = options.metric_names(loaded_goldens)
    validate_gates(gates, metric_names if judging is None else (*metric_names, judge_options.TOOL_SELECTION))
    judge_stage = None if judging is None else judging.start(options.judge_lowers_metric, metric_names)
    form: ScoreFormat = "json" if as_json else format
    results, row_errors = scoring_options.evaluate_inputs(
        paths,
        cases,
        options.evaluator(loaded_goldens, verbose=verbose),
        goldens=loaded_goldens,
        unit=unit,
        golden_id_attributes=golden_id_attribute,
        concurrency=concurrency,
        transform=iter if judge_stage is None else judge_stage.judge_all,
        is_streamed=form == "json",
    )
    evaluations = _print_evaluations(results, form, limit=limit, verbose=verbose)
    print_row_errors(row_errors)
    _warn_unmatched(evaluations, loaded_goldens)
    if judge_stage is not None:
        judge_stage.print_summary(evaluations)
    evaluated = sum(evaluation.passed is not None for evaluation in evaluations)
    are_met = Gates(gates, fail_on_unknown).are_met(
        lambda name: mean_score(name, evaluations), evaluated, not_evaluated_runs(evaluations)
    )
    if row_errors or not are_met:
        raise typer.Exit(INVALID_ROWS if row_errors else GATE_FAILED)


def _print_evaluations(
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
            [(TextSpan(verdict_summary(evaluations).plain),), Table(("metric", "mean", "runs", "passed"), rows)]
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


def _warn_unmatched(evaluations: Sequence[Evaluation], goldens: Goldens | None) -> None:
    """Warn about goldens that no run matches, and about runs whose capture is incomplete."""
    if goldens is not None and evaluations and not any(evaluation.match for evaluation in evaluations):
        print_warning(no_match_warning(goldens))
    if notice := capture_notice([evaluation.run for evaluation in evaluations]):
        print_warning(f"{notice}: `goldspan extract` says what to do about it")


def no_match_warning(goldens: Goldens) -> str:
    """Return the warning for goldens of which none matches any run."""
    return f"none of the {len(goldens)} goldens matches any of these runs, by id or by input"
