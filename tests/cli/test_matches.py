"""`goldspan score` shows how the golden of each run was found, and its similarity."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from goldspan.cli.app import run
from goldspan.model import SpanRecord
from support.span_builders import agent, in_trace, inside, model, says, span, tool

TRACES = Path(__file__).parent.parent.parent / "examples" / "traces.jsonl"


@pytest.mark.parametrize(
    ("golden", "shown", "match"),
    [
        pytest.param(
            {"input": "Find a hotel in Paris and book a cheapest one.", "tools": []},
            "golden g by near text, 0.96",
            {"how": "near", "similarity": pytest.approx(0.9574, abs=1e-4)},
            id="near text",
        ),
        pytest.param(
            {"when": {"agent": "travel-*", "input": {"regex": "cheapest"}}, "tools": []},
            "golden g by rule",
            {"how": "when", "similarity": 1.0},
            id="a rule",
        ),
        pytest.param({"max_calls": 1}, "policy g", {"how": "policy", "similarity": 1.0}, id="a policy"),
    ],
)
def test_score_shows_how_the_golden_was_found(
    golden: dict[str, object],
    shown: str,
    match: dict[str, object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "g.json"
    path.write_text(json.dumps([{"id": "g", **golden}]))
    command = ["goldspan", "score", str(TRACES), "-g", str(path)]
    monkeypatch.setattr(sys, "argv", [*command, "--verbose", "--limit", "1"])
    run()
    assert f"   {shown}\n" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", [*command, "--json"])
    run()
    first, *_ = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["golden_match"] == match


def as_otlp(record: SpanRecord) -> dict[str, object]:
    return {
        "traceId": record.trace_id,
        "spanId": record.span_id,
        "parentSpanId": record.parent_id or "",
        "name": record.name,
        "startTimeUnixNano": str(record.start_ns),
        "endTimeUnixNano": str(record.end_ns),
        "attributes": [{"key": key, "value": {"stringValue": text}} for key, text in record.attributes.items()],
    }


def test_near_text_and_the_component_are_shown_beside_the_golden_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output shows near text, the component, and the agent of a run with its own expected tools."""
    goldens = tmp_path / "g.yaml"
    goldens.write_text(
        "goldens:\n"
        "- {id: hotel, input: Find me a hotel in Paris and book it, tools: [search]}\n"
        "- {id: search-once, component: retrieval, tools: [search]}\n"
    )
    asked = agent("shop", asked="Find me a hotel in Paris, and book it!", end_ns=10**12)
    part = span("part", goldspan__component__name="retrieval", end_ns=10**12, **inside(asked))
    own = agent("clerk", asked="What time is it?", goldspan__expected_tools="clock", **in_trace(1))
    named = {"goldspan__component__name": "booking", "goldspan__golden__id": "hotel"}
    other = span("part", end_ns=10**12, **named, **inside(asked))
    heard = [model(answered=[says("Done.")], **inside(each)) for each in (own, other)]
    traces = tmp_path / "traces.json"
    spans = [as_otlp(record) for record in (asked, part, other, tool("search", {"q": 1}, **inside(part)), own, *heard)]
    traces.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))
    for unit in ("request", "component"):
        command = ["goldspan", "score", str(traces), "-g", str(goldens), "--unit", unit]
        monkeypatch.setattr(sys, "argv", command)
        run()
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "✓ hotel (near text, 0.97)  Find me a hotel in Paris, and book it!" in lines
    assert "✗ clerk  What time is it?" in lines
    assert "✓ search-once" in lines
    assert "✗ hotel (component booking)" in lines
