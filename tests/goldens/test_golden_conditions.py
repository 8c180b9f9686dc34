"""The conditions of a golden select its runs, and an invalid condition is refused with a reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from goldspan.errors import GoldenError
from goldspan.goldens import Goldens, load_goldens
from goldspan.model import ComponentSelector, ExpectedTool, Golden, Run, When, is_same_value
from goldspan.model.value_matchers import Contains, Equal, Folded, OneOf, Regex, Similar


def written(folder: Path, content: Any, name: str = "g.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(content))
    return path


def loaded(folder: Path, golden: Mapping[str, Any], **head: Any) -> Golden:
    (found,) = load_goldens(written(folder, {**head, "goldens": [{"id": "g", **golden}]}))
    return found


def complaint(folder: Path, content: Any) -> str:
    with pytest.raises(GoldenError) as caught:
        load_goldens(written(folder, content))
    return str(caught.value).partition("g.json")[2].lstrip(":, ")


# --- parsing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "meant"),
    [
        pytest.param({"agent": "support*"}, When(agent="support*"), id="an agent"),
        pytest.param({"service": "shop", "span": "POST *"}, When(service="shop", span="POST *"), id="service and span"),
        pytest.param({"input": "Hi"}, When(input="Hi"), id="a text"),
        pytest.param({"input": {"regex": "(?i)refund"}}, When(input=Regex("(?i)refund")), id="a pattern"),
        pytest.param(
            {"attributes": {"tier": "gold", "n": 1, "type": "string", "tag": {"one_of": ["a", {"folded": "B"}]}}},
            When(attributes={"tier": "gold", "n": 1, "type": "string", "tag": OneOf(("a", Folded("B")))}),
            id="attributes, one of which is called like a matcher",
        ),
    ],
)
def test_the_keys_of_when_become_a_when_object(tmp_path: Path, when: dict[str, Any], meant: When) -> None:
    golden = loaded(tmp_path, {"tools": ["a"], "when": when})
    assert golden == Golden("g", tools=(ExpectedTool("a"),), when=meant)


def test_a_golden_can_name_a_component_and_an_expected_call_can_name_an_agent(tmp_path: Path) -> None:
    golden = loaded(tmp_path, {"tools": [{"name": "a", "agent": "clerk"}], "component": "retriever"})
    assert (golden.component, golden.expected_calls) == ("retriever", (ExpectedTool("a", agent="clerk"),))


@pytest.mark.parametrize(
    ("golden", "sentence"),
    [
        pytest.param({"when": {"agnet": "a"}}, ", when: unknown key 'agnet'. Did you mean 'agent'?", id="a slip"),
        pytest.param({"when": {"tool": "a"}}, ", when: unknown key 'tool'.", id="an unknown condition"),
        pytest.param({"when": {"component": "a"}}, ", when: the key 'component' belongs beside 'when', not in it.",
                     id="a component inside"),
        pytest.param({"when": {}}, ": when is empty; state agent, service, span, attributes or input.", id="none"),
        pytest.param({"when": {"agent": None, "attributes": {}}},
                     ": when is empty; state agent, service, span, attributes or input.", id="empty conditions"),
        pytest.param({"when": None}, ", when: must be a mapping with keys such as 'agent', not None.", id="left empty"),
        pytest.param({"when": "support"}, ", when: must be a mapping with keys such as 'agent', not 'support'.",
                     id="a word"),
        pytest.param({"when": {"agent": 3}}, ", when: agent must be text, not 3. Write it in quotes.", id="a number"),
        pytest.param({"when": {"input": None}},
                     ", when.input: must be a text or a matcher such as {regex: refund}, not None.", id="no text"),
        pytest.param({"when": {"input": " "}},
                     ", when.input: must be a text or a matcher such as {regex: refund}, not ' '.", id="a blank text"),
        pytest.param({"when": {"input": {"regexp": "a"}}},
                     ", when.input: must be a text or a matcher such as {regex: refund}, not {'regexp': 'a'}. "
                     "Did you mean 'regex'?", id="a misspelt matcher"),
        pytest.param({"when": {"input": {"regex": "("}}}, ", when.input: regex '(' cannot be used: unclosed group.",
                     id="a broken pattern"),
        pytest.param({"when": {"input": {"type": "string"}}},
                     ", when.input: the matcher 'type' is for arguments and results; a condition accepts any, "
                     "contains, equal, folded, one_of, regex or similar.", id="a matcher of types"),
        pytest.param({"when": {"attributes": {"n": {"one_of": [{"approx": 1}]}}}},
                     ", when.attributes.n: the matcher 'approx' is for arguments and results; a condition accepts any, "
                     "contains, equal, folded, one_of, regex or similar.", id="a matcher of numbers among others"),
        pytest.param({"when": {"attributes": {"tags": ["a", {"regex": "b"}]}}},
                     ", when.attributes.tags: the matcher 'regex' must be the whole value or an item of "
                     "'one_of', not part of a list, a mapping or another matcher.", id="a matcher in a list"),
        pytest.param({"when": {"attributes": {"tags": {"one_of": [{"contains": [{"folded": "b"}]}]}}}},
                     ", when.attributes.tags: the matcher 'folded' must be the whole value or an item of "
                     "'one_of', not part of a list, a mapping or another matcher.", id="a matcher in another"),
        pytest.param({"when": {"attributes": {"tag": {"k": {"any": True}}}}},
                     ", when.attributes.tag: the matcher 'any' must be the whole value or an item of "
                     "'one_of', not part of a list, a mapping or another matcher.", id="a matcher in a mapping"),
        pytest.param({"component": 3}, ": component must be text, not 3. Write it in quotes.", id="component"),
        pytest.param({"components": "a"}, ": unknown key 'components'. Did you mean 'component'?", id="components"),
        pytest.param({"policy": "yes"}, ": policy must be true or false, not 'yes'.", id="policy in words"),
        pytest.param({"policy": True},
                     ": a policy expects no particular calls; keep 'tools' or 'policy: true'.", id="policy, tools"),
    ],
)  # fmt: skip
def test_an_invalid_condition_is_refused_with_its_place_and_the_reason(
    tmp_path: Path, golden: dict[str, Any], sentence: str
) -> None:
    assert complaint(tmp_path, [{"id": "g", "tools": [], **golden}]) == f"golden 'g'{sentence}"


# --- policies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("golden", "meant"),
    [
        pytest.param({"forbid": ["delete_*"]}, Golden("g", forbid=("delete_*",), policy=True), id="forbids"),
        pytest.param({"max_calls": 0}, Golden("g", max_calls=0, policy=True), id="limits"),
        pytest.param({"policy": True}, Golden("g", policy=True), id="says so"),
        pytest.param({"tools": [], "forbid": ["a"]}, Golden("g", forbid=("a",)), id="expects that nothing is called"),
        pytest.param({"tools": [], "policy": False}, Golden("g"), id="says that it is none"),
    ],
)
def test_a_golden_without_tools_that_has_a_rule_is_a_policy(
    tmp_path: Path, golden: dict[str, Any], meant: Golden
) -> None:
    assert loaded(tmp_path, golden) == meant


MISSING = ": tools is missing; `tools: []` means that no tool may be called."


@pytest.mark.parametrize(
    ("golden", "sentence"),
    [
        pytest.param({}, MISSING, id="nothing at all"),
        pytest.param({"forbid": []}, MISSING, id="forbids nothing"),
        pytest.param({"policy": False, "forbid": ["a"]}, MISSING, id="is no policy"),
        pytest.param({"any_of": ["a"], "policy": True},
                     ": a policy expects no particular calls; keep 'any_of' or 'policy: true'.", id="alternatives"),
        pytest.param({"forbid": ["a"], "input": "Hi"},
                     ": a golden without 'tools' is a policy for all runs without another golden, and cannot have "
                     "'input'; use 'when' to select runs, or `tools: []` to expect no calls.", id="input"),
    ],
)  # fmt: skip
def test_a_golden_that_is_neither_a_policy_nor_an_expectation_is_refused(
    tmp_path: Path, golden: dict[str, Any], sentence: str
) -> None:
    assert complaint(tmp_path, [{"id": "g", **golden}]) == f"golden 'g'{sentence}"


def test_a_default_forbid_does_not_make_a_golden_a_policy(tmp_path: Path) -> None:
    file = {"defaults": {"forbid": ["delete_*"]}, "goldens": [{"id": "g"}]}
    assert complaint(tmp_path, file) == f"golden 'g'{MISSING}"


# --- components of other instrumentations -----------------------------------------------------------------------------

RETRIEVER = ComponentSelector("retriever", "vector*", {"db.system": "qdrant"})


def test_the_header_of_a_file_declares_which_spans_are_components(tmp_path: Path) -> None:
    declared: dict[str, Any] = {"retriever": {"span": "vector*", "attributes": {"db.system": "qdrant"}}}
    declared["ranker"] = {"span": "rank", "attributes": {"regex": "a name"}}
    one = written(tmp_path, {"components": declared, "goldens": [{"id": "g", "tools": []}]}, "one.json")
    two = written(tmp_path, {"components": {"retriever": declared["retriever"]}}, "two.json")
    assert load_goldens(one, two).components == (
        RETRIEVER,
        ComponentSelector("ranker", "rank", {"regex": "a name"}),
    )


def test_the_first_line_of_a_json_lines_file_can_declare_components(tmp_path: Path) -> None:
    path = tmp_path / "g.jsonl"
    path.write_text('{"components": {"a": {"span": "x"}}}\n{"id": "g", "tools": []}')
    assert load_goldens(path).components == (ComponentSelector("a", "x"),)


def test_two_files_cannot_declare_a_component_differently(tmp_path: Path) -> None:
    one = written(tmp_path, {"components": {"a": {"span": "x"}}, "goldens": [{"id": "g", "tools": []}]}, "one.json")
    two = written(tmp_path, {"components": {"a": {"span": "y"}}}, "two.json")
    with pytest.raises(GoldenError) as caught:
        load_goldens(one, two)
    assert str(caught.value) == f"{two}, component 'a': {one} declares it differently."


@pytest.mark.parametrize(
    ("components", "sentence"),
    [
        pytest.param({"a": {}}, "component 'a': is empty; state span, attributes or both.", id="no span"),
        pytest.param({"a": "x"}, "components.a: must be a mapping with 'span', 'attributes' or both, not 'x'.", id="x"),
        pytest.param({"a": {"spans": "x"}}, "components.a: unknown key 'spans'. Did you mean 'span'?", id="a slip"),
        pytest.param(
            {"a": {"attributes": {"k": {"regex": "x"}}}},
            "component 'a', attributes.k: must be a plain value, but 'regex' is a matcher.",
            id="a matcher",
        ),
        pytest.param({"": {"span": "x"}}, "components: the name of a component must be text, not ''.", id="no name"),
    ],
)
def test_an_invalid_component_declaration_is_refused_with_the_reason(
    tmp_path: Path, components: Any, sentence: str
) -> None:
    assert complaint(tmp_path, {"components": components, "goldens": [{"id": "g", "tools": []}]}) == sentence


@pytest.mark.parametrize(
    ("name", "attributes", "is_one"),
    [
        pytest.param("Vector search", {"db.system": "qdrant", "k": 3}, True, id="name and attribute"),
        pytest.param("vector search", {"db.system": "redis"}, False, id="another value"),
        pytest.param("vector search", {}, False, id="no such attribute"),
        pytest.param("search", {"db.system": "qdrant"}, False, id="another name"),
    ],
)
def test_a_component_selector_matches_a_span_when_its_name_and_all_attributes_match(
    name: str, attributes: dict[str, Any], is_one: bool
) -> None:
    assert RETRIEVER.matches(name, attributes) is is_one


def test_attribute_values_are_compared_by_value_and_booleans_are_not_numbers() -> None:
    assert is_same_value(1, 1.0)
    assert is_same_value(("a", 1), ["a", 1])
    assert not is_same_value(1, True)
    assert not is_same_value([1], [1, 2])
    assert not is_same_value("1", 1)


# --- what the conditions mean -----------------------------------------------------------------------------------------

RUN = Run(
    "t:s",
    agent="Support Bot",
    service="shop",
    span_name="POST /ask",
    input="I want a Refund for order 7",
    attributes={"tier": "gold", "n": 2, "flag": True, "tags": ("a", "b")},
)


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        pytest.param(When(agent="support*"), True, id="agent by a pattern, whatever its case"),
        pytest.param(When(agent="SUPPORT BOT"), True, id="agent by its name"),
        pytest.param(When(agent="support"), False, id="a part of the agent's name"),
        pytest.param(When(service="sh?p", span="post *"), True, id="service and span"),
        pytest.param(When(service="shop", span="get *"), False, id="one of two"),
        pytest.param(When(attributes={"tier": "gold", "n": 2.0, "tags": ["a", "b"]}), True, id="attributes"),
        pytest.param(When(attributes={"tier": "Gold"}), False, id="attributes are compared as they are"),
        pytest.param(When(attributes={"flag": 1}), False, id="a truth value is no number"),
        pytest.param(When(attributes={"region": Regex("")}), False, id="no such attribute"),
        pytest.param(When(attributes={"tier": Regex("ol")}), True, id="a pattern is searched for"),
        pytest.param(When(attributes={"n": Regex("2")}), False, id="a pattern is for texts"),
        pytest.param(When(attributes={"tags": Contains("b")}), True, id="an item of a list"),
        pytest.param(When(attributes={"tags": Contains(["b", "c"])}), False, id="items of a list"),
        pytest.param(When(attributes={"n": Contains("2")}), False, id="a number contains nothing"),
        pytest.param(When(attributes={"tier": OneOf(("silver", Folded("GOLD")))}), True, id="one of several"),
        pytest.param(When(attributes={"n": Similar("2")}), False, id="no text is like a number"),
        pytest.param(When(input="i want a  refund for ORDER 7"), True, id="the same text"),
        pytest.param(When(input="refund"), False, id="a part of the text"),
        pytest.param(When(input=Regex("(?i)refund")), True, id="a pattern somewhere in the text"),
        pytest.param(When(input=Regex("^refund")), False, id="a pattern at its beginning"),
        pytest.param(When(input=Contains("Refund")), True, id="a text in the text"),
        pytest.param(When(input=Contains(["Refund"])), False, id="a list in the text"),
        pytest.param(When(input=Equal("I want a refund for order 7")), False, id="equal to the letter"),
        pytest.param(When(input=Similar("I want a Refund for order 8", 0.95)), True, id="a similar text"),
        pytest.param(When(input=Similar("x" * 10_001, 0.0)), False, id="too long a text to be similar"),
    ],
)
def test_a_golden_matches_a_run_when_all_its_conditions_hold(when: When, holds: bool) -> None:
    match = Goldens([Golden("g", when=when)]).find(RUN)
    assert (match is not None and match.how == "when") is holds


@pytest.mark.parametrize(
    "when", [When(agent="*"), When(service="*"), When(span="*"), When(input=Regex("")), When(attributes={"a": None})]
)
def test_a_condition_on_a_field_that_the_run_does_not_have_does_not_hold(when: When) -> None:
    assert Goldens([Golden("g", when=when)]).find(Run("t:s")) is None


def test_a_regex_condition_does_not_match_a_text_above_the_maximum_length() -> None:
    goldens = Goldens([Golden("g", when=When(input=Regex("refund")))])
    assert goldens.find(Run("t:s", input="refund " * 10_000)) is not None
    assert goldens.find(Run("t:s", input="refund " * 20_000)) is None
