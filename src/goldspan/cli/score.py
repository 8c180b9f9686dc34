"""`goldspan score`: evaluates every run in traces, or every row of a case file, against its golden."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from goldspan.cli import backfill_options, batch_options, options, pull_options, start_range_options
from goldspan.errors import ConfigurationError

if TYPE_CHECKING:
    from goldspan.model import Evaluation

GATE_FAILED = 1
INVALID_ROWS = 2

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
  goldspan score phoenix://localhost:6006 -g goldens.yaml --since 7d\n
  goldspan score "mlflow+http://mlflow.example?experiment=shop" -g goldens.yaml --save-traces last-day\n
  goldspan score traces/ -g goldens.yaml --to phoenix --to mlflow:https://mlflow.example\n
  goldspan score traces/ -g goldens.yaml --to langfuse --dry-run --json\n
  goldspan score lake/ -g goldens.yaml --jobs 8 --memory 2GB --out results\n
  goldspan score lake/ -g goldens.yaml --since 2026-01-31T08:00 --until 2026-01-31T09:00 --out results\n
  goldspan score s3://bucket/spans/2026-01-31/ --jobs 4 --json > scores.jsonl\n
  goldspan score lake/ -g goldens.yaml --engine spark --spark-master spark://host:7077 --out results\n
"""


def score(
    context: typer.Context,
    paths: options.OptionalPaths = None,
    cases: options.CasesOption = None,
    goldens: Annotated[
        list[str] | None,
        typer.Option(
            "--goldens", "-g", metavar="FILE", help="Golden file in YAML, JSON or JSON lines. May be repeated."
        ),
    ] = None,
    metric: options.MetricOption = None,
    profile: options.ProfileOption = None,
    profile_option: options.ProfileSetting = None,
    threshold: options.ThresholdOption = None,
    strict: options.StrictFlag = False,
    mode: options.ModeOption = None,
    order: options.OrderOption = None,
    attempts: options.AttemptsOption = None,
    extra: options.ExtraOption = None,
    duplicates: options.DuplicatesOption = None,
    depth: options.DepthOption = None,
    forbid: options.ForbidOption = None,
    max_calls: options.MaxCallsOption = None,
    unknown: options.UnknownOption = None,
    judge: options.JudgeFlag = False,
    judge_model: options.JudgeModelOption = None,
    judge_url: options.JudgeUrlOption = None,
    judge_tools: options.JudgeToolsOption = None,
    judge_show: options.JudgeShowOption = None,
    judge_votes: options.JudgeVotesOption = None,
    judge_threshold: options.JudgeThresholdOption = None,
    judge_combination: options.JudgeCombinationOption = None,
    judge_daily_tokens: options.JudgeDailyTokensOption = None,
    judge_cache: options.JudgeCacheOption = None,
    fail_under: options.FailUnderOption = None,
    fail_on_unknown: options.FailOnUnknownFlag = None,
    unit: options.UnitOption = "request",
    golden_id_attribute: options.GoldenIdAttribute = None,
    concurrency: options.ConcurrencyOption = 1,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=0, help="Runs to show, failed ones first; 0 shows all.")
    ] = 20,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Also show every score with its derivation, and the values that differ."),
    ] = False,
    format: Annotated[  # noqa: A002 - the name of the option
        Literal["text", "json", "markdown"],
        typer.Option("--format", metavar="FORM", help="Output format: text, json or markdown."),
    ] = "text",
    as_json: options.JsonFlag = False,
    since: start_range_options.SinceRangeOption = None,
    until: start_range_options.UntilRangeOption = None,
    max_traces: pull_options.MaxTracesOption = None,
    save_traces: pull_options.SaveTracesOption = None,
    to: backfill_options.ToOption = None,
    dry_run: backfill_options.DryRunFlag = False,
    state: backfill_options.StateOption = None,
    rate: backfill_options.RateOption = None,
    give_up_after: backfill_options.GiveUpAfterOption = None,
    jobs: batch_options.JobsOption = 1,
    memory: batch_options.MemoryOption = batch_options.DEFAULT_MEMORY,
    out: batch_options.OutOption = None,
    out_format: batch_options.OutFormatOption = "jsonl",
    part_runs: batch_options.PartRunsOption = 10_000,
    engine: batch_options.EngineOption = "local",
    spark_master: batch_options.SparkMasterOption = None,
    spark_conf: batch_options.SparkConfOption = None,
) -> None:
    """Compare the tool calls of each run with its golden, and print expected and called tools, scores and reasons.

    Exit status: 0 fine, 1 a gate failed or a product of --to does not have all scores, 2 an option is wrong or the
    input cannot be read.
    """
    from goldspan.cli import batch_scoring, judge_options, scoring_options, tables
    from goldspan.cli.console import print_warning
    from goldspan.cli.input_reading import print_row_errors

    if bool(paths) == bool(cases):
        raise ConfigurationError(
            "name what to score: files with traces, a tool such as phoenix://localhost:6006, or --cases FILE"
        )
    start_range = start_range_options.parse_start_range(since, until)
    backfill = backfill_options.backfill_from(to, dry_run=dry_run, state=state, rate=rate, give_up_after=give_up_after)
    if backfill is not None and cases:
        raise ConfigurationError("--to needs traces: no product can show the scores of --cases, which have no trace")
    memory_bytes = batch_options.parse_size(memory, "--memory")
    if cases and (jobs > 1 or out is not None):
        raise ConfigurationError("--jobs and --out need traces; --concurrency evaluates rows of --cases concurrently")
    spec = batch_scoring.scoring_spec(
        goldens=goldens,
        metrics=metric,
        profile=profile,
        profile_settings=profile_option,
        thresholds=threshold,
        strict=strict,
        rules={
            "mode": mode,
            "order": order,
            "attempts": attempts,
            "extra": extra,
            "duplicates": duplicates,
            "depth": depth,
            "forbid": forbid,
            "max_calls": max_calls,
            "unknown": unknown,
        },
        verbose=verbose,
    )
    loaded_goldens = spec.load_goldens()
    gates = scoring_options.parse_thresholds(fail_under, "--fail-under")
    scoring = spec.scoring_options()
    metrics_by_option = {"--fail-under": gates, "--metric": metric, "--threshold": scoring.thresholds}
    scoring, selection_threshold = scoring.pop_threshold(judge_options.TOOL_SELECTION)
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
    metric_names = scoring.metric_names(loaded_goldens)
    scoring_options.validate_gates(
        gates, metric_names if judging is None else (*metric_names, judge_options.TOOL_SELECTION)
    )
    if (out is not None or engine == "spark") and (judging is not None or backfill is not None):
        raise ConfigurationError(
            f"--{'engine spark' if engine == 'spark' else 'out'} does not combine with --judge and --to: these need "
            "all results in one process"
        )
    spark_options = batch_options.spark_options_from(
        engine, spark_master, spark_conf, out, out_format, cases=cases, jobs=jobs, memory=memory
    )
    judge_stage = None if judging is None else judging.start(scoring.judge_lowers_metric, metric_names)
    kept_range = start_range_options.range_of_files(start_range, paths or ())
    paths = pull_options.pulled_traces(
        context, paths, start_range=start_range, max_traces=max_traces, save_traces=save_traces
    )
    form: tables.ScoreFormat = "json" if as_json else format
    row_errors: list[str] = []
    kept: list[Evaluation] = []
    if spark_options is not None:
        from goldspan.cli.spark_scoring import score_with_spark

        summary = score_with_spark(
            paths,
            scoring.evaluator(loaded_goldens, verbose=verbose),
            spark_options,
            goldens=loaded_goldens,
            unit=unit,
            golden_id_attributes=golden_id_attribute,
            limit=None if form == "json" else limit,
            prints_json=form == "json",
            start_range=kept_range,
        )
        tables.print_summary(summary, form, verbose=verbose)
    elif out is not None or (jobs > 1 and judge_stage is None and backfill is None):
        summary = batch_scoring.score_in_processes(
            paths,
            spec,
            goldens=loaded_goldens,
            unit=unit,
            golden_id_attributes=golden_id_attribute,
            memory=memory_bytes,
            jobs=jobs,
            limit=None if form == "json" else limit,
            prints_json=form == "json",
            metrics=sorted(metric_names),
            start_range=kept_range,
            out=batch_scoring.PartOptions(Path(out), out_format, part_runs) if out is not None else None,
        )
        tables.print_summary(summary, form, verbose=verbose)
    else:
        results, row_errors = scoring_options.evaluate_inputs(
            paths,
            cases,
            scoring.evaluator(loaded_goldens, verbose=verbose),
            goldens=loaded_goldens,
            unit=unit,
            golden_id_attributes=golden_id_attribute,
            concurrency=concurrency,
            transform=iter if judge_stage is None else judge_stage.judge_all,
            is_streamed=form == "json",
            memory=memory_bytes,
            jobs=jobs,
            start_range=kept_range,
        )
        if judge_stage is not None or backfill is not None:
            results = tables.keep_all(results, kept)
        is_quiet = backfill is not None and backfill.is_dry_run  # the requests are printed instead
        summary = tables.print_evaluations(results, "none" if is_quiet else form, limit=limit, verbose=verbose)
    print_row_errors(row_errors)
    if loaded_goldens is not None and summary and not summary.has_match:
        print_warning(scoring_options.no_match_warning(loaded_goldens))
    if notice := tables.capture_sentence(summary.hints(), len(summary)):
        print_warning(f"{notice}: `goldspan extract` says what to do about it")
    if judge_stage is not None:
        judge_stage.print_summary(kept)
    sent_status = 0
    if backfill is not None:
        sent_status = backfill.send_evaluations(kept, as_json=form == "json")
    are_met = scoring_options.Gates(gates, fail_on_unknown).are_met(
        summary.mean_score, summary.evaluated, summary.not_evaluated
    )
    if row_errors or not are_met:
        raise typer.Exit(INVALID_ROWS if row_errors else GATE_FAILED)
    if sent_status:
        raise typer.Exit(sent_status)
