"""`evaluate_agent`: runs an agent on the input of each golden and evaluates the tools that it called."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, cast

from goldspan.capture.processor_options import GoldensLike, resolve_goldens
from goldspan.errors import ConfigurationError
from goldspan.goldens.lookup.golden_lookup import Goldens
from goldspan.goldens.spelling import join_words, short_repr
from goldspan.model import Evaluation, Golden
from goldspan.scoring.evaluator import SCORING_VERSION, evaluate
from goldspan.scoring.metrics.registry import resolve_metrics
from goldspan.testing.agent_calls import Agent, AgentCall, CallProgress
from goldspan.testing.results import (
    AgentResults,
    CaseError,
    CaseResult,
    ResultsHeader,
    evaluation_documents,
    goldens_digest,
    outcome_of,
    shortened_message,
)
from goldspan.testing.results_file import ResultsWriter
from goldspan.testing.span_capture import DEFAULT_GRACE_S, CaseSpans, span_capture

if TYPE_CHECKING:
    from goldspan.scoring.metrics import MetricLike

DEFAULT_TIMEOUT_S = 300.0
OnCase = Callable[[CaseResult, int, int], None]
"""Called after each case with its result, the number of finished cases and the number of all cases."""

_SPAN_POLL_S = 0.005
_FIRST_RETRY_DELAY_S = 0.5
_MAX_RETRY_DELAY_S = 10.0
_MAX_LISTED_IDS = 5


def evaluate_agent(
    agent: Callable[..., Any],
    goldens: GoldensLike,
    *,
    concurrency: int = 4,
    timeout: float | None = DEFAULT_TIMEOUT_S,
    retries: int = 0,
    trials: int = 1,
    metrics: Iterable[MetricLike] | None = None,
    results: str | os.PathLike[str] | None = None,
    resume: bool = False,
    keep_arguments: bool = False,
    progress: OnCase | None = None,
    agent_name: str | None = None,
) -> AgentResults:
    """Run an agent on the input of each golden, and evaluate the tools that it called.

    The agent can be a function, a coroutine function, or a generator of either kind. It receives the golden's input,
    and the golden if it has a parameter named `golden`; what it returns is not used. Its tools are seen through the
    spans of any instrumentation: `@goldspan.trace`, OpenTelemetry, or that of its framework. Each case gets a trace of
    its own, and the spans of concurrent cases stay apart. Goldens of components and policies have no request and are
    left out.

        results = goldspan.evaluate_agent(answer, "goldens.yaml", trials=4)
        assert results.pass_rate >= 0.9

    Args:
        agent: The agent.
        goldens: Golden files, `Goldens`, or a list of `Golden`.
        concurrency: The number of cases that run at once.
        timeout: Seconds that the agent may take for one case; `None`: no limit. A coroutine is then cancelled. Any
            other agent runs in a daemon thread, which is left to itself.
        retries: How often the agent is called again for a case in which it raised or timed out.
        trials: How often each golden is run, for pass^k and pass@k.
        metrics: The metrics to compute, instead of those that the goldens list.
        results: A file to which each case is appended as it ends. An existing one is renamed to `NAME.1`.
        resume: Whether the cases that the file already holds are left out. Errors and timeouts are repeated.
        keep_arguments: Whether the file also holds the values of arguments and results.
        progress: Called after each case.
        agent_name: The name of the agent in the results. Default: its module and name.

    Returns:
        The results in the order of the goldens, one for each golden and trial.

    Raises:
        GoldspanError: An argument, a golden file or the results file is wrong, or no span can be recorded.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(
            evaluate_agent_async(
                agent,
                goldens,
                concurrency=concurrency,
                timeout=timeout,
                retries=retries,
                trials=trials,
                metrics=metrics,
                results=results,
                resume=resume,
                keep_arguments=keep_arguments,
                progress=progress,
                agent_name=agent_name,
            )
        )
    raise ConfigurationError("an event loop is running here; write `await goldspan.evaluate_agent_async(...)`")


async def evaluate_agent_async(
    agent: Callable[..., Any],
    goldens: GoldensLike,
    *,
    concurrency: int = 4,
    timeout: float | None = DEFAULT_TIMEOUT_S,
    retries: int = 0,
    trials: int = 1,
    metrics: Iterable[MetricLike] | None = None,
    results: str | os.PathLike[str] | None = None,
    resume: bool = False,
    keep_arguments: bool = False,
    progress: OnCase | None = None,
    agent_name: str | None = None,
) -> AgentResults:
    """Run an agent on the input of each golden in the current event loop.

    Args:
        agent: As in `evaluate_agent`.
        goldens: As in `evaluate_agent`.
        concurrency: As in `evaluate_agent`.
        timeout: As in `evaluate_agent`.
        retries: As in `evaluate_agent`.
        trials: As in `evaluate_agent`.
        metrics: As in `evaluate_agent`.
        results: As in `evaluate_agent`.
        resume: As in `evaluate_agent`.
        keep_arguments: As in `evaluate_agent`.
        progress: As in `evaluate_agent`.
        agent_name: As in `evaluate_agent`.

    Returns:
        The results in the order of the goldens, one for each golden and trial.
    """
    _check_numbers(concurrency=concurrency, timeout=timeout, retries=retries, trials=trials)
    if resume and results is None:
        raise ConfigurationError("resume=True needs `results`, the file of the run to continue")
    callee = Agent(agent)
    library = cast("Goldens", resolve_goldens(goldens))
    selected = select_goldens(library, needs_input=callee.needs_input)
    resolved = None if metrics is None else list(resolve_metrics(list(metrics)))
    for golden in selected if resolved is None else ():
        resolve_metrics(golden.metrics, golden.thresholds)  # before the agent runs, which may take long
    header = ResultsHeader(
        scoring_version=SCORING_VERSION,
        goldens=tuple(dict.fromkeys(golden.source.file for golden in library if golden.source is not None)),
        goldens_digest=goldens_digest(selected),
        agent=agent_name or callee.name,
        trials=trials,
        metrics=None if resolved is None else tuple(metric.name for metric in resolved),
        keeps_arguments=keep_arguments,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )
    plan = [(golden, trial) for trial in range(1, trials + 1) for golden in selected]
    runner = _CaseRunner(callee, library, resolved, timeout, retries, keep_arguments)
    with ExitStack() as stack:
        writer = None
        if results is not None:
            writer = stack.enter_context(ResultsWriter(results, header, resume=resume))
        finished = {case.key: case for case in (writer.previous if writer else ())}
        pending = [(golden, trial) for golden, trial in plan if (golden.id, trial) not in finished]

        def record(case: CaseResult) -> None:
            finished[case.key] = case
            if writer is not None:
                writer.write(case)
            if progress is not None:
                progress(case, len(finished), len(plan))

        await _run_all(runner, pending, concurrency, record)
    in_order = (finished[golden.id, trial] for golden in selected for trial in range(1, trials + 1))
    return AgentResults(header, tuple(in_order))


def select_goldens(goldens: Iterable[Golden], *, needs_input: bool = True) -> list[Golden]:
    """Return the goldens that state a request.

    Raises:
        ConfigurationError: There is none, or one of them has no input.
    """
    selected = [golden for golden in goldens if not golden.policy and golden.component is None]
    if not selected:
        raise ConfigurationError("there is no golden to run: policies and goldens of components state no request")
    without = [golden.id for golden in selected if not (golden.input or "").strip()] if needs_input else []
    if without:
        more = f" and {len(without) - _MAX_LISTED_IDS} more" if len(without) > _MAX_LISTED_IDS else ""
        listed = join_words([short_repr(golden_id) for golden_id in without[:_MAX_LISTED_IDS]]) + more
        noun, verb = ("goldens", "have") if len(without) > 1 else ("golden", "has")
        raise ConfigurationError(
            f"the {noun} {listed} {verb} no input to run the agent on: add `input`, or write an agent whose only "
            "parameter is `golden`"
        )
    return selected


async def _run_all(
    runner: _CaseRunner, cases: Sequence[tuple[Golden, int]], concurrency: int, record: Callable[[CaseResult], None]
) -> None:
    """Run the cases in order, several at once. An error of goldspan itself ends all of them."""
    queue: Iterator[tuple[Golden, int]] = iter(cases)

    async def work() -> None:
        for golden, trial in queue:
            record(await runner.run(golden, trial))

    workers = [asyncio.ensure_future(work()) for _ in range(min(concurrency, len(cases)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _CaseRunner:
    """Runs single cases."""

    agent: Agent
    goldens: Goldens
    metrics: list[Any] | None
    timeout: float | None
    retries: int
    keep_arguments: bool

    async def run(self, golden: Golden, trial: int) -> CaseResult:
        """Return the result of one trial: of the first attempt that neither raises nor times out, else of the last."""
        for attempt in range(1, self.retries + 2):
            result = await self._attempt(golden, trial, attempt)
            if result.error is None or attempt > self.retries:
                break
            await asyncio.sleep(min(_FIRST_RETRY_DELAY_S * 2 ** (attempt - 1), _MAX_RETRY_DELAY_S))
        return result

    async def _attempt(self, golden: Golden, trial: int, attempt: int) -> CaseResult:
        capture = span_capture()
        case = capture.begin_case(golden.id, golden_id=golden.id)
        call, progress = None, CallProgress()
        try:
            try:
                call = await self.agent.call(golden, case.context, self.timeout, progress)
            finally:
                case.end_root()
            if call.error is not None or call.timed_out:
                return self._result(golden, trial, attempt, case, call)
            await _wait_for_spans(case)
            run = case.build_run(golden.id, golden.input, self.goldens.components)
            return self._result(golden, trial, attempt, case, call, evaluate(run, self.goldens, metrics=self.metrics))
        finally:
            is_left = call is None or call.still_runs
            capture.finish_case(case, still_runs=progress.is_running if is_left else None)

    def _result(
        self,
        golden: Golden,
        trial: int,
        attempt: int,
        case: CaseSpans,
        call: AgentCall,
        evaluation: Evaluation | None = None,
    ) -> CaseResult:
        evaluation_document = run_document = None
        if evaluation is not None:
            evaluation_document, run_document = evaluation_documents(evaluation, keep_arguments=self.keep_arguments)
        return CaseResult(
            golden_id=golden.id,
            outcome=outcome_of(evaluation) if evaluation else "timeout" if call.timed_out else "error",
            trial=trial,
            tags=golden.tags,
            source=golden.source,
            attempts=attempt,
            error=_case_error(call, self.timeout),
            duration_ms=round(call.duration_ms, 3),
            evaluation=evaluation_document,
            run=run_document,
            unattributed_spans=case.unattributed,
            golden_digest=golden.digest,
            live_evaluation=evaluation,
        )


def _case_error(call: AgentCall, timeout: float | None) -> CaseError | None:
    if call.timed_out:
        left = "; it cannot be stopped and still runs" if call.still_runs else ""
        return CaseError("TimeoutError", f"the agent did not return in {timeout:g} s{left}")
    return None if call.error is None else CaseError(type(call.error).__name__, shortened_message(call.error))


async def _wait_for_spans(case: CaseSpans) -> None:
    """Wait until every span of a case has ended, at most the grace period, without blocking the event loop."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + DEFAULT_GRACE_S
    while case.has_open_spans and loop.time() < deadline:
        await asyncio.sleep(_SPAN_POLL_S)


def _check_numbers(*, concurrency: int, timeout: float | None, retries: int, trials: int) -> None:
    for name, value, least in (("concurrency", concurrency, 1), ("retries", retries, 0), ("trials", trials, 1)):
        if type(value) is not int or value < least:
            raise ConfigurationError(f"{name} must be a whole number of at least {least}, not {short_repr(value)}")
    if timeout is not None and not timeout > 0:
        raise ConfigurationError(f"timeout must be a number of seconds above 0, or None, not {short_repr(timeout)}")
