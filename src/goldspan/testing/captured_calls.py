"""Captures the tools that a block of a program calls, for tests and for other programs."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from opentelemetry.context import attach, detach

from goldspan.errors import ConfigurationError
from goldspan.goldens import Goldens
from goldspan.model import ComponentSelector, Evaluation, Golden, Run
from goldspan.scoring import evaluate
from goldspan.testing.assertions import assert_passed
from goldspan.testing.span_capture import CaseSpans, span_capture

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from typing_extensions import Self, Unpack

    from goldspan.scoring.coercion import GoldenOverrides
    from goldspan.scoring.evaluator import Expectation


class ToolCapture:
    """Captures the spans that end while the block runs, whatever instrumentation makes them.

        with ToolCapture() as capture:
            agent("Book the Roma Inn.")
        capture.assert_tools(["search_hotels", "book_hotel"])

    Spans of threads and tasks that the block starts belong to it. Several captures can run at once, in threads or tasks
    of their own.
    """

    def __init__(self, name: str = "capture") -> None:
        self.name = name
        self.evaluation: Evaluation | None = None
        """The latest evaluation of the captured run."""
        self._spans: CaseSpans | None = None
        self._token: Token[Context] | None = None
        self._run: Run | None = None

    def __enter__(self) -> Self:
        self._spans = span_capture().begin_case(self.name, golden_id=self._golden_id)
        self._token = attach(self._spans.context)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._token is not None:
            detach(self._token)
        if self._spans is not None and not self._spans.is_closed:
            self._run = self._build_run(self._spans)
            span_capture().finish_case(self._spans)

    @property
    def run(self) -> Run:
        """The run so far: the calls of the spans that have ended. After the block it no longer changes.

        Raises:
            ConfigurationError: The block has not started.
        """
        if self._run is not None:
            return self._run
        if self._spans is None:
            raise ConfigurationError("nothing is captured yet: write `with ToolCapture() as capture:`")
        return self._build_run(self._spans)

    @property
    def tools_used(self) -> Sequence[str]:
        """The names of the called tools, in order."""
        return self.run.tools_used

    def assert_tools(self, expected: Expectation, **rules: Unpack[GoldenOverrides]) -> Evaluation:
        """Raise `ToolsAssertionError` unless the captured tools are the expected ones; see `goldspan.assert_tools`."""
        __tracebackhide__ = True
        self.evaluation = evaluate(self.run, expected, **rules)
        assert_passed(self.evaluation)
        return self.evaluation

    def _build_run(self, spans: CaseSpans) -> Run:
        spans.end_root()
        spans.wait_for_spans()
        return spans.build_run(self._golden_id, self._input, self._components)

    _golden_id: str | None = None
    _input: str | None = None
    _components: Sequence[ComponentSelector] = ()


class GoldenCase(ToolCapture):
    """The capture of one golden.

    Args:
        golden: The golden.
        goldens: All goldens of its files.
        files: The paths of these files.
    """

    def __init__(self, golden: Golden, goldens: Goldens, files: Sequence[str] = ()) -> None:
        super().__init__(golden.id)
        self.golden = golden
        self.files = tuple(files)
        self._goldens = goldens
        self._golden_id, self._input, self._components = golden.id, golden.input, goldens.components

    @property
    def input(self) -> str:
        """The text of the request, for the agent."""
        return self.golden.input or ""

    def evaluate(self) -> Evaluation:
        """Evaluate the captured run against the golden."""
        self.evaluation = evaluate(self.run, self._goldens)
        return self.evaluation
