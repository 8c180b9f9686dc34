"""An agent that runs in a worker of Celery, scored by goldspan: `python tasks.py`."""

from pathlib import Path

from celery import Celery
from celery.contrib.testing.worker import start_worker
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import goldspan

app = Celery("support", broker="memory://", backend="cache+memory://")  # in production: your broker


@goldspan.trace
def find_order(order_id: int) -> str:
    return "delivered"


@goldspan.trace
def refund(order_id: int) -> str:
    return "refunded"


@app.task
@goldspan.trace(kind="agent", name="support")
def answer(question: str) -> str:
    if "money back" in question:
        return f"Order 7 was {refund(7)}."
    return f"Order 8 was {find_order(8)}."


def show(evaluation: goldspan.Evaluation) -> None:
    verdict = {True: "passed", False: "FAILED", None: "not evaluated"}[evaluation.passed]
    print(f"{evaluation.run.input}\n  {evaluation.run.output}\n  {verdict}: {evaluation.reason}")


trace.set_tracer_provider(TracerProvider())  # in production, with an exporter
goldspan.instrument(Path(__file__).with_name("goldens.yaml"), sinks=[show])  # in production, without `sinks`

if __name__ == "__main__":  # instead of: celery -A tasks worker
    with start_worker(app, pool="solo", perform_ping_check=False):
        for question in ("Where is order 8?", "I want my money back for order 7."):
            answer.delay(question).get(timeout=30)
