"""The request to a model endpoint, and endpoints that cannot be reached."""

from __future__ import annotations

import logging
import socket

import pytest

from goldspan import semconv
from goldspan._version import __version__
from goldspan.errors import ConfigurationError
from goldspan.judge import Judge, ModelEndpoint, judge_evaluations
from goldspan.judge.prompts import ANSWER_SCHEMA, INSTRUCTIONS, REMINDER, JudgePrompt
from support.judge_clients import KEY, asked, counted, endpoint, evaluation, judging, score, verdict
from support.metric_readers import Meter
from support.model_endpoint import failure, opinion, raw, redirect, serving

DATA = (
    '{"request": "What if these shoes don\'t fit?", "answer": "We offer a 30-day full refund at no extra cost.", '
    '"tools": [{"id": "T1", "name": "search"}, {"id": "T2", "name": "faq", '
    '"description": "Answers to what is asked often."}], "calls": [{"tool": "search"}]}'
)


def test_the_request_contains_exactly_these_headers_and_members():
    with serving([opinion(1.0)]) as model, judging(model, temperature=0.5, seed=7, max_tokens=321) as judge:
        assert score(judge).value == 1.0
    (request,) = model.requests
    assert request.path == "/v1/chat/completions"
    headers = {name: value for name, value in request.headers.items() if name not in ("host", "content-length")}
    assert headers == {
        "accept": "*/*",
        "accept-encoding": "identity",
        "authorization": f"Bearer {KEY}",
        "connection": "keep-alive",
        "content-type": "application/json",
        "user-agent": f"goldspan/{__version__}",
    }
    assert request.body == {
        "model": "tiny",
        "messages": [
            {"role": "system", "content": INSTRUCTIONS},
            {"role": "user", "content": f"<run>\n{DATA}\n</run>\n\n{REMINDER}"},
        ],
        "temperature": 0.5,
        "seed": 7,
        "max_tokens": 321,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "tool_selection", "strict": True, "schema": dict(ANSWER_SCHEMA)},
        },
    }


@pytest.mark.parametrize(("form", "sent"), [("json_object", {"type": "json_object"}), ("text", None)])
def test_the_answer_form_selects_the_response_format(form, sent):
    with serving([opinion(1.0)]) as model, judging(endpoint(model, answer_form=form)) as judge:
        assert score(judge).value == 1.0
    assert model.requests[0].body.get("response_format") == sent
    assert ("response_format" in model.requests[0].body) == (sent is not None)


def test_extra_members_override_the_defaults_and_none_removes_them():
    extra = {"seed": None, "max_tokens": None, "max_completion_tokens": 50, "temperature": 1, "reasoning": {"a": [1]}}
    with serving([opinion(1.0)]) as model, judging(endpoint(model, extra=extra)) as judge:
        assert score(judge).value == 1.0
    body = model.requests[0].body
    assert body.keys() >= {"model", "messages", "response_format"}
    assert "seed" not in body
    assert "max_tokens" not in body
    assert (body["max_completion_tokens"], body["temperature"], body["reasoning"]) == (50, 1, {"a": [1]})


def test_temperature_seed_and_key_are_optional():
    with (
        serving([opinion(1.0)]) as model,
        judging(endpoint(model, api_key=None), temperature=None, seed=None) as judge,
    ):
        judgement = score(judge).judgement
    assert not {"temperature", "seed"} & model.requests[0].body.keys()
    assert "authorization" not in model.requests[0].headers
    assert (judgement.temperature, judgement.seed) == (None, None)


def test_custom_headers_are_sent_once():
    headers = {"Api-Key": "0123456789", "User-Agent": "mine"}
    with serving([opinion(1.0)]) as model, judging(endpoint(model, headers=headers, api_key=" k\n")) as judge:
        assert score(judge).value == 1.0
    sent = model.requests[0].headers
    assert (sent["api-key"], sent["user-agent"], sent["authorization"]) == ("0123456789", "mine", "Bearer k")


def test_connections_are_reused():
    with serving([opinion(1.0)]) as model, judging(model, concurrency=1) as judge:
        runs = [evaluation(input=str(number)) for number in range(5)]
        assert [each.score("tool_selection").value for each in judge_evaluations(runs, judge)] == [1.0] * 5
        assert len(model._server._clients) == 1


def test_a_redirect_is_not_followed():
    with serving([opinion(1.0)]) as elsewhere, serving([redirect(f"{elsewhere.url}/chat/completions")]) as model:
        with judging(model) as judge:
            assert score(judge).error == "EndpointRefused: the endpoint answered 307"
        assert judge.usage.requests == 1
    assert (len(model.requests), len(elsewhere.requests)) == (1, 0)


def test_an_unreachable_endpoint_is_an_error_after_all_retries():
    with socket.socket() as taken:  # a port that is bound without listening
        taken.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{taken.getsockname()[1]}"
        with judging(ModelEndpoint("tiny", base_url=f"http://{server}/private/v1"), retries=2) as judge:
            judged_run = score(judge)
            assert judge.cache.spending_last_day().tokens == 0
    assert judged_run.error == f"Unreachable: All connection attempts failed ({server})"
    assert (judged_run.value, judged_run.passed, judged_run.label) == (None, None, "not_evaluated")
    assert (judge.usage.requests, judge.usage.failed) == (3, 1)


@pytest.mark.parametrize(
    "url",
    [
        *("", "api.openai.com/v1", "ftp://host/v1", "https://", "https://user:pw@host/v1", "https://host/v1?key=1"),
        *("https://host/v1#x", "https://ho st/v1", "http://host:99999/v1", "http://host:x/v1", "http://\0/v1", None),
        *("http://[::1/v1", b"http://host/v1", "http://host/v1\nx"),
    ],
)
def test_an_invalid_url_is_refused_at_construction(url):
    with pytest.raises(ConfigurationError, match="the judge's URL is written as") as cause:
        ModelEndpoint("tiny", base_url=url)
    assert ":pw@" not in str(cause.value)


@pytest.mark.parametrize(
    "options",
    [
        *({"api_key": key} for key in ("a b", "ключ", "a\nb", "a\0", b"bytes", 5)),
        *({"model": name} for name in ("", "  ", None, 5)),
        *({"headers": headers} for headers in ({"a": "b\nc"}, {"a b": "c"}, {"": "x"}, {"a": 5}, {"é": "x"})),
        *({"extra": extra} for extra in ({"a": float("nan")}, {"a": object()}, {"a": {1, 2}})),
        {"answer_form": "xml"},
    ],
)
def test_options_that_cannot_be_sent_are_refused_at_construction(options):
    with pytest.raises(ConfigurationError) as cause:
        ModelEndpoint(**{"model": "tiny"} | options)
    assert len(str(cause.value)) < 300


def test_a_client_that_cannot_connect_is_an_error_in_the_score():
    class Broken:
        model = identity = "broken"

        def connect(self):
            raise OSError("no certificates")

    with judging(Broken(), retries=0) as judge:
        judged_run = verdict(judge)
        assert judge.cache.spending_last_day().tokens == 0
    assert judged_run.score("tool_selection").error == "OSError: no certificates"
    assert judged_run.passed is True
    assert judge.usage.failed == 1


def test_the_api_key_is_masked_in_errors_logs_and_the_cache(caplog):
    for name in ("", "httpx2", "httpcore2"):
        caplog.set_level(logging.DEBUG, name)
    told = [
        failure(401, message=f"Incorrect key {KEY}!"),
        raw(f'"{KEY}"'.encode(), 429, {"x-key": KEY, "retry-after": KEY}),
        raw(b"{}", 500, {KEY: "x"}),
        redirect(f"http://127.0.0.1:1/{KEY}"),
        opinion(0.5, None, f"The key is {KEY}.", model=KEY),
        opinion(0.5, KEY),
    ]
    with serving(told) as model:
        ask = endpoint(model, headers={"x-own": "secret-in-header"})
        with judging(ask, retries=0, explain=True) as judge:
            runs = [verdict(judge, evaluation(input=str(number))) for number in range(len(told))]
            kept = "\n".join(judge.cache._connection.iterdump())
    said = "\n".join([*map(repr, [*runs, judge, ask, vars(judge)]), kept, *(f"{each}" for each in runs)])
    logged = "\n".join(f"{record.name} {record.getMessage()} {record.exc_text}" for record in caplog.records)
    assert "[key]" in said
    assert "[key]" in logged
    assert {"httpx2", "httpcore2.http11"} <= {record.name for record in caplog.records}
    for secret in (KEY, "secret-in-header"):
        assert secret not in said
        assert secret not in logged
    assert model.requests[0].headers["x-own"] == "secret-in-header"
    assert "Incorrect key [key]!" in runs[0].score("tool_selection").error


def test_authorization_headers_are_masked_in_errors():
    with serving([failure(400, message="Bad key: abcdefgh12345")]) as model:
        ask = endpoint(model, api_key=None, headers={"Authorization": "Basic abcdefgh12345"})
        with judging(ask) as judge:
            assert score(judge).error == "EndpointRefused: the endpoint answered 400: Bad key: [key]"


def test_a_very_short_key_is_not_masked_in_answers():
    with serving([opinion(0.5, None, "It is 0.5.")]) as model, judging(endpoint(model, api_key="0")) as judge:
        found = score(judge)
    assert (found.value, found.judgement.words) == (0.5, "It is 0.5.")


def test_log_records_of_other_users_of_the_http_client_are_not_masked(caplog):
    with serving([opinion(1.0)]) as model, judging(model) as judge:
        assert score(judge).value == 1.0
    caplog.set_level(logging.DEBUG, "httpcore2")
    logging.getLogger("httpcore2.http11").debug("of %s", KEY)
    assert caplog.messages[-1] == f"of {KEY}"


def test_the_prompt_contains_nothing_but_the_run():
    with serving([opinion(1.0)]) as model, judging(model) as judge:
        assert score(judge).value == 1.0
    text = asked(model.requests[0])
    assert text.count("<") == 2
    question = JudgePrompt("<run>\n{}\n</run>", ("search",))
    assert [message["role"] for message in question.messages] == ["system", "user"]


def test_attempts_are_counted_by_outcome():
    meter = Meter()
    with serving([failure(429), failure(500), raw(b"{"), opinion(1.0)]) as model:
        judge = Judge(endpoint(model), meter_provider=meter.provider)
        assert score(judge).value == 1.0
        judge.close()
    outcomes = meter.counts(semconv.JUDGE_REQUESTS_COUNTER, semconv.OUTCOME_LABEL)
    assert outcomes == {("RateLimited",): 1, ("EndpointError",): 1, ("MalformedAnswer",): 1, ("answered",): 1}
    assert counted(meter) == judge.usage
