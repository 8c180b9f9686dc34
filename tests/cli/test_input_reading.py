"""Reading traces for a command: the collection of reference cycles pauses, and nothing piles up meanwhile."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import payloads

import batch
from goldspan._garbage_collection import garbage_collection_paused
from goldspan.cli.input_reading import extract_runs
from goldspan.model import Run


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
