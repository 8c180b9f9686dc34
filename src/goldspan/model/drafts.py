"""Frozen values made quickly, where thousands are made."""

from __future__ import annotations

from dataclasses import field, fields, make_dataclass
from typing import Any, TypeVar

T = TypeVar("T")


def drafted(frozen: type[T]) -> type[T]:
    """A class that makes the values of a frozen, slotted dataclass in half the time.

    A frozen value is filled by way of `object.__setattr__`, one field after the other. A draft has the same slots, is
    filled like any other object, and becomes a value of the frozen class as soon as it is complete.
    """
    settle = getattr(frozen, "__post_init__", None)

    def freeze(draft: Any) -> None:
        draft.__class__ = frozen
        if settle is not None:
            settle(draft)

    described: Any = frozen
    copied = [
        (each.name, each.type, field(default=each.default, default_factory=each.default_factory))
        for each in fields(described)
    ]
    return make_dataclass(frozen.__name__, copied, namespace={"__post_init__": freeze}, slots=True, eq=False)
