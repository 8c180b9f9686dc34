"""Sends prompts to a model behind an OpenAI-compatible endpoint.

It uses httpx2, like the clients of OpenAI and Anthropic. Those clients are not used: goldspan needs only one kind of
request, and they read answers of any size, wait up to a minute for `Retry-After`, and do not report their attempts.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import urlsplit

from goldspan._extras import require_extra
from goldspan._http import BASE_URL_PATTERN, SecretRedactor, parse_retry_after, to_one_line
from goldspan._version import __version__
from goldspan.errors import ConfigurationError
from goldspan.goldens.spelling import join_words, short_repr
from goldspan.judge.prompts import JudgePrompt
from goldspan.judge.tool_selection import ModelReply, ModelRequestError

if TYPE_CHECKING:
    import httpx2

OPENAI_BASE_URL = "https://api.openai.com/v1"
AnswerForm = Literal["json_schema", "json_object", "text"]
"""How a request states the form of the answer, besides the instructions: with a schema, as any JSON, or not at all."""
ANSWER_FORMS: tuple[AnswerForm, ...] = get_args(AnswerForm)

MAX_RESPONSE_BYTES = 1 << 20
"""Maximum bytes of a response."""
_MAX_ERROR_BODY_BYTES = 1 << 16
"""Maximum bytes that are read of an error response."""
_MAX_MESSAGE_LENGTH = 300
_MAX_MODEL_NAME_LENGTH = 200
_CONNECT_TIMEOUT_S = 10.0


class ModelEndpoint:
    """Asks a model by `POST {base_url}/chat/completions`. It follows no redirection, so the key reaches one host only.

    Args:
        model: The name of the model.
        base_url: The URL of an OpenAI-compatible API, without a password or a query.
        api_key: The key that is sent as a bearer token. No log, error or result contains it.
        answer_form: How the endpoint is message the form of its answer: `json_schema`, `json_object` or `text`.
        headers: Further HTTP headers. No log, error or result contains their values.
        extra: Further members of the request, such as `{"reasoning_effort": "low"}`. A member with the value `None`
            is left out of the request: `{"seed": None}` for an endpoint that does not accept a seed.

    Raises:
        ConfigurationError: A value is invalid, or no request can contain it.
        MissingExtraError: The extra `judge` is not installed.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = OPENAI_BASE_URL,
        api_key: str | None = None,
        answer_form: AnswerForm = "json_schema",
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        with require_extra("judge"):
            import httpx2  # raises now if it is missing, not during a request
        if not isinstance(model, str) or not model.strip():  # type: ignore[redundant-expr]
            raise ConfigurationError(f"the judge's model is a name, not {short_repr(model)}")
        if not _is_url(base_url, httpx2.URL, httpx2.InvalidURL):
            raise ConfigurationError(
                "the judge's URL is written as https://api.openai.com/v1, without a password or a query; "
                "keys go into api_key"
            )
        if answer_form not in ANSWER_FORMS:
            raise ConfigurationError(
                f"answer_form is {join_words(ANSWER_FORMS, last='or')}, not {short_repr(answer_form)}"
            )
        self.model = model.strip()
        self.base_url = base_url.rstrip("/")
        self._server = urlsplit(base_url).netloc  # error messages name it without the path, which may contain secrets
        self._answer_form = answer_form
        # OpenAI's newer models reject `max_tokens`, which most other endpoints expect.
        self._token_limit_field = "max_completion_tokens" if self.base_url == OPENAI_BASE_URL else "max_tokens"
        key, custom_headers = parse_api_key(api_key), _validate_headers(headers or {})
        default_headers = {"user-agent": f"goldspan/{__version__}", "accept-encoding": "identity"}
        self._headers = default_headers | custom_headers | ({"authorization": f"Bearer {key}"} if key else {})
        self._extra = _validate_extra(extra or {})
        self._secrets = SecretRedactor(key, custom_headers)

    def __repr__(self) -> str:
        return f"ModelEndpoint({self.model!r}, base_url={self.base_url!r})"

    @property
    def max_output_tokens(self) -> int:
        """The token limit of answers that `extra` sets, or 0."""
        limits = (self._extra.get(name) for name in ("max_tokens", "max_completion_tokens"))
        return max((limit for limit in limits if isinstance(limit, int)), default=0)

    @property
    def identity(self) -> str:
        """The part of the cache key that identifies the model and its endpoint."""
        return json.dumps([self.base_url, self.model, self._answer_form, self._extra], sort_keys=True, default=repr)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Callable[[JudgePrompt], Awaitable[ModelReply]]]:
        """Open the connections; yields a function that sends a prompt while the context is open."""
        import httpx2

        # The judge limits the time of an answer. Connecting has a shorter limit of its own.
        timeout = httpx2.Timeout(None, connect=_CONNECT_TIMEOUT_S)
        async with httpx2.AsyncClient(headers=self._headers, timeout=timeout, follow_redirects=False) as client:

            async def ask(prompt: JudgePrompt) -> ModelReply:
                with self._secrets.redact_client_logs():
                    return await self._send(client, prompt)

            yield ask

    async def _send(self, client: httpx2.AsyncClient, prompt: JudgePrompt) -> ModelReply:
        import httpx2

        url = f"{self.base_url}/chat/completions"
        try:
            async with client.stream("POST", url, json=self._request_body(prompt)) as response:
                if response.status_code != 200:
                    body = await _read_beginning(response)
                    raise self._error_from_response(response.status_code, response.headers, body)
                body = await _read_bounded(response)
        except httpx2.ConnectTimeout:
            message = f"no connection to {self._server} within {_CONNECT_TIMEOUT_S:g} s"
            raise ModelRequestError("Timeout", message, is_retryable=True, is_billed=False) from None
        except httpx2.ConnectError as error:
            message = f"{self._clean(str(error)) or 'no connection'} ({self._server})"
            raise ModelRequestError("Unreachable", message, is_retryable=True, is_billed=False) from None
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            message = self._clean(str(error)) or "the connection broke off"
            raise ModelRequestError("Unreachable", f"{type(error).__name__}: {message}", is_retryable=True) from None
        return self._parse_reply(body)

    def _request_body(self, prompt: JudgePrompt) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self.model,
            "messages": prompt.messages,
            self._token_limit_field: prompt.max_tokens,
            "temperature": prompt.temperature,
            "seed": prompt.seed,
            "response_format": _response_format(self._answer_form, prompt),
        }
        return {name: value for name, value in (request | self._extra).items() if value is not None}

    def _error_from_response(self, status: int, headers: Mapping[str, str], body: bytes) -> ModelRequestError:
        """Return the error for a response whose status is not 200."""
        message = self._error_message(body)
        text = f"the endpoint answered {status}{f': {message}' if message else ''}"
        is_quota_exhausted = b"insufficient_quota" in body[:4096]
        retry_after = parse_retry_after(headers)
        if status == 429:
            return ModelRequestError(
                "RateLimited", text, is_retryable=not is_quota_exhausted, retry_after=retry_after, is_billed=False
            )
        if status in (408, 409) or status >= 500:
            return ModelRequestError("EndpointError", text, is_retryable=True, retry_after=retry_after, is_billed=False)
        refused = ModelRequestError("EndpointRefused", text, is_billed=False)
        refused.is_permanent = status in (401, 403, 404)
        return refused

    def _error_message(self, body: bytes) -> str:
        """Return the error message of a response body in one line."""
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            return ""
        error = document.get("error", document) if isinstance(document, dict) else None
        message = error.get("message") if isinstance(error, dict) else error
        return self._clean(message) if isinstance(message, str) else ""

    def _clean(self, text: str) -> str:
        """Return a foreign text in one line, truncated and without secrets."""
        return to_one_line(self._secrets.redact(text), _MAX_MESSAGE_LENGTH)

    def _parse_reply(self, body: bytes) -> ModelReply:
        try:
            document = json.loads(body)
            choice = document["choices"][0]
            message = choice["message"]
            text, is_refusal = message.get("content"), isinstance(message.get("refusal"), str)
            usage, model = document.get("usage"), document.get("model")
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
            raise _malformed_reply("is not a chat completion") from None
        usage = usage if isinstance(usage, dict) else {}
        reply = ModelReply(
            self._secrets.redact_reply(text) if isinstance(text, str) else "",
            self._clean(model)[:_MAX_MODEL_NAME_LENGTH] or None if isinstance(model, str) else None,
            _token_count(usage.get("prompt_tokens")),
            _token_count(usage.get("completion_tokens")),
        )
        if not reply.text:
            raise _malformed_reply("is a refusal" if is_refusal else "is empty", reply, is_retryable=not is_refusal)
        if choice.get("finish_reason") == "length":
            raise _malformed_reply("was truncated: raise max_tokens", reply, is_retryable=False)
        return reply


async def _read_bounded(response: httpx2.Response) -> bytes:
    """Read the body of a response. Raises `ModelRequestError` if it is too long."""
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise _malformed_reply("is compressed, which was not requested")
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > MAX_RESPONSE_BYTES:
            raise ModelRequestError("AnswerTooLarge", f"the model's answer is longer than {MAX_RESPONSE_BYTES} bytes")
    return bytes(body)


async def _read_beginning(response: httpx2.Response) -> bytes:
    """Read the beginning of an error response; an empty one if it is compressed."""
    body = bytearray()
    if response.headers.get("content-encoding", "identity").lower() == "identity":
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > _MAX_ERROR_BODY_BYTES:
                break
    return bytes(body)


def _response_format(form: AnswerForm, prompt: JudgePrompt) -> Any:
    if form == "text":
        return None
    if form == "json_object":
        return {"type": "json_object"}
    schema = {"name": "tool_selection", "strict": True, "schema": dict(prompt.schema)}
    return {"type": "json_schema", "json_schema": schema}


def _token_count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40 else None


def _malformed_reply(problem: str, reply: ModelReply | None = None, *, is_retryable: bool = True) -> ModelRequestError:
    error = ModelRequestError("MalformedAnswer", f"the model's answer {problem}", is_retryable=is_retryable)
    error.reply = reply
    return error


# --- validation of arguments ------------------------------------------------------------------------------------------


def _is_url(url: object, parse: Callable[[str], object], invalid_url: type[Exception]) -> bool:
    if not isinstance(url, str) or not BASE_URL_PATTERN.fullmatch(url):
        return False
    try:
        parse(url)
        urlsplit(url).port  # noqa: B018 - the property validates the port
    except (invalid_url, ValueError):
        return False
    return True


def parse_api_key(value: object) -> str | None:
    """Return a key without surrounding white space. Raises `ConfigurationError` for characters that no key has."""
    if value is None:
        return None
    key = str(value).strip()
    if not isinstance(value, str) or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigurationError("the judge's API key contains characters that no key has")
    return key or None


def _validate_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers with lower-case names. Raises `ConfigurationError` for headers that are not valid."""
    for name, value in headers.items():
        if not _is_header_value(name) or not _is_header_value(value):
            raise ConfigurationError(
                f"the judge's header {short_repr(name)} is not valid: a header is one line of text"
            )
        if not _HEADER_NAME.fullmatch(name):
            raise ConfigurationError(
                f"the judge's header {short_repr(name)} is not valid: its name has characters that no header has"
            )
    return {name.lower(): value.strip() for name, value in headers.items()}


def _is_header_value(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and value.isprintable()


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def _validate_extra(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON copy of further members of requests. Raises `ConfigurationError` for values that are not JSON."""
    try:
        members = json.loads(json.dumps(dict(extra), allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        members = None
    if not isinstance(members, dict):
        raise ConfigurationError(f"extra must be a JSON object with members of a request, not {short_repr(extra)}")
    return members
