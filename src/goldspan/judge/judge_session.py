"""Judges evaluations in one event loop: votes, retries, deadlines and budget."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from goldspan._http import suppress_instrumentation, to_one_line
from goldspan.judge.judge import AskFunction, Judge, ModelClient
from goldspan.judge.prompts import RUBRIC_VERSION, JudgePrompt, build_evidence, relevant_tools
from goldspan.judge.tool_selection import (
    TOOL_SELECTION,
    Assessment,
    ModelReply,
    ModelRequestError,
    failed_score,
    not_evaluated_score,
    parse_assessment,
    selection_score,
    with_tool_selection,
)
from goldspan.judge.usage import OVER_BUDGET_ERROR
from goldspan.model import Evaluation, Judgement, Score
from goldspan.sinks import apply_redaction
from goldspan.sinks.redaction import REDACTED

_MAX_MALFORMED_RETRIES = 1
"""Retries after a malformed answer. Each one costs a full answer, and few help."""
_CIRCUIT_BREAKER_THRESHOLD = 3
"""Consecutive permanent errors, which only other settings can fix, that open the circuit breaker."""
_CIRCUIT_OPEN_S = 30.0
"""Seconds for which no request is then sent."""
_INITIAL_BACKOFF_S = 0.5
_MAX_BACKOFF_S = 8.0
_MAX_RETRY_AFTER_S = 3600.0
"""Seconds that one `Retry-After` can request at most."""
_CANCEL_GRACE_S = 1.0
"""Seconds that a cancelled request has to close its connection after a timeout."""
_MESSAGE_OVERHEAD_TOKENS = 64
"""Tokens that an endpoint adds to the messages of a prompt, at most."""
_MAX_ERROR_LENGTH = 400

_REASON_NO_TOOLS = "the tools the agent was offered were not captured"
_REASON_NO_REQUEST = "the request was not captured"
_REASON_TOO_LONG = "the run is too long for a prompt"
_REASON_WITHHELD = "redaction withholds the run from the judge"


@dataclass(slots=True)
class _Deadline:
    """The deadline of one run."""

    until: float
    """The time of the event loop."""
    retry_after_budget: float
    """Remaining seconds of waiting for `Retry-After`, by which the deadline can still be extended."""

    def extend(self, seconds: float) -> bool:
        """Extend the deadline by a wait. Returns whether the budget allows it."""
        if seconds > self.retry_after_budget:
            return False
        self.retry_after_budget -= seconds
        self.until += seconds
        return True


@dataclass(frozen=True, slots=True)
class _Vote:
    assessment: Assessment
    reply: ModelReply
    """The reply, with the tokens that it cost; 0 tokens if the vote was cached."""
    cached: bool


@asynccontextmanager
async def open_session(judge: Judge) -> AsyncIterator[JudgeSession]:
    """Open a session of a judge in the running event loop.

    async with open_session(judge) as session:
        judged = await session.judge(goldspan.evaluate(run, goldens))
    """
    async with AsyncExitStack() as connections:
        ask: AskFunction
        if isinstance(judge.ask, ModelClient):
            try:
                ask = await connections.enter_async_context(judge.ask.connect())
            except Exception as error:  # noqa: BLE001 - it becomes the error of every score
                ask = _failing_ask(ModelRequestError(type(error).__name__, _error_text(error), is_billed=False))
        else:
            ask = judge.ask
        yield JudgeSession(judge, ask)


class JudgeSession:
    """Judges evaluations in one event loop; see `open_session`."""

    def __init__(self, judge: Judge, ask: Callable[[JudgePrompt], Awaitable[Any]]) -> None:
        self._judge = judge
        self._ask = ask
        self._concurrency = asyncio.Semaphore(judge.concurrency)
        self._retry_after_until = 0.0
        self._permanent_failures = 0
        """The number of consecutive permanent errors, such as a refused key or an unknown model."""
        self._permanent_error: ModelRequestError | None = None
        self._circuit_open_until = 0.0

    async def judge(self, evaluation: Evaluation) -> Evaluation:
        """Return the evaluation with the score `tool_selection`. Raises only if the task is cancelled."""
        judge = self._judge
        score = await self.score(evaluation)
        return with_tool_selection(evaluation, score, combination=judge.combination, combined_with=judge.combined_with)

    async def score(self, evaluation: Evaluation) -> Score:
        """Return the score: with a value, with the reason why the model was not asked, or with an error."""
        judge = self._judge
        threshold = _effective_threshold(evaluation, judge.threshold)
        try:
            async with self._concurrency:  # acquired first, so that waiting runs do not hold a prompt in memory
                prompt = self._build_prompt(evaluation)
                if isinstance(prompt, str):
                    judge.counters.record_not_asked()
                    return not_evaluated_score(prompt, threshold)
                with suppress_instrumentation():
                    votes = await self._votes(prompt)
        except ModelRequestError as error:
            judge.counters.record_failure(error.kind)
            return failed_score(_error_text(error), threshold)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it becomes the error of the score
            judge.counters.record_failure(type(error).__name__)
            return failed_score(f"{type(error).__name__}: {_error_text(error)}", threshold)
        judge.counters.record_judged(cached=all(vote.cached for vote in votes))
        assessments = [vote.assessment for vote in votes]
        return selection_score(assessments, self._judgement(votes), threshold, explain=judge.explain)

    def _build_prompt(self, evaluation: Evaluation) -> JudgePrompt | str:
        """Return the prompt for a run, or the reason why there is none."""
        judge = self._judge
        redacted = apply_redaction(evaluation, judge.redact)
        if redacted is None:
            return _REASON_WITHHELD
        run = redacted.run
        available = run.available_tools or judge.available_tools or ()
        tools = relevant_tools(available, run)
        if not tools:
            return _REASON_NO_TOOLS
        if run.input is None or run.input == REDACTED or not run.input.strip():
            return _REASON_NO_REQUEST
        evidence = build_evidence(run, tools, judge.show, omitted_tools=len(available) - len(tools))
        if evidence is None:
            return _REASON_TOO_LONG
        return JudgePrompt(
            evidence,
            tuple(tool.name for tool in tools),
            temperature=judge.temperature,
            seed=judge.seed,
            max_tokens=judge.max_tokens,
        )

    async def _votes(self, prompt: JudgePrompt) -> list[_Vote]:
        """Return the answered votes, more than half of all. Raises `ModelRequestError` if too many fail."""
        judge = self._judge
        deadline = _Deadline(_loop_time() + judge.timeout, judge.retry_after_budget)
        votes: list[_Vote] = []
        for number in range(judge.votes):
            seed = None if judge.seed is None else judge.seed + number
            try:
                votes.append(await self._vote(replace(prompt, seed=seed), number, deadline))
            except ModelRequestError:
                remaining = judge.votes - number - 1
                if len(votes) + remaining <= judge.votes // 2:
                    raise
        return votes

    async def _vote(self, prompt: JudgePrompt, number: int, deadline: _Deadline) -> _Vote:
        judge = self._judge
        key = _cache_key(judge, prompt, number)
        if (cached := judge.cache.get(key)) is not None:
            return _Vote(cached.assessment, ModelReply("", cached.model, 0, 0), cached=True)
        error_kinds: list[str] = []
        while True:
            self._check_circuit_breaker()
            await self._wait_retry_after(deadline)
            try:
                assessment, reply = await self._attempt(prompt, deadline.until)
            except ModelRequestError as error:
                self._record_error(error)
                error_kinds.append(error.kind)
                malformed = error_kinds.count("MalformedAnswer")
                is_exhausted = len(error_kinds) > judge.retries or malformed > _MAX_MALFORMED_RETRIES
                if is_exhausted or not error.is_retryable:
                    raise
                if error.retry_after is None:
                    await self._back_off(len(error_kinds), deadline, error)
                continue
            self._permanent_failures = 0
            judge.cache.put(key, assessment, reply.model)
            return _Vote(assessment, reply, cached=False)

    def _check_circuit_breaker(self) -> None:
        """Raise the last permanent error while the circuit breaker is open, instead of sending a request."""
        if self._permanent_error is not None and _loop_time() < self._circuit_open_until:
            raise ModelRequestError(self._permanent_error.kind, self._permanent_error.args[0])

    def _record_error(self, error: ModelRequestError) -> None:
        """Store what an error means for the next requests: `Retry-After` and permanent errors."""
        if error.retry_after is not None:
            until = _loop_time() + min(error.retry_after, _MAX_RETRY_AFTER_S)
            self._retry_after_until = max(self._retry_after_until, until)
        self._permanent_failures = self._permanent_failures + 1 if error.is_permanent else 0
        if self._permanent_failures >= _CIRCUIT_BREAKER_THRESHOLD:
            self._permanent_error, self._circuit_open_until = error, _loop_time() + _CIRCUIT_OPEN_S

    async def _wait_retry_after(self, deadline: _Deadline) -> None:
        """Wait as long as `Retry-After` requests. Raises `ModelRequestError` if the deadline does not allow it."""
        while (wait := self._retry_after_until - _loop_time()) > 0:
            if not deadline.extend(wait):
                raise ModelRequestError("RateLimited", f"the endpoint asks to wait another {wait:.0f} s")
            await asyncio.sleep(wait)

    async def _back_off(self, failures: int, deadline: _Deadline, error: ModelRequestError) -> None:
        """Wait before a retry: exponential backoff with jitter. Raises `error` if the deadline does not allow it."""
        pause = min(_MAX_BACKOFF_S, _INITIAL_BACKOFF_S * 2 ** (failures - 1)) * random.uniform(0.5, 1.0)
        if _loop_time() + pause >= deadline.until:
            raise error
        await asyncio.sleep(pause)

    async def _attempt(self, prompt: JudgePrompt, until: float) -> tuple[Assessment, ModelReply]:
        """Send one request within the budget and the deadline, and count it."""
        remaining = until - _loop_time()
        if remaining <= 0:
            raise ModelRequestError("Timeout", f"no answer within {self._judge.timeout:g} s", is_billed=False)
        with self._reserve_budget(prompt) as request_cost:
            try:
                answer = await self._await_reply(prompt, remaining)
                reply = request_cost.reply = answer if isinstance(answer, ModelReply) else ModelReply("")
                assessment = parse_assessment(answer.text if isinstance(answer, ModelReply) else answer, prompt)
            except ModelRequestError:
                raise
            except Exception as error:
                raise ModelRequestError(type(error).__name__, _error_text(error)) from error
        return assessment, reply

    async def _await_reply(self, prompt: JudgePrompt, seconds: float) -> Any:
        """Return the function's result within the time. A function that ignores cancellation is abandoned."""
        task = asyncio.ensure_future(_call_ask(self._ask, prompt))
        try:
            await asyncio.wait({task}, timeout=seconds)
        finally:
            is_late = not task.done()
            if is_late:
                task.cancel()
                task.add_done_callback(_consume_exception)
        if is_late:
            await asyncio.wait({task}, timeout=_CANCEL_GRACE_S)
            raise ModelRequestError("Timeout", f"no answer within {self._judge.timeout:g} s")
        if task.cancelled():  # the function raised CancelledError itself
            raise ModelRequestError("CancelledError", "the function of the judge cancelled itself")
        return task.result()

    @contextmanager
    def _reserve_budget(self, prompt: JudgePrompt) -> Iterator[_RequestCost]:
        """Reserve the maximum cost of an attempt, and replace it by the actual cost afterwards."""
        judge = self._judge
        request_cost = _RequestCost()
        max_input = _max_input_tokens(prompt)
        max_output = max(prompt.max_tokens, getattr(judge.ask, "max_output_tokens", 0))
        max_tokens = max_input + max_output
        max_cost = judge.prices.cost(max_input, max_output) if judge.prices else 0.0
        minute = judge.cache.reserve(max_tokens, max_cost, judge.budget.allows)
        if minute is None:
            raise ModelRequestError(OVER_BUDGET_ERROR, "the judge's budget of the last 24 hours is spent")
        outcome, is_billed = "cancelled", True
        try:
            yield request_cost
            outcome = "answered"
        except ModelRequestError as error:
            outcome, is_billed = error.kind, error.is_billed
            request_cost.reply = request_cost.reply or error.reply
            raise
        finally:
            reply = request_cost.reply
            input_tokens, output_tokens = (reply.input_tokens, reply.output_tokens) if reply else (None, None)
            cost = judge.prices.cost(input_tokens or 0, output_tokens or 0) if judge.prices else None
            judge.counters.record_request(outcome, input_tokens or 0, output_tokens or 0, cost)
            # If the endpoint does not report tokens, the reserved maximum counts, unless the attempt is not billed.
            spent_input = input_tokens if input_tokens is not None else max_input * is_billed
            spent_output = output_tokens if output_tokens is not None else max_output * is_billed
            spent_cost = judge.prices.cost(spent_input, spent_output) if judge.prices else 0.0
            judge.cache.adjust_reservation(minute, spent_input + spent_output - max_tokens, spent_cost - max_cost)

    def _judgement(self, votes: list[_Vote]) -> Judgement:
        """Return the settings of the judge and the cost of the votes."""
        judge = self._judge
        input_tokens = [vote.reply.input_tokens for vote in votes]
        output_tokens = [vote.reply.output_tokens for vote in votes]
        total_input = None if None in (*input_tokens, *output_tokens) else sum(filter(None, input_tokens))
        total_output = None if total_input is None else sum(filter(None, output_tokens))
        cost = None
        if judge.prices and total_input is not None and total_output is not None:
            cost = judge.prices.cost(total_input, total_output)
        return Judgement(
            next((vote.reply.model for vote in votes if vote.reply.model), judge.model),
            temperature=judge.temperature,
            seed=judge.seed,
            rubric=RUBRIC_VERSION,
            cached=sum(vote.cached for vote in votes),
            input_tokens=total_input,
            output_tokens=total_output,
            cost=cost,
        )


@dataclass(slots=True)
class _RequestCost:
    reply: ModelReply | None = None
    """The reply with its tokens, or `None` if there is none."""


def _effective_threshold(evaluation: Evaluation, default: float | None) -> float | None:
    """Return the threshold of the score: of the evaluation, else of the golden, else of the judge."""
    score = evaluation.score(TOOL_SELECTION)
    if score is not None and score.threshold is not None:
        return score.threshold
    return evaluation.golden.thresholds.get(TOOL_SELECTION, default) if evaluation.golden else default


def _cache_key(judge: Judge, prompt: JudgePrompt, number: int) -> str:
    """Return a hash of everything that an answer depends on. The number separates votes even without a seed."""
    parts = [
        RUBRIC_VERSION, judge.identity, judge.model, prompt.messages, list(prompt.tools), prompt.max_tokens,
        prompt.temperature, prompt.seed, number,
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _max_input_tokens(prompt: JudgePrompt) -> int:
    """Return an upper bound of the tokens of a prompt: a token has at least one byte."""
    texts = [*(message["content"] for message in prompt.messages), json.dumps(dict(prompt.schema))]
    return sum(len(text.encode("utf-8", "replace")) for text in texts) + _MESSAGE_OVERHEAD_TOKENS


async def _call_ask(ask: AskFunction, prompt: JudgePrompt) -> Any:
    """Await the function of the judge, which may be the application's."""
    try:
        awaitable: object = ask(prompt)
        if not inspect.isawaitable(awaitable):
            raise TypeError("the judge is not an asynchronous function")
        return await awaitable
    except SystemExit as error:  # a judge must not end the program
        raise ModelRequestError("SystemExit", _error_text(error)) from None


def _failing_ask(error: ModelRequestError) -> AskFunction:
    """Return a function that raises the error, used if no connection could be opened."""

    async def ask(_: JudgePrompt) -> Any:
        raise error

    return ask


def _consume_exception(task: asyncio.Future[Any]) -> None:
    """Retrieve the exception of an abandoned task, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()


def _error_text(error: BaseException) -> str:
    """Return the text of any error in one line."""
    try:
        return to_one_line(str(error), _MAX_ERROR_LENGTH)
    except Exception:  # noqa: BLE001 - `__str__` is foreign code
        return "the error has no text"


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
