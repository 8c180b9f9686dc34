"""GitHub Copilot: GenAI spans of its command line, its SDK, and Copilot Chat in VS Code.

Copilot differs from the standard. It adds notices to a prompt, reports a failed shell command as a success and a denied
call as an error, and writes the names of MCP tools as the model sees them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from goldspan import semconv
from goldspan.content import envelopes, messages
from goldspan.content.literals import plain_value
from goldspan.content.tools import server_prefix
from goldspan.conventions.convention import AttributeMap, Convention, FromJson
from goldspan.conventions.span_facts import Message, Messages, RawValue, SpanFacts
from goldspan.model import SpanRecord

_EVENT = "event.name"
_CHAT_EVENTS = "copilot_chat."
_SCOPES = ("github.copilot", "copilot-chat")
_SERVICES = ("github-copilot", "copilot-chat")
_PROVIDER = "gen_ai.provider.name"
_USER_REQUEST = "copilot_chat.user_request"
_PARAMETERS = "github.copilot.tool.parameters."
_INTERACTION = "github.copilot.interaction_id"
_SHELL_TOOLS = ("bash", "powershell")
_MCP_SERVER = f"{_PARAMETERS}mcp_server_name"
_MCP_TOOL = f"{_PARAMETERS}mcp_tool_name"
_EXIT_CODE = "process.exit.code"
_ERROR_TYPE = "error.type"
_EXIT_NOTICE = re.compile(r"\n?<(?:shellId: [^<>\n]{1,64} completed|exited) with exit code (-?\d{1,12})>\s*\Z")
"""Last line that Copilot writes below the output of a shell command."""
_NOTICE_TAGS = (
    r"(?:current_datetime|system_reminder|system_notification|reminder|\w{1,40}_changed(?:_notice)?|plan_mode|todo_status"
    r"|sql_tables|tagged_files|attachments?|ide_selection|github_references|session_limits_status|skill-context)"
)
"""Tags of the notices that the runtime adds to a prompt or sends as a separate message."""
_NOTICE_START = re.compile(rf"\s*<({_NOTICE_TAGS})[\s>]")
_NOTICE_END = re.compile(rf"</({_NOTICE_TAGS})>\s*\Z")
_MAX_NOTICES = 16
"""Limit of notices before a prompt, and of notices after it."""
_REQUEST_TAGS = ("<userRequest>", "</userRequest>")
"""Tags around the prompt in the message that VS Code sends to the model."""
_PLAN_PREFIX = "[[PLAN]]"


class _InputMessages(FromJson):
    """Reads the model's input. It removes notices; a message with only a notice becomes a system message."""

    __slots__ = ()

    def __call__(self, span: SpanRecord) -> Messages:
        """Return the messages of a span."""
        return tuple(map(_without_notices, super().__call__(span)))


class _OutputMessages(FromJson):
    """Reads the model's output without repeated parts: the SDK's runtime may record a part twice in one message."""

    __slots__ = ()

    def __call__(self, span: SpanRecord) -> Messages:
        """Return the messages of a span."""
        content = plain_value(span.attributes.get(self.attribute))
        return messages.from_json(list(map(_without_repeated_parts, content)) if isinstance(content, list) else content)


def _without_notices(message: Message) -> Message:
    if message.role != "user" or not message.text:
        return message
    prompt = _typed_prompt(message.text)
    return message._replace(text=prompt) if prompt else message._replace(role="system")


def _typed_prompt(prompt: str) -> str:
    """Return the part of the prompt that the user typed; empty if the prompt is only a notice."""
    _, opens, rest = prompt.partition(_REQUEST_TAGS[0])
    inner, closes, _ = rest.rpartition(_REQUEST_TAGS[1])
    if opens and closes:
        return inner.strip()
    begin = _end_of_leading_notices(prompt)
    end = _start_of_trailing_notices(prompt, begin)
    if (begin, end) == (0, len(prompt)):
        return prompt
    return prompt[begin:end].strip().removeprefix(_PLAN_PREFIX).lstrip()


def _end_of_leading_notices(prompt: str) -> int:
    """Return the index of the first character after the leading notices."""
    begin = 0
    for _ in range(_MAX_NOTICES):
        notice = _NOTICE_START.match(prompt, begin)
        closed = prompt.find(f"</{notice[1]}>", notice.end()) if notice else -1
        if notice is None or closed < 0:
            break
        begin = closed + len(notice[1]) + len("</>")
    return begin


def _start_of_trailing_notices(prompt: str, begin: int) -> int:
    """Return the index of the first trailing notice. The prompt starts at index `begin`."""
    end = len(prompt)
    for _ in range(_MAX_NOTICES):
        notice = _NOTICE_END.search(prompt, begin, end)
        opened = prompt.rfind(f"<{notice[1]}", begin, notice.start()) if notice else -1
        if opened < 0:
            break
        end = opened
    return end


def _without_repeated_parts(message: Any) -> Any:
    """Return the message without parts that repeat the part before."""
    parts = message.get("parts") if isinstance(message, Mapping) else None
    if not isinstance(parts, list):
        return message
    return {**message, "parts": [part for index, part in enumerate(parts) if not index or part != parts[index - 1]]}


def _postprocess(span: SpanRecord, facts: SpanFacts) -> SpanFacts:
    attributes = span.attributes
    operation = attributes.get(semconv.OPERATION)
    if operation == semconv.EXECUTE_TOOL:
        _postprocess_tool(attributes, facts)
    elif operation == semconv.INVOKE_AGENT:
        user_request = attributes.get(_USER_REQUEST)
        facts.input = _typed_prompt(user_request) or None if isinstance(user_request, str) else None
    elif str(attributes.get(_EVENT)).startswith(_CHAT_EVENTS):
        facts.role = "aside"
    return facts


def _is_copilot(span: SpanRecord) -> bool:
    """Whether Copilot wrote the span. Users may rename the scope and the service, but not the provider."""
    if span.scope in _SCOPES or span.service in _SERVICES:
        return True
    attributes = span.attributes
    return attributes.get(_PROVIDER) == "github" or str(attributes.get(_EVENT)).startswith(_CHAT_EVENTS)


def _postprocess_tool(attributes: Mapping[str, Any], facts: SpanFacts) -> None:
    decorated = attributes.get(semconv.TOOL_NAME)
    if facts.name and not facts.server and isinstance(decorated, str):
        facts.server = server_prefix(decorated, tool_name=facts.name)
    if attributes.get(_ERROR_TYPE) == "denied":
        facts.outcome = "denied"
    result = attributes.get(semconv.TOOL_CALL_RESULT)
    footer = _EXIT_NOTICE.search(result) if isinstance(result, str) and decorated in _SHELL_TOOLS else None
    output = footer.string[: footer.start()] if footer else None
    if output is not None:
        facts.result = RawValue(output, envelopes.unwrap_result)
    exit_code = str(attributes.get(_EXIT_CODE, footer[1] if footer else "0"))
    if exit_code != "0":
        facts.error = output or f"exit code {exit_code}"


CONVENTION = Convention(
    name="copilot",
    title="GitHub Copilot",
    source="https://github.com/github/copilot-cli, https://github.com/github/copilot-sdk, "
    "https://github.com/microsoft/vscode/tree/main/extensions/copilot",
    versions="the command line (recorded with 1.0.41, 1.0.62 and 1.0.102), its SDKs (recorded with JavaScript's 1.0.14 "
    "and Python's 1.0.27), and Copilot Chat of 2026",
    marker_attributes=(
        *(_EVENT, _ERROR_TYPE, _EXIT_CODE, _MCP_SERVER, _MCP_TOOL, _USER_REQUEST, semconv.TOOL_CALL_RESULT),
        *("github.copilot.agent.type", "github.copilot.turn_count"),
        *("github.copilot.initiator", _INTERACTION, "github.copilot.turn_id"),
    ),
    common_attributes=AttributeMap(
        name=(_MCP_TOOL,),
        server=(_MCP_SERVER,),
        request_id=(_INTERACTION,),
        input_messages=(_InputMessages(semconv.INPUT_MESSAGES),),
        output_messages=(_OutputMessages(semconv.OUTPUT_MESSAGES),),
    ),
    is_member=_is_copilot,
    postprocess=_postprocess,
    notes=(
        "goldspan removes the tags that the runtime adds to a prompt, such as `<current_datetime>`.",
        "A `<system_notification>` is not a prompt, although Copilot sends it with the role `user`.",
        "Spans after a notification belong to the request with the same interaction id.",
        "In VS Code the prompt is `copilot_chat.user_request` of the agent's span, or the content of `<userRequest>`.",
        "A tool's span whose `error.type` is `denied` is a call that a rule, a hook or a person denied.",
        "A shell command failed if its exit code is not 0: `process.exit.code`, or the last line of the result.",
        "Without content, Copilot writes hashes instead of the names of MCP servers and their tools.",
        "The SDK's runtime may write each span twice. The two spans are one call.",
        "The log events `copilot_chat.*` repeat the GenAI spans without arguments and ids.",
    ),
    capture_setting="OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true, and in VS Code "
    "github.copilot.chat.otel.captureContent",
)
