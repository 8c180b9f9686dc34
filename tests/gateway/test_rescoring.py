"""A stored run that is judged once more comes out as if the goldens of now had been there at first, or not at all."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from goldspan import Evaluation, ExpectedTool, Golden, Goldens, Run, ToolCall, evaluate
from goldspan.gateway.api.rescoring import NotKeptError, judged_again
from goldspan.sinks.documents import evaluation_document, to_json
from goldspan.store import StoredEvaluation
from goldspan.store.documents import stored_document

_values = st.none() | st.booleans() | st.integers(0, 2) | st.text(max_size=2)
_calls = st.builds(
    ToolCall,
    st.sampled_from(("find_order", "findOrder", "refund", "mail")),
    arguments=st.none() | st.dictionaries(st.sampled_from("ab"), _values, max_size=2),
    result=_values,
    error=st.none() | st.sampled_from(("KeyError: 'a'", "no such order")),
    outcome=st.none() | st.sampled_from(("ok", "denied")),
)
_expected = st.builds(
    ExpectedTool,
    st.sampled_from(("find_order", "refund")),
    st.none() | st.dictionaries(st.sampled_from("ab"), _values, max_size=2),
)
_goldens = st.builds(
    Golden,
    st.just("g"),
    st.just("Money back!"),
    tools=st.lists(_expected, max_size=3).map(tuple),
    order=st.sampled_from(("any", "in_order", "exact")),
    attempts=st.sampled_from(("effective", "all", "succeeded")),
    duplicates=st.sampled_from(("count", "ignore")),
    forbid=st.sampled_from(((), ("mail",))),
    write_tools=st.sampled_from((None, ("refund",))),
)


def kept(evaluation: Evaluation, *, keep_arguments: bool) -> StoredEvaluation:
    document = json.loads(to_json(stored_document(evaluation, keep_arguments=keep_arguments)))
    return StoredEvaluation(evaluation.run.run_id, evaluation.revision, evaluation.digest, 0, document)


def said(evaluation: Evaluation) -> dict[str, object]:
    """What an evaluation says; the digest is also of values on which nothing depends."""
    document = json.loads(to_json(evaluation_document(evaluation)))
    return {name: value for name, value in document.items() if name not in ("digest", "revision")}


@given(st.lists(_calls, max_size=4), _goldens, _goldens, st.booleans())
def test_what_is_rescored_says_what_would_have_been_said_at_first(
    calls: list[ToolCall], before: Golden, now: Golden, keep_arguments: bool
) -> None:
    run = Run("t:s", input="Money back!", tool_calls=tuple(calls))
    first = kept(evaluate(run, Goldens([before])), keep_arguments=keep_arguments)
    outright = said(evaluate(run, Goldens([now])))
    try:
        again = judged_again([first], lambda stored: evaluate(stored, Goldens([now])))
    except NotKeptError:
        assert not keep_arguments
        return
    if again is not None:
        assert again.revision == 2
        assert said(again) == outright
    else:
        assert {name: first.document[name] for name in outright} == outright
