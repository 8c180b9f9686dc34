"""Tests of the documentation site: complete, without broken links, usable without a network and on a phone."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from html import unescape
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from goldspan import semconv
from goldspan.cli.app import COMMANDS, GOLDENS_COMMANDS
from support.browser import Visit, open_browser, visit
from support.docs_examples import ROOT

REFERENCE = ROOT / "docs" / "reference"
PUBLIC_PACKAGES = [
    *("goldspan", "goldspan.judge", "goldspan.profiles", "goldspan.sinks", "goldspan.spark", "goldspan.store"),
]
SITE = ROOT / ".site"
SHOWN = ["index.html", "tutorial.html", "concepts.html", "reference/errors.html", "scale.html"]
"""A page of each kind: a table, pictures and examples, diagrams, signatures, and a wide table."""
WIDTHS = [360, 768, 1280]
"""Those of a phone, a tablet and a desktop, in pixels."""
NEEDS_MKDOCS = pytest.mark.skipif(find_spec("mkdocs") is None, reason="the site needs MkDocs: make site")
_INPUTS = [
    *("docs", "src", "deploy", "examples"),
    "mkdocs.yml",
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"),
]
_EMPTY_INDEX = 'var __index = {"config": {"lang": ["en"], "separator": " ", "pipeline": []}, "docs": []}'
"""The search would read the whole index each time a page is opened."""
_LINK = re.compile(r"<(?P<tag>\w+)[^>]*?\s(?:href|src)=\"?(?P<target>[^\s\">]+)")
_ID = re.compile(r"\s(?:id|name)=\"?([^\s\">]+)")


@pytest.fixture(scope="module")
def site() -> Path:
    """The folder of the built site. It is built if a source is newer, by one process of pytest-xdist."""
    with (ROOT / "mkdocs.yml").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_current():
            command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
            if done.returncode:
                shutil.rmtree(SITE, ignore_errors=True)
            assert done.returncode == 0, done.stdout + done.stderr
    return SITE


def _is_current() -> bool:
    written_last = SITE / "search" / "search_index.js"
    inputs = [path for name in _INPUTS for path in [ROOT / name, *(ROOT / name).rglob("*.*")]]
    newest = max(path.stat().st_mtime for path in inputs if path.is_file() and path.suffix != ".pyc")
    return written_last.exists() and written_last.stat().st_mtime >= newest


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


@pytest.mark.parametrize("name", PUBLIC_PACKAGES)
def test_the_reference_lists_every_public_name(name: str) -> None:
    package = import_module(name)
    listed = _listed_names()
    found = {each.removeprefix(f"{name}.") for each in listed if each.rpartition(".")[0] == name}
    assert found == {each for each in package.__all__ if _has_description(package, each)}
    assert len(listed) == len(set(listed))


def test_the_reference_lists_every_name_that_an_example_imports() -> None:
    pages = [page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]]
    imports = re.findall(r"^from (goldspan[\w.]*) import (.+)$", "\n".join(pages), flags=re.MULTILINE)
    imported = [f"{module}.{name}" for module, names in imports for name in names.split(", ")]
    described = [_object_named(name) for name in _listed_names()]
    values = {name: _object_named(name) for name in imported}
    missing = {name for name, value in values.items() if not any(value is each for each in described)}
    assert {name for name in missing if not isinstance(values[name], ModuleType)} == set()
    assert len(imported) > 30


def _listed_names() -> list[str]:
    pages = [page.read_text(encoding="utf-8") for page in REFERENCE.glob("*.md")]
    return re.findall(r"^::: (\S+)$", "\n".join(pages), flags=re.MULTILINE)


def _object_named(name: str) -> object:
    module, _, attribute = name.rpartition(".")
    value = getattr(import_module(module), attribute, None)
    return import_module(name) if value is None else value


def test_the_vendored_script_equals_its_release_and_has_its_licence() -> None:
    """`npm pack iframe-worker@1.0.4` has it as `shim/index.js`."""
    vendored = ROOT / "docs" / "assets" / "vendor"
    digest = sha256((vendored / "iframe-worker.js").read_bytes()).hexdigest()
    assert digest == "e8e412dbcfea9b7e31b5ffa288d7b6035915e714c542f4176a0cdbe262fc9609"
    assert "Permission is hereby granted" in (vendored / "iframe-worker.LICENSE").read_text(encoding="utf-8")


def _has_description(package: ModuleType, name: str) -> bool:
    """Whether the reference describes the name: neither the version, nor a package, which has a page."""
    return name != "__version__" and not isinstance(getattr(package, name), ModuleType)


@pytest.mark.e2e
@NEEDS_MKDOCS
def test_the_site_describes_every_public_name_command_and_attribute(site: Path) -> None:
    anchors = {anchor for page in (site / "reference").glob("*.html") for anchor in _ids(page)}
    names = {
        f"{package}.{name}"
        for package in PUBLIC_PACKAGES
        for name in import_module(package).__all__
        if _has_description(import_module(package), name)
    }
    commands = {f"goldspan-{name}" for name in (*COMMANDS, *(f"goldens-{name}" for name in GOLDENS_COMMANDS))}
    assert (names | commands) - anchors == set()
    attributes = (site / "reference" / "attributes.html").read_text(encoding="utf-8")
    constants = [name for name in vars(semconv) if name.isupper()]
    assert len(constants) > 100
    assert [name for name in constants if f"<code>{name}</code>" not in attributes] == []


@pytest.mark.e2e
@NEEDS_MKDOCS
def test_every_link_of_the_built_site_resolves_and_nothing_comes_from_another_host(site: Path) -> None:
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html") if page.name != "404.html"}
    anchors = {page: _ids(page) for page in pages}
    broken = []
    for page, text in pages.items():
        for link in _LINK.finditer(text):
            target = unescape(link["target"])
            if re.match(r"[a-z]+:|//", target):
                if link["tag"] != "a" and "canonical" not in link[0]:
                    broken.append(f"{page.name}: {link[0]}")
                continue
            path, _, anchor = unquote(target).partition("#")
            file = (page.parent / path).resolve() if path else page
            if not file.exists() or (anchor and file in anchors and anchor not in anchors[file]):
                broken.append(f"{page.relative_to(site)}: {target}")
    assert broken == []
    assert len(pages) > 60


def _ids(page: Path) -> set[str]:
    return {unescape(anchor) for anchor in _ID.findall(page.read_text(encoding="utf-8"))}


@pytest.mark.e2e
@pytest.mark.needs("chromium")
@NEEDS_MKDOCS
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_three_widths_and_have_no_barriers(site: Path, chromium: Browser, scheme: str) -> None:
    """axe-core takes a second or more, so it checks a phone in light mode and a desktop in dark mode."""
    checked = {"light": WIDTHS[0], "dark": WIDTHS[-1]}[scheme]
    problems: list[str] = []
    with visit(chromium, site.as_uri(), color_scheme=scheme, reduced_motion="reduce") as visitor:
        visitor.page.route("**/search_index.js", lambda route: route.fulfill(body=_EMPTY_INDEX))
        for path in SHOWN:
            visitor.page.goto(f"{visitor.address}/{path}")
            for width in WIDTHS:
                visitor.page.set_viewport_size({"width": width, "height": 900})
                problems += [f"{path} at {width}: {each}" for each in visitor.too_wide()]
                if width == checked:
                    problems += [f"{path}, {scheme}: {each}" for each in _barriers(visitor.page)]
        shown = visitor.page.locator("body").get_attribute("data-md-color-scheme")
    assert problems == []
    assert shown == {"light": "default", "dark": "slate"}[scheme]
    assert visitor.complaints == []


def _barriers(page: Page) -> list[str]:
    """Return what axe-core finds on the current page."""
    found = Axe().run(page, options={"resultTypes": ["violations"], "preload": False}).response["violations"]
    return [f"{each['id']}: {node['html'][:160]} {node['failureSummary']}" for each in found for node in each["nodes"]]


@pytest.mark.e2e
@pytest.mark.needs("chromium")
@NEEDS_MKDOCS
def test_the_search_works_from_the_file_system(site: Path, chromium: Browser) -> None:
    with visit(chromium, site.as_uri()) as visitor:
        visitor.page.goto(f"{visitor.address}/index.html")
        _search(visitor, "forbidden tools")
        result = visitor.page.locator(".md-search-result__link").first
        result.click()
        visitor.page.locator("h1").wait_for()
        assert "/index.html" not in visitor.page.url
        assert "forbid" in visitor.page.locator("article").inner_text()
    assert visitor.complaints == []


def _search(visitor: Visit, words: str) -> None:
    visitor.page.get_by_role("textbox", name="Search").fill(words)
    visitor.page.locator(".md-search-result__item").first.wait_for()
