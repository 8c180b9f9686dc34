"""Collects the goldens of one import, and counts what could not be carried over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from goldspan.goldens.golden_files.golden_writer import golden_id_for_text, replace_lone_surrogates
from goldspan.goldens.text_matching import normalize_text
from goldspan.model import ExpectedItem, Golden, When


@dataclass(frozen=True, slots=True)
class ImportLoss:
    """One kind of content that a golden cannot state, or that the import does not understand."""

    kind: str
    count: int
    first: str
    """The place of the first one."""


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The goldens of a file, and what could not be carried over."""

    source: str
    """The name of the format."""
    goldens: tuple[Golden, ...]
    losses: tuple[ImportLoss, ...]


@dataclass(slots=True)
class GoldenCollector:
    """Collects goldens with unique ids, and losses by kind."""

    goldens: list[Golden] = field(default_factory=list)
    _losses: dict[str, tuple[int, str]] = field(default_factory=dict)
    _ids: set[str] = field(default_factory=set)

    def add(self, name: Any, text: str | None, tools: Sequence[ExpectedItem], **rules: Any) -> None:
        """Add a golden. Without a name, its id is made from the text; a number makes an id unique."""
        text = replace_lone_surrogates(text) if text and text.strip() else None
        base = str(name).strip() if name not in (None, "") else golden_id_for_text(text or "", str(len(self.goldens)))
        base = replace_lone_surrogates(base)
        golden_id, number = base, 2
        while golden_id in self._ids:
            golden_id, number = f"{base}-{number}", number + 1
        self._ids.add(golden_id)
        self.goldens.append(Golden(golden_id, input=text, tools=tuple(tools), **rules))

    def add_policy(self, name: Any, text: str | None, **rules: Any) -> None:
        """Add a golden that only forbids or limits calls, for the requests with this text."""
        self.add(name, text, (), **rules)
        golden = self.goldens.pop()
        when = None if golden.input is None else When(input=golden.input)
        self.goldens.append(replace(golden, input=None, when=when, policy=True))

    def lose(self, kind: str, where: str) -> None:
        """Count something that is not carried over."""
        count, first = self._losses.get(kind, (0, where))
        self._losses[kind] = (count + 1, first)

    def lose_keys(self, entry: Mapping[Any, Any], keys: Sequence[str], where: str, note: str = "") -> None:
        """Count those keys of an entry that have a value."""
        for key in keys:
            if entry.get(key) not in (None, "", [], {}):
                self.lose(f"{key}{f' ({note})' if note else ''}", where)

    def drop_ambiguous_inputs(self) -> None:
        """Remove the input of goldens that have equal inputs and differ, such as "yes" in several conversations."""
        digests: dict[str, set[str]] = {}
        for golden in self.goldens:
            digests.setdefault(normalize_text(golden.input), set()).add(golden.digest)
        for index, golden in enumerate(self.goldens):
            if golden.input is not None and len(digests[normalize_text(golden.input)]) > 1:
                self.goldens[index] = replace(golden, input=None)
                self.lose("inputs of several goldens that differ (these goldens are found by id only)", golden.id)

    def result(self, source: str) -> ImportResult:
        """Return what was collected."""
        losses = (ImportLoss(kind, count, first) for kind, (count, first) in self._losses.items())
        return ImportResult(source, tuple(self.goldens), tuple(losses))
