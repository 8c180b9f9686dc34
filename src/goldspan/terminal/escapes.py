"""Escapes the control characters in text from traces, for everything that writes to a terminal."""

from __future__ import annotations


def escape_control_characters(text: str) -> str:
    """Escape control and bidirectional characters in text from traces, so that a terminal shows them."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character == "\n" else f"\\x{ord(character):02x}" for character in text
    )
