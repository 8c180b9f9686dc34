"""Tests of the encoding of responses."""

from __future__ import annotations

import json

import pytest
from google.protobuf.json_format import Parse
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from goldspan.gateway.decoding.export_response import (
    ExportResponse,
    RequestRefused,
    grpc_response,
    http_response,
    quote_input,
    too_large,
)

RESPONSES = {
    "traces": (ExportTraceServiceResponse, "rejected_spans"),
    "logs": (ExportLogsServiceResponse, "rejected_log_records"),
    "metrics": (ExportMetricsServiceResponse, "rejected_data_points"),
}


@pytest.mark.parametrize("signal", RESPONSES)
def test_an_accepted_request_is_answered_without_a_partial_success(signal):
    assert http_response(ExportResponse(200), signal, "protobuf") == (
        200,
        {"Content-Type": "application/x-protobuf"},
        b"",
    )
    assert http_response(ExportResponse(200), signal, "json") == (200, {"Content-Type": "application/json"}, b"{}")
    assert grpc_response(ExportResponse(200), signal) == (0, "", b"", ())


@pytest.mark.parametrize("signal", RESPONSES)
@pytest.mark.parametrize("answer", [ExportResponse(200, "no ids", rejected=3), ExportResponse(200, "take care")])
def test_a_partial_success_has_the_count_and_the_message_in_every_encoding(signal, answer):
    response, field = RESPONSES[signal]
    _, _, body = http_response(answer, signal, "protobuf")
    partial = response.FromString(body).partial_success
    assert (getattr(partial, field), partial.error_message) == (answer.rejected, answer.message)
    _, _, document = http_response(answer, signal, "json")
    assert Parse(document, response()) == response.FromString(body)
    assert grpc_response(answer, signal) == (0, "", body, ())


def test_json_has_camel_case_names_and_int64_as_a_string():
    _, _, body = http_response(ExportResponse(200, "no ids", rejected=3), "traces", "json")
    assert json.loads(body) == {"partialSuccess": {"rejectedSpans": "3", "errorMessage": "no ids"}}


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, 3), (401, 16), (403, 7), (404, 5), (405, 12), (408, 4), (413, 8), (415, 12), (429, 8), (431, 8),
        (500, 13), (503, 14), (418, 3), (507, 2),
    ],
)  # fmt: skip
def test_a_refusal_is_a_status_in_the_media_type_of_the_request(status, code):
    answer = ExportResponse(status, "größer")
    got, headers, body = http_response(answer, "logs", "protobuf")
    assert (got, headers) == (status, {"Content-Type": "application/x-protobuf"})
    assert Status.FromString(body) == Status(code=code, message="größer")
    got, headers, body = http_response(answer, "logs", "json")
    assert (got, headers) == (status, {"Content-Type": "application/json"})
    assert json.loads(body) == {"code": code, "message": "größer"}
    assert grpc_response(answer, "logs") == (code, "größer", b"", ())


@pytest.mark.parametrize(("seconds", "header"), [(0.0, "1"), (0.2, "1"), (1.0, "1"), (2.5, "3")])
def test_retry_after_is_rounded_up_to_seconds_over_http_and_exact_over_grpc(seconds, header):
    answer = ExportResponse(429, "busy", retry_after=seconds, limit="max_requests")
    _, headers, _ = http_response(answer, "traces", "protobuf")
    assert headers["Retry-After"] == header
    code, details, response, ((key, value),) = grpc_response(answer, "traces")
    assert (code, details, response, key) == (8, "busy", b"", "grpc-status-details-bin")
    (detail,) = Status.FromString(value).details
    retry = RetryInfo()
    assert detail.Unpack(retry)
    assert retry.retry_delay.ToNanoseconds() == seconds * 1e9


def test_a_request_that_is_too_large_is_not_retryable():
    refusal = too_large("max_spans", "too many")
    assert refusal.response == ExportResponse(413, "too many", limit="max_spans")
    assert "Retry-After" not in http_response(refusal.response, "traces", "json")[1]
    assert grpc_response(refusal.response, "traces")[3] == ()
    with pytest.raises(RequestRefused, match="too many"):
        raise refusal


@pytest.mark.parametrize("text", ["gzip\r\nSet-Cookie: a", "x" * 1000, "\ud800\0", "ü" * 1000, "'"])
def test_quoted_input_is_short_and_printable(text):
    told = quote_input(text)
    assert told.isascii()
    assert told.isprintable()
    assert len(told) <= 202


def test_short_input_is_quoted_completely():
    assert quote_input("br") == "'br'"
