"""What holds for all telemetry: its order, its repetitions and its gaps make no call twice and none out of nothing."""

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


def told(world: World, *, together: bool = False) -> Told:
    """Several requests, one after the other or all at the same time.

    Those of one moment have call ids of their own: what is alike in everything cannot be told apart.
    """
    parts = [
        tell(request, how, begin=0 if together and not how.recycled else 1_000 * number, label="abc"[number])
        for number, (request, how) in enumerate(world)
    ]
    return Told([record for part in parts for record in part.records], [used for part in parts for used in part.used])


def shown(records: list[TelemetryRecord], unit: RunUnit = "request") -> list[str]:
    """The runs as text, in an order that does not depend on that of the records."""
    return sorted(map(repr, extract(records, unit=unit)))


def calls(runs: list[Run]) -> Counter[str]:
    return Counter(call.name for run in runs for call in run.tool_calls)


@given(worlds, st.booleans(), st.randoms(use_true_random=False), st.sampled_from(UNITS))
def test_neither_the_order_of_the_records_nor_their_repetition_changes_a_run(
    world: World, together: bool, random: Any, unit: RunUnit
) -> None:
    records = told(world, together=together).records
    twice = records + random.sample(records, random.randrange(len(records) + 1))
    random.shuffle(twice)
    assert shown(twice, unit) == shown(records, unit)


@given(like_worlds, st.booleans())
def test_every_tool_that_was_used_is_in_the_runs_once(world: World, together: bool) -> None:
    everything = told(world, together=together)
    assert calls(extract(everything.records)) == Counter(name for used in everything.used for name in used)


@given(like_worlds)
def test_requests_one_after_the_other_are_told_apart_and_in_order(world: World) -> None:
    """Whatever they are about: also where the same is asked twice."""
    everything = told(world)
    runs = extract(everything.records)
    found = [[call.name for call in run.tool_calls] for run in runs]
    if all(how.tools for _, how in world):
        assert found == everything.used
    else:  # what a sub-agent did in the meantime, messages do not tell
        assert list(map(sorted, found)) == list(map(sorted, everything.used))
    assert [run.input for run in runs] == [request.words for request, _ in world]


@given(like_worlds, st.booleans(), st.data())
def test_a_lost_record_makes_no_call_twice(world: World, together: bool, data: st.DataObject) -> None:
    """Of no tool are there more calls than before, whichever record is lost.

    Left out are requests at the same time that neither spans nor ids hold together: whose of two equal calls the lost
    one was nobody can tell.
    """
    apart = all(how.made_ids or how.asked_ids for _, how in world if how.lone)
    records = told(world, together=together and apart).records
    lost = data.draw(st.integers(0, len(records) - 1))
    before, after = calls(extract(records)), calls(extract(records[:lost] + records[lost + 1 :]))
    assert not after - before


@given(asked, twin_ways, st.data())
def test_a_lost_record_parts_no_twins(request: Asked, ways: tuple[How, How], data: st.DataObject) -> None:
    """What two instrumentations saw is one request, and each call is in it once, whichever record of either is lost."""
    first, second = (tell(request, how, label="a", scope=scope) for how, scope in zip(ways, "de", strict=True))
    records, used = first.records + second.records, Counter(first.used[0])
    assert calls(extract(records)) == used
    lost = data.draw(st.integers(0, len(records) - 1))
    assert not calls(extract(records[:lost] + records[lost + 1 :])) - used


@given(worlds, st.booleans(), st.data())
def test_every_tools_span_is_one_call_of_one_run(world: World, together: bool, data: st.DataObject) -> None:
    records = told(world, together=together).records
    kept = [record for record in records if data.draw(st.integers(0, 4), label="kept") > 0]
    tools = [record.span_id for record in kept if isinstance(record, SpanRecord) and role_of(record) == "tool"]
    found = [call.span_id for run in extract(kept) for call in run.tool_calls if call.span_id is not None]
    assert sorted(found) == sorted(tools)


@given(worlds, st.sampled_from(UNITS))
def test_calls_at_the_same_time_know_of_each_other_and_not_of_themselves(world: World, unit: RunUnit) -> None:
    for run in extract(told(world, together=True).records, unit=unit):
        for place, call in enumerate(run.tool_calls):
            assert place not in call.concurrent_with
            assert all(place in run.tool_calls[other].concurrent_with for other in call.concurrent_with)


# --- components, statements and lost contexts -------------------------------------------------------------------------

DECLARED = [
    ComponentSelector("turn", span="mod*"),
    ComponentSelector("search", attributes={"gen_ai.tool.name": "search"}),
    ComponentSelector("work", span="agent"),
]


@st.composite
def scattered(draw: st.DrawFn) -> list[TelemetryRecord]:
    """A world whose spans know their session, in which some tools lost their context and some spans say something."""
    together = draw(st.booleans())
    records = told(draw(worlds), together=together).records
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
def test_nor_does_their_order_change_components_statements_or_what_is_stitched(
    records: list[TelemetryRecord], random: Any, unit: RunUnit
) -> None:
    shuffled = records + random.sample(records, random.randrange(len(records) + 1))
    random.shuffle(shuffled)
    in_order, in_none = (
        sorted(map(repr, extract(each, unit=unit, components=DECLARED))) for each in (records, shuffled)
    )
    assert in_none == in_order


@given(scattered())
def test_what_is_declared_to_be_a_component_changes_no_calls_of_a_request(records: list[TelemetryRecord]) -> None:
    declared = [run.tool_calls for run in extract(records, components=DECLARED)]
    assert declared == [run.tool_calls for run in extract(records)]


@given(st.lists(asked, min_size=1, max_size=3), st.data())
def test_tools_that_lost_their_context_come_back_to_the_request_of_their_session(
    requests: list[Asked], data: st.DataObject
) -> None:
    """The requests are one after the other, and marked; a tool takes along what is at work inside it."""
    whole = told([(request, HOW["complete"]) for request in requests])
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
