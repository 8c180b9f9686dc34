"""Builds results of an agent for tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from goldspan import ExpectedTool, Golden, evaluate
from goldspan.model import GoldenSource
from goldspan.scoring.evaluator import SCORING_VERSION
from goldspan.testing.results import (
    AgentResults,
    CaseError,
    CaseResult,
    Outcome,
    ResultsHeader,
    evaluation_documents,
    outcome_of,
)


def results_of(cases: Iterable[CaseResult], *, scoring_version: int = SCORING_VERSION) -> AgentResults:
    return AgentResults(ResultsHeader(scoring_version, ("goldens.yaml",), keeps_arguments=True), tuple(cases))


def plain_case(golden_id: str, outcome: Outcome = "passed", trial: int = 1, **scores: float | None) -> CaseResult:
    """A case that has scores and no run."""
    listed = [{"metric": metric, "value": value} for metric, value in scores.items()]
    error = CaseError("ValueError", "no such hotel") if outcome == "error" else None
    return CaseResult(
        golden_id,
        outcome,
        trial,
        source=GoldenSource("goldens.yaml", 7),
        error=error,
        duration_ms=1500.0,
        evaluation=None if outcome in ("error", "timeout") else {"reason": f"{golden_id} {outcome}.", "scores": listed},
    )


def verdict_cases(verdicts: Mapping[str, Sequence[bool | None]]) -> list[CaseResult]:
    """A case for each verdict of each golden."""
    names: dict[bool | None, Outcome] = {True: "passed", False: "failed", None: "not_evaluated"}
    return [
        plain_case(golden_id, names[verdict], trial)
        for golden_id, found in verdicts.items()
        for trial, verdict in enumerate(found, start=1)
    ]


def evaluated_case(golden: Golden, called: Sequence[object], *, trial: int = 1) -> CaseResult:
    """A case with its run, as `goldspan run` writes it."""
    evaluation = evaluate(called, golden)  # type: ignore[arg-type]
    document, run = evaluation_documents(evaluation, keep_arguments=True)
    return CaseResult(
        golden.id,
        outcome_of(evaluation),
        trial,
        golden.tags,
        golden.source,
        evaluation=document,
        run=run,
        golden_digest=golden.digest,
    )


def golden_of(golden_id: str, *tools: str | ExpectedTool, tags: Sequence[str] = (), line: int = 3) -> Golden:
    expected = tuple(ExpectedTool(tool) if isinstance(tool, str) else tool for tool in tools)
    return Golden(
        golden_id, "Book it.", expected, metadata={"tags": list(tags)}, source=GoldenSource("goldens.yaml", line)
    )
