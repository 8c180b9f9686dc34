"""What comes back from a model: an answer, not read yet, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back from a model, before it is read."""

    text: str
    model: str | None = None
    """As the endpoint names it."""
    input_tokens: int | None = None
    """`None`: the endpoint does not say."""
    output_tokens: int | None = None


class AskingError(Exception):
    """A judge gave no answer. Its text never holds a key, and of a run only what an endpoint repeats of it."""

    def __init__(
        self, kind: str, text: str, *, again: bool = False, retry_after: float | None = None, spent: bool = True
    ) -> None:
        super().__init__(text)
        self.kind = kind
        """What labels tell it by: `Timeout`, `RateLimited`, `EndpointError`, `EndpointRefused`, `Unreachable`,
        `MalformedAnswer`, `AnswerTooLarge`, `OverBudget`; or the type of what a judge of one's own raised."""
        self.again = again
        """Whether to ask again may help."""
        self.retry_after = retry_after
        """Seconds that the endpoint wants to be left alone."""
        self.spent = spent
        """Whether the attempt cost tokens, as far as one can tell."""
        self.lasting = False
        """Whether it will be the same for every question, until somebody changes the settings."""
        self.answer: Answer | None = None
        """What was answered all the same, with the tokens that it cost."""

    def __str__(self) -> str:
        return f"{self.kind}: {super().__str__()}"
