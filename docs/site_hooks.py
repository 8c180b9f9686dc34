"""Completes the pages of the documentation site while MkDocs builds it, for `make site`.

- A link to a file outside `docs` leads to a page that shows the file, so that the site is complete without a network.
- The name of an example file is shown above its block; the comments for tests/test_docs.py are left out.
- `<!-- commands -->` and `<!-- names -->` are replaced by what the command line and `goldspan.semconv` define.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from goldspan import semconv
from goldspan.cli.app import app
from goldspan.gateway.gateway_counters import COUNTERS
from goldspan.sinks.drop_counters import DROP_COUNTERS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
ICON = ROOT / "src" / "goldspan" / "web" / "assets" / "icon.svg"

_PAGES = {
    ROOT / "README.md": "readme.md",
    ROOT / "CONTRIBUTING.md": "contributing.md",
    ROOT / "CHANGELOG.md": "changelog.md",
    ROOT / "SECURITY.md": "threat-model.md",
    ROOT / "examples" / "README.md": "examples.md",
}
"""The pages of the site for the Markdown files outside `docs`."""
_LANGUAGES = {".json": "json", ".py": "python", ".yaml": "yaml", ".yml": "yaml", ".service": "ini"}
_LINK = re.compile(r"\]\((?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")
_INNER_LIST = re.compile(r'(<nav class="md-nav" data-md-level="[1-9]")[^>]*>')
_FENCE = re.compile(r"\s*(?P<marks>`{3,}|~{3,})")
_NOTE = re.compile(r"\s*<!--\s*(?P<name>not run|file|files|output|exit status|recipe)\b:?\s*(?P<value>.*?)\s*-->\s*")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file outside `docs` that a page links to."""
    for source, page in _PAGES.items():
        files.append(File.generated(config, page, content=source.read_text(encoding="utf-8")))
    targets = {target for source in [*DOCS.rglob("*.md"), *_PAGES] for target in _linked_paths(source)}
    for target in sorted(targets - set(_PAGES)):
        files.append(File.generated(config, _page_of(target), content=_show(target)))
    files.append(File.generated(config, "assets/icon.svg", abs_src_path=str(ICON)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace what only the repository or the tests can use."""
    if "<!-- commands -->" in markdown:
        markdown = markdown.replace("<!-- commands -->", "\n".join(_describe_commands()))
    if "<!-- names -->" in markdown:
        markdown = markdown.replace("<!-- names -->", "\n".join(_describe_names()))
    if page.file.src_uri.startswith("files/"):
        return markdown
    source = DOCS / page.file.src_uri
    if not source.exists():
        source = next(source for source, name in _PAGES.items() if name == page.file.src_uri)
    return "\n".join(_adapt(markdown, source, page.file.src_uri))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Correct what the theme tells screen readers: the search has no name, and inner lists are landmarks."""
    output = output.replace('role="dialog"', 'role="dialog" aria-label="Search"')
    return _INNER_LIST.sub(r"\1 role=none>", output)


# Links and examples


def _adapt(markdown: str, source: Path, page: str) -> Iterator[str]:
    """Yield the lines of a page: links lead to pages of the site, and blocks have the names of their files."""

    def rewrite(hit: re.Match[str]) -> str:
        target = _resolve(source, hit["path"])
        if not target.exists() or (target.is_relative_to(DOCS) and source.is_relative_to(DOCS)):
            return hit[0]
        return f"]({os.path.relpath(_page_of(target), os.path.dirname(page) or '.')}{hit['anchor'] or ''})"

    end = title = ""
    for line in markdown.splitlines():
        if end:
            yield line
            end = "" if line.strip() == end else end
        elif note := _NOTE.fullmatch(line):
            title = note["value"] if note["name"] == "file" else title
        elif fence := _FENCE.match(line):
            end = fence["marks"]
            yield f'{line} title="{title}"' if title else line
            title = ""
        else:
            title = "" if line.strip() else title
            yield _LINK.sub(rewrite, line)


def _linked_paths(source: Path) -> Iterator[Path]:
    """Yield the files outside `docs` that a Markdown file links to, and those in the folders that it links to."""
    text = re.sub(r"^\s*(`{3,}|~{3,}).*?^\s*\1", "", source.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for hit in _LINK.finditer(text):
        target = _resolve(source, hit["path"])
        if target.exists() and not target.is_relative_to(DOCS):
            yield target
            if target.is_dir():
                yield from (file for file in target.iterdir() if file.is_file())


def _resolve(source: Path, path: str) -> Path:
    return Path(os.path.normpath(source.parent / path))


def _page_of(target: Path) -> str:
    """Return the page of the site for a file or a folder of the project."""
    if target in _PAGES:
        return _PAGES[target]
    if target.is_relative_to(DOCS):
        return target.relative_to(DOCS).as_posix()
    parts = target.relative_to(ROOT).parts
    path = "/".join(part.lstrip(".") for part in parts)  # MkDocs leaves hidden files out
    return f"files/{path}/index.md" if target.is_dir() else f"files/{path}.md"


def _show(target: Path) -> str:
    """Return a page that shows a file, or lists a folder."""
    title = f"---\ntitle: {target.name}\nsearch: {{exclude: true}}\n---\n\n# `{target.relative_to(ROOT).as_posix()}`\n"
    if target.is_dir():
        entries = sorted(entry for entry in target.iterdir() if not entry.name.startswith((".", "__")))
        links = [f"- [{each.name}]({each.name}.md)" if each.is_file() else f"- {each.name}/" for each in entries]
        return "\n".join([title, *links])
    language = _LANGUAGES.get(target.suffix, "text")
    return f"{title}\n~~~~~~ {language}\n{target.read_text(encoding='utf-8').rstrip()}\n~~~~~~\n"


# The command line


def _describe_commands() -> Iterator[str]:
    """Yield the sections of the commands: what `--help` prints."""
    root: Any = typer.main.get_command(app)
    context = typer.Context(root, info_name="goldspan")
    yield from _describe(root, context)


def _describe(command: Any, context: typer.Context) -> Iterator[str]:
    name = context.command_path
    yield f"## `{name}` {{ #{name.replace(' ', '-')} }}\n"
    yield f"{_escape(command.help or '')}\n"
    yield f"```console\n$ {name} {' '.join(command.collect_usage_pieces(context))}\n```\n"
    records = [record for each in command.get_params(context) if (record := each.get_help_record(context))]
    for term, meaning in records:
        yield f"`{term}`\n:   {_escape(meaning)}\n"
    if command.epilog:
        examples = [line.strip() for line in command.epilog.splitlines() if line.strip().startswith("goldspan")]
        yield "\n".join(["```console", *(f"$ {line}" for line in examples), "```\n"])
    for each in command.list_commands(context) if hasattr(command, "list_commands") else ():
        _, child, _ = command.resolve_command(context, [each])
        yield from _describe(child, typer.Context(child, info_name=each, parent=context))


def _escape(text: str) -> str:
    """Return text that Markdown shows as it is, with its marked code."""
    parts = text.split("`")
    return "`".join(part if at % 2 else re.sub(r"([\\*_<>\[\]#])", r"\\\1", part) for at, part in enumerate(parts))


# Attributes, events and metrics


def _describe_names() -> Iterator[str]:
    """Yield a table for each group of names in `goldspan.semconv`. A comment above a group states its purpose."""
    text = Path(semconv.__file__).read_text(encoding="utf-8")
    lines = text.splitlines()
    descriptions = {counter.name: counter.description for counter in (*COUNTERS, *DROP_COUNTERS)}
    groups: dict[str, list[tuple[str, str, str]]] = {}
    purpose = ""
    for node, following in pairwise([*ast.parse(text).body, ast.Pass()]):
        if not isinstance(node, ast.Assign):
            continue
        above = lines[node.lineno - 2]
        purpose = above.removeprefix("# ") if above.startswith("# ") else purpose
        constant = ast.unparse(node.targets[0])
        name = getattr(semconv, constant)
        meaning = descriptions.get(name, "")
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            meaning = " ".join(str(following.value.value).split())
        groups.setdefault(purpose, []).append((f"`{name}`", f"`{constant}`", meaning))
    for purpose, rows in groups.items():
        columns = 3 if any(meaning for _, _, meaning in rows) else 2
        yield f"\n{_escape(purpose)}\n"
        for row in (("name", "in `semconv`", "meaning"), ("---",) * 3, *rows):
            yield f"| {' | '.join(row[:columns])} |"
