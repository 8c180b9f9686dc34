"""Loads the templates and assets, and escapes every text before a template renders it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from goldspan._extras import require_extra
from goldspan.model.rendering import truncate
from goldspan.web import display_text

ASSETS_PATH = "/assets/"
_MEDIA_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_FILES: Mapping[str, str] = {
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
    media_type: str
    version: str
    """Changes with its content."""


@cache
def load_asset(name: str) -> Asset | None:
    """The file of that name, or `None`: nothing but what is listed here is ever read."""
    place = _FILES.get(name)
    if place is None:
        return None
    body = files("goldspan.web").joinpath(f"assets/{place}").read_bytes()
    return Asset(body, _MEDIA_TYPES[name.rpartition(".")[2]], sha256(body).hexdigest()[:12])


def asset_address(name: str) -> str:
    """Where a file is; the address changes with its content, so that browsers may keep it for good."""
    found = load_asset(name)
    assert found is not None, name
    return f"{ASSETS_PATH}{name}?v={found.version}"


def asset_text(name: str) -> str:
    """A file as text, to stand inside a page."""
    found = load_asset(name)
    assert found is not None, name
    return found.body.decode("utf-8")


with require_extra("web"):
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup


_MAX_TEXT_LENGTH = 30_000
"""Characters of one text: longer ones, that nobody has thought of, do not make a page that no browser shows."""


def render(name: str, **context: Any) -> str:
    """A page, made of the template of that name."""
    return _environment.get_template(name).render(context)


def trusted_html(text: str) -> Any:
    """What is HTML already, or is meant to stand as it is, such as a style sheet."""
    return Markup(text)  # nothing from a trace comes here but by way of a template


def _finalize(value: Any) -> Any:
    """Whatever a template writes goes through here, and then through the escaping of HTML."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return display_text.escape_invisible(display_text.truncate_value(value, _MAX_TEXT_LENGTH))


def _new_environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("goldspan.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    for helper in (
        asset_address,
        display_text.dollars,
        display_text.duration,
        display_text.golden_address,
        display_text.grouped,
        display_text.instant,
        display_text.instant_utc,
        display_text.list_address,
        display_text.number,
        display_text.percent,
        display_text.plural,
        display_text.run_address,
        truncate,
    ):
        environment.globals[helper.__name__] = helper
    return environment


_environment = _new_environment()
