"""Pieces of requests put together by their session: calls of models and tools without a request around them."""

from __future__ import annotations

from collections.abc import Iterable

from goldspan.extraction import role_of
from goldspan.extraction.reading import BARE, MARKS
from goldspan.gateway.scoring.traces import Bundle, Bundles, StitchKey
from goldspan.model import Record, Run, SpanRecord


class Sessions:
    """Which bundles wait for the rest of their session, and which requests of it are held beside them."""

    def __init__(self, bundles: Bundles) -> None:
        self._bundles = bundles
        self._requests: dict[StitchKey, list[Bundle]] = {}

    def waits(self, bundle: Bundle, records: Iterable[Record], runs: Iterable[Run]) -> bool:
        """Whether a bundle was put to the rest of its session, of which more is awaited.

        Calls of models and tools without a request around them may be part of one, with others of their session.
        """
        requests = [run for run in runs if run.unit == "request"]
        sessions = {("session", run.service, run.session_id) for run in requests if run.session_id is not None}
        if len(sessions) != 1:
            return False
        (session,) = sessions
        if not _are_pieces(records):
            marked = self._requests.setdefault(session, [])
            self._requests[session] = [*[each for each in marked if each.is_held and each is not bundle], bundle]
            return False
        if bundle.pieces:
            whole = [each for each in self._requests.pop(session, ()) if each.is_held and each is not bundle]
            self._bundles.join([bundle, *whole], session)
            return bool(whole)
        group = self._bundles.find(session)
        joined = self._bundles.join([bundle] if group is None else [group, bundle], session)
        self._bundles.wait_on(joined)
        return True

    def forget_old(self) -> None:
        """Forget the sessions of which nothing is held any more, if there are many."""
        if len(self._requests) > 2 * len(self._bundles) + 1_000:
            kept = {key: [each for each in held if each.is_held] for key, held in self._requests.items()}
            self._requests = {key: held for key, held in kept.items() if held}


def _are_pieces(records: Iterable[Record]) -> bool:
    """Whether spans are calls of models or tools that no request stands around."""
    spans = [record for record in records if isinstance(record, SpanRecord)]
    roles = {role_of(span) for span in spans} - BARE
    roots = {role_of(span) for span in spans if span.parent_id is None}
    return not roles & MARKS and bool(roles) and (roots == {"model"} or "model" not in roles)
