"""Defines the exceptions that goldspan raises, and its warning.

GoldspanError
├── TraceFileError       a trace file is missing, unreadable or contains no trace
├── GoldenError          a golden file has a misspelt key, a duplicate id or a wrong type
├── ResultsError         a results file is missing, damaged, of another version or of another run
├── StoreError           a store is damaged, locked, full, read-only or of another version
├── ConfigurationError   a setting is wrong, a metric is unknown or wrongly declared, a processor is misconfigured
└── MissingExtraError    the extra of a feature is not installed

GoldspanWarning          something was lost or ignored, and the work continued
"""

from __future__ import annotations


class GoldspanError(Exception):
    """The base class of goldspan's exceptions. The text is one sentence that says what to change."""


class TraceFileError(GoldspanError):
    """A trace file is missing, cannot be read, or contains no trace."""


class GoldenError(GoldspanError):
    """A golden file is wrong; the text names the file, the golden and the field."""


class ResultsError(GoldspanError):
    """A results file cannot be read or written, or has the results of something else."""


class StoreError(GoldspanError):
    """A store cannot be read or written; the text names the file and says what to do."""


class BatchError(GoldspanError):
    """A batch cannot be continued, or one of its processes was killed."""


class ConfigurationError(GoldspanError):
    """The configuration is wrong: an unknown or wrongly declared metric, a wrong setting, a misconfigured processor."""


class MissingExtraError(GoldspanError):
    """A feature needs an optional dependency; the text says what to install."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an optional part of goldspan: pip install 'goldspan[{extra}]'")


class GoldspanWarning(UserWarning):
    """Something was skipped or ignored, and the rest of the work continued."""
