"""Vendored files equal their releases, and their licences are included."""

from __future__ import annotations

import re
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

import pytest

from goldspan.web.page_templates import ASSETS_PATH, asset_address, asset_text, load_asset

VENDOR_FOLDER = files("goldspan.web") / "assets" / "vendor"
README = (VENDOR_FOLDER / "README.md").read_text(encoding="utf-8")
_ROW = re.compile(
    r"\| `(?P<file>[\w.-]+)` \| `[\w.-]+@(?P<version>[\d.]+)`.*, `(?P<licence>[\w.]+)` \| `(?P<digest>\w{64})` \|"
)
NAMES = ("htmx.js", "uplot.js", "uplot.css", "page.css", "page.js", "charts.js", "icon.svg")


class Vendored(NamedTuple):
    file: str
    version: str
    licence: str
    digest: str


LISTED = [Vendored(**found.groupdict()) for found in _ROW.finditer(README)]


def test_every_vendored_file_is_listed_in_the_readme() -> None:
    there = {each.name for each in VENDOR_FOLDER.iterdir()}
    assert there == {"README.md"} | {each.file for each in LISTED} | {each.licence for each in LISTED}
    assert len(LISTED) == 3


@pytest.mark.parametrize("listed", LISTED, ids=lambda each: each.file)
def test_each_vendored_file_has_the_digest_of_its_release_and_its_licence(listed: Vendored) -> None:
    assert sha256((VENDOR_FOLDER / listed.file).read_bytes()).hexdigest() == listed.digest
    assert len((VENDOR_FOLDER / listed.licence).read_text(encoding="utf-8")) > 500


def test_vendored_scripts_contain_the_listed_version() -> None:
    versions = {each.file: each.version for each in LISTED}
    assert f'"{versions["htmx.min.js"]}"' in asset_text("htmx.js")
    assert f"(v{versions['uplot.min.js']})" in asset_text("uplot.js")


@pytest.mark.parametrize("name", NAMES)
def test_the_address_of_an_asset_contains_the_digest_of_its_content(name: str) -> None:
    found = load_asset(name)
    assert found is not None
    assert found.version == sha256(found.body).hexdigest()[:12]
    assert asset_address(name) == f"{ASSETS_PATH}{name}?v={found.version}"


@pytest.mark.parametrize("name", ["", "vendor/htmx.min.js", "../site.py", "README.md", "page.css\n", "PAGE.CSS"])
def test_files_that_are_not_assets_are_not_loaded(name: str) -> None:
    assert load_asset(name) is None


def test_styles_and_scripts_load_nothing_from_other_hosts() -> None:
    for name in ("page.css", "page.js", "charts.js", "uplot.css"):
        assert not re.search(r"(https?:)?//[a-z]+\.[a-z]+/|@import|url\((?!#)", asset_text(name)), name
