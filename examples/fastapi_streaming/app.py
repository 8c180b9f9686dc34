"""A FastAPI application that streams an agent's answers, scored by goldspan: `python app.py`."""

import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import goldspan


@goldspan.trace
async def find_order(order_id: int) -> str:
    return "delivered"


@goldspan.trace
async def refund(order_id: int) -> str:
    return "refunded"


@goldspan.trace(kind="agent", name="support")
async def answer(question: str) -> AsyncIterator[str]:
    """Stream the answer, as a model that has been told to call tools."""
    if "money back" in question:
        yield "One moment. "
        yield f"Order 7 was {await refund(7)}."
    else:
        yield "Order 8 was "
        yield await find_order(8)
        yield "."


def show(evaluation: goldspan.Evaluation) -> None:
    verdict = {True: "passed", False: "FAILED", None: "not evaluated"}[evaluation.passed]
    print(f"{evaluation.run.input}\n  {verdict}: {evaluation.reason}")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    trace.set_tracer_provider(TracerProvider())  # in production, with an exporter
    running = goldspan.instrument(Path(__file__).with_name("goldens.yaml"), sinks=[show])  # and without `sinks`
    yield
    running.shutdown()


app = FastAPI(lifespan=lifespan)


@app.get("/chat")
async def chat(question: str) -> StreamingResponse:
    return StreamingResponse(answer(question), media_type="text/plain")


if __name__ == "__main__":  # instead of: uvicorn app:app
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    for question in ("Where is order 8?", "I want my money back for order 7."):
        with urlopen(f"http://127.0.0.1:{port}/chat?question={quote(question)}") as response:
            print(f"  {response.read().decode()}")
    server.should_exit = True
    thread.join()
