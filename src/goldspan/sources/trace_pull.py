"""`TracePull`: reads all pages of a time window into a folder, and repeats requests that failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

from goldspan.errors import ConfigurationError, GoldspanError, TraceFileError
from goldspan.integrations.http_client import DeliveryError, ProductClient, ReplyTooLargeError
from goldspan.integrations.product import ProductReply, ProductRequest
from goldspan.sources.pull_folder import PullFolder, PullState
from goldspan.sources.time_window import TimeWindow
from goldspan.sources.trace_source import PageRequest, SourceReplyError, TracePage, TraceSource

DEFAULT_MAX_TRACES = 100_000
GIVE_UP_SECONDS = 120.0
"""How long a request is repeated that the tool does not answer."""
TIMEOUT_SECONDS = 60.0
"""The maximum time to connect, and between two parts of a reply. A search can take long."""
MAX_REPLY_SECONDS = 300.0
MAX_REPLY_BYTES = 64 << 20
_FIRST_PAUSE_SECONDS = 0.5
_MAX_PAUSE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class PullProgress:
    """What was read until now."""

    traces: int
    notices: tuple[str, ...] = ()
    """What the last page could not read."""


class TracePull:
    """Reads the traces of a source into a folder, page by page. At most one page is in memory.

    A repeated pull into the folder of an interrupted one continues after its last complete page, with its time window.

    Args:
        source: The source.
        url: The URL of the source, which identifies it in the folder.
        folder: Where the traces go.
        max_traces: The number of traces after which to stop, with the last page. The latest traces are read first.
        give_up_after: The seconds after which to stop if the source does not answer.
        pause: Waits some seconds.
    """

    def __init__(
        self,
        source: TraceSource,
        url: str,
        folder: PullFolder,
        *,
        max_traces: int = DEFAULT_MAX_TRACES,
        give_up_after: float = GIVE_UP_SECONDS,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._source = source
        self._url = url
        self._folder = folder
        self._max_traces = max_traces
        self._give_up_after = give_up_after
        self._pause = pause
        self._seen: set[str] = set()

    def resume(self, window: TimeWindow) -> PullState:
        """Return where the pull begins: where the folder's interrupted pull ended, else at the end of the window.

        Raises `ConfigurationError` if the folder has the traces of another source, or all traces of this one.
        """
        state = self._folder.state
        if state is None:
            return PullState(self._url, window.start_ns, window.end_ns)
        if state.source != self._url:
            raise ConfigurationError(f"{self._folder.path} has traces of {state.source}; name another folder")
        if state.is_complete:
            raise ConfigurationError(
                f"{self._folder.path} has all traces of {state.source} in its time window already; score this folder, "
                "or name another one"
            )
        return state

    def run(self, state: PullState) -> Iterator[PullProgress]:
        """Read the pages, and yield the progress after each.

        Raises:
            GoldspanError: The source refuses the requests, or does not answer; the text says why. What was read is in
                the folder.
        """
        page_size = self._source.page_size
        smallest = 1 if self._source.has_cursor else 2
        with closing(
            ProductClient(
                self._source,
                timeout=TIMEOUT_SECONDS,
                max_reply_bytes=MAX_REPLY_BYTES,
                max_reply_seconds=MAX_REPLY_SECONDS,
            )
        ) as client:
            while not state.is_complete:
                size = min(page_size, self._max_traces - state.traces) if self._source.has_cursor else page_size
                request = PageRequest(state.window, state.cursor, size, self._is_new)
                try:
                    page = self._read_page(request, client)
                except ReplyTooLargeError as error:
                    if size == smallest:
                        raise TraceFileError(f"{error}; a single trace is too large to be read") from None
                    page_size = max(smallest, size // 2)
                    continue
                new = [trace_id for trace_id in page.trace_ids if self._is_new(trace_id)]
                self._seen.update(new)
                traces = state.traces + len(new)
                is_full = traces >= self._max_traces and page.next_cursor is not None
                notices = [*page.notices]
                if is_full:
                    notices.append(f"only the latest {traces} traces were read; --max-traces allows no more")
                self._folder.write_page(state.pages + 1, page.documents)
                state = replace(
                    state,
                    cursor=page.next_cursor,
                    pages=state.pages + 1,
                    traces=traces,
                    is_complete=page.next_cursor is None or is_full,
                )
                self._folder.write_state(state)
                yield PullProgress(traces, tuple(notices))

    def _is_new(self, trace_id: str) -> bool:
        return trace_id not in self._seen

    def _read_page(self, request: PageRequest, client: ProductClient) -> TracePage:
        try:
            return self._source.read_page(request, lambda wanted: self._send(wanted, client))
        except DeliveryError as error:
            if isinstance(error, ReplyTooLargeError):
                raise
            raise _source_error(self._source, error) from None
        except SourceReplyError as error:
            raise TraceFileError(str(error)) from None
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TraceFileError(
                f"{self._source.base_url} does not answer as the API of {self._source.name} does: {error!r}"
            ) from error

    def _send(self, request: ProductRequest, client: ProductClient) -> ProductReply:
        """Send a request, and repeat it as long as the source is unavailable or overloaded."""
        pause, waited = _FIRST_PAUSE_SECONDS, 0.0
        while True:
            try:
                return client.send(request)
            except DeliveryError as error:
                wanted = error.retry_after if error.retry_after is not None else pause
                is_temporary = error.kind in ("unavailable", "overloaded") and not isinstance(error, ReplyTooLargeError)
                if not is_temporary or waited + wanted > self._give_up_after:
                    raise
            self._pause(wanted)
            waited += wanted
            pause = min(pause * 2, _MAX_PAUSE_SECONDS)


def _source_error(source: TraceSource, error: DeliveryError) -> GoldspanError:
    if error.kind == "misconfigured":
        return ConfigurationError(
            f"{error}; correct the address, or the token, which is in the variables {', '.join(source.variables)}"
        )
    return TraceFileError(str(error))
