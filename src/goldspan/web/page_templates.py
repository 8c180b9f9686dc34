"""Loads the templates and assets, and escapes every text before a template renders it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from goldspan._extras import require_extra
from goldspan.model.markup import truncate
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
"""The file of each name in a URL."""


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that the page loads."""

    body: bytes
    media_type: str
    version: str
    """A hash of the content."""


@cache
def load_asset(name: str) -> Asset | None:
    """Return the file of that name, or `None` if the name is not in `_FILES`."""
    path = _FILES.get(name)
    if path is None:
        return None
    body = files("goldspan.web").joinpath(f"assets/{path}").read_bytes()
    return Asset(body, _MEDIA_TYPES[name.rpartition(".")[2]], sha256(body).hexdigest()[:12])


def asset_address(name: str) -> str:
    """Return the URL of a file. It contains the version, so that browsers can cache the file forever."""
    asset = load_asset(name)
    assert asset is not None, name
    return f"{ASSETS_PATH}{name}?v={asset.version}"


def asset_text(name: str) -> str:
    """Return the text of a file, to be inlined in a page."""
    asset = load_asset(name)
    assert asset is not None, name
    return asset.body.decode("utf-8")


with require_extra("web"):
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup


_MAX_TEXT_LENGTH = 30_000
"""Characters of one value. The limit keeps a page small enough for browsers, whatever its values are."""


def render(name: str, **context: Any) -> str:
    """Render the template of that name."""
    return _environment.get_template(name).render(context)


def trusted_html(text: str) -> Any:
    """Mark a text as HTML, or as a style sheet, that is not escaped."""
    return Markup(text)  # text of a trace gets here only through a template, which has escaped it


def _finalize(value: Any) -> Any:
    """Process each value that a template writes, before Jinja escapes it as HTML."""
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
