"""Asserts inside any test that an agent called the expected tools, with a readable message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from io import StringIO
from typing import TYPE_CHECKING

from goldspan.model import Evaluation, Run
from goldspan.scoring import evaluate

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from goldspan.scoring.coercion import CallLike, GoldenOverrides
    from goldspan.scoring.evaluator import Expectation
    from goldspan.scoring.metrics import MetricLike

_WIDTH = 100
"""Columns of a message. Test reports are read in terminals, in logs of builds and in XML, so it is fixed."""


class ToolsAssertionError(AssertionError):
    """The tools that were called are not those that were expected, or nobody can know whether they are."""

    __module__ = "goldspan"  # its public name, which tracebacks show before the message

    def __init__(self, evaluation: Evaluation) -> None:
        super().__init__(evaluation)
        self.evaluation = evaluation
        """The evaluation, with its scores and its comparison."""

    def __str__(self) -> str:
        return failure_text(self.evaluation)


def assert_tools(
    called: Run | Iterable[CallLike],
    expected: Expectation,
    *,
    input: str | None = None,  # noqa: A002 - what it is called everywhere else
    metrics: Iterable[MetricLike] | None = None,
    thresholds: Mapping[str, float] | None = None,
    **rules: Unpack[GoldenOverrides],
) -> Evaluation:
    """Raise `AssertionError` unless the called tools are the expected ones; the message shows both side by side.

        >>> assert_tools(["search", "book"], ["search", "book"]).passed
        True

    A run that cannot be evaluated fails as well, because an assertion that nobody can check must not pass. `unknown`
    changes that, as in a golden file.

    Args:
        called: A run, or a list of calls: names, dictionaries with `name` and `arguments`, or `ToolCall` values.
        expected: A list of expected tools, a golden, or goldens among which the run's golden is looked up.
        input: The text of the request, in place of the run's.
        metrics: The metrics to measure. Default: those of the golden.
        thresholds: The value that each metric must reach, by name, in place of the golden's.
        **rules: Any other key of a golden, such as `order`, `match`, `forbid`, `extra` or `unknown`.

    Returns:
        The evaluation, for further assertions.

    Raises:
        ToolsAssertionError: The evaluation did not pass.
        GoldspanError: A metric, a rule or an expected tool does not exist or is not written as one.
    """
    __tracebackhide__ = True
    evaluation = evaluate(called, expected, input=input, metrics=metrics, thresholds=thresholds, **rules)
    assert_passed(evaluation)
    return evaluation


def assert_passed(evaluation: Evaluation) -> None:
    """Raise `ToolsAssertionError` unless the evaluation passed."""
    __tracebackhide__ = True
    if evaluation.passed is not True:
        raise ToolsAssertionError(evaluation)


def failure_text(evaluation: Evaluation, *, coloured: bool = False) -> str:
    """Return the reason, then the expected and the called tools side by side, and the values that differ.

    `coloured` adds the ANSI colours of a terminal.
    """
    from rich.console import Console  # deferred: a test that passes writes no message

    from goldspan.terminal.evaluation_text import failure_block

    output = StringIO()
    console = Console(
        file=output,
        width=_WIDTH,
        force_terminal=coloured,
        color_system="standard" if coloured else None,
        highlight=False,
        legacy_windows=False,
    )
    console.print(failure_block(evaluation, console))
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines()).strip("\n")
