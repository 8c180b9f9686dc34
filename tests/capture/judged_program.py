"""A judged program that ends without a shutdown: `judged_program.py URL FILE SECONDS`."""

from __future__ import annotations

import sys

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import set_tracer_provider

import goldspan
from goldspan.judge import Judge, ModelEndpoint
from goldspan.sinks import JsonLinesSink

url, path, drain = sys.argv[1:]
provider = TracerProvider()
judge = Judge(ModelEndpoint("tiny", base_url=url), drain_timeout=float(drain))
provider.add_span_processor(goldspan.ScoringProcessor(sinks=[JsonLinesSink(path)], judge=judge))
set_tracer_provider(provider)


@goldspan.trace(kind="agent")
def agent(question: str) -> None:
    """Answer nothing."""
    goldspan.update_current_span(available_tools=["search"])


agent("find it")
