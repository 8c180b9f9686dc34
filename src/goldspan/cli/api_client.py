"""Client of the API of a running gateway, built on the standard library."""

from __future__ import annotations

import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlencode, urlsplit

from goldspan.errors import ConfigurationError, GoldspanError

ApiDocument = dict[str, Any]
"""A run or an evaluation in the JSON of the API."""

MAX_DOCUMENTS_PER_PAGE = 200
"""Documents in one response."""
_TIMEOUT_S = 15.0
"""Timeout of each read from the connection."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_MAX_MESSAGE_LENGTH = 300
"""Characters of a message of the gateway that are repeated."""
_NEEDS_TOKEN = "requires a read token: set --token-file, or the variable GOLDSPAN_READ_TOKEN"


class GatewayUnavailableError(GoldspanError):
    """The gateway does not answer; a retry may succeed."""


class ApiClient:
    """Reads from a gateway at an address such as `http://127.0.0.1:4318`; the scheme is optional.

    Every method raises `GatewayUnavailableError` where a retry may succeed, and `ConfigurationError` where it cannot:
    for a wrong address or token, an untrusted certificate, or a server that is not a gateway.
    """

    def __init__(self, address: str, token: str | None = None, ca_file: Path | None = None) -> None:
        self.address = _parse_address(address)
        self._has_answered = False
        self._headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        # A proxy is not used for loopback addresses: it cannot reach them, and must not see the token.
        here = urlsplit(self.address).hostname in _LOOPBACK
        proxies = [urllib.request.ProxyHandler({})] if here else []
        self._opener = urllib.request.build_opener(
            *proxies, urllib.request.HTTPSHandler(context=_ssl_context(ca_file)), _NoRedirects
        )

    def require_goldspan(self) -> None:
        """Raise `ConfigurationError` where the server is not a gateway of goldspan."""
        info = self._get("openapi.json").get("info")
        if not isinstance(info, dict) or info.get("title") != "goldspan":
            raise self._not_goldspan_error()

    def list_runs(self, parameters: Mapping[str, str], limit: int) -> list[ApiDocument]:
        """Return up to `limit` runs that the parameters select, newest first, each with its current evaluation."""
        found: list[ApiDocument] = []
        cursor: str | None = None
        while len(found) < limit:
            page = {"limit": str(min(MAX_DOCUMENTS_PER_PAGE, limit - len(found)))} | (
                {"cursor": cursor} if cursor else {}
            )
            answer = self._get("runs", {**parameters, **page})
            found += self._documents_in(answer, "runs")
            cursor = answer.get("next_cursor")
            if not isinstance(cursor, str):
                break
        return found

    def evaluations_after(self, after: int, limit: int = MAX_DOCUMENTS_PER_PAGE) -> tuple[list[ApiDocument], int]:
        """Return the evaluations after a sequence number, in order, and the number for the next call."""
        answer = self._get("evaluations", {"after": str(after), "limit": str(limit)})
        found, place = self._documents_in(answer, "evaluations"), answer.get("next_after")
        if not isinstance(place, int):
            raise self._not_goldspan_error()
        return found, place

    def last_sequence_number(self) -> int:
        """Return the last sequence number in the store. A binary search finds it in about thirty short requests."""
        at, step = 0, 1
        while True:
            found, place = self.evaluations_after(at + step, 1)
            if not found:
                break
            at, step = place, step * 2
        end = at + step
        while at < end:
            middle = (at + end) // 2
            found, place = self.evaluations_after(middle, 1)
            at, end = (place, end) if found else (at, middle)
        return at

    def _documents_in(self, answer: ApiDocument, name: str) -> list[ApiDocument]:
        found = answer.get(name)
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise self._not_goldspan_error()
        return found

    def _get(self, what: str, said: Mapping[str, str] | None = None) -> ApiDocument:
        url = f"{self.address}/api/v1/{what}" + (f"?{urlencode(said)}" if said else "")
        try:
            with self._opener.open(urllib.request.Request(url, headers=self._headers), timeout=_TIMEOUT_S) as answer:
                read = json.loads(answer.read())
        except urllib.error.HTTPError as refusal:
            with refusal:
                raise self._status_error(refusal) from None
        except (OSError, HTTPException) as error:
            raise self._connection_error(error) from None
        except ValueError:
            raise self._not_goldspan_error() from None
        if not isinstance(read, dict):
            raise self._not_goldspan_error()
        self._has_answered = True
        return read

    def _status_error(self, refusal: urllib.error.HTTPError) -> GoldspanError:
        """Return the error for a response other than 200."""
        told = _error_message(refusal)
        if refusal.code == 401:
            return ConfigurationError(f"{self.address} {_NEEDS_TOKEN}" + (f" ({told})" if told else ""))
        if refusal.code in (429, 500, 502, 503, 504):
            return GatewayUnavailableError(
                f"{self.address} cannot answer now" + (f": {told}" if told else f" ({refusal.code})")
            )
        if told:
            return ConfigurationError(f"{self.address} says: {told}")
        if location := refusal.headers.get("Location"):
            return ConfigurationError(
                f"{self.address} redirects to another address; use that address: {location[:_MAX_MESSAGE_LENGTH]}"
            )
        return self._not_goldspan_error()

    def _connection_error(self, error: OSError | HTTPException) -> GoldspanError:
        """Return the error for a failed connection."""
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(reason, ssl.SSLCertVerificationError):
            return ConfigurationError(
                f"the certificate of {self.address} is not trusted ({reason.verify_message}); --ca-file names the "
                "authority that it comes from"
            )
        if isinstance(reason, ssl.SSLError) and "WRONG_VERSION" in str(reason):
            return ConfigurationError(f"{self.address} does not use TLS; try http://")
        if isinstance(reason, TimeoutError):
            return GatewayUnavailableError(f"{self.address} does not answer within {_TIMEOUT_S:g} seconds")
        what = (reason.strerror if isinstance(reason, OSError) else None) or str(reason) or type(reason).__name__
        # A gateway that answered before is stopping: it closed this connection before it read the request.
        is_closed = isinstance(error, (HTTPException, ConnectionResetError))
        hint = "; try https://" if is_closed and not self._has_answered else ""
        return GatewayUnavailableError(
            f"{self.address} does not answer: {what[0].lower()}{what[1:_MAX_MESSAGE_LENGTH]}{hint}"
        )

    def _not_goldspan_error(self) -> ConfigurationError:
        return ConfigurationError(f"{self.address} answers, but is not a goldspan gateway")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the token must not reach another server."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        """Return nothing, so that urllib raises the redirect as an error."""


def _parse_address(said: str) -> str:
    """Return the address with its scheme and without a trailing slash."""
    address = said if re.match(r"[a-z]+://", said) else f"http://{said}"
    try:
        parts = urlsplit(address)
        fits = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1) > 0
    except ValueError:
        fits = False
    if not fits or parts.username is not None or parts.query or parts.fragment or re.search(r"\s", address):
        raise ConfigurationError(f"{said!r} is not the address of a gateway; expected the form http://127.0.0.1:4318")
    return address.rstrip("/")


def _ssl_context(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        why = "it holds no certificate" if isinstance(error, ssl.SSLError) else (error.strerror or str(error)).lower()
        raise ConfigurationError(f"--ca-file: {ca_file} cannot be read: {why}") from None


def _error_message(refusal: urllib.error.HTTPError) -> str:
    """Return the error message in a response of a gateway; empty where there is none."""
    try:
        message = json.loads(refusal.read(65_536))["error"]["message"]
    except (OSError, HTTPException, ValueError, TypeError, LookupError):
        return ""
    return str(message)[:_MAX_MESSAGE_LENGTH].rstrip(".")
