"""Runs loaded from trace files."""

from __future__ import annotations

from pathlib import Path

import pytest

from goldspan.errors import ConfigurationError, GoldspanWarning, TraceFileError
from goldspan.otlp import load_runs
from otlp.payloads import line, tool_request

FIXTURES = Path(__file__).parents[1] / "fixtures" / "otlp"


@pytest.fixture
def traces(tmp_path):
    """A trace file with these requests."""

    def write(*requests, name="traces.jsonl"):
        path = tmp_path / name
        path.write_bytes(b"".join(map(line, requests)))
        return path

    return write


def test_a_recorded_export_yields_its_run_with_every_tool_call():
    (run,) = load_runs(FIXTURES / "structured-values.pb.gz")
    assert run.tools_used == ("search_flights", "get_weather", "convert_currency")
    assert run.tool_calls[1].arguments == {"city": "Lisbon"}
    assert run.input == "Plan my trip from Berlin to Lisbon on 12 March"
    assert run.service == "demo-agent-service"


def test_the_same_export_in_protobuf_and_json_yields_one_run():
    (run,) = load_runs(FIXTURES / "structured-values.pb.gz", FIXTURES / "structured-values.json.gz")
    assert run.tools_used == ("search_flights", "get_weather", "convert_currency")


def test_spans_of_one_trace_are_collected_from_all_files(traces):
    whole = tool_request("search")
    agent_only, tool_only = tool_request("search"), tool_request("search")
    del agent_only.resource_spans[0].scope_spans[0].spans[1]
    del tool_only.resource_spans[0].scope_spans[0].spans[0]
    split = list(load_runs(traces(tool_only, name="1.jsonl"), traces(agent_only, name="2.jsonl")))
    assert split == list(load_runs(traces(whole, name="3.jsonl")))
    assert [run.tools_used for run in split] == [("search",)]


def test_runs_are_ordered_by_start_time(traces):
    path = traces(tool_request("second", trace=1, at=1000), tool_request("first", trace=2, at=0))
    assert [run.tools_used for run in load_runs(path)] == [("first",), ("second",)]


class TestGoldenId:
    def test_is_read_from_goldspan_golden_id_before_test_case_name(self, traces):
        both = {"test.case.name": "case", "goldspan.golden.id": "ours"}
        path = traces(tool_request("a", **both), tool_request("b", trace=2, **{"test.case.name": "case"}))
        assert [run.golden_id for run in load_runs(path)] == ["ours", "case"]

    def test_is_read_from_the_attributes_named_in_the_environment_variable(self, traces, monkeypatch):
        monkeypatch.setenv("GOLDSPAN_GOLDEN_ID_ATTRIBUTE", "suite.case, other ,")
        path = traces(
            tool_request("a", **{"suite.case": "first", "goldspan.golden.id": "ours"}),
            tool_request("b", trace=2, other="second"),
        )
        assert [run.golden_id for run in load_runs(path)] == ["first", "second"]

    def test_is_read_first_from_the_attributes_that_the_caller_names(self, traces, monkeypatch):
        monkeypatch.setenv("GOLDSPAN_GOLDEN_ID_ATTRIBUTE", "suite.case")
        path = traces(tool_request("a", **{"suite.case": "first", "mine": "second"}))
        assert [run.golden_id for run in load_runs(path, golden_id_attributes=["mine"])] == ["second"]

    def test_an_empty_environment_variable_is_ignored(self, traces, monkeypatch):
        monkeypatch.setenv("GOLDSPAN_GOLDEN_ID_ATTRIBUTE", "")
        path = traces(tool_request("a", **{"goldspan.golden.id": "ours"}))
        assert [run.golden_id for run in load_runs(path)] == ["ours"]


def test_unit_component_selects_the_components_instead_of_the_requests(traces):
    made = tool_request("search")
    assert [run.unit for run in load_runs(traces(made))] == ["request"]
    assert list(load_runs(traces(made), unit="component")) == []


def test_a_call_without_files_raises_immediately():
    with pytest.raises(ConfigurationError, match="at least one trace file"):
        load_runs()


def test_an_unknown_unit_raises_immediately(traces):
    with pytest.raises(ConfigurationError, match="unknown unit 'trace'; choose one of request, component"):
        load_runs(traces(tool_request("a")), unit="trace")


def test_a_missing_file_raises_immediately(tmp_path):
    with pytest.raises(TraceFileError, match="no such file"):
        load_runs(tmp_path / "nowhere.jsonl")


def test_a_damaged_file_yields_its_readable_runs_and_reports_the_loss(traces):
    path = traces(tool_request("a"), tool_request("b", trace=2))
    path.write_bytes(path.read_bytes()[:-20])
    losses = []
    assert [run.tools_used for run in load_runs(path, on_loss=losses.append)] == [("a",)]
    assert [loss.where for loss in losses] == ["line 2"]
    with pytest.warns(GoldspanWarning, match="line 2"):
        assert len(list(load_runs(path))) == 1
