"""Maps the spans of each instrumentation family to one set of facts about tools, agents and models.

``span_facts``: defines the facts that a convention reads from a span.
``attribute_map``: defines where spans of one role keep their facts.
``convention``: defines a convention as data, and reads spans with it.
``declaration``: checks how a convention is declared.
``classification``: applies all conventions to a span and joins what they read.
``fallback``: reads spans of families that no convention knows, by the names of their attributes.

Each other module holds the convention of one family. `explicit_marks` holds goldspan's own attributes.

Specifications: `genai`, `early_genai`, `mcp`, `openinference`.
Frameworks: `ag2`, `any_agent`, `crewai`, `genkit`, `google_adk`, `haystack`, `langchain`, `livekit`, `llama_index`,
`mastra`, `openai_agents`, `pydantic_ai`, `spring_ai`, `strands`, `vercel`.
Programs: `coding_agents`, `copilot`.
Instrumentations and platforms: `agentops`, `anthropic_sdk`, `braintrust`, `confident`, `honeyhive`, `laminar`,
`langfuse`, `langsmith`, `langwatch`, `litellm`, `logfire`, `mlflow`, `openlit`, `splunk`, `traceai`, `traceloop`.

To add a family, write a module with a `CONVENTION` and add it to `BUILT_IN`, or offer the convention from another
package as an entry point of the group `goldspan.conventions`.

The first convention in the order that recognises a span decides its role; later ones add only the facts that are still
missing. Conventions from entry points come before the built-in ones.
"""

from __future__ import annotations

import warnings
from functools import cache, lru_cache
from importlib.metadata import EntryPoint, entry_points

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
from goldspan.errors import ConfigurationError, GoldspanWarning

__all__ = ["BUILT_IN", "Convention", "installed_conventions"]

ENTRY_POINT_GROUP = "goldspan.conventions"

BUILT_IN: tuple[Convention, ...] = (
    explicit_marks.COMPONENTS,
    explicit_marks.PLATFORM_SESSIONS,  # session ids that applications set on the spans of any framework
    litellm.CONVENTION,  # writes on spans of other instrumentations
    # Dialects of the GenAI conventions. They come before the standard, whose attributes they use in their own way.
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
"""In the order in which they are applied."""


@lru_cache(maxsize=16)
def installed_conventions(extra_attributes: tuple[str, ...] = ()) -> ConventionSet:
    """Return the conventions of goldspan and of the installed packages, as one set.

    A convention of a package that cannot be used is left out with one `GoldspanWarning`, which names the package and
    the entry point. A span that has one of the `extra_attributes` is never an unknown span.
    """
    return ConventionSet((*_from_entry_points(), *BUILT_IN), extra_attributes=extra_attributes)


@cache
def _from_entry_points() -> tuple[Convention, ...]:
    found: list[Convention] = []
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name):
        try:
            loaded = point.load()
        except ConfigurationError as error:
            _warn_ignored(point, str(error))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the code of another package
            _warn_ignored(point, f"loading it raises {type(error).__name__}: {error}")
        else:
            if isinstance(loaded, Convention):
                found.append(loaded)
            else:
                _warn_ignored(point, f"it is a {type(loaded).__name__}, not a {Convention.__name__}")
    return tuple(found)


def _warn_ignored(point: EntryPoint, reason: str) -> None:
    package = point.dist.name if point.dist is not None else "an unknown package"
    warnings.warn(
        f"{package}: the entry point {point.name!r} of {ENTRY_POINT_GROUP} is ignored: {reason}",
        GoldspanWarning,
        stacklevel=4,
    )
