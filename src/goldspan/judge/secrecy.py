"""Secrets that an endpoint is given, kept out of every text: errors, answers, and what the HTTP client logs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_SHORTEST = 8
"""Characters of what may be a secret in a header, and of what is looked for in answers: `1` stands in many of them."""


class Secrets:
    """A key, and what stands in headers."""

    def __init__(self, key: str | None, headers: Mapping[str, str]) -> None:
        words = {word for value in headers.values() for word in (value, *value.split()) if len(word) >= _SHORTEST}
        self._all = _longest_first({key, *words})
        self._long = [each for each in self._all if len(each) >= _SHORTEST]

    def out_of(self, text: str) -> str:
        """A text about the endpoint, or of it, without them."""
        return _without(text, self._all)

    def out_of_answer(self, text: str) -> str:
        """An answer without them; what people write where no key is needed is none."""
        return _without(text, self._long)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Keep them out of what the HTTP client logs of what is done here: it logs the headers of answers."""
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(_HIDING)
        before = _hidden.set(self)
        try:
            yield
        finally:
            _hidden.reset(before)


class _Hiding(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if (secrets := _hidden.get()) is not None:
            record.msg, record.args = secrets.out_of(record.getMessage()), None
        return True


_HIDING = _Hiding()
_LOGGERS = ("httpx2", *(f"httpcore2.{part}" for part in ("connection", "http11", "http2", "proxy", "socks")))
_hidden: ContextVar[Secrets | None] = ContextVar("_hidden", default=None)


def _longest_first(found: Iterable[str | None]) -> list[str]:
    """One may be a part of another."""
    return sorted((each for each in found if each), key=len, reverse=True)


def _without(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "[key]")
    return text
