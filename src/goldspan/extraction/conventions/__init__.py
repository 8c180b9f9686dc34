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

from goldspan.errors import GoldspanWarning
from goldspan.extraction.convention import Convention
from goldspan.extraction.conventions import (
    ag2,
    agentops,
    anthropic_sdk,
    any_agent,
    braintrust,
    coding_agents,
    components,
    confident,
    copilot,
    crewai,
    early_genai,
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
    sessions,
    splunk,
    spring_ai,
    strands,
    traceai,
    traceloop,
    vercel,
)
from goldspan.extraction.recognition import Conventions

__all__ = ["BUILT_IN", "Convention", "installed"]

GROUP = "goldspan.conventions"

BUILT_IN: tuple[Convention, ...] = (
    components.CONVENTION,
    sessions.CONVENTION,  # of people, on the spans of whatever framework
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
    mlflow.GENAI,
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
def installed(noted: tuple[str, ...] = ()) -> Conventions:
    """The conventions of goldspan and of the packages that are installed beside it.

    One that cannot be loaded gives a `GoldspanWarning` and is left out. `noted` are attributes that make a span count
    as known.
    """
    return Conventions((*_of_packages(), *BUILT_IN), noted=noted)


@cache
def _of_packages() -> tuple[Convention, ...]:
    found: list[Convention] = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            loaded = point.load()
        except Exception as error:  # noqa: BLE001 - it is not our code
            _warn(f"the convention {point.name!r} cannot be loaded: {error}")
            continue
        if isinstance(loaded, Convention):
            found.append(loaded)
        else:
            _warn(f"the entry point {point.name!r} of {GROUP} is no goldspan Convention, but {loaded!r}")
    return tuple(found)


def _warn(what: str) -> None:
    warnings.warn(what, GoldspanWarning, stacklevel=4)
