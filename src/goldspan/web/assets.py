"""The files that pages load beside themselves: style, scripts, and what of others is among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files

FOLDER = "/assets/"
_MEDIA = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_PLACES: Mapping[str, str] = {
    "htmx.js": "vendor/htmx.min.js",
    "uplot.js": "vendor/uplot.min.js",
    "uplot.css": "vendor/uplot.min.css",
    "page.css": "page.css",
    "page.js": "page.js",
    "charts.js": "charts.js",
    "icon.svg": "icon.svg",
}
"""The name in a URL of each file."""


@dataclass(frozen=True, slots=True)
class Asset:
    """One file."""

    body: bytes
    media: str
    version: str
    """Changes with its content."""


@cache
def asset(name: str) -> Asset | None:
    """The file of that name, or `None`: nothing but what is listed here is ever read."""
    place = _PLACES.get(name)
    if place is None:
        return None
    body = files("goldspan.web").joinpath(f"assets/{place}").read_bytes()
    return Asset(body, _MEDIA[name.rpartition(".")[2]], sha256(body).hexdigest()[:12])


def asset_address(name: str) -> str:
    """Where a file is; the address changes with its content, so that browsers may keep it for good."""
    found = asset(name)
    assert found is not None, name
    return f"{FOLDER}{name}?v={found.version}"


def asset_text(name: str) -> str:
    """A file as text, to stand inside a page."""
    found = asset(name)
    assert found is not None, name
    return found.body.decode("utf-8")
