"""Vendored files equal their releases, and their licences are included."""

from __future__ import annotations

import re
from hashlib import sha256
from importlib.resources import files
from typing import NamedTuple

import pytest

from goldspan.web.page_templates import ASSETS_PATH, asset_address, asset_text, load_asset

FOLDER_OF_OTHERS = files("goldspan.web") / "assets" / "vendor"
README = (FOLDER_OF_OTHERS / "README.md").read_text(encoding="utf-8")
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


def test_every_file_of_others_is_listed() -> None:
    there = {each.name for each in FOLDER_OF_OTHERS.iterdir()}
    assert there == {"README.md"} | {each.file for each in LISTED} | {each.licence for each in LISTED}
    assert len(LISTED) == 3


@pytest.mark.parametrize("listed", LISTED, ids=lambda each: each.file)
def test_a_file_is_as_it_was_released(listed: Vendored) -> None:
    assert sha256((FOLDER_OF_OTHERS / listed.file).read_bytes()).hexdigest() == listed.digest
    assert len((FOLDER_OF_OTHERS / listed.licence).read_text(encoding="utf-8")) > 500


def test_files_say_the_version_that_is_listed() -> None:
    versions = {each.file: each.version for each in LISTED}
    assert f'"{versions["htmx.min.js"]}"' in asset_text("htmx.js")
    assert f"(v{versions['uplot.min.js']})" in asset_text("uplot.js")


@pytest.mark.parametrize("name", NAMES)
def test_an_address_of_a_file_changes_with_it(name: str) -> None:
    found = load_asset(name)
    assert found is not None
    assert found.version == sha256(found.body).hexdigest()[:12]
    assert asset_address(name) == f"{ASSETS_PATH}{name}?v={found.version}"


@pytest.mark.parametrize("name", ["", "vendor/htmx.min.js", "../site.py", "README.md", "page.css\n", "PAGE.CSS"])
def test_no_other_file_is_read(name: str) -> None:
    assert load_asset(name) is None


def test_nothing_is_fetched_from_elsewhere() -> None:
    for name in ("page.css", "page.js", "charts.js", "uplot.css"):
        assert not re.search(r"(https?:)?//[a-z]+\.[a-z]+/|@import|url\((?!#)", asset_text(name)), name
