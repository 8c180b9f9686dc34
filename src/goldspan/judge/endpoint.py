"""A model behind an OpenAI-compatible endpoint: the one door to the HTTP client.

It is httpx2, on which the clients of OpenAI and Anthropic themselves stand. Their clients are not used: one request is
all that is needed here, and they read answers of any size, wait for a minute where an endpoint asks for it, and count
no attempts.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import urlsplit

from goldspan._version import __version__
from goldspan.errors import ConfigurationError
from goldspan.goldens.words import listed, shown
from goldspan.judge.answers import Answer, AskingError
from goldspan.judge.extra import needed
from goldspan.judge.questions import Question
from goldspan.judge.secrecy import Secrets

if TYPE_CHECKING:
    import httpx2

OPENAI = "https://api.openai.com/v1"
AnswerForm = Literal["json_schema", "json_object", "text"]
"""How the form of the answer is asked for beside the instructions: by its schema, as any JSON, or not at all."""
FORMS: tuple[AnswerForm, ...] = get_args(AnswerForm)

LONGEST_ANSWER = 1 << 20
"""Bytes of an answer, with all that stands around it."""
_LONGEST_REFUSAL = 1 << 16
"""Bytes that are read of what an endpoint says instead of an answer."""
_LONGEST_MESSAGE = 300
_LONGEST_NAME = 200
_CONNECT_SECONDS = 10.0
URL_FORM = re.compile(r"https?://[^\s@/?#]+(/[^\s@?#]*)?")
"""A base URL, without a password or a query."""


class ModelEndpoint:
    """Asks a model by `POST {base_url}/chat/completions`.

    `api_key` is sent as a bearer token and appears in no text; neither do values of `headers`. `extra` are further
    members of the request, such as `{"reasoning_effort": "low"}`; one that is `None` is left out of the request:
    `{"seed": None}` for an endpoint that takes none. Redirections are not followed, so that the key goes nowhere else.

    Raises `ConfigurationError` for a URL that is none, or holds a password, and for what no request can hold;
    `MissingExtraError` where the extra `judge` is not installed.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = OPENAI,
        api_key: str | None = None,
        answer_form: AnswerForm = "json_schema",
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        with needed():
            import httpx2  # whether it can be is said now, not in the middle of a request
        if not isinstance(model, str) or not model.strip():  # type: ignore[redundant-expr]
            raise ConfigurationError(f"the judge's model is a name, not {shown(model)}")
        if not _is_url(base_url, httpx2.URL, httpx2.InvalidURL):
            raise ConfigurationError(
                "the judge's URL is written as https://api.openai.com/v1, without a password or a query; "
                "keys go into api_key"
            )
        if answer_form not in FORMS:
            raise ConfigurationError(f"answer_form is {listed(FORMS, last='or')}, not {shown(answer_form)}")
        self.model = model.strip()
        self.base_url = base_url.rstrip("/")
        self._server = urlsplit(base_url).netloc  # told where nobody answers: of a path, parts may be secret
        self._form = answer_form
        # OpenAI's own newer models refuse the older name, which is the one that most others know.
        self._limit = "max_completion_tokens" if self.base_url == OPENAI else "max_tokens"
        key, given = key_in(api_key), _sendable_headers(headers or {})
        own = {"user-agent": f"goldspan/{__version__}", "accept-encoding": "identity"}
        self._headers = own | given | ({"authorization": f"Bearer {key}"} if key else {})
        self._extra = _sendable_members(extra or {})
        self._secrets = Secrets(key, given)

    def __repr__(self) -> str:
        return f"ModelEndpoint({self.model!r}, base_url={self.base_url!r})"

    @property
    def most_output(self) -> int:
        """Tokens that `extra` allows an answer, whatever the question does."""
        named = (self._extra.get(name) for name in ("max_tokens", "max_completion_tokens"))
        return max((each for each in named if isinstance(each, int)), default=0)

    @property
    def identity(self) -> str:
        """What tells its answers from those of others, in a cache."""
        return json.dumps([self.base_url, self.model, self._form, self._extra], sort_keys=True, default=repr)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Callable[[Question], Awaitable[Answer]]]:
        """A function that asks, with connections that are kept for as long as this is open."""
        import httpx2

        # How long an answer may take is the judge's to say; what hangs while connecting need not take as long.
        timeout = httpx2.Timeout(None, connect=_CONNECT_SECONDS)
        async with httpx2.AsyncClient(headers=self._headers, timeout=timeout, follow_redirects=False) as client:

            async def ask(question: Question) -> Answer:
                with self._secrets.hidden():
                    return await self._ask(client, question)

            yield ask

    async def _ask(self, client: httpx2.AsyncClient, question: Question) -> Answer:
        import httpx2

        url = f"{self.base_url}/chat/completions"
        try:
            async with client.stream("POST", url, json=self._request(question)) as response:
                if response.status_code != 200:
                    body = await _beginning(response)
                    raise self._refusal(response.status_code, response.headers, body)
                body = await _bounded(response)
        except httpx2.ConnectTimeout:
            told = f"no connection to {self._server} within {_CONNECT_SECONDS:g} s"
            raise AskingError("Timeout", told, again=True, spent=False) from None
        except httpx2.ConnectError as error:
            told = f"{self._clean(str(error)) or 'no connection'} ({self._server})"
            raise AskingError("Unreachable", told, again=True, spent=False) from None
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            told = self._clean(str(error)) or "the connection broke off"
            raise AskingError("Unreachable", f"{type(error).__name__}: {told}", again=True) from None
        return self._answer(body)

    def _request(self, question: Question) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self.model,
            "messages": question.messages,
            self._limit: question.max_tokens,
            "temperature": question.temperature,
            "seed": question.seed,
            "response_format": _form(self._form, question),
        }
        return {name: value for name, value in (request | self._extra).items() if value is not None}

    def _refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> AskingError:
        """What an answer other than 200 means."""
        told = self._told(body)
        text = f"the endpoint answered {status}{f': {told}' if told else ''}"
        exhausted = b"insufficient_quota" in body[:4096]
        wait = retry_after(headers)
        if status == 429:
            return AskingError("RateLimited", text, again=not exhausted, retry_after=wait, spent=False)
        if status in (408, 409) or status >= 500:
            return AskingError("EndpointError", text, again=True, retry_after=wait, spent=False)
        refused = AskingError("EndpointRefused", text, spent=False)
        refused.lasting = status in (401, 403, 404)
        return refused

    def _told(self, body: bytes) -> str:
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
        text = self._secrets.out_of(text)
        text = " ".join("".join(each if each.isprintable() else " " for each in text[:4000]).split())
        return text if len(text) <= _LONGEST_MESSAGE else f"{text[: _LONGEST_MESSAGE - 1]}…"

    def _answer(self, body: bytes) -> Answer:
        try:
            said = json.loads(body)
            choice = said["choices"][0]
            message = choice["message"]
            text, refused = message.get("content"), isinstance(message.get("refusal"), str)
            usage, model = said.get("usage"), said.get("model")
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
            raise _malformed("is no chat completion") from None
        usage = usage if isinstance(usage, dict) else {}
        answer = Answer(
            self._secrets.out_of_answer(text) if isinstance(text, str) else "",
            self._clean(model)[:_LONGEST_NAME] or None if isinstance(model, str) else None,
            _count(usage.get("prompt_tokens")),
            _count(usage.get("completion_tokens")),
        )
        if not answer.text:
            raise _malformed("is a refusal" if refused else "is empty", answer, again=not refused)
        if choice.get("finish_reason") == "length":
            raise _malformed("was cut off: raise max_tokens", answer, again=False)
        return answer


def retry_after(headers: Mapping[str, str]) -> float | None:
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


async def _bounded(response: httpx2.Response) -> bytes:
    """The body of a response, as long as it is not too long."""
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise _malformed("is packed, which was not asked for")
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > LONGEST_ANSWER:
            raise AskingError("AnswerTooLarge", f"the model's answer is longer than {LONGEST_ANSWER} bytes")
    return bytes(body)


async def _beginning(response: httpx2.Response) -> bytes:
    """What there is to read of the body of a response that is no answer. Its status counts, whatever that is."""
    body = bytearray()
    if response.headers.get("content-encoding", "identity").lower() == "identity":
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > _LONGEST_REFUSAL:
                break
    return bytes(body)


def _form(form: AnswerForm, question: Question) -> Any:
    if form == "text":
        return None
    if form == "json_object":
        return {"type": "json_object"}
    schema = {"name": "tool_selection", "strict": True, "schema": dict(question.schema)}
    return {"type": "json_schema", "json_schema": schema}


def _count(said: Any) -> int | None:
    return said if isinstance(said, int) and not isinstance(said, bool) and 0 <= said < 1 << 40 else None


def _malformed(what: str, answer: Answer | None = None, *, again: bool = True) -> AskingError:
    error = AskingError("MalformedAnswer", f"the model's answer {what}", again=again)
    error.answer = answer
    return error


# --- what is sent with each request -----------------------------------------------------------------------------------


def _is_url(given: object, read: Callable[[str], object], no_url: type[Exception]) -> bool:
    if not isinstance(given, str) or not URL_FORM.fullmatch(given):
        return False
    try:
        read(given)
        urlsplit(given).port  # noqa: B018 - it is read when it is asked for
    except (no_url, ValueError):  # a port that there is not, characters that no host has
        return False
    return True


def key_in(given: object) -> str | None:
    """A key, without the end of the line that it was read from. Raises `ConfigurationError` for what is none."""
    if given is None:
        return None
    key = str(given).strip()
    if not isinstance(given, str) or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigurationError("the judge's API key holds characters that no key has")
    return key or None


def _sendable_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers by their names in lower case. Raises `ConfigurationError` for what cannot be sent."""
    for name, value in headers.items():
        if not _is_line(name) or not _is_line(value):
            raise ConfigurationError(f"the judge's header {shown(name)} cannot be sent: it is no text in one line")
        if not _HEADER.fullmatch(name):
            raise ConfigurationError(f"the judge's header {shown(name)} cannot be sent: no header is called so")
    return {name.lower(): value.strip() for name, value in headers.items()}


def _is_line(given: object) -> bool:
    return isinstance(given, str) and given.isascii() and given.isprintable()


_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def _sendable_members(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Further members of requests. Raises `ConfigurationError` for what is no JSON."""
    try:
        written = json.loads(json.dumps(dict(extra), allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        written = None
    if not isinstance(written, dict):
        raise ConfigurationError(f"extra holds members of a request, as JSON knows them, not {shown(extra)}")
    return written
