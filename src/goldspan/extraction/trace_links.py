"""Finds what may connect a trace with other traces, so that unconnected ones can be extracted alone.

Stitching, the joining of detached tools, the merging of duplicates and the checks of runs compare traces. Each of these
comparisons has a key that both traces share. This module lists the keys of one trace. It may list more keys than
needed, never fewer: extracting two traces together that have nothing to do with each other changes no run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from goldspan.content.tools import name_suffixes
from goldspan.extraction.model_turns import ModelTurn, argument_texts, call_ids_in, calls_since_user
from goldspan.extraction.observed_calls import call_from_span, raw_value
from goldspan.extraction.segmentation.boundaries import RunSpans
from goldspan.extraction.segmentation.detached_tools import (
    is_detached,
    is_lone_server,
    is_single_turn,
    segment_keys,
)
from goldspan.extraction.segmentation.stitching import Fragment, is_single_step
from goldspan.extraction.span_node import CLOCK_TOLERANCE_NS, UNKNOWN_TIME, SpanNode
from goldspan.model import Run, RunUnit
from goldspan.model.name_folding import fold_name

ANY_SIDE: Final = 0
"""The side of a link that connects all traces with its key."""
_ONE, _OTHER = 1, 2
_MAX_DEPTH = 8
"""Levels of arguments that a key distinguishes."""


class TraceLink(NamedTuple):
    """A key of one trace. It may be connected with a trace that has the same key on another side at the same time."""

    key: int
    """A hash of 64 bits, which is the same in all processes."""
    side: int
    start_ns: int = 0
    end_ns: int = UNKNOWN_TIME
    """When the key holds; the defaults are all times."""


def segment_links(segments: Sequence[RunSpans]) -> Iterator[TraceLink]:
    """Yields the links of one trace that concern stitching, from its segments before stitching."""
    is_lone = len(segments) == 1 and is_single_step(segments[0])
    for segment in segments:
        yield from _correlation_links(segment)
        request_ids = {(node.span.service, node.facts.request_id) for node in segment.nodes if node.facts.request_id}
        yield from (TraceLink(_hash("resumed", *ids), ANY_SIDE) for ids in request_ids)
        yield from _tool_links(segment, is_lone=is_lone)
    if is_lone:
        yield from _fragment_links(Fragment(segments[0]))


def run_links(runs: Iterable[tuple[Run, str]], unit: RunUnit) -> Iterator[TraceLink]:
    """Yields the links of one trace that concern its runs, each of which is given with the scope of its first span."""
    evidence: dict[str, list[tuple[int, int, int]]] = {}
    for run, scope in runs:
        interval = (0, UNKNOWN_TIME)
        if run.start_ns is not None and run.end_ns is not None:
            interval = (run.start_ns, run.end_ns)
        yield from _duplicate_links(run, _name_hash("scope", scope), interval)
        for call in run.tool_calls:
            if call.call_id:
                side = _ONE if call.evidence == "executed" else _OTHER
                evidence.setdefault(call.call_id, []).append((side, *interval))
        if unit == "conversation" and run.session_id is not None:
            yield TraceLink(_hash("conversation", run.service, run.session_id), ANY_SIDE)
    for call_id, places in evidence.items():
        # Runs of one trace are compared at any distance, and the runs between them count.
        start, end = min(start for _, start, _ in places), max(end for *_, end in places)
        key = _hash("evidence", call_id)
        yield from (TraceLink(key, side, start, end) for side in {side for side, *_ in places})


def _duplicate_links(run: Run, scope: int, interval: tuple[int, int]) -> Iterator[TraceLink]:
    """Links of a run with the same run as another instrumentation recorded it."""
    if run.input:
        yield TraceLink(_hash("input", run.input), scope | 1, *interval)
    for call in run.tool_calls:
        if call.kind != "handoff":
            arguments = _stable(call.arguments, _MAX_DEPTH)
            yield TraceLink(_hash("same call", fold_name(call.name), arguments), scope | 1, *interval)


def session_link(session: str) -> TraceLink:
    """Returns the link of all traces with log events of one session."""
    return TraceLink(_hash("log session", session), ANY_SIDE)


def call_id_key(call_id: str) -> int:
    """Returns the key of a call id."""
    return _hash("call id", call_id)


def _correlation_links(segment: RunSpans) -> Iterator[TraceLink]:
    """Links of detached tools with the requests that they may belong to."""
    if is_detached(segment):
        side = _ONE
    elif is_single_turn(segment):
        return
    else:
        side = _OTHER
    yield from (TraceLink(_hash("correlation", key), side) for key in dict.fromkeys(segment_keys(segment)))


def _tool_links(segment: RunSpans, *, is_lone: bool) -> Iterator[TraceLink]:
    """Links of the spans of MCP servers with the calls around them."""
    if is_lone:
        node = segment.nodes[0]
        if is_lone_server(node) and node.span.start_ns is not None and node.span.end_ns is not None:
            name = name_suffixes(call_from_span(node).name)[0]
            yield TraceLink(_name_hash("server", name), _ONE, node.span.start_ns, node.span.end_ns)
        return
    for node in segment.nodes:
        if node.role == "tool" and node.span.start_ns is not None and node.span.end_ns is not None:
            for name in name_suffixes(call_from_span(node).name):
                yield TraceLink(_name_hash("server", name), _OTHER, *_tolerant_interval(node))


def _tolerant_interval(node: SpanNode) -> tuple[int, int]:
    start, end = node.span.start_ns or 0, node.span.end_ns or 0
    return max(0, start - 2 * CLOCK_TOLERANCE_NS), end + 2 * CLOCK_TOLERANCE_NS


def _fragment_links(fragment: Fragment) -> Iterator[TraceLink]:
    """Links of a trace that is a single step with the other steps of its request."""
    node = fragment.node
    is_tool, is_model = fragment.role == "tool", fragment.role == "model"
    text = fragment.last_user_text
    if fragment.is_frame and fragment.start is not None and fragment.end is not None:
        yield from _frame_links(fragment)
    elif fragment.start is not None and fragment.end is not None:
        yield TraceLink(_hash("frame text", text), _OTHER, *_tolerant_interval(node))
        if is_tool:
            arguments = call_from_span(node).arguments
            value = None if arguments is None else _stable(arguments.value, _MAX_DEPTH)
            yield TraceLink(_hash("frame arguments", value), _OTHER, *_tolerant_interval(node))
    turns = [each for each in fragment.segment.nodes if each.role == "model" and each.has_messages]
    for call_id in {*fragment.call_ids, *(call_id for each in turns for call_id in _call_ids(each))}:
        yield TraceLink(_hash("fragment call", call_id), ANY_SIDE)
    if is_model and node.facts.call_id:
        yield TraceLink(_hash("response", node.facts.call_id), ANY_SIDE)
    if is_tool:
        for name in name_suffixes(call_from_span(node).name):
            yield TraceLink(_name_hash("fragment tool", name), _ONE)
    for each in turns:
        yield from _turn_links(ModelTurn(each))
    if (session := node.facts.session_id) is not None:
        yield TraceLink(_hash("fragment session", session), ANY_SIDE if is_tool else _OTHER)


def _frame_links(frame: Fragment) -> Iterator[TraceLink]:
    """Links of an agent or graph with the steps that it may enclose; it may be enclosed itself."""
    interval = _tolerant_interval(frame.node)
    yield TraceLink(_hash("frame text", frame.last_user_text), ANY_SIDE, *interval)
    for call in frame.calls:
        arguments = raw_value(call.arguments)
        value = None if arguments is None else _stable(arguments.value, _MAX_DEPTH)
        yield TraceLink(_hash("frame arguments", value), _ONE, *interval)


def _turn_links(turn: ModelTurn) -> Iterator[TraceLink]:
    """Links of a model turn with the turns that continue it, the tools that it requested and its sub-agents."""
    yield TraceLink(_hash("user texts", *turn.user_texts), ANY_SIDE)
    known = calls_since_user(turn.input_messages)
    for call in (*turn.calls, *known):
        for name in name_suffixes(call.name):
            yield TraceLink(_name_hash("fragment tool", name), _OTHER)
        for text in argument_texts(call.arguments):
            yield TraceLink(_hash("delegation", text), _ONE)
    yield TraceLink(_hash("delegation", turn.first_user_text or ""), _OTHER)


def _call_ids(node: SpanNode) -> Iterator[str]:
    return call_ids_in((*node.input_messages, *node.output_messages))


@lru_cache(maxsize=16384)
def _name_hash(kind: str, name: str) -> int:
    """Returns the key of a name, of which there are few."""
    return _hash(kind, name)


def _hash(*parts: Any) -> int:
    text = repr(tuple([part if part is None or type(part) is str else _stable(part, _MAX_DEPTH) for part in parts]))
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _stable(value: Any, levels: int) -> Any:
    """Returns a value whose text is equal for equal values, in all processes."""
    if isinstance(value, str) or value is None:
        return value
    if isinstance(value, (bool, int, float)):
        return hash(value)  # equal numbers have equal hashes, which depend on no seed
    if levels == 0:
        return ()
    if isinstance(value, Mapping):
        return tuple(sorted([repr((_stable(key, 1), _stable(inner, levels - 1))) for key, inner in value.items()]))
    if isinstance(value, (list, tuple)):
        return tuple([_stable(inner, levels - 1) for inner in value])
    return type(value).__name__
