"""The golden language: what the keys of a golden file mean.

Which keys there are, and how they are checked, is told by the models in `entries`; of what stands in a golden's `tools`
in `expectations`, in arguments in `matchers`, and of the runs that it is for in `applicability`. These models are the
only description of the language; the published JSON Schema is made from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pydantic import TypeAdapter

from goldspan.errors import GoldenError
from goldspan.goldens.applicability import Conditions, read_component, read_when
from goldspan.goldens.checking import checked, checked_value
from goldspan.goldens.entries import DeclaredTool, GoldenAsWritten, Head, Rules
from goldspan.goldens.expectations import ItemAsWritten, Meaning, check_number, check_server, check_size
from goldspan.goldens.matchers import check_plain
from goldspan.goldens.words import did_you_mean, shown
from goldspan.model import (
    NO_VOCABULARY,
    ONCE,
    ArgumentsMatch,
    ComponentSpans,
    ExpectedTool,
    Golden,
    Item,
    Tool,
    Vocabulary,
    When,
)

Collections: TypeAlias = Mapping[str, tuple[str, ...]]
"""Names of metrics by the names of the collections that they are in."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the head of a file says, as it is meant."""

    rules: Mapping[str, Any] = field(default_factory=dict)
    """What goldens say that do not say otherwise."""
    tools: tuple[Tool, ...] = ()
    servers: tuple[str, ...] = ()
    collections: Collections = field(default_factory=dict)
    components: tuple[ComponentSpans, ...] = ()
    strange: tuple[str, ...] = ()
    """Keys of the author's own."""


@dataclass(frozen=True, slots=True)
class Context:
    """What is said outside of a golden, in its own file and in those that are loaded with it."""

    rules: Mapping[str, Any] = field(default_factory=dict)
    vocabulary: Vocabulary = NO_VOCABULARY
    known: Callable[[ExpectedTool], ExpectedTool] = lambda tool: tool
    """Adds what the vocabulary says of a tool."""
    collections: Collections | None = field(default_factory=dict)
    """`None`: not known, because something is wrong where they are declared."""


def read_head(given: Mapping[Any, Any], where: str) -> Surroundings:
    """The head of a file. Raises `GoldenError` for whatever is wrong with it."""
    head = checked(Head, given, where)
    strange = dict.fromkeys(head.model_extra or ())
    tools = []
    for name, said in head.tools.items():
        declared = said or _NOTHING_SAID
        strange.update(dict.fromkeys(declared.model_extra or ()))
        tools.append(_tool(name, declared, f"{where}, tool {shown(name)}"))
    return Surroundings(
        rules=_rules(head.defaults),
        tools=tuple(tools),
        servers=tuple(head.servers),
        collections={name: tuple(metrics) for name, metrics in head.metrics.items()},
        components=tuple(
            read_component(name, said, f"{where}, component {shown(name)}") for name, said in head.components.items()
        ),
        strange=tuple(strange),
    )


def measured(rules: Mapping[str, Any], collections: Collections | None, where: str) -> Mapping[str, Any]:
    """Rules in which the name of a collection is replaced by what is in it. Raises `GoldenError` for an unknown one."""
    metrics = rules.get("metrics")
    if not isinstance(metrics, str):
        return rules
    if collections is None:
        return {**rules, "metrics": None}
    if metrics not in collections:
        hint = did_you_mean(metrics, collections) or f" One metric is written as [{shown(metrics)}]."
        raise GoldenError(f"{where}: metrics names {shown(metrics)}, and no such collection is declared.{hint}")
    return {**rules, "metrics": collections[metrics]}


def read_golden(given: Any, where: str, context: Context) -> tuple[Golden, tuple[str, ...]]:
    """A golden, and the keys in it that are its author's own. Raises `GoldenError` for whatever is wrong with it."""
    if isinstance(given, Mapping):
        for key in ("tools", "expected_tools", "any_of"):
            if key in given:
                check_size(given[key], where)
    written = checked(GoldenAsWritten, given, where)
    rules = {**context.rules, **measured(_rules(written), context.collections, where)}
    if rules.get("order") == "exact" and rules.get("extra") == "allow":
        raise GoldenError(f"{where}: 'order: exact' and 'extra: allow' contradict each other; keep one of them.")
    strange = dict(written.model_extra or ())
    meaning = Meaning(where, rules.pop("match", "exact"), context.known, strange)
    golden = Golden(
        id=written.id,
        input=written.input,
        tools=_items(written, meaning),
        when=read_when(written.when, where) if "when" in written.model_fields_set else None,
        component=written.component,
        policy=_is_policy(written, where),
        metadata=strange,
        vocabulary=context.vocabulary,
        **rules,
    )
    check_number(golden.tools, where)
    return golden, tuple(key.rpartition("].")[2] for key in strange)


def items(
    given: Sequence[Any],
    where: str,
    known: Callable[[ExpectedTool], ExpectedTool] = lambda tool: tool,
    match: ArgumentsMatch = "exact",
) -> tuple[Item, ...]:
    """Expected calls as people write them in Python: what a golden's `tools` may hold, and values of the model.

    `known` adds what a vocabulary says of a tool; `match` is that of calls that do not say themselves. Raises
    `GoldenError` for whatever is wrong, beginning with `where` and the position.
    """
    check_size(given, where)
    meaning = Meaning(where, match, known)
    meant = meaning.items(checked_value(_ITEMS, list(given), where))
    check_number(meant, where)
    return meant


def when(given: Any, where: str) -> When | None:
    """Which runs a golden is for, as people write it in Python. Raises `GoldenError` for whatever is wrong with it."""
    return read_when(checked(Conditions, given, where), where)


def _rules(written: Rules) -> dict[str, Any]:
    """What is said there and not left to the defaults."""
    said = ((name, getattr(written, name)) for name in written.model_fields_set & _RULES)
    return {name: tuple(value) if isinstance(value, list) else value for name, value in said}


def _items(written: GoldenAsWritten, meaning: Meaning) -> tuple[Item, ...]:
    said = written.model_fields_set
    if "any_of" in said and "tools" in said:
        raise GoldenError(f"{meaning.where}: 'any_of' says what is expected in place of 'tools'; keep one of them.")
    if "any_of" in said:
        return (meaning.any_of(written.any_of, ONCE, "any_of"),)
    return meaning.items(written.tools, "tools")


def _is_policy(written: GoldenAsWritten, where: str) -> bool:
    """Whether it expects no calls in particular."""
    said = written.model_fields_set
    if expecting := next((key for key in ("tools", "any_of") if key in said), None):
        if written.policy:
            told = f"a policy expects no calls in particular; keep {expecting!r} or 'policy: true'"
            raise GoldenError(f"{where}: {told}.")
        return False
    limits = written.forbid or written.max_calls is not None
    if written.policy is False or not (written.policy or limits):
        # Every golden says what it expects, because one that says nothing would fail every run that calls a tool.
        raise GoldenError(f"{where}: tools is missing; `tools: []` says that no tool is to be called.")
    if written.input is not None:
        told = "without 'tools' it is a policy, for every run that no other golden is for, and those have no 'input'"
        raise GoldenError(f"{where}: {told}; 'when' says which runs are meant, `tools: []` that no tool is called.")
    return True


def _tool(name: str, written: DeclaredTool, where: str) -> Tool:
    """One tool of the vocabulary."""
    check_server(name, written.server, where)
    for what, value in (("defaults", written.defaults), ("parameters", written.parameters)):
        check_plain(value, where, what)
    return Tool(
        name=name,
        aliases=tuple(written.aliases),
        server=written.server,
        effect=written.effect,
        description=written.description,
        parameters=written.parameters,
        ignore=tuple(written.ignore),
        defaults=written.defaults,
        metadata=dict(written.model_extra or ()),
    )


_RULES = frozenset(Rules.model_fields)
_NOTHING_SAID = DeclaredTool.model_validate({})
_ITEMS = TypeAdapter(list[ItemAsWritten])
