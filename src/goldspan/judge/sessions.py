"""Asking in one event loop: votes, attempts, and how long an endpoint is left alone."""

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

from goldspan.judge.answers import Answer, AskingError
from goldspan.judge.counting import OVER_BUDGET
from goldspan.judge.judges import Ask, Asker, Judge
from goldspan.judge.opinions import Opinion, opinion_in
from goldspan.judge.questions import Question, evidence_of, offered
from goldspan.judge.rubric import RUBRIC
from goldspan.judge.selection import TOOL_SELECTION, not_answered, not_judged, selection_score, with_selection
from goldspan.model import Evaluation, Judgement, Score
from goldspan.sinks import redacted
from goldspan.sinks.redaction import HIDDEN

_MALFORMED = 1
"""How often it is asked again for an answer that is none: that costs what an answer does, and helps now and then."""
_REFUSALS = 3
"""So many refusals in a row that nothing but other settings could change."""
_SPARED_S = 30.0
"""Seconds for which the endpoint is then not asked."""
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 8.0
_LONGEST_LEFT_ALONE_S = 3600.0
"""No endpoint can have itself left alone for longer by saying so once."""
_LAST_S = 1.0
"""Seconds that closing a connection may take when there was no answer in time."""
_AROUND_TOKENS = 64
"""Tokens that an endpoint puts around messages."""
_LONGEST_ERROR = 400

_NO_TOOLS = "the tools the agent was offered were not captured"
_NO_REQUEST = "what was asked was not captured"
_TOO_LONG = "the run is too long to be shown to a model"
_WITHHELD = "nothing of the run may be shown to a model"


@dataclass(slots=True)
class _Time:
    """Until when a run may take."""

    until: float
    patience: float
    """Seconds that are left for waiting until an endpoint wants to be asked again. They do not count as asking."""

    def rest(self, seconds: float) -> bool:
        """Use that many seconds of the patience; whether there are so many."""
        if seconds > self.patience:
            return False
        self.patience -= seconds
        self.until += seconds
        return True


@dataclass(frozen=True, slots=True)
class _Vote:
    opinion: Opinion
    answer: Answer
    """What it cost. Nothing, where it was known from before."""
    cached: bool


@asynccontextmanager
async def session_of(judge: Judge) -> AsyncIterator[Session]:
    """A judge at work in this event loop, for as long as this is open.

    async with session_of(judge) as session:
        judged = await session.evaluate(goldspan.evaluate(run, goldens))
    """
    async with AsyncExitStack() as connections:
        ask: Ask
        if isinstance(judge.ask, Asker):
            try:
                ask = await connections.enter_async_context(judge.ask.opened())
            except Exception as error:  # noqa: BLE001 - a failure is a value, of every run that is asked about
                ask = _never(AskingError(type(error).__name__, _told(error), spent=False))
        else:
            ask = judge.ask
        yield Session(judge, ask)


class Session:
    """What a judge does in one event loop; see `session_of`."""

    def __init__(self, judge: Judge, ask: Callable[[Question], Awaitable[Any]]) -> None:
        self._judge = judge
        self._ask = ask
        self._places = asyncio.Semaphore(judge.concurrency)
        self._left_alone_until = 0.0
        self._refusals = 0
        """How often in a row the endpoint said what it will say again: that the key, or the model, is none of its."""
        self._refusal: AskingError | None = None
        self._refused_until = 0.0

    async def evaluate(self, evaluation: Evaluation) -> Evaluation:
        """The evaluation with the score `tool_selection`. Raises nothing but what ends the task itself."""
        judge = self._judge
        score = await self.score(evaluation)
        return with_selection(evaluation, score, combination=judge.combination, combined_with=judge.combined_with)

    async def score(self, evaluation: Evaluation) -> Score:
        """The score alone: with a value, with a reason why nobody was asked, or with the error of the judge."""
        judge = self._judge
        threshold = _threshold(evaluation, judge.threshold)
        try:
            async with self._places:  # what waits for a place holds no question yet
                question = self._question(evaluation)
                if isinstance(question, str):
                    judge.counting.not_asked()
                    return not_judged(question, threshold)
                with _unseen():
                    votes = await self._votes(question)
        except AskingError as error:
            judge.counting.failed(error.kind)
            return not_answered(_told(error), threshold)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a failure is a value, and a judge ends no program
            judge.counting.failed(type(error).__name__)
            return not_answered(f"{type(error).__name__}: {_told(error)}", threshold)
        judge.counting.judged(cached=all(vote.cached for vote in votes))
        opinions = [vote.opinion for vote in votes]
        return selection_score(opinions, self._judgement(votes), threshold, explain=judge.explain)

    def _question(self, evaluation: Evaluation) -> Question | str:
        """What is asked about a run; or why nothing can be."""
        judge = self._judge
        shown = redacted(evaluation, judge.redact)
        if shown is None:
            return _WITHHELD
        run = shown.run
        known = run.available_tools or judge.available_tools or ()
        tools = offered(known, run)
        if not tools:
            return _NO_TOOLS
        if run.input is None or run.input == HIDDEN or not run.input.strip():
            return _NO_REQUEST
        evidence = evidence_of(run, tools, judge.show, further_tools=len(known) - len(tools))
        if evidence is None:
            return _TOO_LONG
        return Question(
            evidence,
            tuple(tool.name for tool in tools),
            temperature=judge.temperature,
            seed=judge.seed,
            max_tokens=judge.max_tokens,
        )

    async def _votes(self, question: Question) -> list[_Vote]:
        """More than half of the votes. Raises `AskingError` where there are not so many."""
        judge = self._judge
        time = _Time(_now() + judge.timeout, judge.patience)
        votes: list[_Vote] = []
        for number in range(judge.votes):
            seed = None if judge.seed is None else judge.seed + number
            try:
                votes.append(await self._vote(replace(question, seed=seed), number, time))
            except AskingError:
                left = judge.votes - number - 1
                if len(votes) + left <= judge.votes // 2:
                    raise
        return votes

    async def _vote(self, question: Question, number: int, time: _Time) -> _Vote:
        judge = self._judge
        key = _key(judge, question, number)
        if (known := judge.ledger.find(key)) is not None:
            return _Vote(known.opinion, Answer("", known.model, 0, 0), cached=True)
        failed: list[str] = []
        while True:
            self._spare()
            await self._leave_alone(time)
            try:
                opinion, answer = await self._attempt(question, time.until)
            except AskingError as error:
                self._take_note(error)
                failed.append(error.kind)
                too_often = len(failed) > judge.retries or failed.count("MalformedAnswer") > _MALFORMED
                if too_often or not error.again:
                    raise
                if error.retry_after is None:
                    await self._pause(len(failed), time, error)
                continue
            self._refusals = 0
            judge.ledger.keep(key, opinion, answer.model)
            return _Vote(opinion, answer, cached=False)

    def _spare(self) -> None:
        """Raise what an endpoint said several times in a row, in place of asking it for every run once more."""
        if self._refusal is not None and _now() < self._refused_until:
            raise AskingError(self._refusal.kind, self._refusal.args[0])

    def _take_note(self, error: AskingError) -> None:
        """Keep what an error says of the next questions, too."""
        if error.retry_after is not None:
            until = _now() + min(error.retry_after, _LONGEST_LEFT_ALONE_S)
            self._left_alone_until = max(self._left_alone_until, until)
        self._refusals = self._refusals + 1 if error.lasting else 0
        if self._refusals >= _REFUSALS:
            self._refusal, self._refused_until = error, _now() + _SPARED_S

    async def _leave_alone(self, time: _Time) -> None:
        """Wait until the endpoint wants to be asked again. Raises `AskingError` where that is too long."""
        while (wait := self._left_alone_until - _now()) > 0:
            if not time.rest(wait):
                raise AskingError("RateLimited", f"the endpoint wants to be left alone for {wait:.0f} s more")
            await asyncio.sleep(wait)

    async def _pause(self, failures: int, time: _Time, error: AskingError) -> None:
        """Wait before asking again, longer each time and never as long as others. Raises what it waits for in vain."""
        pause = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (failures - 1)) * random.uniform(0.5, 1.0)
        if _now() + pause >= time.until:
            raise error
        await asyncio.sleep(pause)

    async def _attempt(self, question: Question, until: float) -> tuple[Opinion, Answer]:
        """Ask once, within the budget and the time, and count it."""
        left = until - _now()
        if left <= 0:
            raise AskingError("Timeout", f"no answer within {self._judge.timeout:g} s", spent=False)
        with self._spending(question) as spending:
            try:
                answered = await self._answered(question, left)
                answer = spending.answer = answered if isinstance(answered, Answer) else Answer("")
                opinion = opinion_in(answered.text if isinstance(answered, Answer) else answered, question)
            except AskingError:
                raise
            except Exception as error:
                raise AskingError(type(error).__name__, _told(error)) from error
        return opinion, answer

    async def _answered(self, question: Question, seconds: float) -> Any:
        """What comes back within so many seconds. Who would hold on to the question is left behind."""
        asked = asyncio.ensure_future(_asked(self._ask, question))
        try:
            await asyncio.wait({asked}, timeout=seconds)
        finally:
            late = not asked.done()
            if late:
                asked.cancel()
                asked.add_done_callback(_let_go)
        if late:
            await asyncio.wait({asked}, timeout=_LAST_S)
            raise AskingError("Timeout", f"no answer within {self._judge.timeout:g} s")
        if asked.cancelled():  # not by us
            raise AskingError("CancelledError", "the judge gave up by itself")
        return asked.result()

    @contextmanager
    def _spending(self, question: Question) -> Iterator[_Spending]:
        """Set aside what an attempt may cost at most, and put it right when it is known what it did."""
        judge = self._judge
        spending = _Spending()
        most_in, most_out = _most_input(question), max(question.max_tokens, getattr(judge.ask, "most_output", 0))
        most = most_in + most_out
        most_cost = judge.prices.cost(most_in, most_out) if judge.prices else 0.0
        minute = judge.ledger.spend(most, most_cost, judge.budget.allows)
        if minute is None:
            raise AskingError(OVER_BUDGET, "the judge's budget of the last 24 hours is spent")
        outcome, was_spent = "cancelled", True
        try:
            yield spending
            outcome = "answered"
        except AskingError as error:
            outcome, was_spent = error.kind, error.spent
            spending.answer = spending.answer or error.answer
            raise
        finally:
            answer = spending.answer
            taken_in, taken_out = (answer.input_tokens, answer.output_tokens) if answer else (None, None)
            cost = judge.prices.cost(taken_in or 0, taken_out or 0) if judge.prices else None
            judge.counting.requested(outcome, taken_in or 0, taken_out or 0, cost)
            # What is not known may have been as much as was set aside for it, unless nothing was spent.
            spent_in = taken_in if taken_in is not None else most_in * was_spent
            spent_out = taken_out if taken_out is not None else most_out * was_spent
            spent_cost = judge.prices.cost(spent_in, spent_out) if judge.prices else 0.0
            judge.ledger.settle(minute, spent_in + spent_out - most, spent_cost - most_cost)

    def _judgement(self, votes: list[_Vote]) -> Judgement:
        """How it was asked, and what that cost."""
        judge = self._judge
        taken_in, taken_out = ([getattr(vote.answer, name) for vote in votes] for name in _TOKENS)
        known = None not in (*taken_in, *taken_out)
        tokens = (sum(taken_in), sum(taken_out)) if known else (None, None)
        named: list[str] = [vote.answer.model for vote in votes if vote.answer.model]
        return Judgement(
            named[0] if named else judge.model,
            temperature=judge.temperature,
            seed=judge.seed,
            rubric=RUBRIC,
            cached=sum(vote.cached for vote in votes),
            input_tokens=tokens[0],
            output_tokens=tokens[1],
            cost=judge.prices.cost(sum(taken_in), sum(taken_out)) if judge.prices and known else None,
        )


@contextmanager
def _unseen() -> Iterator[None]:
    """Have no instrumentation make spans of the judge's own requests: they would be runs, and be judged in turn.

    Nor do they belong to the trace of the application that happens to be current.
    """
    token = attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True, Context()))
    try:
        yield
    finally:
        detach(token)


_TOKENS = ("input_tokens", "output_tokens")


@dataclass(slots=True)
class _Spending:
    answer: Answer | None = None
    """What came back; `None`: nothing yet."""


def _threshold(evaluation: Evaluation, otherwise: float | None) -> float | None:
    """What the score must reach: as whoever evaluated the run said, or its golden, or else the judge."""
    asked = evaluation.score(TOOL_SELECTION)
    if asked is not None and asked.threshold is not None:
        return asked.threshold
    return evaluation.golden.thresholds.get(TOOL_SELECTION, otherwise) if evaluation.golden else otherwise


def _key(judge: Judge, question: Question, number: int) -> str:
    """What an answer is kept under: everything that it depends on. Votes are told apart even where no seed is sent."""
    told = [
        RUBRIC, judge.identity, judge.model, question.messages, list(question.tools), question.max_tokens,
        question.temperature, question.seed, number,
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(told).encode("utf-8", "surrogatepass")).hexdigest()


def _most_input(question: Question) -> int:
    """The tokens of a question, at most: a token has one byte at least."""
    texts = [*(message["content"] for message in question.messages), json.dumps(dict(question.schema))]
    return sum(len(text.encode("utf-8", "replace")) for text in texts) + _AROUND_TOKENS


async def _asked(ask: Ask, question: Question) -> Any:
    """What a function answers, which may be anybody's."""
    try:
        answered: object = ask(question)
        if not inspect.isawaitable(answered):
            raise TypeError("the judge is no asynchronous function")
        return await answered
    except SystemExit as error:  # a judge ends no program
        raise AskingError("SystemExit", _told(error)) from None


def _never(error: AskingError) -> Ask:
    """What is asked in vain, for there is no connection to ask over."""

    async def ask(_: Question) -> Any:
        raise error

    return ask


def _let_go(asked: asyncio.Future[Any]) -> None:
    """Take note of what came too late, so that nobody says that nobody did."""
    if not asked.cancelled():
        asked.exception()


def _told(error: BaseException) -> str:
    """The text of an error in one line, whatever it is of."""
    try:
        text = " ".join("".join(each if each.isprintable() else " " for each in str(error)[:4000]).split())
    except Exception:  # noqa: BLE001 - it is not our code
        return "it has no text"
    return text if len(text) <= _LONGEST_ERROR else f"{text[: _LONGEST_ERROR - 1]}…"


def _now() -> float:
    return asyncio.get_running_loop().time()
