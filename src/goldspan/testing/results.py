"""The results of running an agent on goldens: cases with their evaluations, counts and pass rates."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from goldspan._version import __version__
from goldspan.model import Evaluation, Golden, GoldenSource, Run
from goldspan.model.telemetry import content_digest
from goldspan.sinks.serialization import document_json, evaluation_document, to_json
from goldspan.store.run_records import evaluation_to_document, run_from_document
from goldspan.testing.result_frames import ResultFrames
from goldspan.testing.statistics import Interval, TrialCount, pass_at_k, pass_hat_k, wilson_interval

FORMAT_VERSION = 1
FORMAT_KEY = "goldspan_results"
"""The key of the header that holds the version of the format."""

Outcome = Literal["passed", "failed", "not_evaluated", "error", "timeout"]
"""The verdict of a case. `error`: the agent raised; `timeout`: the agent did not return in time."""
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
UNFINISHED_OUTCOMES: frozenset[Outcome] = frozenset({"error", "timeout"})
"""The outcomes of cases that a resumed run repeats."""

PASS_RATE = "passed"
"""The name of the pass rate among the metrics."""
TRIAL_STATISTIC = re.compile(r"pass(?P<kind>\^|@)(?P<k>[1-9]\d{0,3})")
"""`pass^3`: all of three trials pass; `pass@3`: at least one of them passes."""

_MAX_MESSAGE_LENGTH = 2000
_RUN_KEYS_OF_EVALUATION = ("unit", "run_id", "trace_ids", "span_id", "health")
"""The keys of an evaluation's document that describe the run."""


@dataclass(frozen=True, slots=True)
class ResultsHeader:
    """What was run: the goldens, the agent and the settings that decide the results."""

    scoring_version: int
    goldens: tuple[str, ...] = ()
    """The paths of the golden files."""
    goldens_digest: str | None = None
    """A hash of the goldens: see `goldens_digest`."""
    agent: str | None = None
    """The agent as `module:function`, if it is known."""
    trials: int = 1
    """How often each golden was run."""
    metrics: tuple[str, ...] | None = None
    """The metrics that were computed; `None`: those of the goldens, else the default metrics."""
    keeps_arguments: bool = False
    """Whether the runs contain the values of arguments and results."""
    created: str | None = None
    """The time at which the file was created: ISO 8601, UTC."""
    goldspan: str = __version__
    """The version of goldspan that wrote the file."""

    def to_document(self) -> dict[str, Any]:
        """Return the header as a JSON object."""
        return {FORMAT_KEY: FORMAT_VERSION, "goldspan": self.goldspan} | {
            each.name: _as_json(getattr(self, each.name)) for each in fields(self) if each.name != "goldspan"
        }


@dataclass(frozen=True, slots=True)
class CaseError:
    """Why the agent returned nothing."""

    type: str
    """The name of the exception's class."""
    message: str


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One trial of one golden."""

    golden_id: str
    outcome: Outcome
    trial: int = 1
    """The number of the trial, counted from 1."""
    tags: tuple[str, ...] = ()
    source: GoldenSource | None = None
    attempts: int = 1
    """How often the agent was called: more than once if it raised or timed out, and retries are allowed."""
    error: CaseError | None = None
    """The error of the last attempt."""
    duration_ms: float | None = None
    """The duration of the last attempt."""
    evaluation: Mapping[str, Any] | None = None
    """The evaluation as `goldspan score --json` prints it; `None` if the agent raised or timed out."""
    run: Mapping[str, Any] | None = None
    """The run as a document: see `to_run`."""
    unattributed_spans: int = 0
    """Spans that were recorded while the case ran and that belong to no case for certain."""
    golden_digest: str | None = None
    """The hash of what the golden expects, by which two builds see that it changed; `None` if it is unknown."""
    live_evaluation: Evaluation | None = field(default=None, repr=False, compare=False)
    """The evaluation itself, if the case was run in this process."""

    @property
    def key(self) -> tuple[str, int]:
        """The golden's id and the number of the trial: unique in a file."""
        return self.golden_id, self.trial

    @property
    def passed(self) -> bool | None:
        """Whether the case passed; `None`: it was not evaluated. An error and a timeout are failures."""
        return None if self.outcome == "not_evaluated" else self.outcome == "passed"

    @property
    def reason(self) -> str:
        """The verdict, or the error, in one sentence."""
        if self.error is not None:
            return f"{self.error.type}: {self.error.message}" if self.error.message else self.error.type
        return "" if self.evaluation is None else str(self.evaluation["reason"])

    def score(self, metric: str) -> float | None:
        """Return the value of a metric, or `None` if it was not computed."""
        for score in () if self.evaluation is None else self.evaluation["scores"]:
            if score["metric"] == metric:
                value = score["value"]
                return None if value is None else float(value)
        return None

    def to_run(self) -> Run | None:
        """Return the run, to evaluate it again.

        Values of arguments and results are missing unless the header's `keeps_arguments` is set.
        """
        return None if self.run is None else run_from_document(self.run)

    def to_document(self) -> dict[str, Any]:
        """Return the case as a JSON object."""
        names = (each.name for each in fields(self) if each.name != "live_evaluation")
        return {name: _as_json(getattr(self, name)) for name in names}


def evaluation_documents(
    evaluation: Evaluation, *, keep_arguments: bool = False
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the documents of an evaluation and of its run, as a `CaseResult` holds them."""
    document = evaluation_document(evaluation)
    left_out = document.keys() - _RUN_KEYS_OF_EVALUATION

    def run_document(keep_values: bool) -> dict[str, Any]:
        full = evaluation_to_document(evaluation, keep_arguments=keep_values)
        return {key: value for key, value in full.items() if key not in left_out}

    run: dict[str, Any] = json.loads(document_json(run_document, include_values=keep_arguments))
    return json.loads(to_json(document)), run


def case_from_document(document: Mapping[str, Any]) -> CaseResult:
    """Return the case of a JSON object. Raises one of several errors if it is something else."""
    known: dict[str, Any] = {each.name: document[each.name] for each in fields(CaseResult) if each.name in document}
    known["tags"] = tuple(known.get("tags") or ())
    if (source := known.get("source")) is not None:
        known["source"] = GoldenSource(source["file"], source["line"])
    if (error := known.get("error")) is not None:
        known["error"] = CaseError(error["type"], error["message"])
    case = CaseResult(**known)
    if case.outcome not in OUTCOMES:
        raise ValueError(case.outcome)
    return case


def outcome_of(evaluation: Evaluation) -> Outcome:
    """Return the outcome of a case whose agent returned."""
    return "not_evaluated" if evaluation.passed is None else "passed" if evaluation.passed else "failed"


def goldens_digest(goldens: Iterable[Golden]) -> str:
    """Return a hash of the ids, the inputs and the expectations of goldens. Their order does not matter."""
    return content_digest(sorted([golden.id, golden.input or "", golden.digest] for golden in goldens))


def shortened_message(error: BaseException) -> str:
    """Return the message of an exception, shortened to the length that a results file holds."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - the exception is the application's
        return ""
    return text if len(text) <= _MAX_MESSAGE_LENGTH else f"{text[:_MAX_MESSAGE_LENGTH]}…"


@dataclass(frozen=True)
class AgentResults(ResultFrames):
    """The results of an agent on goldens. Each golden and trial occurs once."""

    header: ResultsHeader
    cases: tuple[CaseResult, ...]

    @property
    def counts(self) -> Mapping[Outcome, int]:
        """The number of cases with each outcome."""
        found = Counter(case.outcome for case in self.cases)
        return {outcome: found[outcome] for outcome in OUTCOMES}

    @property
    def pass_rate(self) -> float | None:
        """The share of passed cases among those that were evaluated, raised or timed out; `None` if there are none."""
        passed, total = self._passed_of_total()
        return passed / total if total else None

    def pass_rate_interval(self, confidence: float = 0.95) -> Interval | None:
        """Return the Wilson interval of the pass rate, which takes the cases as independent."""
        return wilson_interval(*self._passed_of_total(), confidence=confidence)

    def _passed_of_total(self) -> tuple[int, int]:
        verdicts = [case.passed for case in self.cases if case.passed is not None]
        return sum(verdicts), len(verdicts)

    @property
    def trial_counts(self) -> Mapping[str, TrialCount]:
        """For each golden: how many of its trials passed, of those that have a verdict."""
        verdicts: dict[str, list[bool]] = {}
        for case in self.cases:
            found = verdicts.setdefault(case.golden_id, [])
            if case.passed is not None:
                found.append(case.passed)
        return {golden_id: TrialCount(sum(found), len(found)) for golden_id, found in verdicts.items()}

    def pass_hat_k(self, k: int) -> float | None:
        """Return pass^k: the chance that k trials of a golden all pass, as a mean over the goldens."""
        return pass_hat_k(self.trial_counts.values(), k)

    def pass_at_k(self, k: int) -> float | None:
        """Return pass@k: the chance that at least one of k trials of a golden passes, as a mean over the goldens."""
        return pass_at_k(self.trial_counts.values(), k)

    def mean(self, metric: str) -> float | None:
        """Return the mean of a metric over the cases that have a value; `None` if none has."""
        values = [value for case in self.cases if (value := case.score(metric)) is not None]
        return sum(values) / len(values) if values else None

    def value_of(self, name: str) -> float | None:
        """Return what a gate can limit: the pass rate `passed`, `pass^K`, `pass@K`, or the mean of a metric."""
        if name == PASS_RATE:
            return self.pass_rate
        if statistic := TRIAL_STATISTIC.fullmatch(name):
            k = int(statistic["k"])
            return self.pass_hat_k(k) if statistic["kind"] == "^" else self.pass_at_k(k)
        return self.mean(name)

    @property
    def metric_names(self) -> list[str]:
        """The metrics of the cases, in the order in which they were computed."""
        evaluations = [case.evaluation for case in self.cases if case.evaluation is not None]
        return list(dict.fromkeys(score["metric"] for evaluation in evaluations for score in evaluation["scores"]))

    @property
    def evaluations(self) -> tuple[Evaluation, ...]:
        """The evaluations of the cases that were run in this process."""
        return tuple(case.live_evaluation for case in self.cases if case.live_evaluation is not None)


def _as_json(value: Any) -> Any:
    if isinstance(value, GoldenSource | CaseError):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    return list(value) if isinstance(value, tuple) else value
