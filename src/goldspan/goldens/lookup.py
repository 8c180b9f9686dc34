"""Find the golden of a run: by the id its telemetry names, else by the text of its request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from goldspan.errors import GoldenError
from goldspan.goldens.texts import normalized
from goldspan.model import NO_VOCABULARY, Golden, Match, Run, Vocabulary


class Goldens:
    """A set of goldens, each with an id of its own, to be looked up in constant time. Never changes.

    Iterates over its goldens in the order given; `"refund" in goldens` asks for an id, `goldens["refund"]` takes the
    golden of that id. A `vocabulary` is that of every golden that has none of its own.
    """

    __slots__ = ("_by_id", "_by_input", "vocabulary")

    def __init__(self, goldens: Iterable[Golden] = (), *, vocabulary: Vocabulary = NO_VOCABULARY) -> None:
        self.vocabulary = vocabulary
        """The tools and servers that are declared for all of them."""
        self._by_id: dict[str, Golden] = {}
        sharing: dict[str, list[Golden]] = {}
        for golden in goldens:
            if golden.id in self._by_id:
                raise GoldenError(f"golden {golden.id!r} is there twice; ids must differ.")
            if vocabulary is not NO_VOCABULARY and golden.vocabulary is NO_VOCABULARY:
                golden = replace(golden, vocabulary=vocabulary)
            self._by_id[golden.id] = golden
            if key := normalized(golden.input):
                sharing.setdefault(key, []).append(golden)
        self._by_input = {key: _agreed(same) for key, same in sharing.items()}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Golden]:
        return iter(self._by_id.values())

    def __getitem__(self, golden_id: str) -> Golden:
        return self._by_id[golden_id]

    def __contains__(self, golden_id: object) -> bool:
        return golden_id in self._by_id

    def __repr__(self) -> str:
        return f"<Goldens: {len(self)}>"

    def find(self, run: Run) -> Match | None:
        """The golden of that run and how it was found, or `None`: `explain` says why.

        An id that names none of these goldens is passed over. Goldens that share an input and demand different things
        are no answer: ambiguity is never settled by a guess.
        """
        if run.golden_id is not None and (golden := self._by_id.get(run.golden_id)):
            return Match(golden, how="id")
        same = self._sharing_input_of(run)
        return Match(same[0], how="input") if len(same) == 1 else None

    def explain(self, run: Run) -> str:
        """Why `find` answers as it does for that run, in half a sentence."""
        if match := self.find(run):
            return f"golden {match.golden.id!r} was found by its {match.how}"
        if same := self._sharing_input_of(run):
            return f"{len(same)} goldens share this input and disagree ({_ids(same)})"
        if run.golden_id is not None:
            return f"golden id {run.golden_id!r} is not in the file"
        return "no golden for this input" if normalized(run.input) else "the run shows no input to look up"

    def _sharing_input_of(self, run: Run) -> tuple[Golden, ...]:
        return self._by_input.get(normalized(run.input), ())


def _agreed(same: list[Golden]) -> tuple[Golden, ...]:
    """The first of some goldens that demand the same, else all of them."""
    disagree = len(same) > 1 and len({golden.digest for golden in same}) > 1
    return tuple(same) if disagree else (same[0],)


def _ids(goldens: tuple[Golden, ...]) -> str:
    shown = ", ".join(golden.id for golden in goldens[:5])
    return shown if len(goldens) <= 5 else f"{shown} and {len(goldens) - 5} more"
