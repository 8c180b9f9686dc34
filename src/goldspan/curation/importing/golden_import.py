"""Reads a dataset of another evaluation tool, detects its format, and returns goldens."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from goldspan.curation.importing.adk_eval_sets import import_adk, is_adk_eval_set
from goldspan.curation.importing.deepeval_datasets import import_deepeval, is_deepeval_dataset
from goldspan.curation.importing.example_datasets import import_examples, is_langsmith_dataset, is_phoenix_dataset
from goldspan.curation.importing.imported_goldens import GoldenCollector, ImportResult
from goldspan.curation.importing.promptfoo_configs import import_promptfoo, is_promptfoo_config
from goldspan.curation.importing.pydantic_evals_datasets import import_pydantic_evals, is_pydantic_evals_dataset
from goldspan.errors import ConfigurationError, GoldenError
from goldspan.goldens.golden_files.golden_formats import EMPTY_DOCUMENT, YamlError, parse_yaml
from goldspan.goldens.golden_files.golden_writer import UnwritableError, golden_to_mapping, goldens_to_yaml
from goldspan.goldens.schema.golden_parser import GoldenContext, parse_golden
from goldspan.goldens.spelling import join_words
from goldspan.model import Golden

ImportSource = Literal["auto", "deepeval", "adk", "promptfoo", "langsmith", "phoenix", "pydantic-evals"]


class _Format(NamedTuple):
    is_format: Callable[[Any], bool]
    read: Callable[[Any, GoldenCollector], None]


_FORMATS: Mapping[str, _Format] = {
    "adk": _Format(is_adk_eval_set, import_adk),
    "pydantic-evals": _Format(is_pydantic_evals_dataset, import_pydantic_evals),
    "promptfoo": _Format(is_promptfoo_config, import_promptfoo),
    "langsmith": _Format(is_langsmith_dataset, import_examples),
    "deepeval": _Format(is_deepeval_dataset, import_deepeval),
    "phoenix": _Format(is_phoenix_dataset, import_examples),
}
"""The formats, those with the most distinctive keys first."""


def import_goldens(path: Path, source: ImportSource = "auto") -> ImportResult:
    """Return the goldens of a file in the format of another tool, and what could not be carried over.

    Raises `ConfigurationError` for a file that cannot be read, and for one in no known format.
    """
    document = _read_document(path)
    name = _detect_format(document, path) if source == "auto" else source
    collector = GoldenCollector()
    try:
        _FORMATS[name].read(document, collector)
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        raise ConfigurationError(f"{path}: not a file of {name}: {type(error).__name__}: {error}") from None
    collector.goldens = [golden for golden in collector.goldens if _is_loadable(golden, collector)]
    collector.drop_ambiguous_inputs()
    return collector.result(name)


def _is_loadable(golden: Golden, collector: GoldenCollector) -> bool:
    """Whether a golden file can state the golden; else it is counted as lost."""
    try:
        goldens_to_yaml(golden)
        parse_golden(golden_to_mapping(golden), "golden", GoldenContext())
    except (GoldenError, UnwritableError) as error:
        collector.lose(f"goldens that no golden file can state ({error})", golden.id)
        return False
    return True


def _detect_format(document: Any, path: Path) -> str:
    for name, each in _FORMATS.items():
        if each.is_format(document):
            return name
    known = join_words(get_args(ImportSource)[1:], last="or")
    raise ConfigurationError(f"{path}: the format is not recognised; --from names it: {known}")


def _read_document(path: Path) -> Any:
    """Return the content of a JSON, JSON Lines, CSV or YAML file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    suffix = path.suffix.lower()
    if suffix == ".csv":
        csv.field_size_limit(2**27)
        return list(csv.DictReader(text.splitlines(keepends=True)))
    try:
        if suffix in (".jsonl", ".ndjson"):
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        if suffix == ".json":
            return json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"{path}: not JSON: {error}") from None
    try:
        document = parse_yaml(text)
    except YamlError as error:
        line = "" if error.line is None else f", line {error.line}"
        raise ConfigurationError(f"{path}{line}: {error.problem}") from None
    if document is EMPTY_DOCUMENT:
        raise ConfigurationError(f"{path}: the file is empty")
    return document
