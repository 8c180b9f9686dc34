"""Where a setting was said, for errors and for whoever looks at the settings that hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was said."""

    kind: Literal["default", "file", "environment", "flag"]
    name: str = ""
    """The file, the variable or the flag."""

    def place(self, path: str) -> str:
        """How an error names the field at a path such as `limits.max_spans`."""
        return f"{self.name}, {path}" if self.kind == "file" else self.name or path

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".strip()


DEFAULT = Origin("default")
