"""The real SDK for every test here, as the tests of capture have it."""

from __future__ import annotations

from capture.conftest import _providers_of_no_other_test, exported, install

__all__ = ["_providers_of_no_other_test", "exported", "install"]
