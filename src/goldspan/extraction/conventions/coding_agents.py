"""Coding agents that report what they do as OTLP log events: Claude Code, Codex, Gemini CLI, Qwen Code.

Each event is read like a span that lasts as long as the event says. What the user typed begins a request; the tools
that follow in the same session are its calls. A permission that was refused is a call that was denied; one that was
given says nothing that the tool's own event does not. Claude Code writes spans as well, where its beta is switched on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from goldspan.extraction import values
from goldspan.extraction.convention import Convention, Places
from goldspan.extraction.messages import from_json
from goldspan.extraction.names import undecorate
from goldspan.extraction.notation import plain
from goldspan.extraction.reading import Message, Messages, Reading, Role, Written
from goldspan.model import SpanRecord

_EVENT = "event.name"
_REDACTED = ("<REDACTED>", "[REDACTED]", "REDACTED")
_CLAUDE = "claude_code."
_CLAUDE_EVENTS: dict[str, Role] = {
    f"{_CLAUDE}user_prompt": "entry",
    f"{_CLAUDE}tool_result": "tool",
    f"{_CLAUDE}tool_decision": "tool",
    f"{_CLAUDE}assistant_response": "model",
}
_SUBAGENTS = ("Task", "Agent")
_WORDS_ABOUT_BASH = ("bash_command", "git_commit_id", "full_command")
_PARTS_OF_A_TOOL = ("tool.execution", "tool.blocked_on_user")
_CODEX_HEADER = re.compile(
    r"(?:(?:Chunk ID|Wall time|Exit code|Original token count|Total output lines): ?[^\n]*\n"
    r"|Process (?:exited with code -?\d+|running with session ID \d+)\n)+Output:\n"
)
"""What Codex writes above the output of a tool that it ran."""
_EXIT_CODE = re.compile(r"^(?:Exit code:|Process exited with code) (-?\d{1,12})$", re.MULTILINE)
"""In those lines."""
_GEMINI_DENIALS = ("policy_violation", "execution_denied")
"""Errors of calls that nobody was asked about, since a rule forbids them."""


def _refine_claude(span: SpanRecord, reading: Reading) -> Reading | None:
    attributes = span.attributes
    kind = attributes.get("span.type")
    told_by_span = kind is not None and _EVENT not in attributes
    if reading.role is None or (told_by_span and not span.name.startswith(_CLAUDE)):
        return None
    if reading.role == "model":
        reading.answered = (partial(_answer, attributes),)
    if reading.role != "tool":
        return _without_redaction(reading)
    if told_by_span and kind in _PARTS_OF_A_TOOL:
        # The parts of a call do not say which tool it is: they stand inside its span.
        reading.name = ""
    elif told_by_span:
        shown = next((event.attributes.get("output") for event in span.events if event.name == "tool.output"), None)
        reading.result = None if shown is None else Written(shown)
    parameters = plain(attributes.get("tool_parameters"))
    if isinstance(parameters, Mapping):
        _take_parameters(parameters, reading)
    if reading.name in _SUBAGENTS:
        reading.kind = "agent"
    refused = "reject" in (attributes.get("decision"), attributes.get("decision_type"))
    reading.outcome = "denied" if refused else None
    if not refused and _failed(attributes):
        reading.error = reading.error or str(attributes.get("error_type") or "error")
    says_nothing = "decision" in attributes or reading.name == ""
    return None if says_nothing and reading.outcome is None and reading.error is None else reading


def _answer(attributes: Mapping[str, Any]) -> Messages:
    """What Claude said to the user, and not to an agent of its own."""
    said = attributes.get("response")
    if not isinstance(said, str) or said in _REDACTED or str(attributes.get("query_source")).startswith("agent"):
        return ()
    return (Message("assistant", said),)


def _take_parameters(parameters: Mapping[str, Any], reading: Reading) -> None:
    """Older versions write no `tool_input`: then `tool_parameters` has all the arguments of a shell command."""
    server, tool = parameters.get("mcp_server_name"), parameters.get("mcp_tool_name")
    if isinstance(server, str) and isinstance(tool, str):
        reading.server = server
        if not str(reading.name).startswith("mcp__"):
            reading.name = tool
    if reading.arguments is None and "full_command" in parameters:
        rest = {key: value for key, value in parameters.items() if key not in _WORDS_ABOUT_BASH}
        reading.arguments = Written({"command": parameters["full_command"], **rest})


def _refine_codex(span: SpanRecord, reading: Reading) -> Reading | None:
    attributes = span.attributes
    if reading.role != "tool":
        return _without_redaction(reading) if reading.role == "entry" else None
    decision = attributes.get("decision")
    if decision is not None:
        reading.outcome = "denied"
        return reading if str(decision).startswith(("denied", "abort", "timed_out", "timedout")) else None
    exit_code = _exit_code(attributes.get("output"))
    if _failed(attributes) or exit_code:
        said = reading.result.value if reading.result is not None else None
        reading.error = said if isinstance(said, str) and said else f"exit code {exit_code}" if exit_code else "error"
    reading.server = reading.server or None
    return reading


def _exit_code(output: Any) -> int:
    """Of a shell command: newer versions call it a success however it ended."""
    header = _CODEX_HEADER.match(output) if isinstance(output, str) else None
    found = _EXIT_CODE.search(header[0]) if header else None
    return int(found[1]) if found else 0


def _codex_result(output: Any) -> Any:
    header = _CODEX_HEADER.match(output) if isinstance(output, str) else None
    return values.result(plain(output[header.end() :]) if header else output)


def _refine_gemini(span: SpanRecord, reading: Reading) -> Reading | None:
    attributes = span.attributes
    if reading.role == "model":
        reading.answered = (partial(_gemini_answer, attributes),)
        return reading if _spoke_to_user(attributes) else None
    if reading.role != "tool":
        return _without_redaction(reading) if reading.role == "entry" else None
    if reading.server and str(reading.name).startswith("mcp_"):
        reading.name = undecorate(str(reading.name), (reading.server,))[0]
    about = plain(attributes.get("metadata"))
    about = about if isinstance(about, Mapping) else {}
    if attributes.get("decision") == "reject" or attributes.get("error_type") in _GEMINI_DENIALS:
        reading.outcome, reading.error = "denied", None
    elif _failed(attributes):
        reading.error = reading.error or str(attributes.get("error_type") or "error")
    elif about.get("isError") is True:
        # A shell command that ended badly is a success to Gemini CLI: it ran.
        reading.error = f"exit code {about['exitCode']}" if "exitCode" in about else "error"
    return reading


def _spoke_to_user(attributes: Mapping[str, Any]) -> bool:
    """Whether a response of the model is neither one to an agent of its own nor one to the program itself."""
    is_qwen = str(attributes.get(_EVENT)).startswith("qwen-code.")
    return not attributes.get("subagent_name") if is_qwen else attributes.get("role") == "main"


def _gemini_answer(attributes: Mapping[str, Any]) -> Messages:
    """What the model said in one response: its words in Qwen Code, its pieces as they came in Gemini CLI.

    Its calls are told better by their own events.
    """
    written = plain(attributes.get("response_text"))
    if isinstance(written, list):
        written = "".join(message.text or "" for piece in written for message in from_json(piece))
    return (Message("assistant", written),) if isinstance(written, str) and written else ()


def _without_redaction(reading: Reading) -> Reading:
    if reading.input in _REDACTED:
        reading.input = None
    return reading


def _failed(attributes: Mapping[str, Any]) -> bool:
    """Whether an event says that its tool failed: the flag is text in some agents."""
    return str(attributes.get("success")).lower() == "false"


CLAUDE_CODE = Convention(
    name="claude_code",
    title="Claude Code",
    source="https://code.claude.com/docs/en/monitoring-usage",
    versions="log events of 2025 and 2026, and the spans of the beta (CLAUDE_CODE_ENHANCED_TELEMETRY_BETA=1)",
    roles={
        _EVENT: _CLAUDE_EVENTS,
        "body": _CLAUDE_EVENTS,
        "span.type": {
            "interaction": "entry",
            "llm_request": "aside",
            **dict.fromkeys(("tool", *_PARTS_OF_A_TOOL), "tool"),
        },
    },
    of={
        "entry": Places(input=("prompt", "user_prompt")),
        "tool": Places(name=("tool_name",), call_id=("tool_use_id",), arguments=("tool_input",), error=("error",)),
    },
    everywhere=Places(session_id=("session.id",)),
    refine=_refine_claude,
    notes=(
        "A `tool_decision` that rejects is a call that was denied; one that accepts is no call of its own.",
        "`tool_parameters` names the server and the tool of an MCP call, and the arguments of a shell command.",
        "The tools `Task` and `Agent` start a sub-agent.",
        "The spans `tool.execution` and `tool.blocked_on_user` tell that the tool around them failed or was denied.",
        "The event `tool.output` of a tool's span holds its result.",
        "An `assistant_response` is what Claude said; the last one is the answer.",
        "Requests to the model are no requests of a user: Claude Code makes some of its own, as for titles.",
    ),
    content="OTEL_LOG_USER_PROMPTS=1 OTEL_LOG_TOOL_DETAILS=1 OTEL_LOG_TOOL_CONTENT=1",
)

CODEX = Convention(
    name="codex",
    title="Codex",
    source="https://github.com/openai/codex/tree/main/codex-rs/otel",
    versions="log events of 2025 and 2026 (recorded with 0.169)",
    roles={_EVENT: {"codex.user_prompt": "entry", "codex.tool_result": "tool", "codex.tool_decision": "tool"}},
    of={
        "entry": Places(input=("prompt",)),
        "tool": Places(
            name=("tool_name",),
            call_id=("call_id",),
            arguments=("arguments",),
            result=("output",),
            server=("mcp_server",),
        ),
    },
    everywhere=Places(session_id=("conversation.id",)),
    open_result=_codex_result,
    refine=_refine_codex,
    notes=(
        "A `tool_decision` that denies or aborts is a call that was denied; one that approves is no call of its own.",
        "`success` says `false` where a tool failed; its output is what went wrong.",
        "A shell command failed where the lines above its output name an exit code other than 0.",
    ),
    content="[otel] log_user_prompt = true",
)

GEMINI_CLI = Convention(
    name="gemini_cli",
    title="Gemini CLI and Qwen Code",
    source="https://github.com/google-gemini/gemini-cli/blob/main/docs/cli/telemetry.md",
    versions="log events of 2025 and 2026 (recorded with Gemini CLI 0.61 and Qwen Code 0.15)",
    roles={
        _EVENT: {
            **dict.fromkeys(("gemini_cli.user_prompt", "qwen-code.user_prompt"), "entry"),
            **dict.fromkeys(("gemini_cli.tool_call", "qwen-code.tool_call"), "tool"),
            **dict.fromkeys(("gemini_cli.api_response", "qwen-code.api_response"), "model"),
        }
    },
    of={
        "entry": Places(input=("prompt",)),
        "tool": Places(
            name=("function_name",),
            arguments=("function_args",),
            server=("mcp_server_name",),
            error=("error.message", "error"),
        ),
    },
    everywhere=Places(session_id=("session.id",)),
    refine=_refine_gemini,
    notes=(
        "The decision `reject` is a call that was denied; so are the errors `policy_violation` and `execution_denied`.",
        "`success` says `false` where a tool failed, `isError` in `metadata` where a shell command did.",
        "The tools of an MCP server are called `mcp_{server}_{tool}`.",
        "The text in an `api_response` is what the model said; the last one is the answer.",
        "An `api_response` with a `subagent_name` or, in Gemini CLI, a `role` other than `main` is not for the user.",
        "Results are not recorded, nor in Qwen Code that a shell command failed.",
    ),
    content="telemetry.logPrompts = true",
)

CONVENTIONS = (CLAUDE_CODE, CODEX, GEMINI_CLI)
