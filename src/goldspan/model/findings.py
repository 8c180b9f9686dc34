"""What was found when calls were laid beside expectations: the rows, and the numbers read off them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from goldspan.model.goldens import AnyOf, ExpectedTool
from goldspan.model.runs import ToolCall

Verdict = Literal["paired", "missing", "unexpected", "superseded", "tolerated", "forbidden"]
Label = Literal["pass", "fail", "not_evaluated"]

NO_GOLDEN = "no golden"
"""The note beside a call of which nothing was expected."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One argument in which a call differs from what was expected. A missing side is `ABSENT`."""

    key: str
    expected: Any
    called: Any
    note: str | None = None
    """Why the two could not be compared; `None`: they were, and differ."""
    hint: str | None = None
    """What would have accepted the called value, where a matcher would have: `differs only in case: {folded: ...}
    accepts it`. It holds no value."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the arguments, or the result, of a paired call agree with what was expected."""

    share: float
    """From 0 (nothing agrees) to 1 (all equal)."""
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a comparison: a call, an expectation, or both side by side."""

    verdict: Verdict
    expected: ExpectedTool | AnyOf | None = None
    """Of alternative calls the one that was made; all of them where none was."""
    called: ToolCall | None = None
    expected_at: int | None = None
    """The expectation's position among all of the golden; of alternative trajectories only the one that was taken
    counts, and what is expected several times takes several positions."""
    called_at: int | None = None
    """The call's position in the run."""
    agreement: Agreement | None = None
    """For pairs whose arguments were judged; `None`: not stated by the golden, or not captured."""
    result_agreement: Agreement | None = None
    """The same for results."""
    in_order: bool | None = None
    """For pairs: whether the call came where the golden's order wants it."""
    note: str | None = None
    """Why a call or an expectation was tolerated, or a call superseded."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing that a golden states, and why it is broken or cannot be judged. It holds names, and no values."""

    about: str
    """`missing`, `unexpected`, `times`, `order`, `arguments`, `result`, `agent`, `repeats`, `outcome`, `forbidden`,
    `max_calls`; the name of a metric, for its threshold; `calls` where no call can be judged."""
    text: str
    """What became of it, in words: `book was not called`."""
    expected_at: int | None = None
    """The position of the expectation, as in the row."""
    called_at: int | None = None
    """The position of the call in the run."""


FaultKind = Literal[
    "missing", "extra", "wrong_tool", "wrong_agent", "arguments", "result", "failed", "forbidden", "order"
]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that went wrong, and whose it is. It holds names only, and never a value.

    Each missing expectation and each unexpected call is in exactly one fault. An expected call that was made may be in
    several: it may come too late, and with wrong arguments.
    """

    kind: FaultKind
    """`wrong_tool`: an unexpected call stands where a missing one was due. `wrong_agent`: the right tool was called, by
    another agent than the expected one. `extra`: any other unexpected call."""
    tool: str
    """The tool that was expected; where nothing was, the one that was called."""
    agent: str | None = None
    """The agent that made the call, or should have made it; `None`: not known."""
    instead: str | None = None
    """The tool, or the agent, that stood in its place."""
    detail: str | None = None
    """The arguments, or the parts of the result, that differ: their names."""
    expected_at: int | None = None
    """The expectation's position, as in the row."""
    called_at: int | None = None
    """The call's position in the run."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a model was asked for a score, and what it said."""

    model: str
    """As the endpoint names it, else as it was asked for."""
    votes: tuple[float, ...] = ()
    """What it said each time it was asked; the score is their median."""
    agreement: float | None = None
    """The share of the votes that stand on the score's side of the threshold; `None`: there is only one."""
    better_tool: str | None = None
    """The tool that would have been better, in the run's own spelling; `None`: none."""
    words: str | None = None
    """Why, in the words of the model. They may repeat anything that is in the run."""
    temperature: float | None = None
    """What it was asked with; `None`: the model's own."""
    seed: int | None = None
    """That of the first vote; the next one has the next number. `None`: none was sent."""
    rubric: int = 1
    """The version of what was asked."""
    cached: int = 0
    """How many of the votes were known from before, and cost nothing."""
    input_tokens: int | None = None
    """Tokens that it took; `None`: the endpoint does not say."""
    output_tokens: int | None = None
    cost: float | None = None
    """In US dollars; `None`: there are no prices, or the tokens are not known."""


@dataclass(frozen=True, slots=True)
class Score:
    """One number that a metric read off a comparison."""

    metric: str
    value: float | None = None
    """Usually 0 to 1; `None` where it cannot be known, and `reason` says why."""
    passed: bool | None = None
    """Whether the threshold is met; `None` where there is no threshold or no value, or where what is not known would
    decide it, which `reason` says."""
    threshold: float | None = None
    label: Label | None = None
    reason: str | None = None
    error: str | None = None
    """The metric itself failed: an exception, as text."""
    steps: tuple[str, ...] = ()
    """How the value came about, where that was asked for."""
    judgement: Judgement | None = None
    """Where a model gave the number: how it was asked, and what it said."""
