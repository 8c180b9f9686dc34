"""Reading traces for a command: the collection of reference cycles pauses, and nothing piles up meanwhile."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path

import batch
import payloads
import pytest

from goldspan.cli.input_reading import extract_runs, garbage_collection_paused
from goldspan.model import Run


@pytest.fixture(params=[True, False])
def is_enabled(request: pytest.FixtureRequest) -> Iterator[bool]:
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


def test_a_pause_restores_the_state_of_the_collector(is_enabled: bool) -> None:
    with garbage_collection_paused():
        assert not gc.isenabled()
    assert gc.isenabled() is is_enabled
    with pytest.raises(KeyError), garbage_collection_paused():
        raise KeyError
    assert gc.isenabled() is is_enabled


def test_repeated_extraction_with_paused_collection_leaves_no_cycles(tmp_path: Path) -> None:
    file = tmp_path / "traces.jsonl"
    file.write_text(json.dumps(batch.as_otlp_json(payloads.payload_b()[0])), encoding="utf-8")

    def extracted() -> list[Run]:
        return extract_runs(
            [str(file)], unit="request", golden_id_attributes=None, components=(), on_loss=lambda loss: None
        )

    assert extracted()  # fills the caches
    gc.collect()
    with garbage_collection_paused():
        for _ in range(5):
            assert extracted()
        assert gc.collect() < 100  # a single trace that stays in a cycle holds more objects than that
