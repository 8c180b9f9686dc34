"""The names that the OpenInference specification gives to attributes, as far as several modules here need them."""

from __future__ import annotations

KIND = "openinference.span.kind"
INPUT = "input.value"
OUTPUT = "output.value"
TOOL_NAME = "tool.name"
TOOL_PARAMETERS = "tool.parameters"
TOOL_SCHEMA = "tool.json_schema"
METADATA = "metadata"
"""JSON text with whatever the framework and its user want to say of a span."""
REDACTED = "__REDACTED__"
"""Written in place of a value that the instrumentation was told to hide."""
