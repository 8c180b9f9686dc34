"""A small travel agent with decorated tools, some requests that it serves rightly and some that it serves wrongly."""

from __future__ import annotations

from goldspan.demo.agent import REQUESTS, answer_request

__all__ = ["REQUESTS", "answer_request"]
