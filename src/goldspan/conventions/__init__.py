"""The conventions goldspan reads, one module a family.

To add one, write a module with a `CONVENTION` and put it into `BUILT_IN`; a package of your own offers one as an entry
point of the group `goldspan.conventions`. The order is the order of trust: the first convention that knows a span's
role decides it, later ones only fill in what it left open. Conventions from entry points come first: whoever installs
one knows better.
"""

from __future__ import annotations

import warnings
from functools import cache, lru_cache
from importlib.metadata import entry_points

from goldspan.conventions import (
    ag2,
    agentops,
    anthropic_sdk,
    any_agent,
    braintrust,
    coding_agents,
    confident,
    copilot,
    crewai,
    early_genai,
    explicit_marks,
    genai,
    genkit,
    google_adk,
    haystack,
    honeyhive,
    laminar,
    langchain,
    langfuse,
    langsmith,
    langwatch,
    litellm,
    livekit,
    llama_index,
    logfire,
    mastra,
    mcp,
    mlflow,
    openai_agents,
    openinference,
    openlit,
    pydantic_ai,
    splunk,
    spring_ai,
    strands,
    traceai,
    traceloop,
    vercel,
)
from goldspan.conventions.classification import ConventionSet
from goldspan.conventions.convention import Convention
from goldspan.errors import GoldspanWarning

__all__ = ["BUILT_IN", "Convention", "installed_conventions"]

ENTRY_POINT_GROUP = "goldspan.conventions"

BUILT_IN: tuple[Convention, ...] = (
    explicit_marks.COMPONENTS,
    explicit_marks.PLATFORM_SESSIONS,  # of people, on the spans of whatever framework
    litellm.CONVENTION,  # writes on the spans of others
    # Dialects of the GenAI conventions, which know better than the standard what they mean by its attributes.
    traceloop.CONVENTION,
    agentops.CONVENTION,
    langsmith.CONVENTION,
    vercel.CONVENTION,
    spring_ai.CONVENTION,
    strands.CONVENTION,
    crewai.CONVENTION,
    ag2.CONVENTION,
    livekit.CONVENTION,
    *coding_agents.CONVENTIONS,
    copilot.CONVENTION,
    pydantic_ai.CONVENTION,
    google_adk.CONVENTION,
    openai_agents.CONVENTION,
    mastra.CONVENTION,
    anthropic_sdk.CONVENTION,
    openlit.CONVENTION,
    splunk.CONVENTION,
    mlflow.GENAI_CONVENTION,
    genai.CONVENTION,
    mcp.CONVENTION,
    traceai.CONVENTION,
    openinference.CONVENTION,
    any_agent.CONVENTION,
    langchain.CONVENTION,
    langfuse.CONVENTION,
    langwatch.CONVENTION,
    logfire.CONVENTION,
    mlflow.CONVENTION,
    llama_index.CONVENTION,
    confident.CONVENTION,
    laminar.CONVENTION,
    braintrust.CONVENTION,
    honeyhive.CONVENTION,
    haystack.CONVENTION,
    genkit.CONVENTION,
    early_genai.CONVENTION,
)
"""Most trusted first."""


@lru_cache(maxsize=16)
def installed_conventions(extra_attributes: tuple[str, ...] = ()) -> ConventionSet:
    """The conventions of goldspan and of the packages that are installed beside it.

    One that cannot be loaded gives a `GoldspanWarning` and is left out. `noted` are attributes that make a span count
    as known.
    """
    return ConventionSet((*_from_entry_points(), *BUILT_IN), noted=extra_attributes)


@cache
def _from_entry_points() -> tuple[Convention, ...]:
    found: list[Convention] = []
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name):
        try:
            loaded = point.load()
        except Exception as error:  # noqa: BLE001 - it is not our code
            _warn(f"the convention {point.name!r} cannot be loaded: {error}")
            continue
        if isinstance(loaded, Convention):
            found.append(loaded)
        else:
            _warn(f"the entry point {point.name!r} of {ENTRY_POINT_GROUP} is no goldspan Convention, but {loaded!r}")
    return tuple(found)


def _warn(message: str) -> None:
    warnings.warn(message, GoldspanWarning, stacklevel=4)
