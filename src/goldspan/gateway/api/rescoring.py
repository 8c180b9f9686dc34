"""A stored run judged once more, by the goldens of now, and only where that says no less than what is stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from goldspan.errors import GoldspanError
from goldspan.judge.selection import TOOL_SELECTION, Combination, limited, not_answered, with_selection
from goldspan.model import ABSENT, Evaluation, Golden, Judgement, Run, Score
from goldspan.scoring.metrics import ASKED_METRICS, METRICS
from goldspan.sinks.documents import to_json
from goldspan.store import StoredEvaluation
from goldspan.store.documents import LONGEST_INPUT, run_of, stored_document


class NotKeptError(GoldspanError):
    """What would have to be known to judge a run once more is not in the store; the text says what to do."""


def judged_again(
    history: Sequence[StoredEvaluation],
    rescore: Callable[[Run], Evaluation],
    *,
    combination: Combination = "apart",
    threshold: float | None = None,
) -> Evaluation | None:
    """The next revision of a run, of which all that is stored is given; `None` where it would say what is stored.

    A store may lack what a verdict depends on, and a run that is judged without it could lose a score that was right.
    Raises `NotKeptError` where that is not out of the question:

    - the run says itself what is expected of it, or attributes of its span, or the end of a long input, take part in
      finding its golden: these are never kept;
    - without `keep_arguments`: the golden states arguments or results, or ignores duplicates; a call failed, and its
      arguments would tell what made it good; a score that needs no golden is known and would not be; or a metric is
      none of goldspan's, so that it may look at anything.

    A revision that was itself made without the values lacks them too, so all revisions must have them.

    No model is asked again: what it said of the run stays, and is weighed as verdicts are now, by the golden's
    `threshold` or else this one, and in this `combination`.
    """
    current = history[-1]
    with_values = all("schemas" in each.document for each in history)
    attributes = _Attributes()
    run = replace(run_of(current.document), attributes=attributes)
    judged = rescore(run)
    if (said := _said_by_model(current.document)) is not None:
        limit = judged.golden.thresholds.get(TOOL_SELECTION, threshold) if judged.golden else threshold
        combined = with_selection(judged, limited(said, limit), combination=combination)
        judged = replace(combined, changes=None)  # the goldens are new as well
    lacking = next(_lacking(current.document, judged, attributes), None)
    if lacking is None and not with_values:
        lacking = next(_lacking_values(current.document, judged), None)
        lacking = lacking and f"{lacking} Run the gateway with --keep-arguments to be able to rescore what comes then."
    if lacking is not None:
        raise NotKeptError(lacking)
    document = json.loads(to_json(stored_document(judged, keep_arguments=with_values)))
    if all(document[name] == current.document.get(name) for name in _TOLD):
        return None
    return replace(judged, revision=current.revision + 1)


_TOLD = (
    *("golden_id", "golden_match", "passed", "reason", "expected_tools"),
    *("scores", "faults", "broken", "unjudged", "rows", "scoring_version"),
)
"""What is said of a run; where all of it is the same, nothing has changed."""


def _said_by_model(document: Mapping[str, Any]) -> Score | None:
    """What a model said of a stored run, or why it said nothing; `None`: none was asked."""
    for stored in document["scores"]:
        if stored["metric"] == TOOL_SELECTION and (stored["value"] is not None or stored["error"] is not None):
            asked = stored.get("judgement")
            known = {each.name: asked[each.name] for each in fields(Judgement) if each.name in asked} if asked else {}
            judgement = Judgement(**known | {"votes": tuple(known["votes"])}) if known else None
            if stored["value"] is None:
                return not_answered(stored["error"])
            return Score(TOOL_SELECTION, stored["value"], reason=stored["reason"], judgement=judgement)
    return None


def _lacking(document: Mapping[str, Any], judged: Evaluation, attributes: _Attributes) -> Iterator[str]:
    """Sentences about what no store keeps and this verdict depends on."""
    if "states_expectations" not in document:
        yield "An older goldspan stored this run, and with too little to rescore it. Send its trace once more."
    elif document["states_expectations"]:
        yield "The run says itself what is expected of it, so that goldens are not for it. Send its trace once more."
    if attributes.asked:
        yield (
            f"Goldens or metrics look at the attribute {min(attributes.asked)} of the run's span, which is not kept. "
            "Send its trace once more."
        )
    named = judged.match is not None and judged.match.how == "id"
    if len(document["input"] or "") >= LONGEST_INPUT and not named:
        told = f"The input is kept only up to {LONGEST_INPUT} characters, and a golden is found by all of it."
        yield f"{told} Send its trace once more."


def _lacking_values(document: Mapping[str, Any], judged: Evaluation) -> Iterator[str]:
    """Sentences about arguments and results that this verdict depends on."""
    golden = judged.golden
    if golden is not None and _looks_at_values(golden):
        yield f"The golden {golden.id} looks at arguments or results, which were not kept of this run."
    calls = judged.run.tool_calls
    weighed = golden is not None and golden.attempts == "effective" and len(calls) > 1
    if weighed and not all(call.error is None and call.error_guess is None for call in calls):
        yield "A call failed, or may have. Whether it was made once more shows in arguments, which were not kept."
    known = {score["metric"] for score in document["scores"] if score["value"] is not None}
    for score in judged.scores:
        if score.metric in ASKED_METRICS:
            continue
        if score.metric not in METRICS:
            yield f"The metric {score.metric} may look at arguments or results, which were not kept of this run."
        elif score.value is None and score.metric in known and not METRICS[score.metric].needs_golden:
            yield f"The score of {score.metric} would be lost with the arguments, which were not kept of this run."


def _looks_at_values(golden: Golden) -> bool:
    stating = any(tool.arguments is not None or tool.result is not ABSENT for tool in golden.calls)
    return stating or golden.duplicates == "ignore"


class _Attributes(Mapping[str, Any]):
    """The attributes of a span that nobody kept. It takes note of what is looked for, since that decides something."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        self.asked.add("*")
        return iter(())

    def __len__(self) -> int:
        self.asked.add("*")
        return 0
