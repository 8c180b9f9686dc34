"""Tests of the pictures in the documentation: a page shows each one, and the script takes all of them."""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from recipes.environments import is_built
from support.docs_examples import ROOT

IMAGES = ROOT / "docs" / "images"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return _load("generate_screenshots")


@pytest.fixture(scope="module")
def products() -> ModuleType:
    """The script for the pictures of Phoenix and MLflow."""
    return _load("generate_product_screenshots")


def _load(name: str) -> ModuleType:
    spec = spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module there
    path = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = path
    return module


def test_a_page_shows_every_picture_with_an_alternative_text(script: ModuleType, products: ModuleType) -> None:
    taken = {f"{picture.name}.png" for picture in (*script.PICTURES, *products.PICTURES)}
    shown = [
        (words, (page.parent / target).resolve())
        for page in PAGES
        for words, target in re.findall(r"!\[([^\]]*)\]\(([^)\s]+\.png)\)", page.read_text(encoding="utf-8"))
    ]
    assert {file.name for file in IMAGES.iterdir()} == taken == {target.name for _, target in shown}
    assert all(target.parent == IMAGES and len(words) > 10 for words, target in shown)
    assert any("docs/images/" in each for each in [(ROOT / "README.md").read_text(encoding="utf-8")])


def test_the_stored_pictures_have_the_declared_dimensions_and_a_bounded_size(
    script: ModuleType, products: ModuleType
) -> None:
    _check(script, script.PICTURES, IMAGES)
    _check(script, products.PICTURES, IMAGES)


@pytest.mark.e2e
@pytest.mark.needs("chromium")
def test_the_script_takes_all_pictures(script: ModuleType, tmp_path: Path) -> None:
    script.take(tmp_path)
    _check(script, script.PICTURES, tmp_path)


@pytest.mark.e2e
@pytest.mark.needs("chromium")
@pytest.mark.skipif(
    not all(map(is_built, ("phoenix", "mlflow"))), reason="the products need their environments: make recipes"
)
def test_the_script_takes_the_pictures_of_the_products(
    script: ModuleType, products: ModuleType, tmp_path: Path
) -> None:
    products.take(tmp_path)
    _check(script, products.PICTURES, tmp_path)


def _check(script: ModuleType, pictures: Sequence[Any], folder: Path) -> None:
    for picture in pictures:
        content = (folder / f"{picture.name}.png").read_bytes()
        assert content[:8] == b"\x89PNG\r\n\x1a\n"
        assert struct.unpack(">II", content[16:24]) == (picture.width, picture.height)
        assert 10_000 < len(content) <= script.MAX_BYTES, picture.name
