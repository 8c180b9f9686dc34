"""Tools that the recorded programs share, and the log of their real calls. `truth.mjs` is the same for Node.js.

A program is told by the environment what to ask (`RECORDING_INPUTS`, a JSON list), where the model is
(`RECORDING_MODEL`) and where the truth goes (`RECORDING_TRUTH`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

INPUTS: list[str] = json.loads(os.environ["RECORDING_INPUTS"])
MODEL_URL = os.environ["RECORDING_MODEL"]
RECEIVER_URL = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]
MODEL = "scripted-model"

_requests: list[dict[str, Any]] = []
_failed_once: set[str] = set()


def answer_all(answer: Callable[[str], str]) -> None:
    """Answer each input in turn, and write the calls to the log."""
    for text in INPUTS:
        _requests.append({"input": text, "tools_used": []})
        _requests[-1]["output"] = answer(text)
    Path(os.environ["RECORDING_TRUTH"]).write_text(json.dumps({"requests": _requests}, indent=1) + "\n")


@contextmanager
def _recorded(name: str, arguments: dict[str, Any]) -> Iterator[None]:
    call: dict[str, Any] = {"name": name, "args": arguments, "error": None}
    _requests[-1]["tools_used"].append(call)
    try:
        yield
    except Exception as error:
        call["error"] = str(error)
        raise


def _tool(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def called(**arguments: Any) -> Any:
        with _recorded(function.__name__, arguments):
            return function(**arguments)

    return called


@_tool
def get_weather(city: str) -> dict[str, Any]:
    """The weather in a city."""
    return {"city": city, "celsius": {"Kyoto": 21, "Osaka": 23}[city]}


@_tool
def look_up_order(order_id: str) -> dict[str, Any]:
    """The status of an order. The first question about an order fails."""
    if order_id not in _failed_once:
        _failed_once.add(order_id)
        raise TimeoutError("the order service did not answer")
    return {"order_id": order_id, "status": "shipped"}


TOOLS: dict[str, Callable[..., Any]] = {"get_weather": get_weather, "look_up_order": look_up_order}
