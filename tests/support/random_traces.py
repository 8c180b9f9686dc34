"""Generates random, plausible requests, and their telemetry in the notation of several instrumentations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from goldspan.model import LogRecord, SpanRecord, TelemetryRecord

STEP = 10_000_000
"""Nanoseconds between two events: more than the differences between clocks."""


@dataclass(frozen=True)
class Use:
    """One call of a tool; with `inner`, of an agent used as a tool."""

    name: str
    value: int
    inner: Asked | None = None


@dataclass(frozen=True)
class Asked:
    """A request of a user: its text, the calls of the agent turn by turn, and its answer."""

    words: str
    turns: tuple[tuple[Use, ...], ...]
    answer: str = "Done."


@dataclass(frozen=True, kw_only=True)
class How:
    """Which telemetry an instrumentation writes for a request."""

    convention: str = "genai"
    marked: bool = True
    """Whether agents have spans."""
    lone: bool = False
    """Whether every span is in a trace of its own."""
    asked_ids: bool = True
    """Whether the messages show the ids of calls."""
    made_ids: bool = True
    """Whether the spans of tools show the ids of calls."""
    arguments: bool = True
    """Whether the spans of tools have their arguments."""
    models: bool = True
    """Whether there are spans of models."""
    tools: bool = True
    """Whether there are spans of tools."""
    in_logs: bool = False
    """Whether messages are log events instead of attributes."""
    parallel: bool = False
    """Whether the calls of a turn overlap."""
    recycled: bool = False
    """Whether every request uses the same ids of calls."""


HOW = {
    "complete": How(),
    "parallel": How(parallel=True),
    "ids only in messages": How(made_ids=False),
    "ids only in spans": How(asked_ids=False),
    "no ids": How(asked_ids=False, made_ids=False),
    "no ids, arguments only in messages": How(asked_ids=False, made_ids=False, arguments=False),
    "tools only": How(models=False),
    "models only": How(tools=False, marked=False),
    "unmarked": How(marked=False),
    "unmarked, ids only in messages": How(marked=False, made_ids=False),
    "lone": How(marked=False, lone=True),
    "lone, ids only in messages": How(marked=False, lone=True, made_ids=False),
    "lone, no ids": How(marked=False, lone=True, asked_ids=False, made_ids=False),
    "lone, recycled ids": How(marked=False, lone=True, recycled=True),
    "lone models": How(marked=False, lone=True, tools=False),
    "messages in logs": How(in_logs=True),
    "openinference": How(convention="openinference", made_ids=False),
    "openinference, unmarked": How(convention="openinference", made_ids=False, marked=False),
    "traceloop": How(convention="traceloop", made_ids=False),
    "traceloop, lone": How(convention="traceloop", made_ids=False, marked=False, lone=True),
}


@dataclass
class Told:
    """The telemetry, and the expected result: the tools that each request called, in order."""

    records: list[TelemetryRecord]
    used: list[list[str]]


_uses = st.builds(Use, st.sampled_from(["search", "book", "web_search", "pay"]), st.integers(0, 3))
_delegations = st.builds(
    lambda value, turns: Use("expert", value, Asked(f"Look into {value}.", turns)),
    st.integers(0, 3),
    st.lists(st.lists(_uses, min_size=1, max_size=2).map(tuple), min_size=1, max_size=2).map(tuple),
)
asked = st.builds(
    Asked,
    st.sampled_from(["Book a trip.", "What is new?"]),
    st.lists(st.lists(_uses | _delegations, min_size=1, max_size=3).map(tuple), max_size=3).map(tuple),
)


def tell(request: Asked, how: How, *, begin: int = 0, label: str = "", scope: str = "") -> Told:
    """Return the records of one request that starts at a step of time. The label makes all its ids unique.

    If two instrumentations record the same request, the scope makes the ids of their traces and spans unique, but not
    the ids of calls.
    """
    teller = _Teller(how, begin, label, scope)
    teller.request(request, parent=None)
    return Told(teller.records, [teller.used])


@dataclass
class _Teller:
    how: How
    now: int
    label: str
    scope: str = ""
    records: list[TelemetryRecord] = field(default_factory=list)
    used: list[str] = field(default_factory=list)
    numbers: int = 0
    calls: int = 0

    def request(self, request: Asked, *, parent: SpanRecord | None) -> None:
        around = parent
        if self.how.marked or (parent is None and not self.how.lone):
            around = self.begin("agent", parent) if self.how.marked else self.begin("plain", parent)
        said: list[dict[str, Any]] = [{"role": "user", "content": request.words}]
        for turn in request.turns:
            asked = [(use, self.call_id(f"{len(said)}.{at}")) for at, use in enumerate(turn)]
            answer = self.asking(asked)
            self.model(said, answer, around)
            said = [*said, answer]
            begun: list[SpanRecord] = []
            for use, call_id in asked:
                self.used.append(use.name)
                begun.append(self.tool(use, call_id, around))
                if not self.how.parallel:
                    self.end(begun.pop())
                said = [*said, self.result(call_id)]
            for span in begun:
                self.end(span)
        answer = {"role": "assistant", "content": request.answer}
        self.model(said, answer, around)
        if around is not None and around is not parent:
            if self.how.marked:
                self.write(around, asked=said[:1], answered=[answer])
            self.end(around)

    def call_id(self, place: str) -> str:
        """Return the id of a call: its position in the conversation, or a unique id."""
        self.calls += 1
        return f"call_{place}" if self.how.recycled else f"call_{self.label}_{self.calls}"

    def asking(self, asked: list[tuple[Use, str]]) -> dict[str, Any]:
        calls = []
        for use, call_id in asked:
            function = {"name": use.name, "arguments": json.dumps(arguments_of(use))}
            call = {"type": "function", "function": function}
            calls.append(call | {"id": call_id} if self.how.asked_ids else call)
        return {"role": "assistant", "tool_calls": calls}

    def result(self, call_id: str) -> dict[str, Any]:
        made = {"role": "tool", "content": "ok"}
        return made | {"tool_call_id": call_id} if self.how.asked_ids else made

    def model(self, said: list[dict[str, Any]], answer: dict[str, Any], parent: SpanRecord | None) -> None:
        if self.how.models:
            span = self.begin("model", parent)
            self.write(span, asked=said, answered=[answer])
            self.end(span)

    def tool(self, use: Use, call_id: str, parent: SpanRecord | None) -> SpanRecord:
        span = self.begin("tool", parent, name=use.name, call_id=call_id, arguments=arguments_of(use))
        if use.inner is not None:
            self.request(use.inner, parent=None if self.how.lone else span)
        return span

    def begin(self, role: str, parent: SpanRecord | None, **facts: Any) -> SpanRecord:
        number = self.next()
        own = self.label + self.scope
        trace = f"{own}{number:03}" if self.how.lone else own
        span = SpanRecord(
            trace_id=trace.rjust(32, "0"),
            span_id=f"{own}{number:03}".rjust(16, "0"),
            parent_id=None if parent is None else parent.span_id,
            name=role,
            attributes={},
            start_ns=self.tick(),
            scope=self.scope,
        )
        self.mark(span, role, facts)
        if role != "tool" or self.how.tools:
            self.records.append(span)
        return span

    def mark(self, span: SpanRecord, role: str, facts: dict[str, Any]) -> None:
        attributes = span.attributes
        assert isinstance(attributes, dict)
        if role == "plain":
            return
        arguments = json.dumps(facts.get("arguments"))
        if self.how.convention == "genai":
            operations = {"agent": "invoke_agent", "model": "chat", "tool": "execute_tool"}
            attributes["gen_ai.operation.name"] = operations[role]
            if role == "agent":
                attributes["gen_ai.agent.name"] = "helper" if span.parent_id is None else "expert"
            if role == "tool":
                attributes["gen_ai.tool.name"] = facts["name"]
                if self.how.arguments:
                    attributes["gen_ai.tool.call.arguments"] = arguments
                if self.how.made_ids:
                    attributes["gen_ai.tool.call.id"] = facts["call_id"]
        elif self.how.convention == "openinference":
            attributes["openinference.span.kind"] = {"agent": "AGENT", "model": "LLM", "tool": "TOOL"}[role]
            if role == "tool":
                attributes |= {"tool.name": facts["name"], "input.value": arguments}
        else:
            if role == "model":
                attributes["llm.request.type"] = "chat"
            else:
                attributes["traceloop.span.kind"] = role
                attributes["traceloop.entity.name"] = facts.get("name", "helper")
            if role == "tool":
                attributes["traceloop.entity.input"] = arguments

    def write(self, span: SpanRecord, *, asked: list[Any], answered: list[Any]) -> None:
        attributes = span.attributes
        assert isinstance(attributes, dict)
        if self.how.in_logs:
            for message in (*asked, *answered):
                told = "gen_ai.choice" if message is answered[-1] else f"gen_ai.{message['role']}.message"
                body = {"message": message} if told == "gen_ai.choice" else message
                where = {"trace_id": span.trace_id, "span_id": span.span_id}
                self.records.append(LogRecord(told, {}, body, time_ns=self.tick(), **where, scope=self.scope))
        elif self.how.convention == "openinference":
            for side, messages in (("input", asked), ("output", answered)):
                for number, message in enumerate(messages):
                    attributes |= dict(_flat(f"llm.{side}_messages.{number}.message", message, **OPENINFERENCE))
        elif self.how.convention == "traceloop" and span.name == "model":
            for side, messages in (("prompt", asked), ("completion", answered)):
                for number, message in enumerate(messages):
                    attributes |= dict(_flat(f"gen_ai.{side}.{number}", message, **TRACELOOP))
        elif span.name == "model" or self.how.convention == "genai":
            attributes["gen_ai.input.messages"] = json.dumps(asked)
            attributes["gen_ai.output.messages"] = json.dumps(answered)

    def end(self, span: SpanRecord) -> None:
        span.end_ns = self.tick()

    def tick(self) -> int:
        self.now += 1
        return self.now * STEP

    def next(self) -> int:
        self.numbers += 1
        return self.numbers


def arguments_of(use: Use) -> dict[str, Any]:
    """Return the arguments of a call."""
    return {"question": use.inner.words} if use.inner is not None else {"n": use.value + 10}


OPENINFERENCE = {"call": "tool_call.", "function": "function."}
TRACELOOP = {"call": "", "function": ""}


def _flat(prefix: str, message: dict[str, Any], *, call: str, function: str) -> Iterator[tuple[str, Any]]:
    """Yield a message as flattened attributes; `call` and `function` are prefixes of the fields of a call."""
    yield f"{prefix}.role", message["role"]
    for known in ("content", "tool_call_id"):
        if known in message:
            yield f"{prefix}.{known}", message[known]
    for number, asked in enumerate(message.get("tool_calls", ())):
        start = f"{prefix}.tool_calls.{number}.{call}"
        if "id" in asked:
            yield f"{start}id", asked["id"]
        yield f"{start}{function}name", asked["function"]["name"]
        yield f"{start}{function}arguments", asked["function"]["arguments"]
