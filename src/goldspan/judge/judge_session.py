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

from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, Context, attach, detach, set_value

from goldspan.judge.judge import AskFunction, Judge, ModelClient
from goldspan.judge.model_replies import Assessment, ModelReply, ModelRequestError, parse_assessment
from goldspan.judge.prompts import RUBRIC_VERSION, JudgePrompt, build_evidence, relevant_tools
from goldspan.judge.tool_selection import (
    TOOL_SELECTION,
    failed_score,
    not_evaluated_score,
    selection_score,
    with_tool_selection,
)
from goldspan.judge.usage import OVER_BUDGET_ERROR
from goldspan.model import Evaluation, Judgement, Score
from goldspan.sinks import apply_redaction
from goldspan.sinks.redaction import REDACTED

_MAX_MALFORMED_RETRIES = 1
"""How often it is asked again for an answer that is none: that costs what an answer does, and helps now and then."""
_CIRCUIT_BREAKER_THRESHOLD = 3
"""So many refusals in a row that nothing but other settings could change."""
_CIRCUIT_OPEN_S = 30.0
"""Seconds for which the endpoint is then not asked."""
_INITIAL_BACKOFF_S = 0.5
_MAX_BACKOFF_S = 8.0
_MAX_RETRY_AFTER_S = 3600.0
"""No endpoint can have itself left alone for longer by saying so once."""
_CANCEL_GRACE_S = 1.0
"""Seconds that closing a connection may take when there was no answer in time."""
_MESSAGE_OVERHEAD_TOKENS = 64
"""Tokens that an endpoint puts around messages."""
_MAX_ERROR_LENGTH = 400

_REASON_NO_TOOLS = "the tools the agent was offered were not captured"
_REASON_NO_REQUEST = "what was asked was not captured"
_REASON_TOO_LONG = "the run is too long to be shown to a model"
_REASON_WITHHELD = "nothing of the run may be shown to a model"


@dataclass(slots=True)
class _Deadline:
    """Until when a run may take."""

    until: float
    retry_after_budget: float
    """Seconds that are left for waiting until an endpoint wants to be asked again. They do not count as asking."""

    def extend(self, seconds: float) -> bool:
        """Use that many seconds of the patience; whether there are so many."""
        if seconds > self.retry_after_budget:
            return False
        self.retry_after_budget -= seconds
        self.until += seconds
        return True


@dataclass(frozen=True, slots=True)
class _Vote:
    assessment: Assessment
    reply: ModelReply
    """What it cost. Nothing, where it was known from before."""
    cached: bool


@asynccontextmanager
async def open_session(judge: Judge) -> AsyncIterator[JudgeSession]:
    """A judge at work in this event loop, for as long as this is open.

    async with session_of(judge) as session:
        judged = await session.evaluate(goldspan.evaluate(run, goldens))
    """
    async with AsyncExitStack() as connections:
        ask: AskFunction
        if isinstance(judge.ask, ModelClient):
            try:
                ask = await connections.enter_async_context(judge.ask.connect())
            except Exception as error:  # noqa: BLE001 - a failure is a value, of every run that is asked about
                ask = _failing_ask(ModelRequestError(type(error).__name__, _error_text(error), is_billed=False))
        else:
            ask = judge.ask
        yield JudgeSession(judge, ask)


class JudgeSession:
    """What a judge does in one event loop; see `session_of`."""

    def __init__(self, judge: Judge, ask: Callable[[JudgePrompt], Awaitable[Any]]) -> None:
        self._judge = judge
        self._ask = ask
        self._concurrency = asyncio.Semaphore(judge.concurrency)
        self._retry_after_until = 0.0
        self._permanent_failures = 0
        """How often in a row the endpoint said what it will say again: that the key, or the model, is none of its."""
        self._permanent_error: ModelRequestError | None = None
        self._circuit_open_until = 0.0

    async def judge(self, evaluation: Evaluation) -> Evaluation:
        """The evaluation with the score `tool_selection`. Raises nothing but what ends the task itself."""
        judge = self._judge
        score = await self.score(evaluation)
        return with_tool_selection(evaluation, score, combination=judge.combination, combined_with=judge.combined_with)

    async def score(self, evaluation: Evaluation) -> Score:
        """The score alone: with a value, with a reason why nobody was asked, or with the error of the judge."""
        judge = self._judge
        threshold = _effective_threshold(evaluation, judge.threshold)
        try:
            async with self._concurrency:  # what waits for a place holds no question yet
                question = self._build_prompt(evaluation)
                if isinstance(question, str):
                    judge.counters.record_not_asked()
                    return not_evaluated_score(question, threshold)
                with _suppress_instrumentation():
                    votes = await self._votes(question)
        except ModelRequestError as error:
            judge.counters.record_failure(error.kind)
            return failed_score(_error_text(error), threshold)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a failure is a value, and a judge ends no program
            judge.counters.record_failure(type(error).__name__)
            return failed_score(f"{type(error).__name__}: {_error_text(error)}", threshold)
        judge.counters.record_judged(cached=all(vote.cached for vote in votes))
        opinions = [vote.assessment for vote in votes]
        return selection_score(opinions, self._judgement(votes), threshold, explain=judge.explain)

    def _build_prompt(self, evaluation: Evaluation) -> JudgePrompt | str:
        """What is asked about a run; or why nothing can be."""
        judge = self._judge
        shown = apply_redaction(evaluation, judge.redact)
        if shown is None:
            return _REASON_WITHHELD
        run = shown.run
        known = run.available_tools or judge.available_tools or ()
        tools = relevant_tools(known, run)
        if not tools:
            return _REASON_NO_TOOLS
        if run.input is None or run.input == REDACTED or not run.input.strip():
            return _REASON_NO_REQUEST
        evidence = build_evidence(run, tools, judge.show, omitted_tools=len(known) - len(tools))
        if evidence is None:
            return _REASON_TOO_LONG
        return JudgePrompt(
            evidence,
            tuple(tool.name for tool in tools),
            temperature=judge.temperature,
            seed=judge.seed,
            max_tokens=judge.max_tokens,
        )

    async def _votes(self, question: JudgePrompt) -> list[_Vote]:
        """More than half of the votes. Raises `AskingError` where there are not so many."""
        judge = self._judge
        time = _Deadline(_loop_time() + judge.timeout, judge.retry_after_budget)
        votes: list[_Vote] = []
        for number in range(judge.votes):
            seed = None if judge.seed is None else judge.seed + number
            try:
                votes.append(await self._vote(replace(question, seed=seed), number, time))
            except ModelRequestError:
                left = judge.votes - number - 1
                if len(votes) + left <= judge.votes // 2:
                    raise
        return votes

    async def _vote(self, question: JudgePrompt, number: int, time: _Deadline) -> _Vote:
        judge = self._judge
        key = _cache_key(judge, question, number)
        if (known := judge.cache.get(key)) is not None:
            return _Vote(known.assessment, ModelReply("", known.model, 0, 0), cached=True)
        failed: list[str] = []
        while True:
            self._check_circuit_breaker()
            await self._wait_retry_after(time)
            try:
                opinion, answer = await self._attempt(question, time.until)
            except ModelRequestError as error:
                self._record_error(error)
                failed.append(error.kind)
                too_often = len(failed) > judge.retries or failed.count("MalformedAnswer") > _MAX_MALFORMED_RETRIES
                if too_often or not error.is_retryable:
                    raise
                if error.retry_after is None:
                    await self._back_off(len(failed), time, error)
                continue
            self._permanent_failures = 0
            judge.cache.put(key, opinion, answer.model)
            return _Vote(opinion, answer, cached=False)

    def _check_circuit_breaker(self) -> None:
        """Raise what an endpoint said several times in a row, in place of asking it for every run once more."""
        if self._permanent_error is not None and _loop_time() < self._circuit_open_until:
            raise ModelRequestError(self._permanent_error.kind, self._permanent_error.args[0])

    def _record_error(self, error: ModelRequestError) -> None:
        """Keep what an error says of the next questions, too."""
        if error.retry_after is not None:
            until = _loop_time() + min(error.retry_after, _MAX_RETRY_AFTER_S)
            self._retry_after_until = max(self._retry_after_until, until)
        self._permanent_failures = self._permanent_failures + 1 if error.is_permanent else 0
        if self._permanent_failures >= _CIRCUIT_BREAKER_THRESHOLD:
            self._permanent_error, self._circuit_open_until = error, _loop_time() + _CIRCUIT_OPEN_S

    async def _wait_retry_after(self, time: _Deadline) -> None:
        """Wait until the endpoint wants to be asked again. Raises `AskingError` where that is too long."""
        while (wait := self._retry_after_until - _loop_time()) > 0:
            if not time.extend(wait):
                raise ModelRequestError("RateLimited", f"the endpoint wants to be left alone for {wait:.0f} s more")
            await asyncio.sleep(wait)

    async def _back_off(self, failures: int, time: _Deadline, error: ModelRequestError) -> None:
        """Wait before asking again, longer each time and never as long as others. Raises what it waits for in vain."""
        pause = min(_MAX_BACKOFF_S, _INITIAL_BACKOFF_S * 2 ** (failures - 1)) * random.uniform(0.5, 1.0)
        if _loop_time() + pause >= time.until:
            raise error
        await asyncio.sleep(pause)

    async def _attempt(self, question: JudgePrompt, until: float) -> tuple[Assessment, ModelReply]:
        """Ask once, within the budget and the time, and count it."""
        left = until - _loop_time()
        if left <= 0:
            raise ModelRequestError("Timeout", f"no answer within {self._judge.timeout:g} s", is_billed=False)
        with self._reserve_budget(question) as spending:
            try:
                answered = await self._await_reply(question, left)
                answer = spending.reply = answered if isinstance(answered, ModelReply) else ModelReply("")
                opinion = parse_assessment(answered.text if isinstance(answered, ModelReply) else answered, question)
            except ModelRequestError:
                raise
            except Exception as error:
                raise ModelRequestError(type(error).__name__, _error_text(error)) from error
        return opinion, answer

    async def _await_reply(self, question: JudgePrompt, seconds: float) -> Any:
        """What comes back within so many seconds. Who would hold on to the question is left behind."""
        asked = asyncio.ensure_future(_call_ask(self._ask, question))
        try:
            await asyncio.wait({asked}, timeout=seconds)
        finally:
            late = not asked.done()
            if late:
                asked.cancel()
                asked.add_done_callback(_consume_exception)
        if late:
            await asyncio.wait({asked}, timeout=_CANCEL_GRACE_S)
            raise ModelRequestError("Timeout", f"no answer within {self._judge.timeout:g} s")
        if asked.cancelled():  # not by us
            raise ModelRequestError("CancelledError", "the judge gave up by itself")
        return asked.result()

    @contextmanager
    def _reserve_budget(self, question: JudgePrompt) -> Iterator[_RequestCost]:
        """Set aside what an attempt may cost at most, and put it right when it is known what it did."""
        judge = self._judge
        spending = _RequestCost()
        most_in, most_out = (
            _max_input_tokens(question),
            max(question.max_tokens, getattr(judge.ask, "max_output_tokens", 0)),
        )
        most = most_in + most_out
        most_cost = judge.prices.cost(most_in, most_out) if judge.prices else 0.0
        minute = judge.cache.reserve(most, most_cost, judge.budget.allows)
        if minute is None:
            raise ModelRequestError(OVER_BUDGET_ERROR, "the judge's budget of the last 24 hours is spent")
        outcome, was_spent = "cancelled", True
        try:
            yield spending
            outcome = "answered"
        except ModelRequestError as error:
            outcome, was_spent = error.kind, error.is_billed
            spending.reply = spending.reply or error.reply
            raise
        finally:
            answer = spending.reply
            taken_in, taken_out = (answer.input_tokens, answer.output_tokens) if answer else (None, None)
            cost = judge.prices.cost(taken_in or 0, taken_out or 0) if judge.prices else None
            judge.counters.record_request(outcome, taken_in or 0, taken_out or 0, cost)
            # What is not known may have been as much as was set aside for it, unless nothing was spent.
            spent_in = taken_in if taken_in is not None else most_in * was_spent
            spent_out = taken_out if taken_out is not None else most_out * was_spent
            spent_cost = judge.prices.cost(spent_in, spent_out) if judge.prices else 0.0
            judge.cache.adjust_reservation(minute, spent_in + spent_out - most, spent_cost - most_cost)

    def _judgement(self, votes: list[_Vote]) -> Judgement:
        """How it was asked, and what that cost."""
        judge = self._judge
        taken_in, taken_out = ([getattr(vote.reply, name) for vote in votes] for name in _TOKEN_FIELDS)
        known = None not in (*taken_in, *taken_out)
        tokens = (sum(taken_in), sum(taken_out)) if known else (None, None)
        named: list[str] = [vote.reply.model for vote in votes if vote.reply.model]
        return Judgement(
            named[0] if named else judge.model,
            temperature=judge.temperature,
            seed=judge.seed,
            rubric=RUBRIC_VERSION,
            cached=sum(vote.cached for vote in votes),
            input_tokens=tokens[0],
            output_tokens=tokens[1],
            cost=judge.prices.cost(sum(taken_in), sum(taken_out)) if judge.prices and known else None,
        )


@contextmanager
def _suppress_instrumentation() -> Iterator[None]:
    """Have no instrumentation make spans of the judge's own requests: they would be runs, and be judged in turn.

    Nor do they belong to the trace of the application that happens to be current.
    """
    token = attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True, Context()))
    try:
        yield
    finally:
        detach(token)


_TOKEN_FIELDS = ("input_tokens", "output_tokens")


@dataclass(slots=True)
class _RequestCost:
    reply: ModelReply | None = None
    """What came back; `None`: nothing yet."""


def _effective_threshold(evaluation: Evaluation, default: float | None) -> float | None:
    """What the score must reach: as whoever evaluated the run said, or its golden, or else the judge."""
    asked = evaluation.score(TOOL_SELECTION)
    if asked is not None and asked.threshold is not None:
        return asked.threshold
    return evaluation.golden.thresholds.get(TOOL_SELECTION, default) if evaluation.golden else default


def _cache_key(judge: Judge, question: JudgePrompt, number: int) -> str:
    """What an answer is kept under: everything that it depends on. Votes are told apart even where no seed is sent."""
    told = [
        RUBRIC_VERSION, judge.identity, judge.model, question.messages, list(question.tools), question.max_tokens,
        question.temperature, question.seed, number,
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(told).encode("utf-8", "surrogatepass")).hexdigest()


def _max_input_tokens(question: JudgePrompt) -> int:
    """The tokens of a question, at most: a token has one byte at least."""
    texts = [*(message["content"] for message in question.messages), json.dumps(dict(question.schema))]
    return sum(len(text.encode("utf-8", "replace")) for text in texts) + _MESSAGE_OVERHEAD_TOKENS


async def _call_ask(ask: AskFunction, question: JudgePrompt) -> Any:
    """What a function answers, which may be anybody's."""
    try:
        answered: object = ask(question)
        if not inspect.isawaitable(answered):
            raise TypeError("the judge is no asynchronous function")
        return await answered
    except SystemExit as error:  # a judge ends no program
        raise ModelRequestError("SystemExit", _error_text(error)) from None


def _failing_ask(error: ModelRequestError) -> AskFunction:
    """What is asked in vain, for there is no connection to ask over."""

    async def ask(_: JudgePrompt) -> Any:
        raise error

    return ask


def _consume_exception(asked: asyncio.Future[Any]) -> None:
    """Take note of what came too late, so that nobody says that nobody did."""
    if not asked.cancelled():
        asked.exception()


def _error_text(error: BaseException) -> str:
    """The text of an error in one line, whatever it is of."""
    try:
        text = " ".join("".join(each if each.isprintable() else " " for each in str(error)[:4000]).split())
    except Exception:  # noqa: BLE001 - it is not our code
        return "it has no text"
    return text if len(text) <= _MAX_ERROR_LENGTH else f"{text[: _MAX_ERROR_LENGTH - 1]}…"


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
