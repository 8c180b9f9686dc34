"""The programs of the pages on frameworks run in the framework's environment, with a scripted model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from recipes.environments import is_built, python_of
from support.docs_examples import ROOT, blocks

PAGES = {"openai_agents": "openai-agents.md", "pydantic_ai": "pydantic-ai.md", "langgraph": "langgraph.md"}
AGENTS = ROOT / "tests" / "testing" / "frameworks" / "agents"
REQUEST = "Find a hotel in Paris and book it."
DRIVERS = {
    "openai_agents": """
import app
from openai_agents_agent import ScriptedModel
app.agent.model = ScriptedModel()
app.answer(REQUEST)
""",
    "pydantic_ai": """
import app
from pydantic_ai.models.function import FunctionModel
from pydantic_ai_agent import reply
with app.agent.override(model=FunctionModel(reply)):
    app.answer(REQUEST)
""",
    "langgraph": """
import sys, types
from langgraph_agent import ScriptedModel
class ChatOpenAI(ScriptedModel):
    model: str
    def bind_tools(self, tools, **options):
        return self
sys.modules["langchain_openai"] = types.SimpleNamespace(ChatOpenAI=ChatOpenAI)
import app
app.answer(REQUEST)
""",
}
"""Programs that import the program of a page and replace its model."""


@pytest.mark.e2e
@pytest.mark.parametrize("name", PAGES)
def test_the_program_of_the_page_calls_the_tools_of_its_golden(name: str, tmp_path: Path) -> None:
    if not is_built(name):
        pytest.skip(f"{name}'s environment is missing: make recipes")
    for block in blocks((ROOT / "docs" / "how-to" / PAGES[name]).read_text(encoding="utf-8")):
        if "file" in block.notes:
            (tmp_path / block.notes["file"]).write_text(block.text, encoding="utf-8")
    for module in ("script.py", f"{name}_agent.py"):
        shutil.copy(AGENTS / module, tmp_path)
    (tmp_path / "driver.py").write_text(f"REQUEST = {REQUEST!r}\n{DRIVERS[name]}")
    settings = {"GOLDSPAN_SINKS": "jsonl:scores.jsonl", "GOLDSPAN_STRICT": "0"}
    settings |= {f"OTEL_{signal}_EXPORTER": "none" for signal in ("TRACES", "LOGS", "METRICS")}
    done = subprocess.run(
        [python_of(name), "driver.py"],
        cwd=tmp_path,
        env={**os.environ, **settings},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    evaluations = map(json.loads, (tmp_path / "scores.jsonl").read_text(encoding="utf-8").splitlines())
    (of_request,) = (each for each in evaluations if each["unit"] == "request")
    assert (of_request["passed"], of_request["golden_id"]) == (True, "book"), of_request
    assert "Traceback" not in done.stderr
