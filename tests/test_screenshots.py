"""Tests of the pictures in the documentation: a page shows each one, and the script takes all of them."""

from __future__ import annotations

import re
import struct
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from support.docs_examples import ROOT

IMAGES = ROOT / "docs" / "images"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = spec_from_file_location("generate_screenshots", ROOT / "docs" / "generate_screenshots.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module there
    path = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = path
    return module


def test_a_page_shows_every_picture_with_an_alternative_text(script: ModuleType) -> None:
    taken = {f"{picture.name}.png" for picture in script.PICTURES}
    shown = [
        (words, (page.parent / target).resolve())
        for page in PAGES
        for words, target in re.findall(r"!\[([^\]]*)\]\(([^)\s]+\.png)\)", page.read_text(encoding="utf-8"))
    ]
    assert {file.name for file in IMAGES.iterdir()} == taken == {target.name for _, target in shown}
    assert all(target.parent == IMAGES and len(words) > 10 for words, target in shown)
    assert any("docs/images/" in each for each in [(ROOT / "README.md").read_text(encoding="utf-8")])


def test_the_stored_pictures_have_the_declared_dimensions_and_a_bounded_size(script: ModuleType) -> None:
    _check(script, IMAGES)


@pytest.mark.e2e
@pytest.mark.needs("chromium")
def test_the_script_takes_all_pictures(script: ModuleType, tmp_path: Path) -> None:
    script.take(tmp_path)
    _check(script, tmp_path)


def _check(script: ModuleType, folder: Path) -> None:
    for picture in script.PICTURES:
        content = (folder / f"{picture.name}.png").read_bytes()
        assert content[:8] == b"\x89PNG\r\n\x1a\n"
        assert struct.unpack(">II", content[16:24]) == (picture.width, picture.height)
        assert 10_000 < len(content) <= script.MAX_BYTES, picture.name
