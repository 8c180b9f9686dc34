"""Fixtures of the capture tests: each test uses the real SDK."""

from __future__ import annotations

from capture.conftest import _providers_of_no_other_test, exported, install

__all__ = ["_providers_of_no_other_test", "exported", "install"]
