"""`flush_all` and `shutdown_all` for any sinks."""

from __future__ import annotations

import pytest

from goldspan import Evaluation, _guard
from goldspan.sinks import flush_all, shutdown_all


class Plain:
    def submit(self, evaluation: Evaluation) -> None: ...


class Holding(Plain):
    def __init__(self, answer: bool | None = True) -> None:
        self.answer = answer
        self.seen: list[object] = []

    def force_flush(self, timeout_millis: int) -> bool | None:
        self.seen.append(timeout_millis)
        return self.answer

    def shutdown(self) -> None:
        self.seen.append("shutdown")


class Failing(Plain):
    def force_flush(self, timeout_millis: int) -> bool:
        raise OSError

    def shutdown(self) -> None:
        raise OSError


def test_flush_all_succeeds_for_sinks_without_pending_work() -> None:
    assert flush_all([])
    assert flush_all([Plain(), Holding(), Holding(None)])


def test_flush_all_fails_if_one_sink_is_not_done_and_still_flushes_the_others() -> None:
    last = Holding()
    assert not flush_all([Holding(False), Plain(), last], 1_000)
    assert len(last.seen) == 1


def test_all_sinks_share_one_timeout() -> None:
    first, second = Holding(), Holding()
    flush_all([first, second], 0)
    assert (first.seen, second.seen) == ([0], [0])
    flush_all([first, second], 60_000)
    assert 0 < first.seen[1] <= 60_000  # type: ignore[operator]
    assert second.seen[1] <= first.seen[1]  # type: ignore[operator]


def test_a_failing_sink_does_not_prevent_the_flush_and_shutdown_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOLDSPAN_STRICT", "0")
    last = Holding()
    assert not flush_all([Failing(), last])
    shutdown_all([Failing(), Plain(), last])
    assert last.seen[-1] == "shutdown"
    assert _guard.failure_counts == {"flush Failing": 1, "shut down Failing": 1}
