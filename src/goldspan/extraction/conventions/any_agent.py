"""any-agent: GenAI spans with names of its own for model calls, arguments and results.

Model calls have the operation `call_llm`; the first one of a request holds the messages. Tools carry their arguments
in `gen_ai.tool.args`, and every span its result in `gen_ai.output`.
"""

from __future__ import annotations

from goldspan import semconv
from goldspan.extraction.convention import ANY, Convention, Places
from goldspan.extraction.reading import Reading
from goldspan.model import SpanRecord

_ARGUMENTS = "gen_ai.tool.args"


def _refine(span: SpanRecord, reading: Reading) -> Reading | None:
    if reading.role == "tool" and reading.name == "final_output":
        reading.kind = "answer"
    return reading if reading.role is not None else None


CONVENTION = Convention(
    name="any_agent",
    title="any-agent",
    source="https://github.com/mozilla-ai/any-agent",
    versions="1",
    roles={_ARGUMENTS: {ANY: "tool"}},
    of={
        "tool": Places(name=(semconv.TOOL_NAME,), arguments=(_ARGUMENTS,), result=("gen_ai.output",)),
    },
    refine=_refine,
    notes=(
        "Model calls, whose operation is `call_llm`, are read by the standard.",
        "The tool `final_output` is how the agent hands in its answer.",
    ),
)
