"""What a function was called with, by parameter name: worked out once a function, cheap at every call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

Arguments = dict[str, Any]
"""The arguments of one call by parameter name, as they were passed: defaults that were not passed are not in it."""

_MESSAGES = "messages"
_RECEIVERS = frozenset({"self", "cls", "mcs", "metacls"})


class Binder:
    """Names the arguments of calls of one function, without the receiver of a method.

    Nothing is checked: the function itself says what is wrong with a call.
    """

    __slots__ = ("_names", "_positional", "_rest", "_skip")

    def __init__(self, function: Callable[..., Any], *, static: bool = False) -> None:
        parameters = _parameters(function)
        self._positional = tuple(
            name
            for name, parameter in parameters.items()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        )
        self._rest = next(
            (name for name, parameter in parameters.items() if parameter.kind is parameter.VAR_POSITIONAL), None
        )
        self._skip = 1 if not static and _takes_receiver(function, self._positional) else 0
        self._positional = self._positional[self._skip :]
        self._names = tuple(parameters)[self._skip :]

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
        """The arguments by name; those beyond the named ones under the name of `*args`, `**kwargs` among the rest."""
        if self._skip:
            args = args[1:]
        if self._rest is None or len(args) <= len(self._positional):
            return {**dict(zip(self._positional, args)), **kwargs}  # noqa: B905 - a wrong call is not ours to report
        named = len(self._positional)
        return {**dict(zip(self._positional, args[:named], strict=True)), self._rest: list(args[named:]), **kwargs}

    def question(self, arguments: Arguments) -> str | None:
        """The name of the argument that somebody asked with: `messages`, else the first that is text, as declared."""
        if arguments.get(_MESSAGES) and isinstance(arguments[_MESSAGES], (list, tuple)):
            return _MESSAGES
        for name in (*self._names, *arguments):
            if isinstance(arguments.get(name), str):
                return name
        return None


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # some builtins have none
        return {}


def _takes_receiver(function: Callable[..., Any], positional: tuple[str, ...]) -> bool:
    """Whether the first parameter is the `self` or `cls` of a function written in a class body.

    At the time of decoration a method is still a plain function, so its written place and the name must tell.
    """
    if not positional or positional[0] not in _RECEIVERS:
        return False
    inside, _, _ = getattr(function, "__qualname__", "").rpartition(".")
    return bool(inside) and not inside.endswith("<locals>")
