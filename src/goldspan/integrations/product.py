"""`Product`: how scores are written into one product, as HTTP requests that the delivery sends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from goldspan.integrations.scored_runs import ScoredRun


@dataclass(frozen=True, slots=True)
class ProductRequest:
    """One HTTP request."""

    method: str
    path: str
    """The path below the product's base URL."""
    body: Any = None
    """A JSON value; `None` for a request without a body."""
    query: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    absent_is_success: bool = False
    """Whether 404 means that the work is done, as when a score is deleted that does not exist."""


@dataclass(frozen=True, slots=True)
class ProductReply:
    """The reply to a request that the product accepted, at least in part."""

    status: int
    body: Any
    """The JSON value; `None` if the body is empty or not JSON."""


Send: TypeAlias = Callable[[ProductRequest], ProductReply]
"""Sends a request. Raises `DeliveryError` if the product does not accept it."""


class Product(ABC):
    """Writes scores into one product.

    The requests must be idempotent: the delivery repeats a request whose reply was lost.
    """

    name: str
    """The name in `GOLDSPAN_SINKS`, in logs and in counters."""
    base_url: str
    max_runs: int = 100
    """The maximum number of runs in one call of `requests`, which keeps requests below the product's limits."""
    preview_note: str | None = None
    """How the requests that `write` sends can differ from `requests`, if `write` reads the product's state first."""

    @classmethod
    @abstractmethod
    def from_environment(cls, base_url: str | None, environment: Mapping[str, str]) -> Product:
        """Return the product as its own variables describe it; an explicit address has precedence."""

    @property
    @abstractmethod
    def headers(self) -> Mapping[str, str]:
        """The headers of every request. Their values are secret."""

    @property
    def destination(self) -> str:
        """The place of the scores: the address, and the project if the address has several. It has no secret."""
        return self.base_url

    @abstractmethod
    def requests(self, runs: Sequence[ScoredRun]) -> Iterable[ProductRequest]:
        """Return the requests that write the scores of some runs. It does not depend on the product's state."""

    def write(self, runs: Sequence[ScoredRun], send: Send) -> Mapping[str, str]:
        """Write the scores of some runs, and return why the product refused some of them, by the ids of these runs.

        The default sends `requests`. A product overrides it if it must read its state first, or if a reply can name
        scores that were refused. Raises `DeliveryError`; if traces of some runs are unknown and the scores of all
        other runs were written, the error has their `unknown_run_ids`.
        """
        for request in self.requests(runs):
            send(request)
        return {}
