"""Pauses of the collection of reference cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from goldspan._garbage_collection import garbage_collection_paused


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


def test_a_pause_inside_a_pause_ends_with_the_outer_one(is_enabled: bool) -> None:
    with garbage_collection_paused():
        with garbage_collection_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled() is is_enabled
