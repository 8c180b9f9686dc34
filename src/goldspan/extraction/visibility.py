"""Whether a run without a tool call made none, or whether its telemetry would not show any."""

from __future__ import annotations

import re
from functools import cache

from goldspan.extraction.conventions import installed
from goldspan.extraction.reading import MARKS, WORK, Messages
from goldspan.extraction.spoken import Message
from goldspan.extraction.tree import Node
from goldspan.model import ABSENT

_ASKS_FOR_TOOLS = re.compile(r"(?:tool|function)[ _-]?(?:call|use)", re.IGNORECASE)
"""A finish reason with which a model asks for tools: `tool_calls`, `tool_use`, `TOOL_CALLS`, `function_call`."""


def calls_would_show(nodes: list[Node], root: Node | None) -> bool:
    """Whether a tool call would have been seen in a run in which none was.

    A tool's span shows it, and so does what a model said, and a run in which only functions were at work each of which
    has a span. The texts of the user, the application and the agent do not: they are there whatever was done between
    them. A model that stopped in order to call tools shows the contrary.
    """
    if any(_asked_for_tools(node) for node in nodes):
        return False
    # Of a family that nobody knows, nobody knows either whether it writes what its models and tools do.
    nodes = [node for node in nodes if node.reading.guessed_by is None]
    shown = any(node.role == "tool" or (node.role == "model" and _model_is_heard(node)) for node in nodes)
    return shown or _has_span_per_call(nodes, root)


def without_content(nodes: list[Node]) -> tuple[str, ...]:
    """The instrumentations of which no span shows an argument, a result or a message.

    Each by the conventions whose switch records it: a family's own, before one in whose words many write. By its scope
    where the convention names switches by scopes, or knows none.
    """
    of_scope: dict[str, list[Node]] = {}
    for node in nodes:
        if node.role in MARKS or node.role in WORK:
            of_scope.setdefault(node.span.scope, []).append(node)
    silent = ((scope, of_it) for scope, of_it in of_scope.items() if not any(map(_shows_content, of_it)))
    return tuple(sorted({name for scope, of_it in silent for name in _switched_by(scope, of_it)}))


def _shows_content(node: Node) -> bool:
    reading = node.reading
    told = (reading.arguments, reading.result, reading.input, reading.output)
    return any(value is not None for value in told) or any(map(_has_content, (*node.asked, *node.answered)))


def _has_content(message: Message) -> bool:
    """Whether a message says something: with content off, some instrumentations record who spoke, and no more."""
    given = (call.arguments for call in message.calls)
    returned = (answer.result for answer in message.answers)
    return bool(message.text) or any(value is not None and value is not ABSENT for value in (*given, *returned))


def _switched_by(scope: str, nodes: list[Node]) -> list[str]:
    names = {name for node in nodes for name in node.reading.by}
    known = [convention for convention in installed().members if convention.name in names and convention.content]
    own = [convention.name for convention in known if not convention.shared]
    if own or not scope:
        return own or [convention.name for convention in known]
    return [scope]


def unknown_spans(nodes: list[Node], root: Node | None) -> int:
    """How many spans inside a run no convention knows."""
    return sum([node.unknown_spans + (_is_unknown(node) and node is not root) for node in nodes])


def _is_unknown(node: Node) -> bool:
    return node.role is None and not node.reading.by


def _asked_for_tools(node: Node) -> bool:
    finish = node.reading.finish
    return finish is not None and _ASKS_FOR_TOOLS.search(str(finish)) is not None


def _model_is_heard(node: Node) -> bool:
    """Whether what a model said is recorded: in its answer, or in the history that it was given, for this request."""
    return any(map(_says_something, node.answered)) or any(map(_says_something, _since_asked(node.asked)))


def _since_asked(said: Messages) -> Messages:
    """What was said after the user's last words; nothing where these are not among it."""
    asked = [place for place, message in enumerate(said) if message.from_user]
    return said[asked[-1] + 1 :] if asked else ()


def _says_something(message: Message) -> bool:
    return message.role == "assistant" and bool(message.calls or (message.text or "").strip())


def _has_span_per_call(nodes: list[Node], root: Node | None) -> bool:
    """Whether every span for which a run stands is of an instrumentation that writes a span for every call.

    A span that no convention knows may be a tool's.
    """
    scopes = _scopes_with_a_span_per_call()
    marks = [node for node in nodes if node.role in MARKS or node is root]
    own = bool(marks) and all(node.span.scope in scopes for node in marks)
    return own and not unknown_spans(nodes, root)


@cache
def _scopes_with_a_span_per_call() -> frozenset[str]:
    return frozenset().union(*(convention.span_per_call for convention in installed().members))
