"""Selects the goldens of `goldspan run`, and prints the results of an agent."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from rich.table import Table
from rich.text import Text

from goldspan.cli.console import (
    print_warning,
    results_progress_bar,
    stderr_console,
    stdout_console,
)
from goldspan.cli.tables import capture_block, capture_notice, new_table
from goldspan.errors import ConfigurationError
from goldspan.goldens import Goldens
from goldspan.goldens.spelling import did_you_mean, short_repr
from goldspan.model import NotEvaluatedRun
from goldspan.sinks.serialization import to_json
from goldspan.terminal.escapes import escape_control_characters
from goldspan.terminal.evaluation_text import evaluation_block, legend
from goldspan.testing.results import AgentResults, CaseResult
from goldspan.testing.span_capture import span_capture
from goldspan.testing.statistics import (
    Interval,
    bootstrap_interval,
    estimates,
    pass_at_k,
    pass_hat_k,
    task_pass_at_k,
    task_pass_hat_k,
)

_ERROR_MARKS = {"error": "error", "timeout": "timed out"}
_OUTCOME_WORDS = {"passed": "passed", "failed": "failed", "error": "raised", "timeout": "timed out",
                  "not_evaluated": "not evaluated"}  # fmt: skip
_OUTCOME_STYLES = {"passed": "green", "failed": "red", "error": "red", "timeout": "red", "not_evaluated": "yellow"}
_EXIT_GRACE_S = 5.0
"""Seconds after which the program exits although agents that were left to themselves still run."""


def filter_goldens(goldens: Goldens, ids: Sequence[str] | None, tags: Sequence[str] | None) -> Goldens:
    """Return the goldens with one of the ids and one of the tags.

    Raises:
        ConfigurationError: There is no golden with an id, or none with a tag.
    """
    if not ids and not tags:
        return goldens
    known_tags = {tag for golden in goldens for tag in golden.tags}
    for option, wanted, known in (
        ("--golden", ids, [golden.id for golden in goldens]),
        ("--tag", tags, sorted(known_tags)),
    ):
        for name in wanted or ():
            if name not in known:
                what = "id" if option == "--golden" else "tag"
                raise ConfigurationError(
                    f"{option} {name}: no golden has the {what} {short_repr(name)}.{did_you_mean(name, known)}"
                )
    selected = [
        golden
        for golden in goldens
        if (not ids or golden.id in ids) and (not tags or not set(tags).isdisjoint(golden.tags))
    ]
    if not selected:
        raise ConfigurationError("no golden has both one of the ids of --golden and one of the tags of --tag")
    return Goldens(
        selected,
        vocabulary=goldens.vocabulary,
        components=goldens.components,
        near=goldens.near,
        margin=goldens.margin,
    )


def trial_gates(trials: int) -> list[str]:
    """Return the names that a gate on several trials can use: `pass^2`, `pass@2`."""
    return [f"pass{sign}{k}" for k in range(1, trials + 1) for sign in "^@"] if trials > 1 else []


def not_evaluated_cases(results: AgentResults) -> list[NotEvaluatedRun]:
    """Return the cases without a verdict."""
    return [
        NotEvaluatedRun(
            f"{case.golden_id}, trial {case.trial}",
            case.golden_id,
            case.reason,
            frozenset(
                score["metric"]
                for score in (case.evaluation or {}).get("scores", ())
                if score["label"] == "not_evaluated"
            ),
        )
        for case in results.cases
        if case.passed is None
    ]


class ResultsReport:
    """Prints the cases of one command as they end, and their summary."""

    def __init__(self, *, as_json: bool, limit: int, trials: int) -> None:
        self._console = stdout_console()
        self._console.file = sys.stdout  # the agent's own output goes elsewhere
        self._as_json = as_json
        self._limit = limit
        self._trials = trials
        self._cases: list[CaseResult] = []
        self._total = 0
        self._omitted = 0

    @contextmanager
    def show_progress(self, agent: str) -> Iterator[Callable[[CaseResult, int, int], None]]:
        """Show how many cases are done; yields a function that prints a case.

        What the agent prints goes to standard error, so that standard output has the results alone.
        """
        with redirect_stdout(sys.stderr), results_progress_bar(self._console, f"running {agent}") as update:

            def on_case(case: CaseResult, done: int, total: int) -> None:
                self._cases.append(case)
                self._total = total
                self._print_case(case)
                update(done, total)

            yield on_case

    def _print_case(self, case: CaseResult) -> None:
        if self._as_json:
            self._console.write_line(to_json(case.to_document()))
            self._console.flush()
        elif case.passed is not True:
            shown = sum(each.passed is not True for each in self._cases)
            if self._limit and shown > self._limit:
                self._omitted += 1
                return
            if self._trials > 1:
                self._console.print(Text(f"trial {case.trial}:", style="dim"))
            if case.live_evaluation is not None:
                self._console.print(evaluation_block(case.live_evaluation, self._console))
            else:
                self._console.print(_error_line(case))

    def print_summary(self, results: AgentResults, path: Path) -> None:
        """Print the legend, the tables and the warnings."""
        if not self._as_json:
            self._print_tables(results)
        stderr_console().print(Text(f"results: {path}", style="dim"))
        self._print_warnings(results)

    def _print_tables(self, results: AgentResults) -> None:
        console = self._console
        shown = [case.live_evaluation for case in self._cases if case.passed is not True and case.live_evaluation]
        if shown:
            console.print(legend(shown, console))
        if self._omitted:
            console.print(Text(f"{self._omitted} more cases did not pass; --limit 0 shows all", style="dim"))
        if any(case.passed is not True for case in self._cases):
            console.print()
        if (metrics := _metrics_table(results)).row_count:
            console.print(metrics)
            console.print()
        if self._trials > 1:
            console.print(_trials_table(results, self._trials))
            console.print()
            if (unreliable := _unreliable_table(results, self._limit)).row_count:
                console.print(unreliable)
                console.print()
        console.print(_outcome_summary(results, with_interval=self._trials == 1), soft_wrap=True)

    def _print_warnings(self, results: AgentResults) -> None:
        runs = [evaluation.run for evaluation in results.evaluations]
        if capture_notice(runs):
            stderr_console().print(capture_block(runs))
        if unattributed := max((case.unattributed_spans for case in results.cases), default=0):
            print_warning(
                f"{unattributed} or more spans show no case and were left out; with --concurrency 1 they belong to the "
                "only case that runs"
            )
        if late := span_capture().late_spans:
            print_warning(f"{late} spans started or ended after their case was evaluated and were left out")

    def print_interrupted(self, path: Path) -> None:
        """Print how many cases are done."""
        done = f"{len(self._cases)} of {self._total}" if self._total else "no"
        stderr_console().print(Text(f"interrupted: {done} cases are done and in {path}; --resume runs the others"))


def _error_line(case: CaseResult) -> Text:
    """Return the line of a case in which the agent raised or timed out."""
    line = Text.assemble((_ERROR_MARKS[case.outcome], "bold red"), " ", (case.golden_id, "bold"), "  ")
    attempts = f" (attempt {case.attempts})" if case.attempts > 1 else ""
    return line.append(escape_control_characters(case.reason) + attempts)


def _metrics_table(results: AgentResults) -> Table:
    """Return a table with the mean of each metric that has a value, and its number of cases."""
    table = new_table()
    for heading, justify in (("metric", "left"), ("mean", "right"), ("cases", "right")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for name in results.metric_names:
        values = [value for case in results.cases if (value := case.score(name)) is not None]
        if values:
            table.add_row(escape_control_characters(name), f"{sum(values) / len(values):.4f}", str(len(values)))
    return table


def _trials_table(results: AgentResults, trials: int) -> Table:
    """Return a table of pass^k and pass@k, each with the interval over the goldens."""
    table = new_table()
    for heading in ("k", "pass^k", "95 % interval", "pass@k", "95 % interval"):
        table.add_column(heading, justify="right")
    counts = list(results.trial_counts.values())
    for k in range(1, trials + 1):
        cells = [str(k)]
        for mean, estimator in ((pass_hat_k, task_pass_hat_k), (pass_at_k, task_pass_at_k)):
            value = mean(counts, k)
            cells += [
                "—" if value is None else f"{value:.4f}",
                _interval_text(bootstrap_interval(estimates(counts, k, estimator))),
            ]
        table.add_row(*cells)
    return table


def _unreliable_table(results: AgentResults, limit: int) -> Table:
    """Return the goldens that did not pass every time, the least reliable first."""
    table = new_table()
    table.add_column("golden")
    table.add_column("passed", justify="right")
    rates = [(count.passed / count.trials, name, count) for name, count in results.trial_counts.items() if count.trials]
    unreliable = sorted(row for row in rates if row[0] < 1)
    for _, name, count in unreliable[: limit or None]:
        table.add_row(escape_control_characters(name), f"{count.passed} of {count.trials}")
    return table


def _outcome_summary(results: AgentResults, *, with_interval: bool) -> Text:
    """Return the number of cases with each outcome, and the pass rate."""
    text = Text(f"cases: {len(results.cases)}, of which ")
    parts = [
        Text(f"{count} {_OUTCOME_WORDS[outcome]}", style=_OUTCOME_STYLES[outcome] if count else "")
        for outcome, count in results.counts.items()
        if count or outcome in ("passed", "failed")
    ]
    text.append_text(Text(", ").join(parts))
    if with_interval and results.pass_rate is not None:
        text.append(
            f"; pass rate {results.pass_rate:.4f}, 95 % interval {_interval_text(results.pass_rate_interval())}"
        )
    return text


def _interval_text(interval: Interval | None) -> str:
    return "—" if interval is None else f"{interval.low:.4f} to {interval.high:.4f}"


def exit_despite_hanging_agents(status: int, exit_process: Callable[[int], None]) -> None:
    """End the program after a few seconds if agents that timed out keep it from exiting.

    Their own threads are daemons, but Python waits for thread pools that they use.
    """
    if not span_capture().has_abandoned_cases:
        return

    def wait_and_exit() -> None:
        time.sleep(_EXIT_GRACE_S)
        exit_process(status)

    threading.Thread(target=wait_and_exit, daemon=True, name="goldspan-exit").start()
