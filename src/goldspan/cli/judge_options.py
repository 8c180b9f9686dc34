"""Options that have a model asked, beside the comparison, whether the tools were the best choice; what came of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text

from goldspan.cli.console import escape_control_characters, print_warning, stderr_console
from goldspan.errors import ConfigurationError
from goldspan.goldens.golden_files import golden_formats
from goldspan.goldens.spelling import join_words, short_repr
from goldspan.model import Evaluation, Score
from goldspan.sinks.otel_sinks import error_type

if TYPE_CHECKING:
    from goldspan.judge import Judge

TOOL_SELECTION = "tool_selection"
_OVER_BUDGET_ERROR = "OverBudget"
_HELP_PANEL = "Asking a model"
_OFF_WORD = "off"

JudgeFlag = Annotated[
    bool,
    typer.Option(
        "--judge",
        help="Ask a model about every run whether the tools called were the best choice of those offered: the metric "
        "tool_selection. What is not said here say the variables GOLDSPAN_JUDGE_*, and the key they say alone. All "
        "runs are asked about: GOLDSPAN_JUDGE_SAMPLE is for running applications.",
        rich_help_panel=_HELP_PANEL,
    ),
]
JudgeModelOption = Annotated[
    str | None,
    typer.Option(
        "--judge-model",
        metavar="NAME",
        help="The model, instead of GOLDSPAN_JUDGE_MODEL. Turns --judge on.",
        rich_help_panel=_HELP_PANEL,
    ),
]
JudgeUrlOption = Annotated[
    str | None,
    typer.Option(
        "--judge-url",
        metavar="URL",
        help="Base URL of the OpenAI-compatible endpoint where it is. Default: https://api.openai.com/v1",
        rich_help_panel=_HELP_PANEL,
    ),
]
JudgeCombinationOption = Annotated[
    Literal["apart", "min"] | None,
    typer.Option(
        "--judge-combination",
        help="min: tool_correctness, or the number of --profile, becomes the lower of both. Default: apart",
        rich_help_panel=_HELP_PANEL,
    ),
]
JudgeVotesOption = Annotated[
    int | None,
    typer.Option(
        "--judge-votes",
        metavar="N",
        min=1,
        help="How often it is asked about a run; the median counts. Default: 1",
        rich_help_panel=_HELP_PANEL,
    ),
]
JudgeThresholdOption = Annotated[
    float | None,
    typer.Option(
        "--judge-threshold",
        metavar="X",
        min=0,
        max=1,
        help="A run fails with a tool_selection below X, unless its golden says another.",
        rich_help_panel=_HELP_PANEL,
    ),
]
JudgeToolsOption = Annotated[
    Path | None,
    typer.Option(
        "--judge-tools",
        metavar="FILE",
        help="The tools that were offered, for traces that do not record them: names, or definitions as OpenAI, "
        "Anthropic or MCP (an answer to tools/list) write them; JSON or YAML.",
        rich_help_panel=_HELP_PANEL,
    ),
]
JudgeShowOption = Annotated[
    Literal["names", "arguments", "all"] | None,
    typer.Option(
        "--judge-show",
        help="What it is shown of calls: tools alone, also arguments, or results as well. Default: all",
        rich_help_panel=_HELP_PANEL,
    ),
]
JudgeDailyTokensOption = Annotated[
    str | None,
    typer.Option(
        "--judge-daily-tokens",
        metavar="N",
        help="Tokens that may be spent within 24 hours, of which --judge-cache keeps count; or off. Default: 1000000",
        rich_help_panel=_HELP_PANEL,
    ),
]
JudgeCacheOption = Annotated[
    Path | None,
    typer.Option(
        "--judge-cache",
        metavar="FILE",
        help="SQLite file in which answers are kept, so that no question is asked twice, and what was spent.",
        rich_help_panel=_HELP_PANEL,
    ),
]


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """That a model is to be asked, and what options say of it."""

    settings: dict[str, Any]
    tools_file: Path | None = None
    gate: float | None = None
    """What `--threshold` says, which stands in for the goldens' own."""

    def start(self, combined_with: str, metrics: Collection[str]) -> JudgeStage:
        """A judge as options and variables have it; `lowered` is the metric that it may lower, among all `measured`.

        Raises `GoldspanError` where that cannot be.
        """
        from goldspan.capture.environment import (  # with asyncio and SQLite slow to load
            misspelled_variables,
            read_environment,
        )
        from goldspan.judge.judge import JudgeSettings

        for complaint in misspelled_variables():
            print_warning(complaint)
        settings = read_environment().arguments_for("judge") | self.settings
        if self.gate is not None:
            settings["threshold"] = self.gate
        if "model" not in settings:
            raise ConfigurationError(
                "--judge: which model is to be asked? Say --judge-model NAME or GOLDSPAN_JUDGE_MODEL"
            )
        if self.settings.get("combination") == "min" and combined_with not in metrics:
            raise ConfigurationError(f"--judge-combination min lowers {combined_with}, which is not measured")
        offered = None if self.tools_file is None else read_tools_file(self.tools_file)
        return JudgeStage(
            JudgeSettings(**settings).create_judge(available_tools=offered, combined_with=combined_with), self.gate
        )


@dataclass(frozen=True, slots=True)
class JudgeStage:
    """A judge at work for a command."""

    judge: Judge
    gate: float | None = None

    def judge_all(self, evaluations: Iterable[Evaluation]) -> Iterator[Evaluation]:
        """Each evaluation with what the judge says; every way in which it fails is told when it first does."""
        from goldspan.judge import judge_evaluations

        told = {_OVER_BUDGET_ERROR}
        with closing(self.judge), closing(judge_evaluations(evaluations, self.judge)) as answered:
            for evaluation in answered:
                score = evaluation.score(TOOL_SELECTION)
                if score is not None and score.error is not None and error_type(score.error) not in told:
                    told.add(error_type(score.error))
                    print_warning(f"the judge failed: {score.error}")
                yield evaluation if self.gate is None else _apply_gate(evaluation, self.gate)

    def print_summary(self, evaluations: Iterable[Evaluation]) -> None:
        """Say in one line what was asked, what it cost, and what was not judged and why."""
        scores = [score for evaluation in evaluations if (score := evaluation.score(TOOL_SELECTION)) is not None]
        said = "; ".join([_judged_summary(self.judge, scores), *_not_judged_reasons(self.judge, scores)])
        stderr_console().print(Text.assemble((f"{TOOL_SELECTION}: ", "bold"), escape_control_characters(said)))


def judge_options_from(
    is_enabled: bool, tools: Path | None, gate: float | None, **settings: Any
) -> JudgeOptions | None:
    """What the options say of asking a model; `None`: none is to be asked.

    Raises `ConfigurationError` for options that mean nothing without `--judge`.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    if not is_enabled and "model" not in given:
        needless = [f"--judge-{name.replace('_', '-')}" for name in given] + (["--judge-tools"] if tools else [])
        if needless:
            raise ConfigurationError(f"{needless[0]} needs --judge")
        return None
    if "daily_tokens" in given:
        given["daily_tokens"] = _parse_daily_tokens(given["daily_tokens"])
    return JudgeOptions(given, tools, gate)


def require_judge_flag(metrics_by_option: Mapping[str, Collection[str] | None]) -> None:
    """Raises `ConfigurationError` for an option that names the metric where no model is asked; `named` by options."""
    for option, metrics in metrics_by_option.items():
        if TOOL_SELECTION in (metrics or ()):
            raise ConfigurationError(
                f"{option} {TOOL_SELECTION}: a model gives that number, and none is asked; say --judge with "
                "`goldspan score`"
            )


def read_tools_file(file: Path) -> list[Any]:
    """The tools in a file: a list, or what a server answers to `tools/list`, as it is or with its envelope.

    Raises `ConfigurationError` for what is no such file.
    """
    content = _read_file(file)
    for key in ("result", "tools"):
        if isinstance(content, dict) and key in content:
            content = content[key]
    if not isinstance(content, list) or not content:
        what = "an empty list" if content == [] else short_repr(content)
        raise ConfigurationError(f"--judge-tools {file}: holds {what} where a list of tools was expected")
    return content


def _judged_summary(judge: Judge, scores: Iterable[Score]) -> str:
    usage = judge.usage
    judgements = [score.judgement for score in scores if score.judgement is not None]
    models = dict.fromkeys(judgement.model for judgement in judgements) or {judge.model: None}
    cached = f", {usage.cached} of them from the cache" if usage.cached else ""
    said = f"{_pluralize(usage.judged, 'run')} judged by {join_words(tuple(models))}{cached}"
    said += f"; {_pluralize(usage.requests, 'request')}"
    if any(judgement.input_tokens is None or judgement.output_tokens is None for judgement in judgements):
        return f"{said}, of which the endpoint tells no tokens"
    said += f", {usage.input_tokens:,} tokens in and {usage.output_tokens:,} out"
    return said if usage.cost is None else f"{said}, ${usage.cost:.4f}"


def _not_judged_reasons(judge: Judge, scores: Collection[Score]) -> Iterator[str]:
    kinds = Counter(error_type(score.error) for score in scores if score.error is not None)
    if over := kinds.pop(_OVER_BUDGET_ERROR, 0):
        yield (
            f"{over} not asked because {_budget_hint(judge)} within 24 hours is spent: raise it, or ask about the rest "
            "later; --judge-cache keeps what was answered"
        )
    if kinds:
        told = ", ".join(f"{kind} {number}" for kind, number in kinds.most_common())
        yield f"{kinds.total()} failed ({told})"
    why = Counter(score.reason or "" for score in scores if score.value is None and score.error is None)
    for reason, number in why.most_common():
        yield f"{number} not asked: {reason}{_REMEDIES.get(reason, '')}"


_REMEDIES = {
    "the tools the agent was offered were not captured": " (--judge-tools FILE says them)",
    "what was asked was not captured": " (`goldspan extract` says what to switch on)",
}


def _budget_hint(judge: Judge) -> str:
    limits = [] if judge.budget.tokens is None else [f"{judge.budget.tokens:,} tokens (--judge-daily-tokens)"]
    limits += [] if judge.budget.cost is None else [f"${judge.budget.cost:g} (GOLDSPAN_JUDGE_DAILY_COST)"]
    return f"the budget of {join_words(limits)}"


def _pluralize(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _apply_gate(evaluation: Evaluation, threshold: float) -> Evaluation:
    """The evaluation with what `--threshold` says as the gate, where the golden says another one."""
    from goldspan.judge.tool_selection import with_threshold, with_tool_selection

    score = evaluation.score(TOOL_SELECTION)
    if score is None or score.threshold == threshold:
        return evaluation
    return with_tool_selection(evaluation, with_threshold(score, threshold))


def _parse_daily_tokens(text: str) -> int | None:
    if text.lower() == _OFF_WORD:
        return None
    if not text.isascii() or not text.isdigit():
        raise ConfigurationError(f"--judge-daily-tokens takes a whole number, or off, not {text!r}")
    return int(text)


def _read_file(file: Path) -> Any:
    """What stands in a file of JSON or YAML."""
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
    try:
        content = golden_formats.parse_yaml(text)
    except golden_formats.YamlError as error:
        where = "" if error.line is None else f", line {error.line}"
        raise ConfigurationError(f"--judge-tools {file}{where}: {error.problem}") from None
    return [] if content is golden_formats.EMPTY_DOCUMENT else content
