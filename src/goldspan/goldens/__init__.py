"""Goldens: reads the expected tool calls of requests from files and finds the golden of a run.

``golden_files``: reads, reloads and writes golden files.
``schema``: models of the keys of a golden file, and the parser that makes goldens of them.
``lookup``: finds the golden of a run.
``tool_names``: combines declared tools to one vocabulary; matches the names of expected and called tools.
``text_matching``: conditions of `when`; text normalization and bounded regular expressions.
``golden_table``: the table of goldens that notebooks display.
``spelling``: wording of error messages and suggestions for misspelled words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from goldspan.goldens.lookup.golden_lookup import Goldens

if TYPE_CHECKING:
    from goldspan.goldens.golden_files.golden_loader import load_goldens

__all__ = ["Goldens", "load_goldens"]


def __getattr__(name: str) -> Any:
    # Reading files imports pydantic. Scoring with goldens made in code must not pay for that import.
    if name == "load_goldens":
        from goldspan.goldens.golden_files.golden_loader import load_goldens

        return load_goldens
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
