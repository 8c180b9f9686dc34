"""Checks how a convention is declared, so that a mistake is reported where it is made.

Every mistake is a `ConfigurationError` that names the convention, the field, the wrong value and, where a similar
word exists, the word that was probably meant. `Convention` applies the checks when it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import fields
from typing import Any, NoReturn, get_args

from goldspan.conventions.span_facts import Role
from goldspan.errors import ConfigurationError

ROLES: tuple[str, ...] = get_args(Role)
_MAX_VALUE_CHARS = 80

Check = Callable[[str, str, Any], None]
"""Takes the convention's name, the path of a field and its value; raises `ConfigurationError` for a wrong value."""


def reject_unknown_fields(owner: str, declared: type, given: Iterable[str]) -> None:
    """Raise `ConfigurationError` if one of the given keyword arguments is not a field of the dataclass."""
    known = [field.name for field in fields(declared)]
    for name in given:
        if name not in known:
            raise ConfigurationError(
                f"{owner} has no field {name!r}.{_suggestion(name, known)} The fields are: {', '.join(known)}."
            )


def check_fields(convention: str, path: str, declared: object, checks: Mapping[str, Check]) -> None:
    """Check the fields of a declaration, each with the check of its name."""
    for name, check in checks.items():
        check(convention, f"{path}.{name}" if path else name, getattr(declared, name))


def check_name(convention: str, path: str, value: Any) -> None:
    """Check a text that may not be empty."""
    if not isinstance(value, str) or not value:
        _reject(convention, path, value, "must be a text that is not empty.")


def check_text(convention: str, path: str, value: Any) -> None:
    """Check a text."""
    if not isinstance(value, str):
        _reject(convention, path, value, "must be a text.")


def check_optional_text(convention: str, path: str, value: Any) -> None:
    """Check a text that may be missing."""
    if value is not None:
        check_text(convention, path, value)


def check_flag(convention: str, path: str, value: Any) -> None:
    """Check a boolean."""
    if not isinstance(value, bool):
        _reject(convention, path, value, "must be True or False.")


def check_function(convention: str, path: str, value: Any) -> None:
    """Check a function."""
    if not callable(value):
        _reject(convention, path, value, "must be a function.")


def check_optional_function(convention: str, path: str, value: Any) -> None:
    """Check a function that may be missing."""
    if value is not None:
        check_function(convention, path, value)


def check_texts(convention: str, path: str, value: Any) -> None:
    """Check a tuple of texts. A bare text is a frequent mistake: `("a")` is a text, `("a",)` a tuple."""
    _check_tuple(convention, path, value, "texts", example=lambda text: f"({text!r},)")
    for index, item in enumerate(value):
        check_text(convention, f"{path}[{index}]", item)


def check_text_set(convention: str, path: str, value: Any) -> None:
    """Check a set of texts."""
    if not isinstance(value, Set):
        hint = f" Write frozenset({{{value!r}}})." if isinstance(value, str) else ""
        _reject(convention, path, value, f"must be a frozenset of texts.{hint}")
    for item in value:
        check_text(convention, path, item)


def check_text_mapping(convention: str, path: str, value: Any) -> None:
    """Check a mapping of texts to texts."""
    for key, item in _items(convention, path, value):
        check_text(convention, f"{path} key", key)
        check_text(convention, f"{path}[{key!r}]", item)


def check_role(convention: str, path: str, value: Any) -> None:
    """Check the name of a role."""
    if not isinstance(value, str) or value not in ROLES:
        raise ConfigurationError(
            f"convention {convention!r}: {path} is {_short(value)}, which is not a role."
            f"{_suggestion(value, ROLES)} The roles are: {', '.join(ROLES)}."
        )


def check_roles(convention: str, path: str, value: Any) -> None:
    """Check the table of roles: attribute, then value in lower case, then role."""
    for attribute, roles in _items(convention, path, value):
        check_text(convention, f"{path} key", attribute)
        inner = f"{path}[{attribute!r}]"
        for word, role in _items(convention, inner, roles):
            check_text(convention, f"{inner} key", word)
            if word != word.lower():
                _reject(convention, f"{inner} key", word, f"must be in lower case. Write {word.lower()!r}.")
            check_role(convention, f"{inner}[{word!r}]", role)


def check_name_templates(convention: str, path: str, value: Any) -> None:
    """Check the templates of span names by role. Each contains `{name}` once."""
    for role, templates in _items(convention, path, value):
        check_role(convention, f"{path} key", role)
        check_texts(convention, f"{path}[{role!r}]", templates)
        for template in templates:
            if template.count("{name}") != 1:
                _reject(convention, f"{path}[{role!r}]", template, "must contain {name} once.")


def message_sources(checks_by_class: Mapping[type, Mapping[str, Check]]) -> Check:
    """Return the check of a tuple of message sources, and of the fields of those whose class is listed."""

    def check_sources(convention: str, path: str, value: Any) -> None:
        _check_tuple(convention, path, value, "message sources", example=lambda text: f"(FromJson({text!r}),)")
        for index, source in enumerate(value):
            place = f"{path}[{index}]"
            if isinstance(source, type) or not callable(source):
                hint = f" Write FromJson({source!r})." if isinstance(source, str) else ""
                wanted = "must be a message source, such as FromJson, FromFlattened or FromEvents."
                _reject(convention, place, source, wanted + hint)
            check_fields(convention, place, source, checks_by_class.get(type(source), {}))

    return check_sources


def maps_by_role(check: Check) -> Check:
    """Return the check of a mapping of roles to values that `check` accepts."""

    def check_mapping(convention: str, path: str, value: Any) -> None:
        for role, item in _items(convention, path, value):
            check_role(convention, f"{path} key", role)
            check(convention, f"{path}[{role!r}]", item)

    return check_mapping


def instance_of(declared: type, checks: Mapping[str, Check]) -> Check:
    """Return the check of an instance of a dataclass and of its fields."""

    def check_instance(convention: str, path: str, value: Any) -> None:
        if not isinstance(value, declared):
            _reject(convention, path, value, f"must be an instance of {declared.__name__}.")
        check_fields(convention, path, value, checks)

    return check_instance


def _check_tuple(convention: str, path: str, value: Any, content: str, *, example: Callable[[str], str]) -> None:
    if not isinstance(value, tuple):
        hint = f" Write {example(value)}." if isinstance(value, str) else ""
        _reject(convention, path, value, f"must be a tuple of {content}.{hint}")


def _items(convention: str, path: str, value: Any) -> Iterable[tuple[Any, Any]]:
    if not isinstance(value, Mapping):
        _reject(convention, path, value, "must be a mapping.")
    return value.items()


def _reject(convention: str, path: str, value: Any, requirement: str) -> NoReturn:
    raise ConfigurationError(f"convention {convention!r}: {path} is {_short(value)}, but it {requirement}")


def _suggestion(word: object, known: Iterable[str]) -> str:
    """Return ` Did you mean 'agent'?`, or nothing if no known word is similar."""
    if not isinstance(word, str) or len(word) > _MAX_VALUE_CHARS:
        return ""
    from difflib import get_close_matches  # only mistakes need it, and every process would load it

    near = get_close_matches(word.lower(), list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _short(value: Any) -> str:
    try:
        shown = repr(value)
    except Exception:  # noqa: BLE001 - the repr of an object that another package defines
        shown = f"a {type(value).__name__}"
    return shown if len(shown) <= _MAX_VALUE_CHARS else f"{shown[: _MAX_VALUE_CHARS - 1]}…"
