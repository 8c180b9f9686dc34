"""any-agent: GenAI spans with specific names for model calls, arguments and results.

Model calls have the operation `call_llm`; the first one of a request holds the messages. Tool spans hold their
arguments in `gen_ai.tool.args`. Every span holds its result in `gen_ai.output`.
"""

from __future__ import annotations

from goldspan import semconv
from goldspan.conventions.convention import ANY, AttributeMap, Convention
from goldspan.conventions.span_facts import SpanFacts
from goldspan.model import SpanRecord

_ARGUMENTS = "gen_ai.tool.args"


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts | None:
    if facts.role == "tool" and facts.name == "final_output":
        facts.kind = "answer"
    return facts if facts.role is not None else None


CONVENTION = Convention(
    name="any_agent",
    title="any-agent",
    source="https://github.com/mozilla-ai/any-agent",
    versions="1",
    roles={_ARGUMENTS: {ANY: "tool"}},
    attributes_by_role={
        "tool": AttributeMap(name=(semconv.TOOL_NAME,), arguments=(_ARGUMENTS,), result=("gen_ai.output",)),
    },
    postprocess=_postprocess,
    notes=(
        "The GenAI convention reads model calls, whose operation is `call_llm`.",
        "The agent returns its answer with the tool `final_output`.",
    ),
)
