"""The templates, and what is done to every text before it stands in one."""

from __future__ import annotations

from typing import Any

from goldspan.model.rendering import short
from goldspan.web import texts
from goldspan.web.assets import asset_address
from goldspan.web.extra import needed

with needed():
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup


_LONGEST = 30_000
"""Characters of one text: longer ones, that nobody has thought of, do not make a page that no browser shows."""


def render(name: str, **context: Any) -> str:
    """A page, made of the template of that name."""
    return _environment.get_template(name).render(context)


def as_it_is(text: str) -> Any:
    """What is HTML already, or is meant to stand as it is, such as a style sheet."""
    return Markup(text)  # nothing from a trace comes here but by way of a template


def _shown(value: Any) -> Any:
    """Whatever a template writes goes through here, and then through the escaping of HTML."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return texts.visible(texts.cut(value, _LONGEST))


def _new_environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("goldspan.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    for helper in (
        asset_address,
        texts.dollars,
        texts.duration,
        texts.golden_address,
        texts.grouped,
        texts.instant,
        texts.instant_utc,
        texts.list_address,
        texts.number,
        texts.percent,
        texts.plural,
        texts.run_address,
        short,
    ):
        environment.globals[helper.__name__] = helper
    return environment


_environment = _new_environment()
