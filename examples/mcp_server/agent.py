"""An agent that calls the tools of an MCP server, scored by goldspan: `python agent.py`."""

import asyncio
import sys
from pathlib import Path

from mcp import Client, StdioServerParameters
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import goldspan

FOLDER = Path(__file__).parent
ORDERS = StdioServerParameters(command=sys.executable, args=[str(FOLDER / "server.py")])
SCRIPT = {  # what a model decides
    "Where is order 8?": [("find_order", {"order_id": 8})],
    "I want my money back for order 7.": [("refund", {"order_id": 7})],
}


@goldspan.trace(kind="agent", name="support")
async def answer(question: str, orders: Client) -> str:
    text = ""
    for name, arguments in SCRIPT[question]:
        result = await orders.call_tool(name, arguments)
        text = result.content[0].text
    return text


def show(evaluation: goldspan.Evaluation) -> None:
    verdict = {True: "passed", False: "FAILED", None: "not evaluated"}[evaluation.passed]
    print(f"{evaluation.run.input}\n  {evaluation.run.output}\n  {verdict}: {evaluation.reason}")


async def main() -> None:
    async with Client(ORDERS) as orders:
        for question in SCRIPT:
            await answer(question, orders)


trace.set_tracer_provider(TracerProvider())  # in production, with an exporter
goldspan.instrument(FOLDER / "goldens.yaml", sinks=[show])  # in production, without `sinks`
asyncio.run(main())
