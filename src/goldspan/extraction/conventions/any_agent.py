"""any-agent: GenAI spans with names of its own for model calls, arguments and results.

Model calls have the operation `call_llm`; the first one of a request holds the messages. Tools carry their arguments
in `gen_ai.tool.args`, and every span its result in `gen_ai.output`.
"""

from __future__ import annotations

from functools import partial

from goldspan import semconv
from goldspan.extraction import messages
from goldspan.extraction.reading import Reading
from goldspan.model import ABSENT, SpanRecord

_ARGUMENTS = "gen_ai.tool.args"
_OUTPUT = "gen_ai.output"


def read(span: SpanRecord) -> Reading | None:
    """Read a span that carries any-agent's own keys; the rest follows the GenAI conventions."""
    attributes = span.attributes
    if attributes.get(semconv.OPERATION) == "call_llm":
        return Reading(role="model", asked=partial(messages.from_json, attributes.get(semconv.INPUT_MESSAGES)))
    if _ARGUMENTS in attributes:
        return Reading(role="tool", arguments=attributes[_ARGUMENTS], result=attributes.get(_OUTPUT, ABSENT))
    return None
