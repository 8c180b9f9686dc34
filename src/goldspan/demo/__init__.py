"""A small travel agent with traced tools, and requests that it serves correctly or incorrectly.

`agent`: the tools, the scripted agent and its requests.
"""

from __future__ import annotations

from goldspan.demo.agent import REQUESTS, answer_request

__all__ = ["REQUESTS", "answer_request"]
