"""Runs extracted from exports of real frameworks, compared with the calls that their tools recorded.

`make recordings` writes the payloads and the truth files in `fixtures/recorded`: see `recipes/recording`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import goldspan

RECORDED = Path(__file__).parent.parent / "fixtures" / "recorded"
TRUTHS = sorted(RECORDED.glob("*/*.truth.json"))

NOT_RECORDED = {
    "langchain4j-java_agent": {"error"},  # the result is the message
    "spring_ai-content": {"input", "output", "error"},
    "spring_ai-default": {"input", "output", "error", "args"},
}
"""The facts that an instrumentation does not record, so that they are `None` in the run."""
_REDACTED_ERRORS = ("Error running tool (non-fatal)", "An internal error occurred.")
"""The error texts of the OpenAI Agents SDK and of the ADK for Java: they redact the message of the tool."""


def _scenario(path: Path) -> str:
    return f"{path.parent.name}/{path.name.partition('.')[0]}"


def _call_facts(call: goldspan.ToolCall, *, true_error: str | None) -> dict[str, Any]:
    """The facts of a call in a run. Frameworks add text to an error: it matches if it contains the true error."""
    is_true = bool(call.error and true_error) and (true_error in call.error or call.error in _REDACTED_ERRORS)
    return {"name": call.name, "args": call.arguments, "error": true_error if is_true else call.error}


def _true_error(request: dict[str, Any], index: int) -> str | None:
    used = request["tools_used"]
    return used[index]["error"] if index < len(used) else None


def _recordable(value: Any, recording: str) -> Any:
    """A truth in which the facts that the recording cannot have are `None`."""
    if isinstance(value, list):
        return [_recordable(item, recording) for item in value]
    if not isinstance(value, dict):
        return value
    unknown = NOT_RECORDED.get(recording, ())
    # The names of arguments are the application's.
    kept = {key: item if key == "args" else _recordable(item, recording) for key, item in value.items()}
    return {key: None if key in unknown else item for key, item in kept.items()}


@pytest.mark.parametrize("path", TRUTHS, ids=_scenario)
def test_the_runs_of_a_recording_are_equal_to_its_truth_file(path: Path) -> None:
    payloads = [
        payload for payload in sorted(path.parent.glob(f"{path.name.partition('.')[0]}.*")) if payload.suffix == ".gz"
    ]
    runs = list(goldspan.load_runs(*payloads))
    requests = _recordable(json.loads(path.read_text(encoding="utf-8"))["requests"], path.parent.name)
    assert len(runs) == len(requests)
    for run, request in zip(runs, requests, strict=True):
        # A form that the model fills in is not a tool.
        calls = [call for call in run.tool_calls if call.kind != "answer"]
        told = [_call_facts(call, true_error=_true_error(request, index)) for index, call in enumerate(calls)]
        assert {"input": run.input, "output": run.output, "tools_used": told} == request


def test_every_framework_is_recorded_in_the_same_scenarios() -> None:
    scenarios = {folder.name: {path.name for path in folder.glob("*.truth.json")} for folder in RECORDED.iterdir()}
    assert scenarios
    assert len(set(map(frozenset, scenarios.values()))) == 1, scenarios
