"""Runs one peer in the peer's own environment, and answers requests over a pipe, one line of JSON each.

    python worker.py PEER

The first request has the `cases`, the second one the `options` of the peer, and each further one asks for a `round`.
The script imports only the standard library and the peer.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta, timezone
from types import ModuleType
from typing import Any

Case = dict[str, Any]
"""`called` and `expected`: lists of dictionaries with `name` and `args`; `beside`: further arguments of BFCL."""
Prepared = tuple[Callable[[Any], Any], list[Any]]
"""A function or coroutine function that scores a case, and the cases in the peer's own types."""


# --- the peers --------------------------------------------------------------------------------------------------------


def deepeval(cases: Sequence[Case], options: dict[str, Any]) -> Prepared:
    """Time `measure` with a model that is never asked, and without a progress display."""
    from deepeval.metrics import ToolCorrectnessMetric
    from deepeval.models import DeepEvalBaseLLM
    from deepeval.test_case import LLMTestCase, ToolCall, ToolCallParams

    class NeverAsked(DeepEvalBaseLLM):
        def load_model(self) -> Any:
            return self

        def generate(self, *args: Any, **kwargs: Any) -> str:
            raise AssertionError("a language model was asked")

        async def a_generate(self, *args: Any, **kwargs: Any) -> str:
            raise AssertionError("a language model was asked")

        def get_model_name(self) -> str:
            return "none"

    params = [ToolCallParams[word.upper()] for word in options.pop("evaluation_params", [])]
    metric = ToolCorrectnessMetric(model=NeverAsked(), async_mode=False, evaluation_params=params, **options)

    def tools(calls: Iterable[Case]) -> list[Any]:
        return [ToolCall(name=call["name"], input_parameters=call["args"]) for call in calls]

    natives = [
        LLMTestCase(
            input="Plan my trip.",
            actual_output="Done.",
            tools_called=tools(case["called"]),
            expected_tools=tools(case["expected"]),
        )
        for case in cases
    ]
    return lambda native: metric.measure(native, _show_indicator=False), natives


def eval_ai_library(cases: Sequence[Case], options: dict[str, Any]) -> Prepared:
    from eval_lib import EvalTestCase, ToolCorrectnessMetric

    metric = ToolCorrectnessMetric(**options)
    metric.print_result = lambda result: None
    natives = [
        EvalTestCase(
            input="Plan my trip.",
            actual_output="Done.",
            tools_called=_names(case["called"]),
            expected_tools=_names(case["expected"]),
        )
        for case in cases
    ]

    async def score(native: Any) -> Any:
        return (await metric.evaluate(native))["score"]

    return score, natives


def ragas(cases: Sequence[Case], options: dict[str, Any]) -> Prepared:
    from ragas.messages import AIMessage, ToolCall
    from ragas.metrics import collections

    metric = getattr(collections, options.pop("metric", "ToolCallAccuracy"))(**options)

    def tools(calls: Iterable[Case]) -> list[Any]:
        return [ToolCall(name=call["name"], args=call["args"]) for call in calls]

    natives = [
        ([AIMessage(content="Done.", tool_calls=tools(case["called"]))], tools(case["expected"])) for case in cases
    ]

    async def score(native: Any) -> Any:
        return (await metric.ascore(*native)).value

    return score, natives


def agentevals(cases: Sequence[Case], options: dict[str, Any]) -> Prepared:
    from agentevals.trajectory.match import create_trajectory_match_evaluator

    return _matched(create_trajectory_match_evaluator(**options), cases)


def openevals(cases: Sequence[Case], options: dict[str, Any]) -> Prepared:
    from openevals.trajectory.match import create_trajectory_match_evaluator

    return _matched(create_trajectory_match_evaluator(**options), cases)


def _matched(evaluator: Callable[..., Any], cases: Sequence[Case]) -> Prepared:
    def messages(calls: Sequence[Case]) -> list[dict[str, Any]]:
        """Return the request, and one message with all calls."""
        made = [{"function": {"name": call["name"], "arguments": json.dumps(call["args"])}} for call in calls]
        answer = {"role": "assistant", "content": "", **({"tool_calls": made} if made else {})}
        return [{"role": "user", "content": "Plan my trip."}, answer]

    natives = [(messages(case["called"]), messages(case["expected"])) for case in cases]
    return lambda native: evaluator(outputs=native[0], reference_outputs=native[1])["score"], natives


def google_adk(cases: Sequence[Case], options: dict[str, Any]) -> Prepared:
    from google.adk.evaluation.eval_case import IntermediateData, Invocation
    from google.adk.evaluation.eval_metrics import EvalMetric, ToolTrajectoryCriterion
    from google.adk.evaluation.trajectory_evaluator import TrajectoryEvaluator
    from google.genai import types

    match_type = ToolTrajectoryCriterion.MatchType[options.pop("match_type", "EXACT")]
    criterion = ToolTrajectoryCriterion(threshold=1.0, match_type=match_type, **options)
    metric = EvalMetric(metric_name="tool_trajectory_avg_score", criterion=criterion)
    evaluator = TrajectoryEvaluator(eval_metric=metric)
    asked = types.Content(role="user", parts=[types.Part(text="Plan my trip.")])

    def invocations(calls: Iterable[Case]) -> list[Any]:
        made = [types.FunctionCall(name=call["name"], args=call["args"]) for call in calls]
        return [Invocation(user_content=asked, intermediate_data=IntermediateData(tool_uses=made))]

    natives = [(invocations(case["called"]), invocations(case["expected"])) for case in cases]
    return lambda native: evaluator.evaluate_invocations(*native).overall_score, natives


def strands(cases: Sequence[Case], options: dict[str, Any]) -> Prepared:
    from strands_evals.tools import evaluation_tools

    scorer = getattr(evaluation_tools, options.get("scorer", "exact_match_scorer"))
    natives = [(_names(case["called"]), _names(case["expected"])) for case in cases]
    return lambda native: scorer(*native), natives


def pydantic_evals(cases: Sequence[Case], options: dict[str, Any]) -> Prepared:
    """Time the evaluators, which search calls in a tree of spans that is built beforehand."""
    from pydantic_evals import evaluators
    from pydantic_evals.otel.span_tree import SpanNode, SpanTree

    make = getattr(evaluators, options.pop("evaluator", "ToolCorrectness"))
    expected = "expected_trajectory" if make is evaluators.TrajectoryMatch else "expected_tools"
    began = datetime(2026, 1, 1, tzinfo=timezone.utc)

    def context(calls: Iterable[Case]) -> Any:
        tree = SpanTree()
        tools = [
            span(number, f"execute_tool {call['name']}", {"gen_ai.tool.name": call["name"]})
            for number, call in enumerate(calls, 2)
        ]
        tree.add_spans([span(1, "invoke_agent agent", {}), *tools])
        fields = {"name": None, "inputs": None, "metadata": None, "expected_output": None, "output": None}
        return evaluators.EvaluatorContext(**fields, duration=1.0, _span_tree=tree, attributes={}, metrics={})

    def span(number: int, name: str, attributes: dict[str, str]) -> Any:
        return SpanNode(
            name=name,
            trace_id=1,
            span_id=number,
            parent_span_id=1 if number > 1 else None,
            start_timestamp=began + timedelta(seconds=number),
            end_timestamp=began + timedelta(seconds=number),
            attributes=attributes,
        )

    natives = [(make(**{expected: _names(case["expected"])}, **options), context(case["called"])) for case in cases]
    return lambda native: native[0].evaluate(native[1]).value, natives


def mlflow(cases: Sequence[Case], options: dict[str, Any]) -> Prepared:
    """Time the comparison alone; what it reads from a trace is prepared beforehand."""
    from mlflow.genai.scorers import ToolCallCorrectness, builtin_scorers
    from mlflow.genai.utils.type import FunctionCall

    builtin_scorers.extract_request_from_trace = lambda trace: "Plan my trip."
    builtin_scorers.extract_available_tools_from_trace = lambda trace: []
    builtin_scorers.extract_tools_called_from_trace = lambda trace: trace
    scorer = ToolCallCorrectness(should_exact_match=True, **options)
    natives = [
        {
            "trace": [FunctionCall(name=call["name"], arguments=call["args"]) for call in case["called"]],
            "expectations": {
                "expected_tool_calls": [{"name": call["name"], "arguments": call["args"]} for call in case["expected"]]
            },
        }
        for case in cases
    ]
    return lambda native: scorer(**native).value == "yes", natives


def azure(cases: Sequence[Case], options: dict[str, Any]) -> Prepared:
    from azure.ai.evaluation._evaluators._task_navigation_efficiency import _TaskNavigationEfficiencyEvaluator

    with_parameters = options.pop("with_parameters", False)
    evaluator = _TaskNavigationEfficiencyEvaluator(**options)

    def response(calls: Sequence[Case]) -> list[dict[str, Any]]:
        made = [
            {"type": "tool_call", "tool_call_id": f"call_{number}", "name": call["name"], "arguments": call["args"]}
            for number, call in enumerate(calls)
        ]
        return [{"role": "assistant", "content": [{"type": "text", "text": "Done."}, *made]}]

    def truth(calls: Sequence[Case]) -> Any:
        names = _names(calls)
        return (names, {call["name"]: call["args"] for call in calls}) if with_parameters else names

    natives = [{"response": response(case["called"]), "ground_truth": truth(case["expected"])} for case in cases]
    return lambda native: evaluator(**native)["task_navigation_efficiency_score"], natives


def langchain_benchmarks(cases: Sequence[Case], options: dict[str, Any]) -> Prepared:
    from langchain_benchmarks.tool_usage.evaluators import compare_outputs

    natives = [
        (
            {"actual_steps": _names(case["called"])},
            {"expected_steps": _names(case["expected"]), **options},
            {"request": "Plan my trip."},
        )
        for case in cases
    ]
    return lambda native: compare_outputs(*native)["results"][0].score, natives


def bfcl(cases: Sequence[Case], options: dict[str, Any]) -> Prepared:
    """Time the AST checker without the table of models, which imports the client of every model."""
    table = "bfcl_eval.constants.model_config"
    sys.modules[table] = ModuleType(table)
    sys.modules[table].MODEL_CONFIG_MAPPING = {}  # type: ignore[attr-defined]
    from bfcl_eval.constants.enums import Language
    from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker

    natives = [
        (
            case["beside"]["func_descriptions"],
            [{call["name"]: call["args"]} for call in case["called"]],
            case["beside"]["possible_answers"],
            Language.PYTHON,
            "multiple" if len(case["expected"]) == 1 else "parallel",
            "",
        )
        for case in cases
    ]
    return lambda native: ast_checker(*native)["valid"], natives


def _names(calls: Iterable[Case]) -> list[str]:
    return [call["name"] for call in calls]


PEERS = (
    deepeval,
    eval_ai_library,
    ragas,
    agentevals,
    openevals,
    google_adk,
    strands,
    pydantic_evals,
    mlflow,
    azure,
    langchain_benchmarks,
    bfcl,
)


# --- requests and answers ---------------------------------------------------------------------------------------------


def main() -> None:
    """Answer requests until the pipe is closed."""
    peer = {function.__name__: function for function in PEERS}[sys.argv[1]]
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # the peer's own output goes to standard error
    cases: list[Case] = []
    prepared: Prepared = (repr, [])
    for line in sys.stdin:
        request = json.loads(line)
        answer = None
        if "cases" in request:
            cases = request["cases"]
        elif "options" in request:
            prepared = peer(cases, request["options"])
            gc.collect()
            gc.freeze()  # the collector should scan the objects of scoring, not the prepared cases
        else:
            answer = timed(*prepared, request["round"])
        print(json.dumps(answer), file=answers, flush=True)


def timed(score: Callable[[Any], Any], natives: Sequence[Any], at_least: float) -> tuple[float, list[float | None]]:
    """Return the CPU seconds to score all cases once, and the scores: `None` if the peer raises.

    All cases are scored repeatedly for `at_least` seconds. The first pass is not timed.
    """
    found = _all_scored(score, natives)
    times, began = 0, time.process_time()
    while (taken := time.process_time() - began) < at_least:
        _all_scored(score, natives)
        times += 1
    return taken / max(times, 1), [None if value is None else float(value) for value in found]


def _all_scored(score: Callable[[Any], Any], natives: Sequence[Any]) -> list[Any]:
    return asyncio.run(_awaited(score, natives)) if inspect.iscoroutinefunction(score) else _scored(score, natives)


def _scored(score: Callable[[Any], Any], natives: Sequence[Any]) -> list[Any]:
    found = []
    for native in natives:
        try:
            found.append(score(native))
        except Exception:  # noqa: BLE001 - any error means no score
            found.append(None)
    return found


async def _awaited(score: Callable[[Any], Any], natives: Sequence[Any]) -> list[Any]:
    """Score one case after the other in one event loop."""
    found = []
    for native in natives:
        try:
            found.append(await score(native))
        except Exception:  # noqa: BLE001
            found.append(None)
    return found


if __name__ == "__main__":
    main()
