"""`goldspan score` says how the golden of each run was found, and how near it is."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from goldspan.cli.app import run

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
            "golden g by when",
            {"how": "when", "similarity": 1.0},
            id="a rule",
        ),
        pytest.param({"max_calls": 1}, "policy g", {"how": "policy", "similarity": 1.0}, id="a policy"),
    ],
)
def test_how_a_golden_was_found_is_shown(
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
