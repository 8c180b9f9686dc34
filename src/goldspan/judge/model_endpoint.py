"""Sends prompts to a model behind an OpenAI-compatible endpoint.

It is httpx2, on which the clients of OpenAI and Anthropic themselves stand. Their clients are not used: one request is
all that is needed here, and they read answers of any size, wait for a minute where an endpoint asks for it, and count
no attempts.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import urlsplit

from goldspan._extras import require_extra
from goldspan._version import __version__
from goldspan.errors import ConfigurationError
from goldspan.goldens.spelling import join_words, short_repr
from goldspan.judge.model_replies import ModelReply, ModelRequestError
from goldspan.judge.prompts import JudgePrompt

if TYPE_CHECKING:
    import httpx2

_MIN_SECRET_LENGTH = 8
"""Characters of what may be a secret in a header, and of what is looked for in answers: `1` stands in many of them."""


class SecretRedactor:
    """A key, and what stands in headers."""

    def __init__(self, key: str | None, headers: Mapping[str, str]) -> None:
        words = {
            word for value in headers.values() for word in (value, *value.split()) if len(word) >= _MIN_SECRET_LENGTH
        }
        self._all = _sort_by_length({key, *words})
        self._long = [each for each in self._all if len(each) >= _MIN_SECRET_LENGTH]

    def redact(self, text: str) -> str:
        """A text about the endpoint, or of it, without them."""
        return _replace_secrets(text, self._all)

    def redact_reply(self, text: str) -> str:
        """An answer without them; what people write where no key is needed is none."""
        return _replace_secrets(text, self._long)

    @contextmanager
    def redact_client_logs(self) -> Iterator[None]:
        """Keep them out of what the HTTP client logs of what is done here: it logs the headers of answers."""
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(_REDACTING_FILTER)
        before = _current_redactor.set(self)
        try:
            yield
        finally:
            _current_redactor.reset(before)


class _RedactingFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if (secrets := _current_redactor.get()) is not None:
            record.msg, record.args = secrets.redact(record.getMessage()), None
        return True


_REDACTING_FILTER = _RedactingFilter()
_LOGGERS = ("httpx2", *(f"httpcore2.{part}" for part in ("connection", "http11", "http2", "proxy", "socks")))
_current_redactor: ContextVar[SecretRedactor | None] = ContextVar("_hidden", default=None)


def _sort_by_length(found: Iterable[str | None]) -> list[str]:
    """One may be a part of another."""
    return sorted((each for each in found if each), key=len, reverse=True)


def _replace_secrets(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "[key]")
    return text


OPENAI_BASE_URL = "https://api.openai.com/v1"
AnswerForm = Literal["json_schema", "json_object", "text"]
"""How the form of the answer is asked for beside the instructions: by its schema, as any JSON, or not at all."""
ANSWER_FORMS: tuple[AnswerForm, ...] = get_args(AnswerForm)

MAX_RESPONSE_BYTES = 1 << 20
"""Bytes of an answer, with all that stands around it."""
_MAX_ERROR_BODY_BYTES = 1 << 16
"""Bytes that are read of what an endpoint says instead of an answer."""
_MAX_MESSAGE_LENGTH = 300
_MAX_MODEL_NAME_LENGTH = 200
_CONNECT_TIMEOUT_S = 10.0
BASE_URL_PATTERN = re.compile(r"https?://[^\s@/?#]+(/[^\s@?#]*)?")
"""A base URL, without a password or a query."""


class ModelEndpoint:
    """Asks a model by `POST {base_url}/chat/completions`. It follows no redirection, so the key reaches one host only.

    Args:
        model: The name of the model.
        base_url: The URL of an OpenAI-compatible API, without a password or a query.
        api_key: The key that is sent as a bearer token. No log, error or result contains it.
        answer_form: How the endpoint is told the form of its answer: `json_schema`, `json_object` or `text`.
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
            import httpx2  # whether it can be is said now, not in the middle of a request
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
        self._server = urlsplit(base_url).netloc  # told where nobody answers: of a path, parts may be secret
        self._answer_form = answer_form
        # OpenAI's own newer models refuse the older name, which is the one that most others know.
        self._token_limit_field = "max_completion_tokens" if self.base_url == OPENAI_BASE_URL else "max_tokens"
        key, given = parse_api_key(api_key), _validate_headers(headers or {})
        own = {"user-agent": f"goldspan/{__version__}", "accept-encoding": "identity"}
        self._headers = own | given | ({"authorization": f"Bearer {key}"} if key else {})
        self._extra = _validate_extra(extra or {})
        self._secrets = SecretRedactor(key, given)

    def __repr__(self) -> str:
        return f"ModelEndpoint({self.model!r}, base_url={self.base_url!r})"

    @property
    def max_output_tokens(self) -> int:
        """Tokens that `extra` allows an answer, whatever the question does."""
        named = (self._extra.get(name) for name in ("max_tokens", "max_completion_tokens"))
        return max((each for each in named if isinstance(each, int)), default=0)

    @property
    def identity(self) -> str:
        """What tells its answers from those of others, in a cache."""
        return json.dumps([self.base_url, self.model, self._answer_form, self._extra], sort_keys=True, default=repr)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Callable[[JudgePrompt], Awaitable[ModelReply]]]:
        """A function that asks, with connections that are kept for as long as this is open."""
        import httpx2

        # How long an answer may take is the judge's to say; what hangs while connecting need not take as long.
        timeout = httpx2.Timeout(None, connect=_CONNECT_TIMEOUT_S)
        async with httpx2.AsyncClient(headers=self._headers, timeout=timeout, follow_redirects=False) as client:

            async def ask(question: JudgePrompt) -> ModelReply:
                with self._secrets.redact_client_logs():
                    return await self._send(client, question)

            yield ask

    async def _send(self, client: httpx2.AsyncClient, question: JudgePrompt) -> ModelReply:
        import httpx2

        url = f"{self.base_url}/chat/completions"
        try:
            async with client.stream("POST", url, json=self._request_body(question)) as response:
                if response.status_code != 200:
                    body = await _read_beginning(response)
                    raise self._error_from_response(response.status_code, response.headers, body)
                body = await _read_bounded(response)
        except httpx2.ConnectTimeout:
            told = f"no connection to {self._server} within {_CONNECT_TIMEOUT_S:g} s"
            raise ModelRequestError("Timeout", told, is_retryable=True, is_billed=False) from None
        except httpx2.ConnectError as error:
            told = f"{self._clean(str(error)) or 'no connection'} ({self._server})"
            raise ModelRequestError("Unreachable", told, is_retryable=True, is_billed=False) from None
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            told = self._clean(str(error)) or "the connection broke off"
            raise ModelRequestError("Unreachable", f"{type(error).__name__}: {told}", is_retryable=True) from None
        return self._parse_reply(body)

    def _request_body(self, question: JudgePrompt) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self.model,
            "messages": question.messages,
            self._token_limit_field: question.max_tokens,
            "temperature": question.temperature,
            "seed": question.seed,
            "response_format": _response_format(self._answer_form, question),
        }
        return {name: value for name, value in (request | self._extra).items() if value is not None}

    def _error_from_response(self, status: int, headers: Mapping[str, str], body: bytes) -> ModelRequestError:
        """What an answer other than 200 means."""
        told = self._error_message(body)
        text = f"the endpoint answered {status}{f': {told}' if told else ''}"
        exhausted = b"insufficient_quota" in body[:4096]
        wait = parse_retry_after(headers)
        if status == 429:
            return ModelRequestError("RateLimited", text, is_retryable=not exhausted, retry_after=wait, is_billed=False)
        if status in (408, 409) or status >= 500:
            return ModelRequestError("EndpointError", text, is_retryable=True, retry_after=wait, is_billed=False)
        refused = ModelRequestError("EndpointRefused", text, is_billed=False)
        refused.is_permanent = status in (401, 403, 404)
        return refused

    def _error_message(self, body: bytes) -> str:
        """What an endpoint says went wrong, in one line."""
        try:
            said = json.loads(body)
        except (ValueError, RecursionError):
            return ""
        error = said.get("error", said) if isinstance(said, dict) else None
        message = error.get("message") if isinstance(error, dict) else error
        return self._clean(message) if isinstance(message, str) else ""

    def _clean(self, text: str) -> str:
        """A text of somebody else's, short, in one line, and without the key."""
        text = self._secrets.redact(text)
        text = " ".join("".join(each if each.isprintable() else " " for each in text[:4000]).split())
        return text if len(text) <= _MAX_MESSAGE_LENGTH else f"{text[: _MAX_MESSAGE_LENGTH - 1]}…"

    def _parse_reply(self, body: bytes) -> ModelReply:
        try:
            said = json.loads(body)
            choice = said["choices"][0]
            message = choice["message"]
            text, refused = message.get("content"), isinstance(message.get("refusal"), str)
            usage, model = said.get("usage"), said.get("model")
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
            raise _malformed_reply("is no chat completion") from None
        usage = usage if isinstance(usage, dict) else {}
        answer = ModelReply(
            self._secrets.redact_reply(text) if isinstance(text, str) else "",
            self._clean(model)[:_MAX_MODEL_NAME_LENGTH] or None if isinstance(model, str) else None,
            _token_count(usage.get("prompt_tokens")),
            _token_count(usage.get("completion_tokens")),
        )
        if not answer.text:
            raise _malformed_reply("is a refusal" if refused else "is empty", answer, is_retryable=not refused)
        if choice.get("finish_reason") == "length":
            raise _malformed_reply("was cut off: raise max_tokens", answer, is_retryable=False)
        return answer


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that an endpoint wants to be left alone: `retry-after-ms`, else `retry-after` as number or date."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        said = headers.get(name)
        if said is None:
            continue
        try:
            seconds = float(said) / unit
        except ValueError:
            try:
                seconds = (parsedate_to_datetime(said) - datetime.now(timezone.utc)).total_seconds()
            except (ValueError, TypeError, OverflowError, LookupError):
                continue
        if 0 <= seconds < float("inf"):
            return seconds
    return None


async def _read_bounded(response: httpx2.Response) -> bytes:
    """The body of a response, as long as it is not too long."""
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise _malformed_reply("is packed, which was not asked for")
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > MAX_RESPONSE_BYTES:
            raise ModelRequestError("AnswerTooLarge", f"the model's answer is longer than {MAX_RESPONSE_BYTES} bytes")
    return bytes(body)


async def _read_beginning(response: httpx2.Response) -> bytes:
    """What there is to read of the body of a response that is no answer. Its status counts, whatever that is."""
    body = bytearray()
    if response.headers.get("content-encoding", "identity").lower() == "identity":
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > _MAX_ERROR_BODY_BYTES:
                break
    return bytes(body)


def _response_format(form: AnswerForm, question: JudgePrompt) -> Any:
    if form == "text":
        return None
    if form == "json_object":
        return {"type": "json_object"}
    schema = {"name": "tool_selection", "strict": True, "schema": dict(question.schema)}
    return {"type": "json_schema", "json_schema": schema}


def _token_count(said: Any) -> int | None:
    return said if isinstance(said, int) and not isinstance(said, bool) and 0 <= said < 1 << 40 else None


def _malformed_reply(what: str, answer: ModelReply | None = None, *, is_retryable: bool = True) -> ModelRequestError:
    error = ModelRequestError("MalformedAnswer", f"the model's answer {what}", is_retryable=is_retryable)
    error.reply = answer
    return error


# --- what is sent with each request -----------------------------------------------------------------------------------


def _is_url(given: object, read: Callable[[str], object], no_url: type[Exception]) -> bool:
    if not isinstance(given, str) or not BASE_URL_PATTERN.fullmatch(given):
        return False
    try:
        read(given)
        urlsplit(given).port  # noqa: B018 - it is read when it is asked for
    except (no_url, ValueError):  # a port that there is not, characters that no host has
        return False
    return True


def parse_api_key(given: object) -> str | None:
    """A key, without the end of the line that it was read from. Raises `ConfigurationError` for what is none."""
    if given is None:
        return None
    key = str(given).strip()
    if not isinstance(given, str) or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigurationError("the judge's API key holds characters that no key has")
    return key or None


def _validate_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers by their names in lower case. Raises `ConfigurationError` for what cannot be sent."""
    for name, value in headers.items():
        if not _is_header_value(name) or not _is_header_value(value):
            raise ConfigurationError(f"the judge's header {short_repr(name)} cannot be sent: it is no text in one line")
        if not _HEADER_NAME.fullmatch(name):
            raise ConfigurationError(f"the judge's header {short_repr(name)} cannot be sent: no header is called so")
    return {name.lower(): value.strip() for name, value in headers.items()}


def _is_header_value(given: object) -> bool:
    return isinstance(given, str) and given.isascii() and given.isprintable()


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def _validate_extra(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Further members of requests. Raises `ConfigurationError` for what is no JSON."""
    try:
        written = json.loads(json.dumps(dict(extra), allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        written = None
    if not isinstance(written, dict):
        raise ConfigurationError(f"extra holds members of a request, as JSON knows them, not {short_repr(extra)}")
    return written
