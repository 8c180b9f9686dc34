"""Which values are certainly alike, without laying one beside the other."""

from __future__ import annotations

import marshal
from collections.abc import Hashable
from typing import Any

from goldspan.model import ABSENT, ExpectedTool

_PLAIN = 2  # the last format without references, which would tell apart what only sits elsewhere in memory


def content(value: Any) -> Hashable:
    """What two values have in common that agree with the same things; others may differ and be equal all the same.

    A value that holds more than plain data, such as a matcher, has this in common with itself only.
    """
    if value is None or isinstance(value, str):
        return value
    try:
        # Unlike JSON it tells 1, 1.0 and True apart, and unlike a hash it takes dictionaries.
        return marshal.dumps(value, _PLAIN)
    except ValueError:
        return id(value)


def tool_content(tool: ExpectedTool) -> Hashable:
    """What two expected tools have in common that the same calls answer equally well."""
    if tool.arguments is None and tool.result is ABSENT:
        return tool.name, tool.server
    judged = tool.arguments, tool.result, tool.defaults
    return tool.name, tool.server, tool.match, tool.ignore, *map(content, judged)


def is_plain(tool: ExpectedTool) -> bool:
    """Whether a tool states only plain data, which is quickly compared, and no matcher."""
    return all(not isinstance(content(stated), int) for stated in (tool.arguments, tool.result) if stated is not ABSENT)
