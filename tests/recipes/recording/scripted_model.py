"""Serves a model over HTTP that answers from a script: OpenAI's chat completions, Gemini's generateContent."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "scripted-model"
_USAGE = {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30}
_GEMINI_USAGE = {"promptTokenCount": 20, "candidatesTokenCount": 10, "totalTokenCount": 30}

Turn = Mapping[str, Any]
"""One answer of the model: `calls`, which are pairs of a name and arguments, or `text`."""


def turns_of(requests: Iterable[Mapping[str, Any]], form: str | None = None) -> Iterator[Turn]:
    """Yield the answers of the model in a scenario. With a form, each answer is a call of the tool of that name."""
    for request in requests:
        for turn in (*request["turns"], {"text": request["output"]}):
            yield turn if form is None else {"calls": [[form, _filled_in(turn)]]}


def _filled_in(turn: Turn) -> Mapping[str, Any]:
    calls = [{"name": name, "arguments": arguments} for name, arguments in turn.get("calls", ())]
    return {"calls": calls, "answer": turn.get("text")}


@contextmanager
def scripted_model(turns: Iterable[Turn]) -> Iterator[tuple[str, list[Turn]]]:
    """Serve a model that answers one turn after the other; yield its address and the remaining turns."""
    left = list(turns)
    said = 0

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            nonlocal said
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not left:
                return self._send(500, "application/json", '{"error": {"message": "the script is at its end"}}')
            said += 1
            turn = left.pop(0)
            if "generateContent" in self.path:
                return self._send(200, "application/json", json.dumps(_gemini(turn)))
            if body.get("stream"):
                return self._send(200, "text/event-stream", "".join(_openai_stream(turn, said)))
            return self._send(200, "application/json", json.dumps(_openai(turn, said)))

        def _send(self, status: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", left
    finally:
        server.shutdown()
        server.server_close()


def _gemini(turn: Turn) -> Mapping[str, Any]:
    parts: list[Mapping[str, Any]] = [
        {"functionCall": {"name": name, "args": arguments}} for name, arguments in turn.get("calls", ())
    ]
    content = {"role": "model", "parts": parts or [{"text": turn["text"]}]}
    candidate = {"content": content, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "usageMetadata": _GEMINI_USAGE, "modelVersion": MODEL, "responseId": "response"}


def _tool_calls(turn: Turn, said: int) -> list[dict[str, Any]]:
    return [
        {
            "id": f"call_{said}_{index}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for index, (name, arguments) in enumerate(turn.get("calls", ()))
    ]


def _openai(turn: Turn, said: int) -> Mapping[str, Any]:
    calls = _tool_calls(turn, said)
    message = {"role": "assistant", "content": turn.get("text"), **({"tool_calls": calls} if calls else {})}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return {**_envelope("chat.completion", said), "choices": [choice], "usage": _USAGE}


def _openai_stream(turn: Turn, said: int) -> Iterator[str]:
    calls = [{"index": index, **call} for index, call in enumerate(_tool_calls(turn, said))]
    delta = {"role": "assistant", "content": turn.get("text"), **({"tool_calls": calls} if calls else {})}
    for choice in (
        {"index": 0, "delta": delta, "finish_reason": None},
        {"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"},
    ):
        yield f"data: {json.dumps({**_envelope('chat.completion.chunk', said), 'choices': [choice]})}\n\n"
    yield f"data: {json.dumps({**_envelope('chat.completion.chunk', said), 'choices': [], 'usage': _USAGE})}\n\n"
    yield "data: [DONE]\n\n"


def _envelope(kind: str, said: int) -> dict[str, Any]:
    return {"id": f"completion-{said}", "object": kind, "created": 1, "model": MODEL}
