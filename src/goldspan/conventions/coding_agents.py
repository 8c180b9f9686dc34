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
"""What Codex writes above the output of a tool that it ran."""
_EXIT_CODE = re.compile(r"^(?:Exit code:|Process exited with code) (-?\d{1,12})$", re.MULTILINE)
"""In those lines."""
_GEMINI_DENIALS = ("policy_violation", "execution_denied")
"""Errors of calls that nobody was asked about, since a rule forbids them."""


def _postprocess_claude(span: SpanRecord, facts: SpanFacts) -> SpanFacts | None:
    attributes = span.attributes
    kind = attributes.get("span.type")
    told_by_span = kind is not None and _EVENT not in attributes
    if facts.role is None or (told_by_span and not span.name.startswith(_CLAUDE_PREFIX)):
        return None
    if facts.role == "model":
        facts.output_messages = (partial(_claude_output_messages, attributes),)
    if facts.role != "tool":
        return _drop_redacted_values(facts)
    if told_by_span and kind in _TOOL_SUBSPANS:
        # The parts of a call do not say which tool it is: they stand inside its span.
        facts.name = ""
    elif told_by_span:
        shown = next((event.attributes.get("output") for event in span.events if event.name == "tool.output"), None)
        facts.result = None if shown is None else RawValue(shown)
    parameters = plain_value(attributes.get("tool_parameters"))
    if isinstance(parameters, Mapping):
        _read_parameters(parameters, facts)
    if facts.name in _SUBAGENT_TOOLS:
        facts.kind = "agent"
    refused = "reject" in (attributes.get("decision"), attributes.get("decision_type"))
    facts.outcome = "denied" if refused else None
    if not refused and _has_failed(attributes):
        facts.error = facts.error or str(attributes.get("error_type") or "error")
    says_nothing = "decision" in attributes or facts.name == ""
    return None if says_nothing and facts.outcome is None and facts.error is None else facts


def _claude_output_messages(attributes: Mapping[str, Any]) -> Messages:
    """What Claude said to the user, and not to an agent of its own."""
    said = attributes.get("response")
    if not isinstance(said, str) or said in _REDACTED or str(attributes.get("query_source")).startswith("agent"):
        return ()
    return (Message("assistant", said),)


def _read_parameters(parameters: Mapping[str, Any], facts: SpanFacts) -> None:
    """Older versions write no `tool_input`: then `tool_parameters` has all the arguments of a shell command."""
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
        said = facts.result.value if facts.result is not None else None
        facts.error = said if isinstance(said, str) and said else f"exit code {exit_code}" if exit_code else "error"
    facts.server = facts.server or None
    return facts


def _exit_code(output: Any) -> int:
    """Of a shell command: newer versions call it a success however it ended."""
    header = _CODEX_HEADER.match(output) if isinstance(output, str) else None
    found = _EXIT_CODE.search(header[0]) if header else None
    return int(found[1]) if found else 0


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
    about = plain_value(attributes.get("metadata"))
    about = about if isinstance(about, Mapping) else {}
    if attributes.get("decision") == "reject" or attributes.get("error_type") in _GEMINI_DENIALS:
        facts.outcome, facts.error = "denied", None
    elif _has_failed(attributes):
        facts.error = facts.error or str(attributes.get("error_type") or "error")
    elif about.get("isError") is True:
        # A shell command that ended badly is a success to Gemini CLI: it ran.
        facts.error = f"exit code {about['exitCode']}" if "exitCode" in about else "error"
    return facts


def _is_reply_to_user(attributes: Mapping[str, Any]) -> bool:
    """Whether a response of the model is neither one to an agent of its own nor one to the program itself."""
    is_qwen = str(attributes.get(_EVENT)).startswith("qwen-code.")
    return not attributes.get("subagent_name") if is_qwen else attributes.get("role") == "main"


def _gemini_output_messages(attributes: Mapping[str, Any]) -> Messages:
    """What the model said in one response: its words in Qwen Code, its pieces as they came in Gemini CLI.

    Its calls are told better by their own events.
    """
    written = plain_value(attributes.get("response_text"))
    if isinstance(written, list):
        written = "".join(message.text or "" for piece in written for message in from_json(piece))
    return (Message("assistant", written),) if isinstance(written, str) and written else ()


def _drop_redacted_values(facts: SpanFacts) -> SpanFacts:
    if facts.input in _REDACTED:
        facts.input = None
    return facts


def _has_failed(attributes: Mapping[str, Any]) -> bool:
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
        "A `tool_decision` that rejects is a call that was denied; one that accepts is no call of its own.",
        "`tool_parameters` names the server and the tool of an MCP call, and the arguments of a shell command.",
        "The tools `Task` and `Agent` start a sub-agent.",
        "The spans `tool.execution` and `tool.blocked_on_user` tell that the tool around them failed or was denied.",
        "The event `tool.output` of a tool's span holds its result.",
        "An `assistant_response` is what Claude said; the last one is the answer.",
        "Requests to the model are no requests of a user: Claude Code makes some of its own, as for titles.",
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
        "A `tool_decision` that denies or aborts is a call that was denied; one that approves is no call of its own.",
        "`success` says `false` where a tool failed; its output is what went wrong.",
        "A shell command failed where the lines above its output name an exit code other than 0.",
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
        "The decision `reject` is a call that was denied; so are the errors `policy_violation` and `execution_denied`.",
        "`success` says `false` where a tool failed, `isError` in `metadata` where a shell command did.",
        "The tools of an MCP server are called `mcp_{server}_{tool}`.",
        "The text in an `api_response` is what the model said; the last one is the answer.",
        "An `api_response` with a `subagent_name` or, in Gemini CLI, a `role` other than `main` is not for the user.",
        "Results are not recorded, nor in Qwen Code that a shell command failed.",
    ),
    capture_setting="telemetry.logPrompts = true",
)

CONVENTIONS = (CLAUDE_CODE, CODEX, GEMINI_CLI)
