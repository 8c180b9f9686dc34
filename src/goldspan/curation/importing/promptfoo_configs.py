"""Imports configurations of promptfoo: the tests, and their assertions about tools.

Format: `tests`, `defaultTest` and `assert` of `promptfooconfig.yaml` (promptfoo.dev, "Configuration reference"); the
values of `trajectory:tool-used`, `trajectory:tool-sequence`, `trajectory:tool-args-match` and `trajectory:step-count`
in `src/assertions/trajectory.ts`, and of `tool-call-f1` in `src/assertions/toolCallF1.ts` of promptfoo/promptfoo.
`is-valid-openai-tools-call` and its siblings validate a call against its schema, and name no expected tool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from goldspan.curation.importing.expected_calls import parse_arguments, request_text
from goldspan.curation.importing.imported_goldens import GoldenCollector
from goldspan.errors import GoldenError
from goldspan.model import ExpectedTool, Times

_VARIABLE = re.compile(r"\{\{\s*([\w.]+)\s*\}\}")
_PATTERN = re.compile(r"[*?]")


def is_promptfoo_config(document: Any) -> bool:
    """Whether a document is a configuration of promptfoo, or a list of its tests."""
    if isinstance(document, list):
        return any(isinstance(test, Mapping) and "assert" in test for test in document)
    return (
        isinstance(document, Mapping)
        and "tests" in document
        and bool(
            {"prompts", "providers", "targets", "defaultTest"} & document.keys()
            or is_promptfoo_config(document["tests"])
        )
    )


@dataclass(slots=True)
class _Rules:
    """What the assertions of one test state."""

    tools: list[ExpectedTool] = field(default_factory=list)
    keys: dict[str, Any] = field(default_factory=dict)
    forbid: list[str] = field(default_factory=list)
    states_tools: bool = False

    def require(self, tool: ExpectedTool) -> None:
        """Expect a call, or add its arguments and its number of calls to the call that is expected already."""
        self.states_tools = True
        for position, known in enumerate(self.tools):
            if known.name == tool.name and (known.arguments is None or tool.arguments is None):
                merged = known if tool.arguments is None else replace(tool, times=known.times)
                self.tools[position] = replace(merged, times=tool.times) if tool.times.stated else merged
                return
        self.tools.append(tool)


def import_promptfoo(document: Any, collector: GoldenCollector) -> None:
    """Add a golden for each test that has an assertion about tools."""
    config = document if isinstance(document, Mapping) else {"tests": document}
    default = config.get("defaultTest")
    default = default if isinstance(default, Mapping) else {}
    tests = config.get("tests")
    for number, test in enumerate(tests if isinstance(tests, list) else [tests], start=1):
        where = f"test {number}"
        if not isinstance(test, Mapping):
            collector.lose("tests in other files", where)
            continue
        where = f"{where} ({test['description']})" if test.get("description") else where
        rules = _Rules()
        for assertion in (*(default.get("assert") or ()), *(test.get("assert") or ())):
            _apply_assertion(assertion, rules, collector, where)
        variables = {**(default.get("vars") or {}), **(test.get("vars") or {})}
        _add_test(test, _test_text(config, variables), rules, collector, where)


def _add_test(test: Mapping[Any, Any], text: str | None, rules: _Rules, collector: GoldenCollector, where: str) -> None:
    if not rules.states_tools and not rules.forbid and not rules.keys:
        collector.lose("tests without an assertion about tools", where)
    elif text is None:
        collector.lose("tests whose request is not known from the variables and the prompt", where)
    elif rules.states_tools:
        keys = {"duplicates": "ignore"} if rules.keys.get("mode") == "set" else {}
        collector.add(test.get("description"), text, rules.tools, forbid=tuple(rules.forbid), **keys, **rules.keys)
    else:
        collector.add_policy(test.get("description"), text, forbid=tuple(rules.forbid), **rules.keys)


def _test_text(config: Mapping[Any, Any], variables: Mapping[str, Any]) -> str | None:
    """Return the request: the text among the variables, else the only prompt with the variables in it."""
    text = request_text(variables)
    if text is not None:
        return None if text.startswith("file://") else text
    prompts = config.get("prompts")
    prompt = prompts[0] if isinstance(prompts, list) and len(prompts) == 1 else prompts
    if not isinstance(prompt, str) or prompt.startswith("file://"):
        return None
    known = {name: str(value) for name, value in variables.items() if isinstance(value, str | int | float)}
    if not set(_VARIABLE.findall(prompt)) <= known.keys():
        return None
    return _VARIABLE.sub(lambda match: known[match[1]], prompt)


def _apply_assertion(assertion: Any, rules: _Rules, collector: GoldenCollector, where: str) -> None:
    if not isinstance(assertion, Mapping):
        collector.lose("assertions in other files", where)
        return
    kind = str(assertion.get("type"))
    if kind == "assert-set" and assertion.get("threshold") is None:
        for inner in assertion.get("assert") or ():
            _apply_assertion(inner, rules, collector, where)
        return
    is_inverse = kind.startswith("not-")
    apply = _ASSERTIONS.get(kind.removeprefix("not-"))
    if apply is None or (is_inverse and apply is not _tool_used):
        collector.lose(f"the assertion {kind}", where)
        return
    try:
        if is_inverse:
            _tool_not_used(assertion.get("value"), rules)
        else:
            apply(assertion, rules)
    except GoldenError as error:
        collector.lose(f"the assertion {kind} ({error})", where)


def _tool_name(value: Any) -> str:
    """Return the tool of a step: a name, or a mapping with `name` or `pattern`. Only `forbid` accepts patterns."""
    name = (value.get("pattern") or value.get("name")) if isinstance(value, Mapping) else value
    if not isinstance(name, str) or not name.strip():
        raise GoldenError("it names no tool")
    return name.strip()


def _required_tool_name(value: Any) -> str:
    if _PATTERN.search(name := _tool_name(value)):
        raise GoldenError("a golden expects tools by name, not by pattern")
    return name


def _tool_used(assertion: Mapping[Any, Any], rules: _Rules) -> None:
    value = assertion.get("value")
    if not isinstance(value, Mapping):
        for name in map(_required_tool_name, value if isinstance(value, list) else [value]):
            rules.require(ExpectedTool(name))
        return
    least, most = value.get("min", 1), value.get("max")
    if most == 0:
        rules.forbid.append(_tool_name(value))
        return
    tool = ExpectedTool(_required_tool_name(value))
    rules.require(tool if (least, most) == (1, None) else replace(tool, times=Times(least, most)))


def _tool_not_used(value: Any, rules: _Rules) -> None:
    if isinstance(value, Mapping) and (value.get("min", 1) != 1 or value.get("max") is not None):
        raise GoldenError("a golden cannot state a forbidden number of calls")
    rules.forbid += map(_tool_name, value if isinstance(value, list) else [value])


def _tool_sequence(assertion: Mapping[Any, Any], rules: _Rules) -> None:
    value = assertion.get("value")
    steps = value.get("steps") if isinstance(value, Mapping) else value
    if not isinstance(steps, list) or not steps:
        raise GoldenError("it has no steps")
    if "order" in rules.keys:
        raise GoldenError("a golden has one sequence")
    sequence = [ExpectedTool(name) for name in map(_required_tool_name, steps)]
    known, rules.tools, rules.states_tools = rules.tools, sequence, True
    rules.keys["order"] = "exact" if isinstance(value, Mapping) and value.get("mode") == "exact" else "in_order"
    for tool in known:
        rules.require(tool)


def _tool_args_match(assertion: Mapping[Any, Any], rules: _Rules) -> None:
    value = assertion.get("value")
    if not isinstance(value, Mapping):
        raise GoldenError("it names no tool")
    ignore = value.get("ignore") or []
    ignore = [ignore] if isinstance(ignore, str) else list(ignore)
    if any(_PATTERN.search(str(key)) for key in ignore):
        raise GoldenError("a golden ignores arguments by name, not by pattern")
    arguments = parse_arguments(value["args"] if "args" in value else value.get("arguments"))
    defaults = value.get("defaults") or {}
    rules.require(
        ExpectedTool(
            _required_tool_name(value),
            arguments,
            match="exact" if value.get("mode") == "exact" else "subset",
            ignore=tuple(map(str, ignore)),
            defaults=dict(defaults),
        )
    )


def _step_count(assertion: Mapping[Any, Any], rules: _Rules) -> None:
    value = assertion.get("value")
    if not isinstance(value, Mapping) or value.get("type") != "tool" or value.get("name") or value.get("pattern"):
        raise GoldenError("it counts other steps than tool calls")
    if not isinstance(value.get("max"), int) or value.get("min"):
        raise GoldenError("a golden states the greatest number of calls only")
    rules.keys["max_calls"] = value["max"]


def _tool_call_f1(assertion: Mapping[Any, Any], rules: _Rules) -> None:
    value = assertion.get("value")
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
    if not isinstance(names, list) or not names:
        raise GoldenError("it names no tool")
    if assertion.get("threshold", 1) < 1:
        raise GoldenError("a threshold below 1 on a set of names")
    for name in dict.fromkeys(map(_required_tool_name, filter(None, names))):
        rules.require(ExpectedTool(name))
    rules.keys["mode"] = "set"


_ASSERTIONS: Mapping[str, Callable[[Mapping[Any, Any], _Rules], None]] = {
    "trajectory:tool-used": _tool_used,
    "trajectory:tool-sequence": _tool_sequence,
    "trajectory:tool-args-match": _tool_args_match,
    "trajectory:step-count": _step_count,
    "tool-call-f1": _tool_call_f1,
}
