"""Evaluates the runs of a results file again, with the goldens and the scoring version of today."""

from __future__ import annotations

from dataclasses import replace

from goldspan.errors import ResultsError
from goldspan.goldens import Goldens
from goldspan.goldens.spelling import did_you_mean
from goldspan.model import Golden
from goldspan.model.goldens import ABSENT
from goldspan.scoring import evaluate
from goldspan.scoring.evaluator import SCORING_VERSION
from goldspan.testing.results import AgentResults, CaseResult, evaluation_documents, goldens_digest, outcome_of


def require_current_version(results: AgentResults, name: str) -> None:
    """Raise `ResultsError` for results of another scoring version, whose numbers mean something else."""
    if (version := results.header.scoring_version) != SCORING_VERSION:
        raise ResultsError(
            f"{name}: was evaluated with scoring version {version}, and this goldspan has version {SCORING_VERSION}; "
            "--rescore evaluates its runs again."
        )


def rescore(results: AgentResults, goldens: Goldens, name: str) -> AgentResults:
    """Evaluate each run again. Cases in which the agent raised or timed out stay as they are.

    Raises:
        ResultsError: A golden no longer exists, or compares arguments that the results file does not hold.
    """
    golden_by_id = {golden.id: golden for golden in goldens}
    for golden_id in {case.golden_id: None for case in results.cases}:
        if (golden := golden_by_id.get(golden_id)) is None:
            hint = did_you_mean(golden_id, golden_by_id)
            raise ResultsError(f"{name}: the golden {golden_id!r} is not in the golden files any more.{hint}")
        if not results.header.keeps_arguments and _compares_values(golden):
            raise ResultsError(
                f"{name}: holds no values of arguments, and the golden {golden_id!r} compares some; "
                "run the agent again and keep the arguments."
            )
    header = replace(
        results.header, scoring_version=SCORING_VERSION, goldens_digest=goldens_digest(golden_by_id.values())
    )
    cases = tuple(_rescore_case(case, golden_by_id[case.golden_id], header.metrics) for case in results.cases)
    return AgentResults(header, cases)


def _compares_values(golden: Golden) -> bool:
    return any(call.arguments is not None or call.result is not ABSENT for call in golden.expected_calls)


def _rescore_case(case: CaseResult, golden: Golden, metrics: tuple[str, ...] | None) -> CaseResult:
    run = case.to_run()
    if run is None:
        return case
    evaluation = evaluate(run, golden, metrics=metrics)
    document, _ = evaluation_documents(evaluation)
    return replace(
        case,
        outcome=outcome_of(evaluation),
        tags=golden.tags,
        source=golden.source,
        golden_digest=golden.digest,
        evaluation=document,
        live_evaluation=evaluation,
    )
