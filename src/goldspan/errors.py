"""Everything that can go wrong because of what a person wrote.

GoldspanError
├── TraceFileError       a trace file that is missing, unreadable or holds no trace
├── GoldenError          a golden file with a misspelt key, a duplicate id, a wrong type
├── StoreError           a store that is damaged, locked, full, read-only or of another version
├── ConfigurationError   a wrong setting, an unknown metric, a wrongly made processor
└── MissingExtraError    a feature whose extra is not installed

GoldspanWarning          something was lost or ignored, and the work went on
"""

from __future__ import annotations


class GoldspanError(Exception):
    """Base of every error that goldspan raises on purpose. Its text is one sentence a person can act on."""


class TraceFileError(GoldspanError):
    """A trace file is missing, cannot be read, or holds no trace at all."""


class GoldenError(GoldspanError):
    """A golden file is wrong; the text names the file, the golden and the field."""


class StoreError(GoldspanError):
    """A store cannot be read or written; the text names the file and says what to do."""


class ConfigurationError(GoldspanError):
    """goldspan was set up wrongly: an unknown metric, a wrong setting, an unusable processor."""


class MissingExtraError(GoldspanError):
    """A feature needs an optional dependency; the text says what to install."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an optional part of goldspan: pip install 'goldspan[{extra}]'")


class GoldspanWarning(UserWarning):
    """Something was skipped or ignored, and the rest of the work went on."""
