"""LangChain run metadata on MLflow and Langfuse spans, as LangChain 1.4 and LangGraph 1.2 write it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from goldspan.conventions import installed_conventions
from goldspan.model import SpanRecord
from support.span_builders import span

read = installed_conventions().classify
AGENT = {"ls_integration": "langchain_create_agent", "lc_agent_name": "travel", "thread_id": "t1"}
IN_A_NODE = {"langgraph_node": "tools"}


def of_mlflow(name: str, metadata: dict[str, Any]) -> SpanRecord:
    return span(name, metadata=json.dumps(metadata), mlflow__spanType='"CHAIN"')


def of_langfuse(name: str, metadata: dict[str, Any]) -> SpanRecord:
    flat = {f"langfuse__observation__metadata__{key}": json.dumps(value) for key, value in metadata.items()}
    return span(name, langfuse__observation__type="chain", **flat)


@pytest.mark.parametrize("written", [of_mlflow, of_langfuse])
@pytest.mark.parametrize(
    ("name", "metadata", "expected"),
    [
        pytest.param("travel", AGENT, ("agent", "travel", "t1"), id="an agent"),
        pytest.param("LangGraph", {"ls_integration": "langgraph"}, ("agent", "LangGraph", None), id="a graph"),
        pytest.param("tools", AGENT | IN_A_NODE, (None, None, "t1"), id="a node"),
        pytest.param("expert", AGENT | IN_A_NODE | {"lc_agent_name": "expert"}, ("agent", "expert", "t1"), id="nested"),
        pytest.param(
            "ChatOpenAI", AGENT | {"ls_integration": "langchain_chat_model"}, (None, None, "t1"), id="a model"
        ),
        pytest.param("step", {"thread_id": "t1", "name": "x"}, (None, None, None), id="somebody else's metadata"),
    ],
)
def test_metadata_gives_the_agent_name_and_the_session(
    written: Any, name: str, metadata: dict[str, Any], expected: tuple[str | None, ...]
) -> None:
    seen = read(written(name, metadata))
    assert (seen.role, seen.name, seen.session_id) == expected
