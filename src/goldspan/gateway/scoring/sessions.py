"""Pieces of requests put together by their session: calls of models and tools without a request around them."""

from __future__ import annotations

from collections.abc import Iterable

from goldspan.extraction import role_of
from goldspan.extraction.reading import BARE, MARKS
from goldspan.gateway.scoring.traces import Bundle, Bundles, StitchKey
from goldspan.model import Record, Run, SpanRecord

_FEW = 64


class Sessions:
    """Which bundles wait for the rest of their session, and which requests of it are held beside them."""

    def __init__(self, bundles: Bundles) -> None:
        self._bundles = bundles
        self._requests: dict[StitchKey, dict[Bundle, None]] = {}

    def waits(self, bundle: Bundle, records: Iterable[Record], runs: Iterable[Run]) -> bool:
        """Whether a bundle was put to the rest of its session, of which more is awaited.

        Calls of models and tools without a request around them may be part of one, with others of their session.
        """
        requests = [run for run in runs if run.unit == "request"]
        sessions = {("session", run.service, run.session_id) for run in requests if run.session_id is not None}
        if len(sessions) != 1:
            return False
        (session,) = sessions
        if not _are_pieces(records, requests):
            self._note(session, bundle)
            return False
        if bundle.pieces:
            whole = [each for each in self._requests.pop(session, ()) if each.is_held and each is not bundle]
            fitting = [bundle]
            for each in whole:
                if self._bundles.fit(*fitting, each):
                    fitting.append(each)
            self._bundles.join(fitting, session)
            return len(fitting) > 1
        group = self._bundles.find(session)
        if group is not None and not self._bundles.fit(group, bundle):
            return False
        joined = self._bundles.join([bundle] if group is None else [group, bundle], session)
        self._bundles.wait_on(joined)
        return True

    def forget_old(self) -> None:
        """Forget the sessions of which nothing is held any more, if there are many."""
        if len(self._requests) > 2 * len(self._bundles) + 1_000:
            self._requests = {key: held for key, held in self._requests.items() if any(each.is_held for each in held)}

    def _note(self, session: StitchKey, bundle: Bundle) -> None:
        held = self._requests.setdefault(session, {})
        held[bundle] = None
        if len(held) > _FEW and not next(iter(held)).is_held:
            self._requests[session] = {each: None for each in held if each.is_held}


def _are_pieces(records: Iterable[Record], requests: Iterable[Run]) -> bool:
    """Whether spans are calls of models or tools that no request stands around."""
    spans = {record.span_id: record for record in records if isinstance(record, SpanRecord)}
    own = [spans[run.span_id] for run in requests if run.span_id in spans]
    if any(role_of(span) in MARKS for span in own):  # which nearly all are, and then nothing else need be read
        return False
    roles = {role_of(span) for span in spans.values()} - BARE
    roots = {role_of(span) for span in spans.values() if span.parent_id is None}
    return not roles & MARKS and bool(roles) and (roots == {"model"} or "model" not in roles)
