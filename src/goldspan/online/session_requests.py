"""`SessionRequests` keeps the latest requests of each session, which together are a conversation."""

from __future__ import annotations

import threading
from collections import OrderedDict

from goldspan.extraction.reconciliation.run_merging import merge_conversations
from goldspan.model import Run

_MAX_REQUESTS = 200
"""The maximum number of requests of one conversation that are kept: the latest."""

_Session = tuple[str | None, str]


class SessionRequests:
    """The requests of the latest sessions. Thread-safe."""

    def __init__(self, max_sessions: int = 1_000) -> None:
        self._max_sessions = max_sessions
        self._lock = threading.Lock()
        self._requests: OrderedDict[_Session, OrderedDict[str, Run]] = OrderedDict()
        self._revisions: dict[_Session, int] = {}

    def add_request(self, request: Run) -> tuple[Run, int] | None:
        """Returns the conversation including the request, and its revision; `None` if the request has no session."""
        if request.session_id is None:
            return None
        session = (request.service, request.session_id)
        with self._lock:
            requests = self._requests.setdefault(session, OrderedDict())
            self._requests.move_to_end(session)
            requests[request.run_id] = request
            if len(requests) > _MAX_REQUESTS:
                requests.popitem(last=False)
            revision = self._revisions[session] = self._revisions.get(session, 0) + 1
            while len(self._requests) > self._max_sessions:
                gone, _ = self._requests.popitem(last=False)
                del self._revisions[gone]
            so_far = list(requests.values())
        return merge_conversations(so_far)[0], revision
