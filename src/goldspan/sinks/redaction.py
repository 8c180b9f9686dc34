"""The redaction hook, and `ArgumentFilter`, which hides values before evaluations leave the process.

Events, metrics and span attributes contain no values in any case. Redaction is for stores, documents with arguments,
and custom sinks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, TypeAlias

from goldspan import _guard
from goldspan.errors import ConfigurationError
from goldspan.model import (
    ABSENT,
    Agreement,
    AnyOf,
    Comparison,
    ComparisonRow,
    Difference,
    Evaluation,
    ExpectedTool,
    Golden,
    Parallel,
    Run,
    Score,
    Tool,
    ToolCall,
    When,
)
from goldspan.model.name_folding import fold_name
from goldspan.model.telemetry import content_digest
from goldspan.sinks.otel_sinks import error_type

Redact: TypeAlias = "Callable[[Evaluation], Evaluation | None]"
"""Returns the evaluation that may leave the process; `None` drops it."""

REDACTED = "[redacted]"
"""Replaces a hidden value."""

ALL_ARGUMENTS = "*"

_AllowedPaths: TypeAlias = "frozenset[str]"


def apply_redaction(evaluation: Evaluation, redact: Redact | None) -> Evaluation | None:
    """Returns what a hook leaves of an evaluation; `None` drops it.

    If the hook raises, or returns something else, the evaluation is dropped. The failure is counted and logged with its
    location and type, without its text, which may contain hidden values.
    """
    if redact is None:
        return evaluation
    try:
        redacted: object = redact(evaluation)
    except Exception as error:  # noqa: BLE001 - it is not our code
        failure = RuntimeError(f"the redaction raised {type(error).__name__}").with_traceback(error.__traceback__)
        _guard.report_error(_REDACTION_GUARD, failure)
        return None
    if redacted is None or isinstance(redacted, Evaluation):
        return redacted
    _guard.report_error(
        _REDACTION_GUARD, TypeError(f"the redaction returned {type(redacted).__name__} instead of an Evaluation")
    )
    return None


_REDACTION_GUARD = "redact an evaluation, which is dropped"


class ArgumentFilter:
    """A redaction that hides the values of arguments and results, and everything that repeats them.

    Top-level argument names stay, and values become `[redacted]`, in runs, comparisons and goldens. Attributes of the
    run's span are always hidden, since they contain messages. A redacted evaluation has the scores, rows, faults and
    names of the original, and a different digest.

    Args:
        allow: The arguments whose values stay visible, by tool: `{"book": ["city", "guest.country"]}`. A path includes
            everything below it; `*` stands for every tool, or every argument of a tool. Tools are matched by name,
            ignoring case.
        results: Whether results and the texts of errors stay visible.
        texts: Whether inputs, outputs, metadata and the inputs of goldens stay visible.

    Raises:
        ConfigurationError: If `allow` does not map tools to argument names.
    """

    def __init__(
        self, allow: Mapping[str, Iterable[str]] | None = None, *, results: bool = False, texts: bool = True
    ) -> None:
        self._allowed: dict[str, _AllowedPaths] = {}
        for name, paths in _parse_allow_list(allow or {}):
            tool = name if name == ALL_ARGUMENTS else fold_name(name)
            self._allowed[tool] = self._allowed.get(tool, _NO_PATHS) | paths
        self._results = results
        self._texts = texts
        self._golden_of = lru_cache(maxsize=1024)(self._redact_golden)  # runs share goldens

    def __call__(self, evaluation: Evaluation) -> Evaluation:
        """Returns a copy of an evaluation without the hidden values."""
        run = self._redact_run(evaluation.run)
        golden = evaluation.golden and self._golden_of(evaluation.golden)
        match = evaluation.match and replace(evaluation.match, golden=self._golden_of(evaluation.match.golden))
        comparison = evaluation.comparison
        compared = run if comparison.run is evaluation.run else self._redact_run(comparison.run)
        row = partial(self._redact_row, before=comparison.run, after=compared)
        rows = tuple(map(row, comparison.rows))
        by_others = tuple([(row(due), row(made)) for due, made in comparison.wrong_agent_pairs])
        copy = replace(
            evaluation,
            run=run,
            golden=golden,
            match=match,
            comparison=Comparison(golden, rows, compared, comparison.approximation_reason, by_others),
            scores=tuple(map(_redact_score, evaluation.scores)),
        )
        # The digest covers the visible values and the verdict: runs that differ only in hidden values can have
        # different verdicts, and a hash of hidden values would allow guessing them.
        vars(copy)["digest"] = content_digest([copy.digest, copy.scores, list(map(_verdict, rows))])
        return copy

    # --- runs ---------------------------------------------------------------------------------------------------------

    def _redact_run(self, run: Run) -> Run:
        return replace(
            run,
            input=run.input if self._texts else _redact_value(run.input),
            output=run.output if self._texts else _redact_value(run.output),
            tool_calls=tuple(map(self._redact_call, run.tool_calls)),
            metadata=run.metadata if self._texts else dict.fromkeys(run.metadata, REDACTED),
            expected_tools=None if run.expected_tools is None else tuple(map(_named, run.expected_tools)),
            attributes=dict.fromkeys(run.attributes, REDACTED),
        )

    def _redact_call(self, call: ToolCall) -> ToolCall:
        shown = self._results
        return replace(
            call,
            arguments=self._redact_arguments(call.name, call.arguments),
            raw_arguments=_redact_value(call.raw_arguments),
            result=call.result if shown else _redact_value(call.result),
            error=call.error if shown else _redact_value(call.error),
            error_guess=call.error_guess if shown else _redact_value(call.error_guess),
        )

    def _redact_arguments(self, tool: str, arguments: Any) -> Any:
        if arguments is None:
            return None
        return _filter_value(arguments, self._allowed_paths(tool), keep_keys=True)

    def _allowed_paths(self, tool: str) -> _AllowedPaths:
        allowed = self._allowed
        return allowed.get(ALL_ARGUMENTS, _NO_PATHS) | allowed.get(fold_name(tool), _NO_PATHS)

    # --- comparisons --------------------------------------------------------------------------------------------------

    def _redact_row(self, row: ComparisonRow, before: Run, after: Run) -> ComparisonRow:
        """Returns a redacted row that refers to the same call object as the redacted run of the comparison."""
        called, at = row.called, row.called_at
        if called is not None:
            same = at is not None and at < len(before.tool_calls) and before.tool_calls[at] is called
            called = after.tool_calls[at] if same and at is not None else self._redact_call(called)
        name = row.called.name if row.called else ""
        return replace(
            row,
            expected=row.expected and self._redact_expected(row.expected),
            called=called,
            agreement=row.agreement and self._redact_agreement(row.agreement, self._allowed_paths(name)),
            result_agreement=row.result_agreement
            and self._redact_agreement(row.result_agreement, _ALL_PATHS if self._results else _NO_PATHS),
        )

    def _redact_agreement(self, agreement: Agreement, allowed: _AllowedPaths) -> Agreement:
        return replace(
            agreement, differences=tuple([_redact_difference(each, allowed) for each in agreement.differences])
        )

    # --- goldens ------------------------------------------------------------------------------------------------------

    def _redact_golden(self, golden: Golden) -> Golden:
        vocabulary = replace(golden.vocabulary, tools=tuple(map(self._redact_declared_tool, golden.vocabulary.tools)))
        return replace(
            golden,
            input=golden.input if self._texts else _redact_value(golden.input),
            tools=tuple(map(self._redact_item, golden.tools)),
            metadata=golden.metadata if self._texts else dict.fromkeys(golden.metadata, REDACTED),
            when=golden.when if self._texts or golden.when is None else _redact_condition(golden.when),
            vocabulary=vocabulary,
        )

    def _redact_item(self, item: Any) -> Any:
        if isinstance(item, Parallel):
            return Parallel(tuple(map(self._redact_expected, item.items)))
        return self._redact_expected(item)

    def _redact_expected(self, expected: Any) -> Any:
        if isinstance(expected, AnyOf):
            return replace(
                expected, options=tuple(tuple(map(self._redact_item, option)) for option in expected.options)
            )
        return self._redact_tool(expected)

    def _redact_tool(self, tool: ExpectedTool) -> ExpectedTool:
        return replace(
            tool,
            arguments=self._redact_arguments(tool.name, tool.arguments),
            result=tool.result if self._results or tool.result is ABSENT else REDACTED,
            defaults=self._redact_arguments(tool.name, tool.defaults),
        )

    def _redact_declared_tool(self, tool: Tool) -> Tool:
        metadata = tool.metadata if self._texts else dict.fromkeys(tool.metadata, REDACTED)
        return replace(tool, defaults=self._redact_arguments(tool.name, tool.defaults), metadata=metadata)


_NO_PATHS: _AllowedPaths = frozenset()
_ALL_PATHS: _AllowedPaths = frozenset((ALL_ARGUMENTS,))


def _parse_allow_list(allow: object) -> Iterator[tuple[str, _AllowedPaths]]:
    """Yields the allowed paths by tool."""
    if not isinstance(allow, Mapping):
        raise ConfigurationError(
            f'allow must map tools to argument names, {{"book": ["city"]}}, or {{"*": ["city"]}} for all tools, '
            f"not {allow!r}"
        )
    for name, value in allow.items():
        paths = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
        if not all(isinstance(each, str) for each in (name, *paths)):
            raise ConfigurationError(f"allow[{name!r}] must be a list of argument names, not {value!r}")
        yield name, frozenset(paths)


def _filter_value(value: Any, allowed: _AllowedPaths, *, keep_keys: bool = False) -> Any:
    """Returns a value with its allowed parts; list items have the path of the list."""
    if ALL_ARGUMENTS in allowed:
        return value
    if isinstance(value, Mapping) and (allowed or keep_keys):
        return {key: _filter_value(item, _nested_paths(str(key), allowed)) for key, item in value.items()}
    if isinstance(value, list | tuple) and allowed:
        return [_filter_value(item, allowed) for item in value]
    return REDACTED


def _nested_paths(key: str, allowed: _AllowedPaths) -> _AllowedPaths:
    """Returns the allowed paths below the key."""
    if not allowed:
        return _NO_PATHS
    inside = (path.removeprefix(key) for path in allowed if path.startswith(key))
    return frozenset(
        path[1:] or ALL_ARGUMENTS if path else ALL_ARGUMENTS for path in inside if not path or path[0] == "."
    )


def _redact_difference(difference: Difference, allowed: _AllowedPaths) -> Difference:
    """Returns a difference unchanged if its path is allowed or below an allowed path."""
    steps = difference.key.partition("[")[0].split(".")
    paths = [".".join(steps[: count + 1]) for count in range(len(steps))]
    if ALL_ARGUMENTS in allowed or not allowed.isdisjoint(paths):
        return difference
    return Difference(
        difference.key, _redact_side(difference.expected), _redact_side(difference.called), hint=difference.hint
    )


def _redact_side(value: Any) -> Any:
    return value if value is ABSENT else REDACTED


def _redact_score(score: Score) -> Score:
    """Returns a score with only the type of a metric's error, and without a model's own words."""
    if score.judgement is not None and score.judgement.words is not None:
        score = replace(score, judgement=replace(score.judgement, words=REDACTED))
    return score if score.error is None else replace(score, error=error_type(score.error))


def _verdict(row: ComparisonRow) -> list[Any]:
    shares = [found and found.share for found in (row.agreement, row.result_agreement)]
    return [row.verdict, row.expected_at, row.called_at, row.in_order, *shares]


def _named(item: Any) -> Any:
    """Returns an expected item of the program, reduced to the tool's name."""
    if isinstance(item, str):
        return item
    return (
        {key: value if key == "name" else REDACTED for key, value in item.items()}
        if isinstance(item, Mapping)
        else REDACTED
    )


def _redact_condition(when: When) -> When:
    return replace(when, attributes=dict.fromkeys(when.attributes, REDACTED), input=_redact_value(when.input))


def _redact_value(value: Any) -> Any:
    """Replaces a value; an unknown value stays unknown."""
    return None if value is None else REDACTED
