"""An invalid declaration of a convention raises immediately."""

from __future__ import annotations

import copy
import pickle
from dataclasses import fields, replace
from typing import Any

import pytest

import goldspan
from goldspan.conventions import BUILT_IN
from goldspan.conventions.attribute_map import ATTRIBUTE_MAP_CHECKS
from goldspan.conventions.convention import (
    _CHECKS,
    ANY,
    AttributeMap,
    Convention,
    FromEvents,
    FromFlattened,
    FromJson,
    MessageSource,
)
from goldspan.model import SpanRecord

UNTYPED_MAP: Any = AttributeMap
UNTYPED_EVENTS: Any = FromEvents
UNTYPED_JSON: Any = FromJson
UNTYPED_FLATTENED: Any = FromFlattened
ROLES = "The roles are: tool, agent, entry, model, component, aside."


def declare(**values: Any) -> Convention:
    return Convention(**{"name": "acme", "title": "Acme", "source": "acme.example", "versions": "1", **values})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"roles": {"acme.step": {"turn": "agnet"}}},
            f"roles['acme.step']['turn'] is 'agnet', which is not a role. Did you mean 'agent'? {ROLES}",
        ),
        (
            {"roles": {"acme.step": {"turn": "llm"}}},
            f"roles['acme.step']['turn'] is 'llm', which is not a role. {ROLES}",
        ),
        (
            {"roles": {"acme.step": {"turn": ["tool"]}}},
            f"roles['acme.step']['turn'] is ['tool'], which is not a role. {ROLES}",
        ),
        (
            {"roles": {"acme.step": {"turn": None}}},
            f"roles['acme.step']['turn'] is None, which is not a role. {ROLES}",
        ),
        (
            {"roles": {"acme.step": {"TURN": "agent"}}},
            "roles['acme.step'] key is 'TURN', but it must be in lower case. Write 'turn'.",
        ),
        ({"roles": {"acme.step": {1: "agent"}}}, "roles['acme.step'] key is 1, but it must be a text."),
        ({"roles": {"acme.step": "agent"}}, "roles['acme.step'] is 'agent', but it must be a mapping."),
        ({"roles": {7: {"turn": "agent"}}}, "roles key is 7, but it must be a text."),
        ({"roles": ("acme.step",)}, "roles is ('acme.step',), but it must be a mapping."),
        (
            {"attributes_by_role": {"tol": AttributeMap()}},
            f"attributes_by_role key is 'tol', which is not a role. Did you mean 'tool'? {ROLES}",
        ),
        (
            {"attributes_by_role": {"tool": {"name": "x"}}},
            "attributes_by_role['tool'] is {'name': 'x'}, but it must be an instance of AttributeMap.",
        ),
        (
            {"common_attributes": None},
            "common_attributes is None, but it must be an instance of AttributeMap.",
        ),
        (
            {"common_attributes": UNTYPED_MAP(name="acme.tool")},
            "common_attributes.name is 'acme.tool', but it must be a tuple of texts. Write ('acme.tool',).",
        ),
        (
            {"common_attributes": UNTYPED_MAP(name=["acme.tool"])},
            "common_attributes.name is ['acme.tool'], but it must be a tuple of texts.",
        ),
        (
            {"common_attributes": UNTYPED_MAP(name=(b"acme",))},
            "common_attributes.name[0] is b'acme', but it must be a text.",
        ),
        (
            {"attributes_by_role": {"agent": UNTYPED_MAP(input_messages=("acme.question",))}},
            (
                "attributes_by_role['agent'].input_messages[0] is 'acme.question', but it must be a message source, "
                "such as FromJson, FromFlattened or FromEvents. Write FromJson('acme.question')."
            ),
        ),
        (
            {"attributes_by_role": {"agent": UNTYPED_MAP(output_messages="acme.reply")}},
            (
                "attributes_by_role['agent'].output_messages is 'acme.reply', but it must be a tuple of message "
                "sources. Write (FromJson('acme.reply'),)."
            ),
        ),
        (
            {"common_attributes": UNTYPED_MAP(input_messages=FromJson("x"))},
            "common_attributes.input_messages is FromJson(attribute='x'), but it must be a tuple of message sources.",
        ),
        (
            {"common_attributes": UNTYPED_MAP(input_messages=(7,))},
            (
                "common_attributes.input_messages[0] is 7, but it must be a message source, such as FromJson, "
                "FromFlattened or FromEvents."
            ),
        ),
        (
            {"common_attributes": AttributeMap(input_messages=(UNTYPED_EVENTS("acme.said"),))},
            (
                "common_attributes.input_messages[0].event_names is 'acme.said', but it must be a tuple of "
                "texts. Write ('acme.said',)."
            ),
        ),
        (
            {"common_attributes": AttributeMap(input_messages=(UNTYPED_JSON(None),))},
            "common_attributes.input_messages[0].attribute is None, but it must be a text.",
        ),
        (
            {"common_attributes": AttributeMap(input_messages=(UNTYPED_FLATTENED("x", 1),))},
            "common_attributes.input_messages[0].message_key is 1, but it must be a text.",
        ),
        (
            {"marker_attributes": "acme.step"},
            "marker_attributes is 'acme.step', but it must be a tuple of texts. Write ('acme.step',).",
        ),
        (
            {"bare_span_scopes": "acme"},
            "bare_span_scopes is 'acme', but it must be a frozenset of texts. Write frozenset({'acme'}).",
        ),
        (
            {"scopes_with_span_per_call": ["acme"]},
            "scopes_with_span_per_call is ['acme'], but it must be a frozenset of texts.",
        ),
        ({"scopes_with_span_per_call": {1}}, "scopes_with_span_per_call is 1, but it must be a text."),
        (
            {"span_name_templates": {"tool": ("tool",)}},
            "span_name_templates['tool'] is 'tool', but it must contain {name} once.",
        ),
        (
            {"span_name_templates": {"tool": "tool {name}"}},
            "span_name_templates['tool'] is 'tool {name}', but it must be a tuple of texts. Write ('tool {name}',).",
        ),
        (
            {"span_name_templates": {"tools": ("{name}",)}},
            f"span_name_templates key is 'tools', which is not a role. Did you mean 'tool'? {ROLES}",
        ),
        ({"unwrap_result": None}, "unwrap_result is None, but it must be a function."),
        ({"postprocess": "later"}, "postprocess is 'later', but it must be a function."),
        ({"capture_setting": True}, "capture_setting is True, but it must be a text."),
        (
            {"capture_settings_by_scope": {"acme": 1}},
            "capture_settings_by_scope['acme'] is 1, but it must be a text.",
        ),
        ({"is_shared": "no"}, "is_shared is 'no', but it must be True or False."),
        ({"title": "x", "versions": 2}, "versions is 2, but it must be a text."),
    ],
)
def test_an_invalid_value_raises_with_the_field_and_the_expected_type(values: dict[str, Any], message: str) -> None:
    with pytest.raises(goldspan.ConfigurationError) as refused:
        declare(**values)
    assert str(refused.value) == f"convention 'acme': {message}"


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_convention_requires_a_name(name: object) -> None:
    with pytest.raises(goldspan.ConfigurationError, match=r"name is .*, but it must be a text that is not empty\."):
        declare(name=name)


def test_an_unknown_convention_field_raises_and_suggests_the_nearest_one() -> None:
    with pytest.raises(goldspan.ConfigurationError) as refused:
        declare(marker_attribute=("acme.step",))
    assert str(refused.value).startswith(
        "convention 'acme': Convention has no field 'marker_attribute'. Did you mean 'marker_attributes'? The fields "
        "are: name, title, source, versions, roles, "
    )


def test_an_unknown_attribute_map_field_raises_and_suggests_the_nearest_one() -> None:
    with pytest.raises(goldspan.ConfigurationError) as refused:
        UNTYPED_MAP(argumets=("acme.given",))
    assert str(refused.value).startswith(
        "AttributeMap has no field 'argumets'. Did you mean 'arguments'? The fields are: name, call_id, "
    )


def test_an_error_message_shortens_long_values_and_replaces_a_failing_repr_by_the_type() -> None:
    class Silent:
        def __repr__(self) -> str:
            raise RuntimeError

    for value, shown in (("x" * 1000, "'" + "x" * 78 + "…"), (Silent(), "a Silent")):
        with pytest.raises(goldspan.ConfigurationError) as refused:
            declare(notes=value)
        assert f"notes is {shown}, but it must be a tuple of texts." in str(refused.value)


def test_every_field_is_checked() -> None:
    assert _CHECKS.keys() == {field.name for field in fields(Convention)}
    assert ATTRIBUTE_MAP_CHECKS.keys() == {field.name for field in fields(AttributeMap)}


def test_functions_and_custom_objects_may_be_message_sources() -> None:
    def nothing(span: SpanRecord) -> tuple[()]:
        return ()

    source: MessageSource = nothing
    convention = declare(
        roles={"acme.step": {"tool": "tool", ANY: "model"}},
        common_attributes=AttributeMap(input_messages=(source, FromEvents(("acme.said",)), FromFlattened("acme"))),
        bare_span_scopes={"acme"},
    )
    assert convention.common_attributes.input_messages[0] is source


def test_conventions_can_be_copied_and_changed() -> None:
    for convention in BUILT_IN:
        assert copy.copy(convention) == convention
        assert replace(convention, notes=()).name == convention.name
    attributes = AttributeMap(name=("x",))
    assert copy.deepcopy(attributes) == pickle.loads(pickle.dumps(attributes)) == attributes
