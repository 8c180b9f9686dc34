"""Properties of all extraction: order, repetition and loss of records neither duplicate nor invent a call."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from goldspan.extraction import extract, role_of
from goldspan.model import ComponentSelector, Run, RunUnit, SpanRecord, TelemetryRecord
from support.random_traces import HOW, Asked, How, Told, asked, tell

UNITS: tuple[RunUnit, ...] = ("request", "component", "conversation")
World = list[tuple[Asked, How]]

ways = st.sampled_from(list(HOW.values()))
worlds = st.lists(st.tuples(asked, ways), min_size=1, max_size=3)
like_worlds = st.builds(
    lambda requests, how: [(it, how) for it in requests], st.lists(asked, min_size=1, max_size=3), ways
)

_complete = [how for how in HOW.values() if how.models and how.tools and not how.lone and not how.in_logs]
twin_ways = st.sampled_from(
    [
        (how, other)
        for how in _complete
        for other in _complete
        if (how.marked, how.parallel) == (other.marked, other.parallel)  # then both take the same time
    ]
)


def tell_world(world: World, *, together: bool = False) -> Told:
    """Several requests, in sequence or all concurrent.

    Concurrent requests have distinct call ids, because requests that are equal in all facts are indistinguishable.
    """
    parts = [
        tell(request, how, begin=0 if together and not how.recycled else 1_000 * number, label="abc"[number])
        for number, (request, how) in enumerate(world)
    ]
    return Told([record for part in parts for record in part.records], [used for part in parts for used in part.used])


def runs_as_text(records: list[TelemetryRecord], unit: RunUnit = "request") -> list[str]:
    """The runs as text, in an order that does not depend on that of the records."""
    return sorted(map(repr, extract(records, unit=unit)))


def calls(runs: list[Run]) -> Counter[str]:
    return Counter(call.name for run in runs for call in run.tool_calls)


@given(worlds, st.booleans(), st.randoms(use_true_random=False), st.sampled_from(UNITS))
def test_neither_order_nor_repetition_of_records_changes_a_run(
    world: World, together: bool, random: Any, unit: RunUnit
) -> None:
    records = tell_world(world, together=together).records
    twice = records + random.sample(records, random.randrange(len(records) + 1))
    random.shuffle(twice)
    assert runs_as_text(twice, unit) == runs_as_text(records, unit)


@given(like_worlds, st.booleans())
def test_every_used_tool_is_in_the_runs_once(world: World, together: bool) -> None:
    everything = tell_world(world, together=together)
    assert calls(extract(everything.records)) == Counter(name for used in everything.used for name in used)


@given(like_worlds)
def test_sequential_requests_are_separate_and_in_order(world: World) -> None:
    """This holds for any inputs, including equal ones."""
    everything = tell_world(world)
    runs = extract(everything.records)
    found = [[call.name for call in run.tool_calls] for run in runs]
    if all(how.tools for _, how in world):
        assert found == everything.used
    else:  # messages do not show when a sub-agent worked
        assert list(map(sorted, found)) == list(map(sorted, everything.used))
    assert [run.input for run in runs] == [request.words for request, _ in world]


@given(like_worlds, st.booleans(), st.data())
def test_a_lost_record_duplicates_no_call(world: World, together: bool, data: st.DataObject) -> None:
    """No tool has more calls than before, whichever record is lost.

    The test excludes concurrent requests that neither spans nor ids hold together: for two equal calls, nothing shows
    which request the lost one belongs to.
    """
    apart = all(how.made_ids or how.asked_ids for _, how in world if how.lone)
    records = tell_world(world, together=together and apart).records
    lost = data.draw(st.integers(0, len(records) - 1))
    before, after = calls(extract(records)), calls(extract(records[:lost] + records[lost + 1 :]))
    assert not after - before


@given(asked, twin_ways, st.data())
def test_a_lost_record_does_not_separate_duplicate_runs(
    request: Asked, ways: tuple[How, How], data: st.DataObject
) -> None:
    """Two instrumentations record one request, which has each call once, whichever record of either is lost."""
    first, second = (tell(request, how, label="a", scope=scope) for how, scope in zip(ways, "de", strict=True))
    records, used = first.records + second.records, Counter(first.used[0])
    assert calls(extract(records)) == used
    lost = data.draw(st.integers(0, len(records) - 1))
    assert not calls(extract(records[:lost] + records[lost + 1 :])) - used


@given(worlds, st.booleans(), st.data())
def test_every_tool_span_is_one_call_of_one_run(world: World, together: bool, data: st.DataObject) -> None:
    records = tell_world(world, together=together).records
    kept = [record for record in records if data.draw(st.integers(0, 4), label="kept") > 0]
    tools = [record.span_id for record in kept if isinstance(record, SpanRecord) and role_of(record) == "tool"]
    found = [call.span_id for run in extract(kept) for call in run.tool_calls if call.span_id is not None]
    assert sorted(found) == sorted(tools)


@given(worlds, st.sampled_from(UNITS))
def test_concurrent_calls_refer_to_each_other_and_not_to_themselves(world: World, unit: RunUnit) -> None:
    for run in extract(tell_world(world, together=True).records, unit=unit):
        for place, call in enumerate(run.tool_calls):
            assert place not in call.concurrent_with
            assert all(place in run.tool_calls[other].concurrent_with for other in call.concurrent_with)


# --- components, annotations and lost contexts ------------------------------------------------------------------------

DECLARED = [
    ComponentSelector("turn", span="mod*"),
    ComponentSelector("search", attributes={"gen_ai.tool.name": "search"}),
    ComponentSelector("work", span="agent"),
]


@st.composite
def scattered(draw: st.DrawFn) -> list[TelemetryRecord]:
    """A world whose spans have a session, with some tool spans without context and some annotated spans."""
    together = draw(st.booleans())
    records = tell_world(draw(worlds), together=together).records
    sessions = draw(st.sampled_from([("s1",), ("s1", "s2")]))
    for number, record in enumerate(records):
        if not isinstance(record, SpanRecord):
            continue
        attributes = record.attributes
        assert isinstance(attributes, dict)
        attributes["gen_ai.conversation.id"] = sessions[int(record.span_id[-1], 36) % len(sessions)]
        if record.name == "tool" and draw(st.integers(0, 3)) == 0:
            record.trace_id, record.parent_id = f"{number:032}", None
        if draw(st.integers(0, 5)) == 0:
            attributes["goldspan.expected_tools"] = f'["search", {{"name": "pay", "arguments": {{"n": {number}}}}}]'
            attributes["goldspan.metadata.number"] = number
    return records


@given(scattered(), st.randoms(use_true_random=False), st.sampled_from(UNITS))
def test_order_changes_neither_components_nor_annotations_nor_stitched_runs(
    records: list[TelemetryRecord], random: Any, unit: RunUnit
) -> None:
    shuffled = records + random.sample(records, random.randrange(len(records) + 1))
    random.shuffle(shuffled)
    in_order, in_none = (
        sorted(map(repr, extract(each, unit=unit, components=DECLARED))) for each in (records, shuffled)
    )
    assert in_none == in_order


@given(scattered())
def test_a_declared_component_changes_no_calls_of_a_request(records: list[TelemetryRecord]) -> None:
    declared = [run.tool_calls for run in extract(records, components=DECLARED)]
    assert declared == [run.tool_calls for run in extract(records)]


@given(st.lists(asked, min_size=1, max_size=3), st.data())
def test_detached_tool_spans_join_the_request_of_their_session(requests: list[Asked], data: st.DataObject) -> None:
    """The requests are sequential and marked; a tool span brings its nested spans."""
    whole = tell_world([(request, HOW["complete"]) for request in requests])
    spans = [record for record in whole.records if isinstance(record, SpanRecord)]
    tops = {span.span_id for span in spans if span.parent_id is None}
    alone = {
        span.span_id for span in spans if span.parent_id in tops and span.name == "tool" and data.draw(st.booleans())
    }
    lost = set(alone)
    for span in spans:
        assert isinstance(span.attributes, dict)
        span.attributes["gen_ai.conversation.id"] = "s1"
    for span in spans:  # parents come before their children
        if span.span_id in lost or span.parent_id in lost:
            span.trace_id = f"{int(span.span_id, 36):032}"[-32:]
            if span.parent_id in lost:
                span.trace_id = next(above.trace_id for above in spans if above.span_id == span.parent_id)
                lost.add(span.span_id)
            else:
                span.parent_id = None
    found = extract(spans)
    assert [[call.name for call in run.tool_calls] for run in found] == whole.used
    assert sum(run.health.stitched for run in found) == len(alone)
