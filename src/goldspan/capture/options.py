"""The keyword arguments that everything that makes a `ScoringProcessor` hands on to it, and whether they are such."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from opentelemetry._logs import LoggerProvider
from opentelemetry.metrics import MeterProvider

from goldspan.errors import ConfigurationError
from goldspan.model import UNKNOWN, Unit, Unknown
from goldspan.online import Limits
from goldspan.online.sampling import ExportSampling, Sampling
from goldspan.scoring.metrics import MetricLike
from goldspan.sinks import Redact, SinkLike

if TYPE_CHECKING:
    from goldspan.judge.judges import Judge

T = TypeVar("T")


class Options(TypedDict, total=False):
    """Those of `ScoringProcessor`, apart from the goldens and `then`. What is left out is as it is there."""

    metrics: Iterable[MetricLike]
    thresholds: Mapping[str, float]
    unknown: Unknown
    sinks: Iterable[SinkLike]
    attributes: bool
    logger_provider: LoggerProvider
    meter_provider: MeterProvider
    golden_id_attributes: Sequence[str]
    units: Sequence[Unit]
    redact: Redact
    sampling: Sampling
    export: ExportSampling
    budget: float
    judge: Judge
    background: bool
    threads: bool
    reload: float | None
    limits: Limits


def listed(name: str, value: Iterable[T]) -> list[T]:
    """What was given as a list. Raises `ConfigurationError` for what is none, such as a single text."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise _wrong(name, "a list", value)
    return list(value)


def check(**given: object) -> None:
    """Raise `ConfigurationError` for the first argument, by its name, that is of another type than it should be."""
    for name, value in given.items():
        one_of(name, value, *_WANTED[name])
    unknown = given.get("unknown")
    if unknown is not None and unknown not in UNKNOWN:
        raise _wrong("unknown", " or ".join(map(repr, UNKNOWN)), unknown)


_SWITCH = "True or False"
_WANTED: Mapping[str, tuple[Any, str]] = {
    "attributes": (bool, _SWITCH),
    "background": (bool | None, _SWITCH),
    "limits": (Limits, "a Limits"),
    "logger_provider": (LoggerProvider | None, "a logger provider"),
    "meter_provider": (MeterProvider | None, "a meter provider"),
    "redact": (Callable | None, "a function of an evaluation"),
    "sampling": (Sampling | None, "a Sampling"),
    "threads": (bool, _SWITCH),
    "thresholds": (Mapping | None, "a mapping of metrics to numbers"),
    "unknown": (str | None, " or ".join(map(repr, UNKNOWN))),
}


def one_of(name: str, value: T, kind: Any, wanted: str) -> T:
    """What was given. Raises `ConfigurationError` where it is of another type than is wanted."""
    if not isinstance(value, kind):
        raise _wrong(name, wanted, value)
    return value


def seconds(name: str, value: float | None) -> float | None:
    """A time that was given, if it was. Raises `ConfigurationError` for what is none."""
    wanted = "a number of seconds above 0"
    one_of(name, value, int | float | None, wanted)
    if value is not None and not value > 0:  # nan is none either
        raise _wrong(name, wanted, value)
    return value


def _wrong(name: str, wanted: str, value: object) -> ConfigurationError:
    return ConfigurationError(f"{name}= takes {wanted}, not {value!r}")


def checked_judge(judge: Judge | None) -> Judge | None:
    """The judge that was given, if one was. Raises `ConfigurationError` for what is none."""
    if judge is not None:
        from goldspan.judge.judges import Judge  # whoever has one has loaded it already

        one_of("judge", judge, Judge, "a goldspan.judge.Judge")
    return judge
