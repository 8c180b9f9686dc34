"""Coding agents that report their work as OTLP log events: Claude Code, Codex, Gemini CLI, Qwen Code.

Each event is treated as a span with the duration that the event reports. A prompt of the user starts a request, and
the tool events that follow in the same session are its calls. A refused permission is a denied call; a granted
permission adds nothing to the tool's event. Claude Code also writes spans if its beta is enabled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from goldspan.content import envelopes
from goldspan.content.literals import plain_value
from goldspan.content.messages import from_json
from goldspan.content.tools import undecorate
from goldspan.conventions.convention import AttributeMap, Convention
from goldspan.conventions.span_facts import Message, Messages, RawValue, Role, SpanFacts
from goldspan.model import SpanRecord

_EVENT = "event.name"
_REDACTED = ("<REDACTED>", "[REDACTED]", "REDACTED")
_CLAUDE_PREFIX = "claude_code."
_CLAUDE_EVENTS: dict[str, Role] = {
    f"{_CLAUDE_PREFIX}user_prompt": "entry",
    f"{_CLAUDE_PREFIX}tool_result": "tool",
    f"{_CLAUDE_PREFIX}tool_decision": "tool",
    f"{_CLAUDE_PREFIX}assistant_response": "model",
}
_SUBAGENT_TOOLS = ("Task", "Agent")
_BASH_DESCRIPTION_KEYS = ("bash_command", "git_commit_id", "full_command")
_TOOL_SUBSPANS = ("tool.execution", "tool.blocked_on_user")
_CODEX_HEADER = re.compile(
    r"(?:(?:Chunk ID|Wall time|Exit code|Original token count|Total output lines): ?[^\n]*\n"
    r"|Process (?:exited with code -?\d+|running with session ID \d+)\n)+Output:\n"
)
"""Header lines that Codex writes above the output of a tool."""
_EXIT_CODE = re.compile(r"^(?:Exit code:|Process exited with code) (-?\d{1,12})$", re.MULTILINE)
"""Exit code in the header lines."""
_GEMINI_DENIALS = ("policy_violation", "execution_denied")
"""Error types of calls that a policy rule denied without asking the user."""


def _postprocess_claude(span: SpanRecord, facts: SpanFacts) -> SpanFacts | None:
    attributes = span.attributes
    kind = attributes.get("span.type")
    has_span_type = kind is not None and _EVENT not in attributes
    if facts.role is None or (has_span_type and not span.name.startswith(_CLAUDE_PREFIX)):
        return None
    if facts.role == "model":
        facts.output_messages = (partial(_claude_output_messages, attributes),)
    if facts.role != "tool":
        return _drop_redacted_values(facts)
    if has_span_type and kind in _TOOL_SUBSPANS:
        # The subspans of a call do not name the tool; the tool's span around them does.
        facts.name = ""
    elif has_span_type:
        output = next((event.attributes.get("output") for event in span.events if event.name == "tool.output"), None)
        facts.result = None if output is None else RawValue(output)
    parameters = plain_value(attributes.get("tool_parameters"))
    if isinstance(parameters, Mapping):
        _read_parameters(parameters, facts)
    if facts.name in _SUBAGENT_TOOLS:
        facts.kind = "agent"
    is_denied = "reject" in (attributes.get("decision"), attributes.get("decision_type"))
    facts.outcome = "denied" if is_denied else None
    if not is_denied and _has_failed(attributes):
        facts.error = facts.error or str(attributes.get("error_type") or "error")
    is_uninformative = "decision" in attributes or facts.name == ""
    if is_uninformative and facts.outcome is None and facts.error is None:
        # No other convention may read it: Phoenix adds attributes of OpenInference to it.
        return SpanFacts(role="aside") if facts.name == "" else None
    return facts


def _claude_output_messages(attributes: Mapping[str, Any]) -> Messages:
    """Return Claude's message to the user; return no message if a sub-agent sent the query."""
    message_text = attributes.get("response")
    if (
        not isinstance(message_text, str)
        or message_text in _REDACTED
        or str(attributes.get("query_source")).startswith("agent")
    ):
        return ()
    return (Message("assistant", message_text),)


def _read_parameters(parameters: Mapping[str, Any], facts: SpanFacts) -> None:
    """Read server, tool and shell arguments from `tool_parameters`; older versions do not write `tool_input`."""
    server, tool = parameters.get("mcp_server_name"), parameters.get("mcp_tool_name")
    if isinstance(server, str) and isinstance(tool, str):
        facts.server = server
        if not str(facts.name).startswith("mcp__"):
            facts.name = tool
    if facts.arguments is None and "full_command" in parameters:
        rest = {key: value for key, value in parameters.items() if key not in _BASH_DESCRIPTION_KEYS}
        facts.arguments = RawValue({"command": parameters["full_command"], **rest})


def _postprocess_codex(span: SpanRecord, facts: SpanFacts) -> SpanFacts | None:
    attributes = span.attributes
    if facts.role != "tool":
        return _drop_redacted_values(facts) if facts.role == "entry" else None
    decision = attributes.get("decision")
    if decision is not None:
        facts.outcome = "denied"
        return facts if str(decision).startswith(("denied", "abort", "timed_out", "timedout")) else None
    exit_code = _exit_code(attributes.get("output"))
    if _has_failed(attributes) or exit_code:
        message_text = facts.result.value if facts.result is not None else None
        facts.error = (
            message_text
            if isinstance(message_text, str) and message_text
            else f"exit code {exit_code}"
            if exit_code
            else "error"
        )
    facts.server = facts.server or None
    return facts


def _exit_code(output: Any) -> int:
    """Return the exit code of a shell command: newer versions report every finished command as a success."""
    header = _CODEX_HEADER.match(output) if isinstance(output, str) else None
    match = _EXIT_CODE.search(header[0]) if header else None
    return int(match[1]) if match else 0


def _unwrap_codex_result(output: Any) -> Any:
    header = _CODEX_HEADER.match(output) if isinstance(output, str) else None
    return envelopes.unwrap_result(plain_value(output[header.end() :]) if header else output)


def _postprocess_gemini(span: SpanRecord, facts: SpanFacts) -> SpanFacts | None:
    attributes = span.attributes
    if facts.role == "model":
        facts.output_messages = (partial(_gemini_output_messages, attributes),)
        return facts if _is_reply_to_user(attributes) else None
    if facts.role != "tool":
        return _drop_redacted_values(facts) if facts.role == "entry" else None
    if facts.server and str(facts.name).startswith("mcp_"):
        facts.name = undecorate(str(facts.name), (facts.server,))[0]
    metadata = plain_value(attributes.get("metadata"))
    metadata = metadata if isinstance(metadata, Mapping) else {}
    if attributes.get("decision") == "reject" or attributes.get("error_type") in _GEMINI_DENIALS:
        facts.outcome, facts.error = "denied", None
    elif _has_failed(attributes):
        facts.error = facts.error or str(attributes.get("error_type") or "error")
    elif metadata.get("isError") is True:
        # Gemini CLI reports a shell command with a non-zero exit code as a success.
        facts.error = f"exit code {metadata['exitCode']}" if "exitCode" in metadata else "error"
    return facts


def _is_reply_to_user(attributes: Mapping[str, Any]) -> bool:
    """Whether the model's response is for the user, and not for a sub-agent or for the program itself."""
    is_qwen = str(attributes.get(_EVENT)).startswith("qwen-code.")
    return not attributes.get("subagent_name") if is_qwen else attributes.get("role") == "main"


def _gemini_output_messages(attributes: Mapping[str, Any]) -> Messages:
    """Return the text of one response: complete in Qwen Code, in streamed chunks in Gemini CLI.

    Calls are not read here, because they have events of their own with more details.
    """
    response_text = plain_value(attributes.get("response_text"))
    if isinstance(response_text, list):
        response_text = "".join(message.text or "" for chunk in response_text for message in from_json(chunk))
    return (Message("assistant", response_text),) if isinstance(response_text, str) and response_text else ()


def _drop_redacted_values(facts: SpanFacts) -> SpanFacts:
    if facts.input in _REDACTED:
        facts.input = None
    return facts


def _has_failed(attributes: Mapping[str, Any]) -> bool:
    """Whether the event reports that its tool failed. Some agents write the flag as text."""
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
            **dict.fromkeys(("tool", *_TOOL_SUBSPANS), "tool"),
        },
    },
    attributes_by_role={
        "entry": AttributeMap(input=("prompt", "user_prompt")),
        "tool": AttributeMap(
            name=("tool_name",), call_id=("tool_use_id",), arguments=("tool_input",), error=("error",)
        ),
    },
    common_attributes=AttributeMap(session_id=("session.id",)),
    postprocess=_postprocess_claude,
    notes=(
        "A `tool_decision` that rejects is a denied call. A `tool_decision` that accepts is not a call.",
        "`tool_parameters` names the server and the tool of an MCP call, and the arguments of a shell command.",
        "The tools `Task` and `Agent` start a sub-agent.",
        "The spans `tool.execution` and `tool.blocked_on_user` report that their parent tool failed or was denied.",
        "The event `tool.output` of a tool's span holds its result.",
        "An `assistant_response` is a message of Claude. The last one is the answer.",
        "An `llm_request` is not a user request: Claude Code also calls the model itself, for example for titles.",
    ),
    capture_setting="OTEL_LOG_USER_PROMPTS=1 OTEL_LOG_TOOL_DETAILS=1 OTEL_LOG_TOOL_CONTENT=1",
)

CODEX = Convention(
    name="codex",
    title="Codex",
    source="https://github.com/openai/codex/tree/main/codex-rs/otel",
    versions="log events of 2025 and 2026 (recorded with 0.169)",
    roles={_EVENT: {"codex.user_prompt": "entry", "codex.tool_result": "tool", "codex.tool_decision": "tool"}},
    attributes_by_role={
        "entry": AttributeMap(input=("prompt",)),
        "tool": AttributeMap(
            name=("tool_name",),
            call_id=("call_id",),
            arguments=("arguments",),
            result=("output",),
            server=("mcp_server",),
        ),
    },
    common_attributes=AttributeMap(session_id=("conversation.id",)),
    unwrap_result=_unwrap_codex_result,
    postprocess=_postprocess_codex,
    notes=(
        "A `tool_decision` that denies or aborts is a denied call. A `tool_decision` that approves is not a call.",
        "`success` is `false` if a tool failed. The output is then the error.",
        "A shell command failed if the lines above its output report an exit code other than 0.",
    ),
    capture_setting="[otel] log_user_prompt = true",
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
    attributes_by_role={
        "entry": AttributeMap(input=("prompt",)),
        "tool": AttributeMap(
            name=("function_name",),
            arguments=("function_args",),
            server=("mcp_server_name",),
            error=("error.message", "error"),
        ),
    },
    common_attributes=AttributeMap(session_id=("session.id",)),
    postprocess=_postprocess_gemini,
    notes=(
        "A call is denied if its decision is `reject` or its error is `policy_violation` or `execution_denied`.",
        "`success` is `false` if a tool failed. `isError` in `metadata` is set if a shell command failed.",
        "The tools of an MCP server are called `mcp_{server}_{tool}`.",
        "The text in an `api_response` is a message of the model. The last one is the answer.",
        "An `api_response` with a `subagent_name` or, in Gemini CLI, a `role` other than `main` is not for the user.",
        "Gemini CLI and Qwen Code do not record results. Qwen Code also does not record that a shell command failed.",
    ),
    capture_setting="telemetry.logPrompts = true",
)

CONVENTIONS = (CLAUDE_CODE, CODEX, GEMINI_CLI)
