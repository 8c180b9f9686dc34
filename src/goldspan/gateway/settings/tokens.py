"""Bearer tokens as people keep them: one a line, with comments. No error repeats any of them."""

from __future__ import annotations

import re
from pathlib import Path

from goldspan.errors import ConfigurationError

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, section 2.1


def tokens_in_file(path: Path, place: str) -> list[str]:
    """The tokens in a file. Raises `ConfigurationError`, which names the place of the setting and the file."""
    where = f"{place}: {path}"
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{where} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{where} is no text") from None
    return tokens_in(text, where)


def tokens_in(text: str, where: str) -> list[str]:
    """The tokens in a text. Raises `ConfigurationError` where there are none, or what is there can be no token."""
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1)]
    tokens = [(number, line) for number, line in lines if line and not line.startswith("#")]
    if not tokens:
        raise ConfigurationError(f"{where} holds no token")
    for number, token in tokens:
        if not _TOKEN.fullmatch(token):
            raise ConfigurationError(f"{where}, line {number}: a token is made of letters, digits and -._~+/ only")
    return [token for _, token in tokens]
