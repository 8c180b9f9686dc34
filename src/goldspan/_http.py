"""What goldspan's HTTP clients share: safe texts for logs, `Retry-After`, no spans of their own."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, Context, attach, detach, set_value

BASE_URL_PATTERN = re.compile(r"https?://[^\s@/?#]+(/[^\s@?#]*)?")
"""A base URL, without a password or a query."""
_MIN_SECRET_LENGTH = 8
"""Minimum length of a secret in a header, and of a secret that is removed from answers: many answers contain `1`."""


class SecretRedactor:
    """Removes the key and the values of headers from texts and logs."""

    def __init__(self, key: str | None, headers: Mapping[str, str]) -> None:
        words = {
            word for value in headers.values() for word in (value, *value.split()) if len(word) >= _MIN_SECRET_LENGTH
        }
        self._all = _sort_by_length({key, *words})
        self._long = [secret for secret in self._all if len(secret) >= _MIN_SECRET_LENGTH]

    def redact(self, text: str) -> str:
        """Return an error text without the secrets."""
        return _replace_secrets(text, self._all)

    def redact_reply(self, text: str) -> str:
        """Return an answer without the long secrets; short keys are placeholders of endpoints that need no key."""
        return _replace_secrets(text, self._long)

    @contextmanager
    def redact_client_logs(self) -> Iterator[None]:
        """Redact the logs of the HTTP client in this context: it logs the headers of responses."""
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
_current_redactor: ContextVar[SecretRedactor | None] = ContextVar("_current_redactor", default=None)


def _sort_by_length(secrets: Iterable[str | None]) -> list[str]:
    """Sort longest first, because one secret may be a part of another."""
    return sorted((secret for secret in secrets if secret), key=len, reverse=True)


def _replace_secrets(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "[key]")
    return text


_MAX_FOREIGN_LENGTH = 4000
"""Characters of a foreign text that are looked at."""


def to_one_line(text: str, max_length: int) -> str:
    """Return a foreign text as one line of printable characters, shortened to `max_length`."""
    beginning = text[:_MAX_FOREIGN_LENGTH]
    line = " ".join("".join(character if character.isprintable() else " " for character in beginning).split())
    return line if len(line) <= max_length else f"{line[: max_length - 1]}…"


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of `retry-after-ms`, else of `retry-after` as a number or a date, or `None`."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) / unit
        except ValueError:
            try:
                seconds = (parsedate_to_datetime(value) - datetime.now(timezone.utc)).total_seconds()
            except (ValueError, TypeError, OverflowError, LookupError):
                continue
        if 0 <= seconds < float("inf"):
            return seconds
    return None


@contextmanager
def suppress_instrumentation() -> Iterator[None]:
    """Suppress spans of goldspan's own requests: they would become runs, which would be scored in turn.

    The empty context also keeps the requests out of the application's current trace.
    """
    token = attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True, Context()))
    try:
        yield
    finally:
        detach(token)
