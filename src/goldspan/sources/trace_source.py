"""`TraceSource`: how the traces of one tool are read through its API, page by page."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

from goldspan.integrations.product import ProductReply, ProductRequest
from goldspan.sources.time_window import TimeWindow

Send: TypeAlias = Callable[[ProductRequest], ProductReply]
"""Sends a request. Raises `DeliveryError` if the tool does not answer it with 2xx."""
JsonObject: TypeAlias = Mapping[str, Any]


class SourceReplyError(Exception):
    """A reply of a tool does not have the form that its API documents."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What `TraceSource.read_page` reads."""

    window: TimeWindow
    cursor: Any
    """`None` for the first page; else `TracePage.next_cursor` of the page before, a JSON value."""
    page_size: int
    """The maximum number of traces. It shrinks if a reply is too large."""
    is_new: Callable[[str], bool]
    """Returns whether no page before had the trace of this id. A source need not read a trace twice."""


@dataclass(frozen=True, slots=True)
class TracePage:
    """Some complete traces."""

    documents: Sequence[JsonObject]
    """JSON documents that `goldspan.otlp` can read."""
    trace_ids: Collection[str]
    next_cursor: Any
    """Where the next page begins, as a JSON value; `None` after the last page."""
    notices: Sequence[str] = field(default=())
    """What could not be read, each as one sentence for the user."""


class TraceSource(ABC):
    """Reads the traces of one tool."""

    name: str
    """The scheme of the source's URL."""
    variables: Sequence[str] = ()
    """The environment variables that configure the source."""
    parameters: Sequence[str] = ()
    """The parameters that the URL may have."""
    page_size: int = 100
    """The number of traces in a page."""
    has_cursor: bool = True
    """Whether the tool's search returns a cursor. Without one a page must have fewer traces than its size."""

    base_url: str
    headers: Mapping[str, str]
    """The headers of every request. Their values are secret."""

    @classmethod
    @abstractmethod
    def create(cls, base_url: str | None, parameters: Mapping[str, str], environment: Mapping[str, str]) -> TraceSource:
        """Return the source at an address, or at the one in the tool's own variables. Raises `ConfigurationError`."""

    @abstractmethod
    def read_page(self, request: PageRequest, send: Send) -> TracePage:
        """Read one page. Raises `DeliveryError` of `send`, and `SourceReplyError`."""


def reply_object(reply: ProductReply, source: TraceSource) -> dict[str, Any]:
    """Return the JSON object of a reply. Raises `SourceReplyError` if it is none."""
    if not isinstance(reply.body, dict):
        raise_not_the_api(source)
    return reply.body


def object_of(parent: JsonObject, name: str, source: TraceSource) -> dict[str, Any]:
    """Return an object of a reply; empty if it is missing. Raises `SourceReplyError`."""
    value = parent.get(name) or {}
    if not isinstance(value, dict):
        raise_not_the_api(source)
    return value


def objects_of(parent: JsonObject, name: str, source: TraceSource) -> list[dict[str, Any]]:
    """Return the objects in a list of a reply; empty if it is missing. Raises `SourceReplyError`."""
    value = parent.get(name) or []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise_not_the_api(source)
    return value


def text_of(parent: JsonObject, name: str, source: TraceSource) -> str:
    """Return a text of a reply, which must exist. Raises `SourceReplyError`."""
    value = parent.get(name)
    if not isinstance(value, str):
        raise_not_the_api(source)
    return value


def raise_not_the_api(source: TraceSource) -> NoReturn:
    """Raise the error for a reply of an unknown form."""
    raise SourceReplyError(f"{source.base_url} does not answer as the API of {source.name} does")
