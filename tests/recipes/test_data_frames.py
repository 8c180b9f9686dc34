"""Tests of real data frames, and of the documentation's examples of them, in an environment with pandas and polars."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from recipes.environments import is_built, python_of
from support.docs_examples import ROOT

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not is_built("data_frames"), reason="the environment of data_frames is missing: make recipes"),
]

PROGRAM = """
import json, sys
import goldspan
from goldspan.store import RunFilter, open_store
from goldspan.testing.results import AgentResults, CaseError, CaseResult, ResultsHeader, evaluation_documents

library = sys.argv[1]

def frame_of(source, *arguments):
    if isinstance(source, list):
        return getattr(goldspan, f"to_{library}")(source, *arguments)
    return getattr(source, f"to_{library}")(*arguments)

def types(frame):
    names = frame.dtypes if library == "pandas" else frame.schema
    return {name: str(dtype) for name, dtype in dict(names).items()}

def rows(frame):
    if library == "polars":
        return [{name: str(value) if name == "time" and value else value for name, value in row.items()}
            for row in frame.to_dicts()]
    import pandas
    return [{name: value if isinstance(value, list) else None if pandas.isna(value)
        else str(value) if name == "time" else value for name, value in row.items()}
        for row in frame.to_dict("records")]

golden = goldspan.Golden("refund", tools=(goldspan.ExpectedTool("find"), goldspan.ExpectedTool("refund")))
runs = [
    goldspan.Run("t:1", trace_ids=("t",), agent="support", input="<b>", start_ns=1_700_000_000_123_456_789,
        tool_calls=(goldspan.ToolCall("find"), goldspan.ToolCall("half\\ud800"))),
    goldspan.Run("t:2", tool_calls=(goldspan.ToolCall("find"), goldspan.ToolCall("refund"))),
    goldspan.Run("t:3", tool_calls=(goldspan.ToolCall("find"),)),
]
evaluations = [goldspan.evaluate(run, golden if at < 2 else None) for at, run in enumerate(runs)]
frame = frame_of(evaluations)
with open_store("runs.db") as store:
    store.submit_many(evaluations)
    stored = frame_of(store)
    failed = frame_of(store, RunFilter(verdict="fail"))
    none = frame_of(store, RunFilter(agent="nobody"))
document, run = evaluation_documents(evaluations[1])
results = AgentResults(ResultsHeader(1), (
    CaseResult("refund", "passed", tags=("smoke",), duration_ms=2.5, evaluation=document, run=run),
    CaseResult("refund", "timeout", 2, error=CaseError("TimeoutError", "late")),
))
facts = {
    "types": types(frame), "rows": rows(frame), "pass_rate": frame["passed"].mean(),
    "known_recall": frame["score.tool_recall"].mean(),
    "empty": [list(frame_of([]).shape), types(frame_of([]))],
    "stored": rows(stored), "stored_types": types(stored), "failed": rows(failed),
    "none": [list(none.shape), types(none)],
    "results": rows(frame_of(results)), "result_types": types(frame_of(results)),
    "no_results": types(frame_of(AgentResults(ResultsHeader(1), ()))),
}
print(json.dumps(facts))
"""
TYPES = {
    "pandas": ("string", "object", "Float64", "Int64", "boolean", "datetime64[us, UTC]"),
    "polars": ("String", "List(String)", "Float64", "Int64", "Boolean", "Datetime(time_unit='us', time_zone='UTC')"),
}
TIME = "2023-11-14 22:13:20.123456+00:00"


@pytest.fixture(scope="module", params=list(TYPES))
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """The library, and what the program found in the frames that it made."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "program.py").write_text(PROGRAM)
    command = [python_of("data_frames"), "-W", "error", "program.py", request.param]
    done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return request.param, json.loads(done.stdout)


def test_columns_have_types_with_missing_values(made: tuple[str, dict[str, Any]]) -> None:
    library, facts = made
    text, texts, number, integer, boolean, time = TYPES[library]
    expected = {
        "run_id": text, "time": time, "trace_ids": texts, "agent": text, "similarity": number, "passed": boolean,
        "tools_used": texts, "expected_tools": texts, "revision": integer, "evaluations": integer,
        "score.tool_recall": number, "score.argument_correctness": number,
    }  # fmt: skip
    assert facts["types"].items() >= expected.items()
    assert set(facts["types"].values()) <= set(TYPES[library])
    assert facts["stored_types"] == facts["types"]


def test_rows_are_in_the_order_of_the_evaluations_and_unknown_cells_are_missing(
    made: tuple[str, dict[str, Any]],
) -> None:
    first, second, third = made[1]["rows"]
    assert (first["run_id"], first["time"], first["agent"], first["input"]) == ("t:1", TIME, "support", "<b>")
    assert (first["passed"], first["missing"], first["unexpected"]) == (False, ["refund"], ["half\ufffd"])
    assert (first["score.tool_recall"], second["score.tool_recall"], third["score.tool_recall"]) == (0.5, 1.0, None)
    assert (second["passed"], second["time"], second["similarity"]) == (True, None, 1.0)
    assert (third["passed"], third["golden_id"], third["expected_tools"]) == (None, None, None)
    assert (third["tools_used"], third["evaluations"], third["revision"]) == (["find"], None, 1)


def test_means_leave_out_what_is_not_known(made: tuple[str, dict[str, Any]]) -> None:
    assert made[1]["pass_rate"] == 0.5
    assert made[1]["known_recall"] == 0.75


def test_without_a_row_the_columns_and_their_types_are_there(made: tuple[str, dict[str, Any]]) -> None:
    facts = made[1]
    base = {name: kind for name, kind in facts["types"].items() if not name.startswith("score.")}
    assert facts["empty"] == [[0, 22], base]
    assert facts["none"] == [[0, len(facts["types"])], facts["types"]]


def test_a_store_has_the_same_rows_newest_first_and_selects_by_a_filter(made: tuple[str, dict[str, Any]]) -> None:
    facts = made[1]
    stored = {row["run_id"]: row for row in facts["stored"]}
    assert [row["run_id"] for row in facts["stored"]][-1] == "t:1"
    for row in facts["rows"]:
        changed = {"evaluations": 1, "time": stored[row["run_id"]]["time"]}
        assert stored[row["run_id"]] == row | changed
    assert stored["t:1"]["time"] == TIME
    assert facts["failed"] == [stored["t:1"]]


def test_agent_results_have_a_row_for_each_case_also_after_a_timeout(made: tuple[str, dict[str, Any]]) -> None:
    library, facts = made
    passed, late = facts["results"]
    evaluated = facts["rows"][1]
    own = {"trial": 1, "outcome": "passed", "attempts": 1, "duration_ms": 2.5, "tags": ["smoke"]}
    assert passed == evaluated | own
    known = {name: value for name, value in late.items() if value is not None}
    assert known == {
        "trial": 2, "outcome": "timeout", "attempts": 1, "tags": [], "golden_id": "refund", "passed": False,
        "reason": "TimeoutError: late",
    }  # fmt: skip
    text, texts, number, integer, *_ = TYPES[library]
    own_types = {"trial": integer, "outcome": text, "attempts": integer, "duration_ms": number, "tags": texts}
    assert facts["result_types"] == own_types | facts["types"]
    assert list(facts["no_results"].items()) == [*own_types.items(), *facts["empty"][1].items()]


@pytest.mark.parametrize("name", ["cases.md", "store.md"])
def test_the_examples_of_data_frames_in_the_documentation_run_as_shown(name: str, tmp_path: Path) -> None:
    """tests/test_docs.py runs the other examples of these pages, without pandas and polars."""
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    page, changed = re.subn(r"^<!-- not run: needs pandas[^\n]*-->\n+", "", page, flags=re.MULTILINE)
    assert changed >= 2
    (tmp_path / name).write_text(page, encoding="utf-8")
    python = python_of("data_frames")
    environment = {**os.environ, "PATH": os.pathsep.join([str(python.parent), os.environ["PATH"]])}
    command = [python, ROOT / "tests" / "support" / "docs_examples.py", tmp_path / name]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8", check=False, timeout=120
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
