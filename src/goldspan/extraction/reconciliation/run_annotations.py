"""Reads what a program states about its run on the spans of the run, for run assembly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from goldspan import semconv
from goldspan.content.literals import plain_value
from goldspan.conventions.span_facts import REQUEST_ROLES, WORK_ROLES
from goldspan.extraction.segmentation.boundaries import RunSpans
from goldspan.extraction.span_node import SpanNode

T = TypeVar("T")

ANNOTATION_ATTRIBUTES = (semconv.EXPECTED_TOOLS, semconv.METRICS, semconv.INPUT, semconv.OUTPUT)
"""The attributes that mark a span as recognised, besides the attributes that may name a golden."""


@dataclass(frozen=True, slots=True)
class RunAnnotations:
    """The annotations in the spans of one run. `None` if there is none."""

    golden_id: str | None = None
    expected_tools: tuple[Any, ...] | None = None
    """In the format of a golden's `tools`; what cannot be parsed is kept as text."""
    metrics: tuple[str, ...] | None = None
    input: str | None = None
    output: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


def read_annotations(segment: RunSpans, golden_id_attributes: Sequence[str]) -> RunAnnotations:
    """Reads the annotations in the spans of a run.

    Input and output are read only from the run's root span, metadata also from the spans that enclose it. All others
    are read from the root span, else from an enclosing span, else from an inner span outside of components and
    sub-agents.
    """
    root = segment.root
    outer = [root, *_enclosing_spans(segment, root)] if root is not None else []
    metadata = {key: value for node in reversed(outer) for key, value in _metadata(node)}
    annotated = [node for node in outer if node.facts.is_annotated]
    annotated += _inner_spans(segment)
    if not annotated:
        return RunAnnotations(metadata=metadata) if metadata else _NO_ANNOTATIONS
    own = root.span.attributes if root is not None and root.facts.is_annotated else {}
    return RunAnnotations(
        golden_id=_first_known(annotated, lambda node: _golden_id(node, golden_id_attributes)),
        expected_tools=_first_known(
            annotated, lambda node: _parse_expected_tools(node.span.attributes.get(semconv.EXPECTED_TOOLS))
        ),
        metrics=_first_known(annotated, lambda node: _parse_names(node.span.attributes.get(semconv.METRICS))),
        input=_optional_text(own.get(semconv.INPUT)),
        output=_optional_text(own.get(semconv.OUTPUT)),
        metadata=metadata,
    )


_NO_ANNOTATIONS = RunAnnotations()


def _enclosing_spans(segment: RunSpans, root: SpanNode) -> Iterator[SpanNode]:
    """The spans that enclose a run. Annotations of a request do not apply to the components in it."""
    for node in root.ancestors():
        if segment.unit == "component" and (node.role in REQUEST_ROLES or node.component is node):
            return
        yield node


def _inner_spans(segment: RunSpans) -> list[SpanNode]:
    """The spans inside a run whose annotations apply to it."""
    own = segment.root.component if segment.root is not None else None
    annotated = [node for node in segment.nodes if node.facts.is_annotated and node is not segment.root]
    if not annotated:
        return annotated
    busy = {node.owner for node in segment.nodes if node.role in WORK_ROLES}
    agents = Counter(node.owner for node in segment.nodes if node.role == "agent")
    busy.update(owner for owner, number in agents.items() if number > 1)  # the owner distributes work to several agents
    return [node for node in annotated if node.component is own and not _is_of_sub_agent(node, segment.root, busy)]


def _is_of_sub_agent(node: SpanNode, root: SpanNode | None, busy: set[SpanNode | None]) -> bool:
    """Whether a span is, or is inside, an agent that works for a tool or for an agent with its own work.

    `busy` are the owners of model and tool spans, or of several agents.
    """
    for step in (node, *node.ancestors()):
        if step is root:
            return False
        owner = step.owner
        if step.role != "agent" or owner is None:
            continue
        if owner.role == "tool" or (owner.role == "agent" and owner in busy):
            return True
    return False


def _first_known(nodes: Sequence[SpanNode], read: Callable[[SpanNode], T | None]) -> T | None:
    return next((found for node in nodes if (found := read(node)) is not None), None)


def _golden_id(node: SpanNode, attributes: Sequence[str]) -> str | None:
    values_by_attribute = (
        node.span.attributes.get(attribute) for attribute in attributes if not _is_evaluation_result(attribute, node)
    )
    found = next((value for value in values_by_attribute if value is not None), None)
    return None if found is None else str(found)


def _is_evaluation_result(attribute: str, node: SpanNode) -> bool:
    """Whether an earlier evaluation set the golden id without an explicit id on this span."""
    attributes = node.span.attributes
    if attribute != semconv.GOLDEN_ID:
        return False
    return attributes.get(semconv.GOLDEN_MATCH, "id") != "id" or attributes.get(semconv.GOLDEN_ON_OTHER_SPAN) is True


def _parse_expected_tools(value: Any) -> tuple[Any, ...] | None:
    """Parses expected tools from a structured value, JSON, or a list of names and JSON texts."""
    if isinstance(value, str):
        if not value.strip():
            return None
        value = plain_value(value)
    if isinstance(value, list | tuple):
        return tuple([_parse_expected_tool(item) for item in value])
    return None if value is None else (value,)


def _parse_expected_tool(value: Any) -> Any:
    """Parses one expected tool. A tool with arguments is JSON text, because attributes support only lists of texts."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        return plain_value(value)
    return value


def _parse_names(value: Any) -> tuple[str, ...] | None:
    """Parses names from a list or from comma-separated text; `None` if there are no names."""
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple):
        return None
    return tuple(dict.fromkeys(filter(None, (str(name).strip() for name in names)))) or None


def _optional_text(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)


def _metadata(node: SpanNode) -> Iterator[tuple[str, Any]]:
    attributes = node.span.attributes
    for key in attributes if _has_metadata(node.span.attribute_names()) else ():
        if key.startswith(semconv.METADATA_PREFIX):
            yield key[len(semconv.METADATA_PREFIX) :], attributes[key]


@lru_cache(maxsize=1024)
def _has_metadata(names: frozenset[str]) -> bool:
    """Whether one of the names is that of metadata. Cached, because attribute names repeat from span to span."""
    return any(name.startswith(semconv.METADATA_PREFIX) for name in names)
