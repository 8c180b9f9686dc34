"""`goldspan run`: runs an agent on the input of each golden, and evaluates the tools that it called."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from goldspan.cli import options
from goldspan.errors import ConfigurationError

GATE_FAILED = 1
DEFAULT_RESULTS_FILE = "goldspan-results.jsonl"

EXAMPLES = """
Examples:\n
  goldspan run app.agent:answer --goldens goldens.yaml\n
  goldspan run app.agent:answer -g goldens.yaml --fail-under passed=0.95 --retries 2\n
  goldspan run app.agent:answer -g goldens.yaml --trials 4 --fail-under pass^4=0.5\n
  goldspan run app.agent:answer -g goldens.yaml --tag smoke --concurrency 16 --timeout 60\n
  goldspan run app.agent:answer -g goldens.yaml --resume\n
  goldspan run app.agent:answer -g goldens.yaml --results build/results.jsonl --json\n
"""


def run(
    agent: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="The agent: a function or coroutine function that receives the text of a request, and the golden if "
            "it has a parameter named `golden`. Its tools are seen through its OpenTelemetry spans. Modules are also "
            "searched in the current directory.",
            show_default=False,
        ),
    ],
    goldens: Annotated[
        list[str] | None,
        typer.Option(
            "--goldens", "-g", metavar="FILE", help="Golden file in YAML, JSON or JSON lines. May be repeated."
        ),
    ] = None,
    golden: Annotated[
        list[str] | None,
        typer.Option("--golden", metavar="ID", help="Run only the golden with this id. May be repeated."),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="TAG", help="Run only goldens with this tag. May be repeated: one is enough."),
    ] = None,
    metric: options.MetricOption = None,
    trials: Annotated[
        int, typer.Option("--trials", metavar="K", min=1, help="How often each golden is run, for pass^k and pass@k.")
    ] = 1,
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="N", min=1, help="Cases that run at the same time.")
    ] = 4,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0, help="Time limit for one case; 0: none.")
    ] = 300,
    retries: Annotated[
        int,
        typer.Option(
            "--retries", metavar="N", min=0, help="How often a case is repeated if the agent raises or times out."
        ),
    ] = 0,
    results: Annotated[
        Path,
        typer.Option(
            "--results",
            metavar="FILE",
            help="File to which each case is written as it ends. An existing one is renamed to FILE.1.",
        ),
    ] = Path(DEFAULT_RESULTS_FILE),
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Continue the results file: run only cases that are missing, raised or timed out."
        ),
    ] = False,
    keep_arguments: Annotated[
        bool,
        typer.Option("--keep-arguments", help="Also write the values of arguments and results to the results file."),
    ] = False,
    fail_under: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-under",
            metavar="METRIC=X",
            help="Exit with 1 if the mean of the metric, the pass rate `passed`, or with --trials `pass^K` or `pass@K` "
            "is below X. A case in which the agent raises or times out does not pass.",
        ),
    ] = None,
    fail_on_unknown: options.FailOnUnknownFlag = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=0, help="Failed cases to show; 0 shows all.")] = 20,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each case as it is written to the results file instead of a table.")
    ] = False,
) -> None:
    """Run an agent on the input of each golden, and evaluate the tools that it called.

    Exit status: 0 fine, 1 a gate failed, 2 an option is wrong or the agent cannot be run.
    """
    from goldspan.cli import agent_results, scoring_options
    from goldspan.cli.app import INTERRUPTED
    from goldspan.cli.evaluation_summary import NotEvaluatedRuns
    from goldspan.goldens import load_goldens
    from goldspan.testing.agent_calls import load_agent
    from goldspan.testing.agent_cases import evaluate_agent

    if not goldens:
        raise ConfigurationError("name the goldens to run the agent on: --goldens FILE")
    selected = agent_results.filter_goldens(load_goldens(*goldens), golden, tag)
    gates = scoring_options.parse_thresholds(fail_under, "--fail-under")
    scoring = scoring_options.ScoringOptions(list(metric) if metric else None, {}, False, {})
    scoring_options.validate_gates(gates, (*scoring.metric_names(selected), *agent_results.trial_gates(trials)))
    function = load_agent(agent)
    report = agent_results.ResultsReport(as_json=as_json, limit=limit, trials=trials)
    with report.show_progress(agent) as on_case:
        try:
            found = evaluate_agent(
                function,
                selected,
                concurrency=concurrency,
                timeout=timeout or None,
                retries=retries,
                trials=trials,
                metrics=scoring.metrics,
                results=results,
                resume=resume,
                keep_arguments=keep_arguments,
                progress=on_case,
                agent_name=agent,
            )
        except KeyboardInterrupt:
            found = None
    if found is None:
        report.print_interrupted(results)
        raise typer.Exit(INTERRUPTED)
    report.print_summary(found, results)
    is_met = scoring_options.Gates(gates, fail_on_unknown).are_met(
        found.value_of,
        sum(case.passed is not None for case in found.cases),
        NotEvaluatedRuns.of(agent_results.not_evaluated_cases(found)),
    )
    status = 0 if is_met else GATE_FAILED
    agent_results.exit_despite_hanging_agents(status, os._exit)
    raise typer.Exit(status)
