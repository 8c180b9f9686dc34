"""Goldspan computes the same scores as the peers did, in the versions that each row names.

`tests/fixtures/oracles` holds an even sample of many thousand cases and, for each axis of a formula, cases whose score
changes when the axis has another value. `seeds` are the worked examples from the documentation of the peers.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from goldspan import profiles
from goldspan.model import Score
from goldspan.profiles.case_sides import read_side
from goldspan.profiles.formula_engine import FormulaEngine

FIXTURES = Path(__file__).parents[1] / "fixtures" / "oracles"
FILES = sorted(path.name.removesuffix(".jsonl.gz") for path in FIXTURES.glob("*.jsonl.gz"))


@pytest.mark.parametrize("file", FILES)
def test_every_row_has_the_score_and_the_verdict_of_its_peer(file: str) -> None:
    wrong = [(row, score) for row in rows(file) if not equal(score := scored(row), row)]
    assert wrong == []


@pytest.mark.parametrize("file", FILES)
def test_every_score_has_a_reason(file: str) -> None:
    for row in rows(file):
        score = scored(row)
        assert score.reason is not None
        assert score.reason[0].isalpha() or score.reason[0].isdigit()
        assert score.reason.endswith(".")
        assert (score.label == "not_evaluated") is (score.value is None)


def test_every_peer_that_can_run_locally_has_rows() -> None:
    services = {"vertex", "agentcore", "galtea"}
    assert {*FILES} - {"seeds"} == {*profiles.NAMES} - services
    assert min(len(rows(file)) for file in FILES if file != "seeds") > 300


@pytest.mark.parametrize(
    ("file", "axes"),
    [
        pytest.param("deepeval", {"assignment": "best"}, id="deepeval: calls are remembered by position"),
        pytest.param("deepeval", {"assignment": "optimal"}, id="deepeval: the best pairing of all"),
        pytest.param("deepeval", {"pairing": "walk"}, id="deepeval: one walk instead of a common sequence"),
        pytest.param("deepeval", {"measure": "precision"}, id="deepeval: as its page says"),
        pytest.param("deepeval", {"missing_arguments": "empty"}, id="deepeval: no parameters are empty ones"),
        pytest.param("deepeval", {"argument_rule": "equal"}, id="deepeval: parameters whole"),
        pytest.param("deepeval", {"compares_outputs": True}, id="deepeval: outputs"),
        pytest.param("deepeval", {"is_strict": False}, id="deepeval: no strict mode"),
        pytest.param(
            "eval_ai_library", {"empty_scores": (1, 0, 0)}, id="eval-ai-library: nothing expected, something called"
        ),
        pytest.param("axion", {"argument_rule": "top_superset"}, id="axion: subset at the top only"),
        pytest.param("axion", {"min_similarity": 0.4}, id="axion: another similarity"),
        pytest.param("axion", {"assignment": "optimal"}, id="axion: the best pairing of all"),
        pytest.param("axion", {"empty_scores": (1, 0, 0)}, id="axion: precision of nothing"),
        pytest.param("ragas", {"collapse": "none"}, id="ragas: repeated calls"),
        pytest.param("ragas", {"digits": None}, id="ragas: no rounding"),
        pytest.param("ragas", {"gate": "none"}, id="ragas: no gate"),
        pytest.param("ragas", {"empty_scores": (1, 0, 0)}, id="ragas: both empty"),
        pytest.param("ragas", {"argument_rule": "equal"}, id="ragas: values instead of text"),
        pytest.param("agentevals", {"swap_sides": False}, id="agentevals: sides the right way round"),
        pytest.param("agentevals", {"assignment": "optimal"}, id="agentevals: the best pairing of all"),
        pytest.param("openevals", {"swap_sides": True}, id="openevals: sides the wrong way round"),
        pytest.param("openevals", {"argument_rules_by_tool": {}}, id="openevals: no rules for single tools"),
        pytest.param("google_adk", {"missing_arguments": "empty"}, id="google-adk: no arguments are empty ones"),
        pytest.param("google_adk", {"pairing": "lcs"}, id="google-adk: a common sequence"),
        pytest.param("strands", {"collapse": "none"}, id="strands: repeated calls"),
        pytest.param("strands", {"pairing": "lcs"}, id="strands: a common sequence instead of one walk"),
        pytest.param("strands", {"gate": "same_count"}, id="strands: trailing calls"),
        pytest.param("pydantic_evals", {"pairing": "walk"}, id="pydantic-evals: one walk"),
        pytest.param("pydantic_evals", {"call_index": 0}, id="pydantic-evals: always the first call"),
        pytest.param("pydantic_evals", {"argument_rule": "equal"}, id="pydantic-evals: arguments whole"),
        pytest.param("mlflow", {"collapse": "none"}, id="mlflow: multisets"),
        pytest.param("mlflow", {"argument_rule": "equal"}, id="mlflow: values instead of JSON text"),
        pytest.param("mlflow", {"preprocessing": "as_given"}, id="mlflow: arguments of some"),
        pytest.param("azure", {"preprocessing": "as_given"}, id="azure: arguments for each call"),
        pytest.param("azure", {"argument_rule": "equal"}, id="azure: values instead of text"),
        pytest.param("azure", {"name_rule": "equal"}, id="azure: blanks around names"),
        pytest.param("langchain_benchmarks", {"pairing": "position"}, id="langchain-benchmarks: always in order"),
        pytest.param("promptfoo", {"name_rule": "equal"}, id="promptfoo: case and patterns"),
        pytest.param("promptfoo", {"argument_rule": "js_equal"}, id="promptfoo: never partial"),
        pytest.param("promptfoo", {"argument_rule": "equal"}, id="promptfoo: true is 1"),
        pytest.param("promptfoo", {"defaults": {}}, id="promptfoo: no defaults"),
        pytest.param("promptfoo", {"ignored_arguments": ()}, id="promptfoo: nothing ignored"),
        pytest.param(
            "bfcl", {"preprocessing": "as_given", "argument_rule": "equal"}, id="bfcl: no list of allowed values"
        ),
    ],
)
def test_another_value_of_a_formula_axis_changes_the_score_of_some_row(file: str, axes: dict[str, Any]) -> None:
    """Every documented property of a peer has a row that fails when the property changes."""
    assert any(value_with(row, axes) != scored(row).value for row in rows(file))


@cache
def rows(file: str) -> list[dict[str, Any]]:
    with gzip.open(FIXTURES / f"{file}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def scored(row: dict[str, Any]) -> Score:
    called, expected, extra = sides(row)
    return profiles.score(row["peer"], called, expected, **row["options"], **extra)


def value_with(row: dict[str, Any], axes: dict[str, Any]) -> float | None:
    called, expected, extra = sides(row)
    engine = FormulaEngine(replace(profiles.prepare(row["peer"], **row["options"]).formula, **axes))
    try:
        return engine.score_of(
            *engine.count_matches(read_side(called, "called"), read_side(expected, "expected"), extra.get("case"))
        )
    except Exception:  # noqa: BLE001 - another axis may have no number for this row
        return None


def sides(row: dict[str, Any]) -> tuple[list[Any], list[Any], dict[str, Any]]:
    case = row["case"]
    return case["tools_called"], case["expected_tools"], {"case": case} if "possible_answers" in case else {}


def equal(score: Score, row: dict[str, Any]) -> bool:
    if row["score"] is None:
        return score.value is None and score.passed is None and bool(score.reason)
    # Where the documentation of a peer and its code disagree, the row holds the score of the code.
    return score.value is not None and abs(score.value - row["score"]) <= 1e-9 and score.passed == row["passed"]


def _all_rows() -> Iterator[dict[str, Any]]:
    for file in FILES:
        yield from rows(file)


def test_scoring_does_not_modify_its_input() -> None:
    for row in _all_rows():
        before = json.dumps(row)
        scored(row)
        assert json.dumps(row) == before
