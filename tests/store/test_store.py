"""Tests of storing and querying runs: filters, pages and revisions."""

from __future__ import annotations

import itertools
import json
import math
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from goldspan import ConfigurationError, ExpectedTool, Golden, Run, ToolCall, evaluate
from goldspan.errors import StoreError
from goldspan.extraction import extract
from goldspan.model import ComponentSelector, Evaluation, Health, RunUnit, Score, ToolDefinition
from goldspan.sinks import Sink
from goldspan.sinks.serialization import to_json
from goldspan.store import EvaluationPage, RunFilter, Store, VerdictCounts, open_store
from goldspan.store.run_records import evaluation_to_document, record_of, run_from_document
from goldspan.store.store_location import is_store_url
from support.random_evaluations import Listed, evaluations, filters, utf8
from support.span_builders import agent
from support.store_contents import NewStore, all_rows, select

NOW = 1_800_000_000 * 10**9
GOLDEN = Golden("refund", tools=(ExpectedTool("find_order", {"order": 7}), ExpectedTool("refund")))
RUN = Run(
    "t:s",
    trace_ids=("t",),
    input="Where is my money?",
    output="Mr. Smith has it.",
    tool_calls=(ToolCall("find_order", arguments={"order": "secret-7"}, result="Mr. Smith", error="KeyError: 'iban'"),),
    metadata={"customer": "Mr. Smith"},
    start_ns=1000,
)


@given(st.lists(evaluations(), max_size=12), st.lists(filters, min_size=1, max_size=6))
def test_every_filter_selects_the_same_runs_as_a_python_list(
    new_store: NewStore, stored: list[Evaluation], wanted: list[RunFilter]
) -> None:
    listed = Listed(NOW)
    with new_store(clock=lambda: NOW) as store:
        for evaluation in stored:
            listed.submit(evaluation)
            store.submit(evaluation)
        for each in (RunFilter(), *wanted):
            meant = listed.meant(each)
            assert [run.run_id for run in store.runs(each).items] == meant
            assert store.count(each).total == len(meant)
        for run_id, kept in listed.runs.items():
            found = store.run(run_id)
            assert found is not None
            assert kept.current is not None
            assert (found.evaluation_count, found.time_ns) == (len(kept.evaluations), kept.time_ns)
            assert (found.current.revision, found.current.digest) == (kept.current.revision, kept.current.digest)
            held = {(each.revision, each.digest) for each in store.evaluations(run_id)}
            assert held == set(kept.evaluations)
            assert run_from_document(found.current.document).tools_used == kept.current.run.tools_used


@given(st.lists(evaluations(), max_size=12), st.lists(evaluations(), max_size=8), st.integers(1, 4), filters)
def test_pages_contain_every_run_exactly_once_while_others_are_stored(
    new_store: NewStore, before: list[Evaluation], meanwhile: list[Evaluation], limit: int, wanted: RunFilter
) -> None:
    known = {utf8(each.run.run_id) for each in before}
    later = (replace(each, run=replace(each.run, run_id=f"new {number}")) for number, each in enumerate(meanwhile))
    with new_store(clock=lambda: NOW) as store:
        store.submit_many(before)
        there = [run.run_id for run in store.runs(wanted).items]
        seen: list[str] = []
        cursor = None
        while True:
            page = store.runs(wanted, limit=limit, cursor=cursor)
            seen += [run.run_id for run in page.items]
            store.submit_many(itertools.islice(later, 2))
            cursor = page.next_cursor
            if cursor is None:
                break
        assert len(seen) == len(set(seen))
        assert [run_id for run_id in seen if run_id in known] == there


@given(evaluations())
@example(replace(evaluate(RUN, GOLDEN), scores=(Score("mean", math.nan), Score("sum", math.inf))))
@example(evaluate(replace(RUN, input="NaN \N{SNOWMAN}", agent="\ud800"), GOLDEN))
def test_a_stored_document_is_the_one_that_the_encoder_of_the_sinks_writes(
    new_store: NewStore, evaluation: Evaluation
) -> None:
    with new_store() as store:
        store.submit(evaluation)
        (stored,) = store.runs().items
    document = json.loads(to_json(evaluation_to_document(evaluation, keep_arguments=False)))
    assert repr(stored.current.document) == repr(document)  # 1, 1.0 and True differ


def test_a_store_implements_the_sink_and_store_protocols(store: Store) -> None:
    sink: Sink = store
    kept: Store = store
    sink.submit(evaluate(RUN, GOLDEN))
    assert kept.count() == VerdictCounts(failed=1)


def test_an_evaluation_submitted_repeatedly_is_stored_once(store: Store) -> None:
    evaluation = evaluate(RUN, GOLDEN)
    store.submit_many([evaluation, evaluation])
    store.submit(evaluation)
    assert [each.revision for each in store.evaluations("t:s")] == [1]


@given(st.lists(evaluations(), max_size=12))
@example([evaluate(RUN, GOLDEN)] * 3)
def test_a_batch_is_stored_like_its_evaluations_one_by_one(new_store: NewStore, stored: list[Evaluation]) -> None:
    with new_store(clock=lambda: NOW) as store:
        store.submit_many(stored)
        in_batch = all_rows(store.location)
    with new_store(clock=lambda: NOW) as store:
        for evaluation in stored:
            store.submit(evaluation)
        assert all_rows(store.location) == in_batch
    assert len(in_batch["evaluations"]) == len({(each.run.run_id, each.digest, each.revision) for each in stored})


@given(
    st.lists(
        evaluations()
        | st.sampled_from(("a1", "b2")).map(lambda trace_id: f"trace {trace_id}")
        | st.integers(0, 5).map(lambda number: f"run-{number}"),
        max_size=12,
    )
)
def test_the_rows_of_a_shape_are_stored_exactly_as_long_as_a_run_has_it(
    new_store: NewStore, steps: list[Evaluation | str]
) -> None:
    with new_store(clock=lambda: NOW) as store:
        for step in steps:
            if isinstance(step, Evaluation):
                store.submit_many([step, step])
            elif step.startswith("trace "):
                store.delete_trace(step.removeprefix("trace "))
            else:
                store.delete_runs([step])
        wanted: dict[str, set[tuple[object, ...]]] = {"tools": set(), "substitutions": set(), "scores": set()}
        latest = {(each.run.run_id, each.revision, each.digest): each for each in steps if isinstance(each, Evaluation)}
        groups = "JOIN run_groups USING (run_group)" if is_store_url(store.location) else ""
        current = "SELECT runs.run_id, runs.revision, digest, shape FROM runs JOIN evaluations AS e ON e.key = current "
        shapes = {row[:3]: row[3] for row in select(store.location, current + groups)}
        for (run_id, revision, digest), evaluation in latest.items():
            if (shape := shapes.get((utf8(run_id), revision, digest))) is not None:
                record = record_of(evaluation, now_ns=NOW, keep_arguments=False)
                wanted["tools"] |= {(shape, *row) for row in record.tools}
                wanted["substitutions"] |= {(shape, *row) for row in record.substitutions}
                wanted["scores"] |= {(shape, *row) for row in record.scores.items()}
        for table, rows in wanted.items():
            assert set(select(store.location, f"SELECT * FROM {table}")) == rows


def test_no_evaluation_is_lost_if_the_counter_of_keys_is_missing(path: Path) -> None:
    store = open_store(path)
    store.submit(evaluate(RUN, GOLDEN))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM sqlite_sequence")  # as in a file that `sqlite3 .recover` repaired
    store.submit(evaluate(replace(RUN, run_id="u:s"), GOLDEN))
    assert [len(store.evaluations(run_id)) for run_id in ("t:s", "u:s")] == [1, 1]
    assert store.run("u:s") is not None
    store.close()


def test_the_latest_revision_is_current_and_earlier_revisions_are_kept(store: Store) -> None:
    late = replace(RUN, tool_calls=(ToolCall("find_order", arguments={"order": 7}), ToolCall("refund")))
    second = replace(evaluate(late, GOLDEN), revision=2)
    store.submit_many([second, evaluate(RUN, GOLDEN)])  # in any order
    assert [each.document["passed"] for each in store.evaluations("t:s")] == [False, True]
    assert [run.current.revision for run in store.runs(RunFilter(verdict="pass")).items] == [2]
    assert store.runs(RunFilter(tool="refund", tool_role="missing")).items == ()


def test_a_request_a_component_and_a_conversation_of_one_span_are_separate_runs(store: Store) -> None:
    step = agent("desk", asked="Hi")
    declared = [ComponentSelector("desk", span="* desk")]
    units: tuple[RunUnit, ...] = ("request", "component", "conversation")
    runs = [run for unit in units for run in extract([step], unit=unit, components=declared)]
    for run in runs:
        store.submit(evaluate(run, None))
    assert {stored.run_id: stored.current.document["unit"] for stored in store.iter_runs()} == {
        run.run_id: run.unit for run in runs
    }
    for unit in units:
        (only,) = store.iter_runs(RunFilter(unit=unit))
        assert (only.evaluation_count, only.current.revision) == (1, 1)


def test_a_later_revision_does_not_change_the_time_of_a_run(store: Store) -> None:
    store.submit(evaluate(RUN, None))
    store.submit(replace(evaluate(replace(RUN, start_ns=5), None), revision=2))
    found = store.run("t:s")
    assert found is not None
    assert (found.time_ns, found.evaluation_count) == (1000, 2)


def test_by_default_arguments_and_results_are_not_stored(store: Store) -> None:
    store.submit(evaluate(RUN, GOLDEN))
    found = store.run("t:s")
    assert found is not None
    document = found.current.document
    assert document["input"] == "Where is my money?"
    assert document["tool_calls"] == [{"name": "find_order", "error": "KeyError"}]
    assert document["rows"][0] == {
        "verdict": "paired", "expected": "find_order", "called_at": 0, "in_order": True, "differing": ["order"]
    }  # fmt: skip
    content = str(all_rows(store.location))
    assert "find_order" in content
    assert all(secret not in content for secret in ("secret-7", "Smith", "iban"))


def test_a_run_stored_with_arguments_is_evaluated_again_with_the_same_result(location: str | Path) -> None:
    with open_store(location, keep_arguments=True) as store:
        store.submit(evaluate(RUN, GOLDEN))
        found = store.run("t:s")
    assert found is not None
    again = run_from_document(found.current.document)
    assert again == RUN
    assert evaluate(again, GOLDEN).scores == evaluate(RUN, GOLDEN).scores
    assert found.current.document["rows"][0]["differences"] == [
        {"path": "order", "expected": "7", "called": "'secret-7'", "note": None}
    ]


def test_a_run_stored_without_arguments_has_no_argument_score_when_evaluated_again(store: Store) -> None:
    store.submit(evaluate(RUN, GOLDEN))
    found = store.run("t:s")
    assert found is not None
    again = evaluate(run_from_document(found.current.document), GOLDEN)
    recall, arguments = again.score("tool_recall"), again.score("argument_correctness")
    assert recall is not None
    assert arguments is not None
    assert (recall.value, arguments.value) == (0.5, None)


def test_available_tools_and_metrics_are_stored_with_the_schemas_of_called_tools_only(new_store: NewStore) -> None:
    schema = {"type": "object", "properties": {"order": {"type": "integer"}}}
    offered = (
        ToolDefinition("findOrder", parameters=schema, read_only=True),
        ToolDefinition("refund", parameters=schema, read_only=False),
        ToolDefinition("mail"),
    )
    run = replace(RUN, available_tools=offered, metrics=("tool_recall",))
    found = []
    for keep_arguments in (False, True):
        with new_store(keep_arguments=keep_arguments) as store:
            store.submit(evaluate(run, GOLDEN))
            kept = store.run("t:s")
            assert kept is not None
            found.append(run_from_document(kept.current.document))
    names, with_values = found
    assert names.available_tools == tuple(replace(tool, parameters=None) for tool in offered)
    assert with_values.available_tools == (offered[0], replace(offered[1], parameters=None), offered[2])
    assert names.metrics == with_values.metrics == ("tool_recall",)


def test_the_identifying_fields_of_a_call_are_stored(store: Store) -> None:
    call = ToolCall(
        "search", "mcp__web__search", server="web", outcome="error", error="no: such city", call_id="c1", kind="hosted",
        evidence="requested", agent="helper", span_id="5", start_ns=1, end_ns=2, concurrent_with=(1,),
    )  # fmt: skip
    run = replace(RUN, tool_calls=(call, ToolCall("x")), health=Health(lookalikes=("a",), merged=2), golden_id="g")
    store.submit(evaluate(run, None))
    found = store.run("t:s")
    assert found is not None
    again = run_from_document(found.current.document)
    assert again.tool_calls == (replace(call, error="no"), ToolCall("x"))
    assert (again.health, again.golden_id, again.output) == (run.health, "g", None)


def test_a_guessed_error_is_stored_without_its_text(store: Store) -> None:
    call = ToolCall("pay", result="Error: card 4711", error_guess="Error: card 4711", outcome="ok")
    store.submit(evaluate(replace(RUN, tool_calls=(call,)), None))
    found = store.run("t:s")
    assert found is not None
    (again,) = run_from_document(found.current.document).tool_calls
    assert (again.succeeded, again.error_guess, again.result) == (None, "Error", None)


class FailingRepr:
    def __repr__(self) -> str:
        raise TypeError("no words for it")


ENDLESS: dict[str, object] = {}
ENDLESS["self"] = ENDLESS


@pytest.mark.parametrize("arguments", [ENDLESS, {"key": FailingRepr()}], ids=["endless", "unspeakable"])
def test_arguments_that_cannot_be_serialized_are_omitted(location: str | Path, arguments: object) -> None:
    run = replace(RUN, tool_calls=(ToolCall("find_order", arguments=arguments),))
    with open_store(location, keep_arguments=True) as store:
        store.submit(evaluate(run, None))
        found = store.run("t:s")
    assert found is not None
    assert found.current.document["tool_calls"] == [{"name": "find_order"}]


def test_an_input_is_truncated_to_2000_characters(store: Store) -> None:
    store.submit(evaluate(replace(RUN, input="a" * 3000), None))
    found = store.run("t:s")
    assert found is not None
    assert found.current.document["input"] == "a" * 2000


def test_a_run_from_the_future_gets_the_current_time(store: Store) -> None:
    store.submit(evaluate(replace(RUN, start_ns=NOW + 10**15), None))
    found = store.run("t:s")
    assert found is not None
    assert found.time_ns == NOW


def test_deleting_a_trace_removes_its_runs_and_their_content_from_the_file(path: Path) -> None:
    store = open_store(path, keep_arguments=True)
    other = replace(RUN, run_id="u:s", trace_ids=("u",), input="Unrelated.", tool_calls=(), output=None, metadata={})
    joined = replace(RUN, run_id="v:s", trace_ids=("v", "t"))
    store.submit_many([evaluate(RUN, GOLDEN), evaluate(other, None), evaluate(joined, GOLDEN)])
    assert (store.delete_trace("nowhere"), store.delete_trace("t"), store.delete_trace("t")) == (0, 2, 0)
    assert [run.run_id for run in store.runs().items] == ["u:s"]
    assert store.evaluations("t:s") == ()
    assert store.run("t:s") is None
    assert store.runs(RunFilter(tool="find_order")).items == ()
    content = b"".join(file.read_bytes() for file in path.parent.iterdir())  # the write-ahead log too
    store.close()
    assert b"Unrelated" in content
    assert all(secret not in content for secret in (b"secret-7", b"Smith", b"where is my money"))


def test_a_deletion_that_leaves_data_in_the_write_ahead_log_fails_and_can_be_repeated(path: Path) -> None:
    with open_store(path, keep_arguments=True, timeout=0.05) as store:
        store.submit(evaluate(RUN, GOLDEN))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN")
            other.execute("SELECT count(*) FROM runs").fetchone()
            with pytest.raises(StoreError, match=r"the runs are deleted, but .* is still in the write-ahead log"):
                store.delete_trace("t")
            assert store.run("t:s") is None
        assert store.delete_trace("t") == 0
        content = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert b"secret-7" not in content


def test_the_key_of_a_deleted_evaluation_is_not_reused(path: Path) -> None:
    with open_store(path) as store:
        for number in range(3):
            store.submit(evaluate(replace(RUN, run_id=f"t{number}:s", trace_ids=(f"t{number}",)), GOLDEN))
        store.delete_trace("t2")
        store.submit(evaluate(replace(RUN, run_id="t3:s"), GOLDEN))
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT key FROM evaluations ORDER BY key").fetchall() == [(1,), (2,), (4,)]


def test_evaluations_after_returns_each_evaluation_once_in_the_order_of_storing(store: Store) -> None:
    first, second = evaluate(RUN, GOLDEN), evaluate(replace(RUN, run_id="u:s", start_ns=5), None)
    assert store.evaluations_after() == EvaluationPage((), 0)
    store.submit_many([first, second])
    store.submit(replace(first, revision=2))
    page = store.evaluations_after(limit=2)
    assert [(each.run_id, each.revision) for each in page.items] == [("t:s", 1), ("u:s", 1)]
    rest = store.evaluations_after(page.next_after)
    assert [(each.run_id, each.revision) for each in rest.items] == [("t:s", 2)]
    assert store.evaluations_after(rest.next_after) == EvaluationPage((), rest.next_after)
    store.submit_many([first, second, replace(second, revision=2)])  # two of them are stored already
    assert [(each.run_id, each.revision) for each in store.evaluations_after(rest.next_after).items] == [("u:s", 2)]
    assert store.evaluations_after(2**70).items == ()
    with pytest.raises(ConfigurationError, match="limit must be at least 1"):
        store.evaluations_after(limit=0)


def test_current_revision_and_has_trace_need_no_documents(store: Store) -> None:
    assert store.current_revision("t:s") is None
    assert not store.has_trace("t")
    late = replace(evaluate(RUN, GOLDEN), revision=3)
    store.submit_many([late, evaluate(RUN, None)])
    assert store.current_revision("t:s") == (3, late.digest)
    assert (store.has_trace("t"), store.has_trace("\ud800")) == (True, False)


def test_replace_if_current_does_not_replace_a_newer_revision(store: Store) -> None:
    first = evaluate(RUN, None)
    again = replace(evaluate(RUN, GOLDEN), revision=2)
    late = replace(evaluate(replace(RUN, tool_calls=()), None), revision=2)
    assert not store.replace_if_current(again, (1, first.digest))  # nothing is stored yet
    assert store.run("t:s") is None
    store.submit(first)
    seen = store.current_revision("t:s")
    assert seen == (1, first.digest)
    store.submit(late)
    assert not store.replace_if_current(again, seen)
    assert store.current_revision("t:s") == (2, late.digest)
    assert store.replace_if_current(replace(again, revision=3), (2, late.digest))
    assert store.current_revision("t:s") == (3, again.digest)


def test_metrics_lists_the_metrics_with_a_score(store: Store) -> None:
    assert store.metrics() == ()
    store.submit(evaluate(RUN, GOLDEN, metrics=["tool_recall", "tool_f1"]))
    assert store.metrics() == ("tool_f1", "tool_recall")


def test_an_invalid_limit_cursor_or_filter_is_refused(store: Store) -> None:
    with pytest.raises(ConfigurationError, match="limit must be at least 1"):
        store.runs(limit=0)
    with pytest.raises(ConfigurationError, match="'1; DROP TABLE runs' is not a cursor"):
        store.runs(cursor="1; DROP TABLE runs")
    with pytest.raises(ConfigurationError, match="`below` needs the `metric`"):
        RunFilter(below=0.5)
    assert store.runs(cursor=f"{'9' * 19}-{'9' * 19}").items == ()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"verdict": "failed"}, "`verdict` is pass, fail or not_evaluated, not 'failed'"),
        ({"unit": "requests"}, "`unit` is request, component or conversation, not 'requests'"),
        ({"tool": "search", "tool_role": "used"}, "`tool_role` is called, expected, .* or failed, not 'used'"),
        ({"tool_role": "missing"}, "`tool_role` 'missing' needs a `tool`"),
    ],
)
def test_an_invalid_filter_value_is_refused(wrong: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        RunFilter(**wrong)  # type: ignore[arg-type]


def test_the_covered_filter_selects_runs_with_or_without_a_golden(store: Store) -> None:
    store.submit_many([evaluate(RUN, GOLDEN), evaluate(replace(RUN, run_id="u:s"), None)])
    found = {covered: [run.run_id for run in store.runs(RunFilter(covered=covered)).items] for covered in (True, False)}
    assert found == {True: ["t:s"], False: ["u:s"]}


def test_a_page_has_at_most_1000_runs(store: Store) -> None:
    evaluation = evaluate(RUN, None, metrics=["tool_recall"])
    store.submit_many(replace(evaluation, run=replace(RUN, run_id=str(number))) for number in range(1001))
    page = store.runs(limit=5000)
    assert (len(page.items), page.next_cursor is None) == (1000, False)
    assert len({run.run_id for run in store.iter_runs()}) == 1001
