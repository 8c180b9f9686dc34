"""The settings of the LLM judge, and the stage that adds its score `tool_selection` to evaluations."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from goldspan.cli.console import print_warning, stderr_console
from goldspan.errors import ConfigurationError
from goldspan.goldens.spelling import join_words, short_repr
from goldspan.model import Evaluation, Score
from goldspan.terminal.escapes import escape_control_characters

if TYPE_CHECKING:
    from goldspan.judge import Judge

TOOL_SELECTION = "tool_selection"
_OVER_BUDGET_ERROR = "OverBudget"
_OFF_WORD = "off"


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """The settings of a judge that the options state."""

    settings: dict[str, Any]
    tools_file: Path | None = None
    gate: float | None = None
    """The value of `--threshold`, which replaces the thresholds in goldens."""

    def start(self, combined_with: str, metrics: Collection[str]) -> JudgeStage:
        """Create the judge from options and variables; `combined_with` is the metric it may lower, one of `metrics`.

        Raises `GoldspanError` for settings that cannot be used.
        """
        from goldspan.capture.environment import (  # deferred: imports asyncio and SQLite
            misspelled_variables,
            read_environment,
        )
        from goldspan.judge.judge import JudgeSettings

        for warning in misspelled_variables():
            print_warning(warning)
        settings = read_environment().arguments_for("judge") | self.settings
        if self.gate is not None:
            settings["threshold"] = self.gate
        if "model" not in settings:
            raise ConfigurationError("--judge needs a model: set --judge-model NAME or GOLDSPAN_JUDGE_MODEL")
        if self.settings.get("combination") == "min" and combined_with not in metrics:
            raise ConfigurationError(f"--judge-combination min lowers {combined_with}, which --metric leaves out")
        tools = None if self.tools_file is None else read_tools_file(self.tools_file)
        return JudgeStage(
            JudgeSettings(**settings).create_judge(available_tools=tools, combined_with=combined_with), self.gate
        )


@dataclass(frozen=True, slots=True)
class JudgeStage:
    """Adds the scores of a judge to the evaluations of a command."""

    judge: Judge
    gate: float | None = None

    def judge_all(self, evaluations: Iterable[Evaluation]) -> Iterator[Evaluation]:
        """Yield each evaluation with the score of the judge, and warn once about each kind of failure."""
        from goldspan.judge import judge_evaluations
        from goldspan.sinks.otel_sinks import error_type

        warned = {_OVER_BUDGET_ERROR}
        with closing(self.judge), closing(judge_evaluations(evaluations, self.judge)) as judged:
            for evaluation in judged:
                score = evaluation.score(TOOL_SELECTION)
                if score is not None and score.error is not None and error_type(score.error) not in warned:
                    warned.add(error_type(score.error))
                    print_warning(f"the judge failed: {score.error}")
                yield evaluation if self.gate is None else _apply_gate(evaluation, self.gate)

    def print_summary(self, evaluations: Iterable[Evaluation]) -> None:
        """Print one line: how many runs were judged, what that cost, and why other runs were not judged."""
        scores = [score for evaluation in evaluations if (score := evaluation.score(TOOL_SELECTION)) is not None]
        summary = "; ".join([_judged_summary(self.judge, scores), *_not_judged_reasons(self.judge, scores)])
        stderr_console().print(Text.assemble((f"{TOOL_SELECTION}: ", "bold"), escape_control_characters(summary)))


def judge_options_from(
    is_enabled: bool, tools: Path | None, gate: float | None, **settings: Any
) -> JudgeOptions | None:
    """Return the judge's settings, or `None` where no option turns the judge on.

    Raises `ConfigurationError` for options that need `--judge`.
    """
    stated = {name: value for name, value in settings.items() if value is not None}
    if not is_enabled and "model" not in stated:
        unused = [f"--judge-{name.replace('_', '-')}" for name in stated] + (["--judge-tools"] if tools else [])
        if unused:
            raise ConfigurationError(f"{unused[0]} needs --judge")
        return None
    if "daily_tokens" in stated:
        stated["daily_tokens"] = _parse_daily_tokens(stated["daily_tokens"])
    return JudgeOptions(stated, tools, gate)


def require_judge_flag(metrics_by_option: Mapping[str, Collection[str] | None]) -> None:
    """Raises `ConfigurationError` for an option that names `tool_selection` where no judge computes it."""
    for option, metrics in metrics_by_option.items():
        if TOOL_SELECTION in (metrics or ()):
            raise ConfigurationError(
                f"{option} {TOOL_SELECTION}: only the LLM judge computes this metric; turn it on with `goldspan score "
                "--judge`"
            )


def read_tools_file(file: Path) -> list[Any]:
    """Return the tools in a file: a list, or the response of an MCP server to `tools/list`.

    Raises `ConfigurationError` for a file with anything else.
    """
    content = _read_file(file)
    for key in ("result", "tools"):
        if isinstance(content, dict) and key in content:
            content = content[key]
    if not isinstance(content, list) or not content:
        found = "an empty list" if content == [] else short_repr(content)
        raise ConfigurationError(f"--judge-tools {file}: expected a list of tools, found {found}")
    return content


def _judged_summary(judge: Judge, scores: Iterable[Score]) -> str:
    usage = judge.usage
    judgements = [score.judgement for score in scores if score.judgement is not None]
    models = dict.fromkeys(judgement.model for judgement in judgements) or {judge.model: None}
    cached = f", {usage.cached} of them from the cache" if usage.cached else ""
    summary = f"{_pluralize(usage.judged, 'run')} judged by {join_words(tuple(models))}{cached}"
    summary += f"; {_pluralize(usage.requests, 'request')}"
    if any(judgement.input_tokens is None or judgement.output_tokens is None for judgement in judgements):
        return f"{summary}; the endpoint does not report tokens"
    summary += f", {usage.input_tokens:,} tokens in and {usage.output_tokens:,} out"
    return summary if usage.cost is None else f"{summary}, ${usage.cost:.4f}"


def _not_judged_reasons(judge: Judge, scores: Collection[Score]) -> Iterator[str]:
    from goldspan.sinks.otel_sinks import error_type  # deferred: imports OpenTelemetry

    kinds = Counter(error_type(score.error) for score in scores if score.error is not None)
    if over := kinds.pop(_OVER_BUDGET_ERROR, 0):
        yield (
            f"{over} not judged because {_budget_hint(judge)} for 24 hours is spent: raise it, or judge the rest "
            "later; --judge-cache keeps the answers"
        )
    if kinds:
        failures = ", ".join(f"{kind} {number}" for kind, number in kinds.most_common())
        yield f"{kinds.total()} failed ({failures})"
    reasons = Counter(score.reason or "" for score in scores if score.value is None and score.error is None)
    for reason, number in reasons.most_common():
        yield f"{number} not judged: {reason}{_REMEDIES.get(reason, '')}"


_REMEDIES = {
    "the tools the agent was offered were not captured": " (name them with --judge-tools FILE)",
    "the request was not captured": " (`goldspan extract` says how to capture it)",
}


def _budget_hint(judge: Judge) -> str:
    limits = [] if judge.budget.tokens is None else [f"{judge.budget.tokens:,} tokens (--judge-daily-tokens)"]
    limits += [] if judge.budget.cost is None else [f"${judge.budget.cost:g} (GOLDSPAN_JUDGE_DAILY_COST)"]
    return f"the budget of {join_words(limits)}"


def _pluralize(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _apply_gate(evaluation: Evaluation, threshold: float) -> Evaluation:
    """Return the evaluation with the value of `--threshold` in place of the threshold in its golden."""
    from goldspan.judge.tool_selection import with_threshold, with_tool_selection

    score = evaluation.score(TOOL_SELECTION)
    if score is None or score.threshold == threshold:
        return evaluation
    return with_tool_selection(evaluation, with_threshold(score, threshold))


def _parse_daily_tokens(text: str) -> int | None:
    if text.lower() == _OFF_WORD:
        return None
    if not text.isascii() or not text.isdigit():
        raise ConfigurationError(f"--judge-daily-tokens takes an integer or off, not {text!r}")
    return int(text)


def _read_file(file: Path) -> Any:
    """Parse a JSON or YAML file."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"--judge-tools {file}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"--judge-tools {file}: is not UTF-8 text") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    from goldspan.goldens.golden_files import golden_formats  # deferred: imports a YAML parser

    try:
        content = golden_formats.parse_yaml(text)
    except golden_formats.YamlError as error:
        where = "" if error.line is None else f", line {error.line}"
        raise ConfigurationError(f"--judge-tools {file}{where}: {error.problem}") from None
    return [] if content is golden_formats.EMPTY_DOCUMENT else content
