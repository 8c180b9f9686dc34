"""A model's answer becomes a score, or an error if it is malformed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldspan.judge import Assessment, ModelRequestError, Prices
from goldspan.judge.prompts import JudgePrompt
from goldspan.judge.tool_selection import MAX_REASON_LENGTH, parse_assessment
from support.judge_clients import evaluation, judging, score, verdict
from support.model_endpoint import content, cut, failure, opinion, raw, serving

QUESTION = JudgePrompt("<run>\n{}\n</run>", ("search", "T1"))


def judged_reply(reply, **options):
    """The score for a reply without retries, and the judge."""
    with serving([reply]) as model, judging(model, retries=0, **options) as judge:
        found = score(judge)
    return found, judge


@pytest.mark.parametrize(
    ("value", "better", "named"),
    [(0.25, "T2", "faq"), (1, None, None), (0, "faq", "faq"), (0.5, "T0000002", "faq"), (1e-300, "search", "search")],
)
def test_a_valid_answer_is_a_score(value, better, named):
    found, judge = judged_reply(opinion(value, better, "Because."))
    assert (found.metric, found.value, found.error) == ("tool_selection", value, None)
    assert (found.judgement.better_tool, found.judgement.words) == (named, "Because.")
    usage = judge.usage
    assert (usage.requests, usage.input_tokens, usage.output_tokens, usage.judged) == (1, 100, 20, 1)


@pytest.mark.parametrize("fence", ["```json\n{}\n```", "```\n{}\n```", "\n  ```json \n{}```\n", "  {}\n", "{}"])
def test_an_answer_may_be_enclosed_in_a_code_block(fence):
    text = json.dumps({"reason": "Because.", "better_tool": None, "score": 0.5})
    found, _ = judged_reply(content(fence.replace("{}", text)))
    assert found.value == 0.5


def assessment_json(**said):
    """The JSON of an assessment with some fields replaced."""
    return json.dumps({"reason": "Because.", "better_tool": None, "score": 1.0} | said)


MALFORMED = {
    "not JSON": ["", "{", "Score: 1", "```json\n{}", "```json {} ```", "```yaml\n{}\n```", '{"score": 1} and so on'],
    "not a JSON object": ["[]", '"1"', "1", "null", "[" + assessment_json() + "]"],
    "a score that is not a number": [
        *(assessment_json(score=score) for score in ("1", True, None, [1], {"value": 1})),
        "{}",
    ],
    "not from 0 to 1": [
        *(assessment_json(score=score) for score in (1.5, -0.1, 10**300, 1e308, float("nan"), float("inf")))
    ],
    "a reason that is not a text": [
        assessment_json(reason=None),
        assessment_json(reason=5),
        '{"score": 1}',
        '{"score": 1, "better_tool": 1}',
    ],
    "a tool that was not offered": [
        *(
            assessment_json(better_tool=name)
            for name in ("T3", "T0", "T", "t2", "Faq", "", "T2 ", "T²", "T-1", 2, True, ["faq"])
        ),
        assessment_json(better_tool="T" + "9" * 5000),
    ],
}


@pytest.mark.parametrize(("why", "text"), [(why, text) for why, texts in MALFORMED.items() for text in texts if text])
def test_an_answer_with_an_invalid_structure_is_an_error(why, text):
    found, judge = judged_reply(content(text))
    assert found.error.startswith("MalformedAnswer: the model's answer ")
    assert why in found.error
    assert (found.value, found.passed, found.label, found.judgement) == (None, None, "not_evaluated", None)
    assert (judge.usage.requests, judge.usage.input_tokens, judge.usage.failed) == (1, 100, 1)


@pytest.mark.parametrize(
    "text", ["[" * 500_000, '{"score":' * 60_000, "```json" + "\n" * 500_000, "1" * 900_000, " " * 900_000 + "x"]
)
def test_adversarial_answers_are_parsed_quickly(text):
    found, _ = judged_reply(content(text), timeout=10)
    assert "MalformedAnswer" in found.error


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (content(None, refusal="I will not."), "is a refusal"),
        (content(None), "is empty"),
        (content(""), "is empty"),
        (content(assessment_json()[:20], finish_reason="length"), "was truncated: raise max_tokens"),
        (content(assessment_json(), finish_reason="length"), "was truncated: raise max_tokens"),
    ],
)
def test_a_refused_empty_or_truncated_answer_is_an_error_and_its_tokens_are_counted(reply, why):
    found, judge = judged_reply(reply, prices=Prices(1, 10))
    assert found.error == f"MalformedAnswer: the model's answer {why}"
    assert (judge.usage.input_tokens, judge.usage.output_tokens) == (100, 20)
    assert judge.usage.cost == pytest.approx(0.0003)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{}", b"null", b"\xff\xfe", b"<html>", b'{"choices": []}', b'{"choices": {}}', b'{"choices": [null]}'),
        *(
            b'{"choices": ["x"]}',
            b'{"choices": [{"message": null}]}',
            b'{"choices": [{"message": "x"}]}',
            b"[" * 99_999,
        ),
        *(b'{"choices": [[]]}', b'{"choices": [{"message": []}]}', b'[{"choices": []}]', b'"choices"', b"1" * 9999),
    ],
)
def test_a_body_that_is_not_a_chat_completion_is_an_error(body):
    found, judge = judged_reply(raw(body))
    assert found.error == "MalformedAnswer: the model's answer is not a chat completion"
    assert (judge.usage.requests, judge.usage.failed) == (1, 1)


def test_the_tokens_of_a_message_without_content_are_counted():
    said = {"choices": [{"message": {"role": "assistant", "refusal": "No."}}], "usage": {"prompt_tokens": 9}}
    found, judge = judged_reply(raw(json.dumps(said).encode()))
    assert found.error == "MalformedAnswer: the model's answer is a refusal"
    assert judge.usage.input_tokens == 9


def test_a_truncated_response_is_an_error():
    found, judge = judged_reply(cut())
    assert found.error.startswith("Unreachable: RemoteProtocolError: ")
    assert judge.usage.requests == 1


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": "9", "completion_tokens": -1}, {"prompt_tokens": True}])
def test_unreported_tokens_are_unknown_and_the_reservation_counts_as_spent(usage):
    with serving([content(assessment_json(), usage=usage)]) as model, judging(model, prices=Prices(1, 1)) as judge:
        judgement = score(judge).judgement
        assert judge.cache.spending_last_day().tokens > 1000
    assert (judgement.input_tokens, judgement.output_tokens, judgement.cost) == (None, None, None)
    assert (judge.usage.input_tokens, judge.usage.output_tokens, judge.usage.cost) == (0, 0, 0.0)


def test_partly_reported_tokens_are_unknown_in_the_judgement():
    with (
        serving([content(assessment_json(), usage={"prompt_tokens": 7})]) as model,
        judging(model, max_tokens=500) as judge,
    ):
        judgement = score(judge).judgement
        assert judge.cache.spending_last_day().tokens == 7 + 500
    assert (judgement.input_tokens, judgement.output_tokens) == (None, None)
    assert judge.usage.input_tokens == 7


def test_a_malformed_answer_is_retried_and_every_attempt_counts():
    with serving([content("{"), opinion(0.5)]) as model, judging(model) as judge:
        assert score(judge).value == 0.5
        assert judge.cache.spending_last_day().tokens == 2 * 120
    assert (judge.usage.requests, judge.usage.input_tokens, judge.usage.judged, judge.usage.failed) == (2, 200, 1, 0)


def test_a_malformed_answer_is_retried_only_once_whatever_the_number_of_retries():
    with serving([content("{"), opinion(2), opinion(0.5)]) as model, judging(model, retries=9) as judge:
        assert score(judge).error == "MalformedAnswer: the model's answer has a score that is not from 0 to 1"
    assert (judge.usage.requests, judge.usage.failed) == (2, 1)


@pytest.mark.parametrize("reply", [content("{", finish_reason="length"), content("", refusal="I cannot say.")])
def test_a_truncated_or_refused_answer_is_not_retried(reply):
    with serving([reply, opinion(0.5)]) as model, judging(model) as judge:
        assert str(score(judge).error).startswith("MalformedAnswer: ")
    assert judge.usage.requests == 1


def test_the_answer_of_the_model_is_shortened_to_one_printable_line():
    told = "a\x00b\n\u2028c\u202e\u200b\U000e0041d " + "<b>x</b> " * 600_000
    with serving([opinion(0.5, None, told[:900_000])]) as model, judging(model, explain=True) as judge:
        found = score(judge)
    assert len(found.judgement.words) == MAX_REASON_LENGTH
    assert found.judgement.words.startswith("a b cd <b>x</b> ")
    assert found.judgement.words.isprintable()
    assert found.judgement.words[:-1] in found.reason


def test_an_answer_of_several_megabytes_is_too_large():
    found, judge = judged_reply(opinion(0.5, None, "x" * 5_000_000))
    assert found.error == "AnswerTooLarge: the model's answer is longer than 1048576 bytes"
    assert judge.usage.requests == 1


def test_the_model_name_is_shortened_to_printable_characters():
    name = "x\n\u202e" * 500
    found, _ = judged_reply(opinion(0.5, model=name))
    assert len(found.judgement.model) <= 200
    assert found.judgement.model.isprintable()
    assert judged_reply(opinion(0.5, model=""))[0].judgement.model == "tiny"


def test_the_reason_contains_the_answer_of_the_model_only_with_explain():
    for explain in (False, True):
        with serving([opinion(0.5, "T2", "They said SECRET.")]) as model, judging(model, explain=explain) as judge:
            found = score(judge)
        assert found.judgement.words == "They said SECRET."
        assert ("SECRET" in found.reason) == explain
        assert found.reason.startswith("tiny-judge rates the choice of tools 0.5; faq would have been better")


def test_an_endpoint_error_is_shortened_to_one_printable_line():
    found, _ = judged_reply(failure(400, message="a\n\x1b[31m" + "b" * 100_000))
    assert found.error.startswith("EndpointRefused: the endpoint answered 400: a [31mbbb")
    assert len(found.error) < 400
    assert found.error.isprintable()


def test_a_tool_id_takes_precedence_over_a_tool_of_the_same_name():
    assert parse_assessment({"score": 1, "reason": "", "better_tool": "T1"}, QUESTION).better_tool == "search"
    assert parse_assessment({"score": 1, "reason": "", "better_tool": "T2"}, QUESTION).better_tool == "T1"


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["score", "reason", "better_tool"]), inner),
    max_leaves=6,
)


@given(anything | st.builds(Assessment, anything, anything, anything) | anything.map(json.dumps))
def test_any_answer_is_a_valid_assessment_or_a_malformed_answer_error(answer):
    kind, found = "none", Assessment(0)
    try:
        found = parse_assessment(answer, QUESTION)
    except ModelRequestError as error:
        kind = error.kind
    assert kind in ("none", "MalformedAnswer")
    assert 0 <= found.score <= 1
    assert found.better_tool in (None, *QUESTION.tools)
    assert found.reason.isprintable()


def test_a_failing_judge_changes_no_other_score():
    before = evaluation()
    with serving([failure(400)]) as model, judging(model, threshold=0.9, combination="min") as judge:
        after = verdict(judge, before)
    assert after.scores[:-1] == before.scores
    assert (after.passed, after.reason, after.digest) == (before.passed, before.reason, before.digest)
    assert after.score("tool_selection").threshold == 0.9
