"""The agent of the demo: decorated functions; the decisions of a language model are scripted."""

from __future__ import annotations

import time

import goldspan

_TOOL_LATENCY_S = 0.03
"""Seconds that a tool takes, so that requests happen one after another before the reader's eyes."""


@goldspan.trace
def search_hotels(city: str) -> list[dict[str, object]]:
    """Hotels in a city with their prices."""
    time.sleep(_TOOL_LATENCY_S)
    return [{"hotel": "Le Petit", "price": 90, "city": city}, {"hotel": "Le Grand", "price": 340, "city": city}]


@goldspan.trace
def book_hotel(hotel: str, nights: int = 1) -> str:
    """Book some nights; there is no booking for no nights."""
    time.sleep(_TOOL_LATENCY_S)
    if nights < 1:
        raise ValueError("nights must be at least 1")
    return f"booked {hotel}"


@goldspan.trace
def get_weather(city: str) -> str:
    """The weather of today."""
    time.sleep(_TOOL_LATENCY_S)
    return f"sunny in {city}"


@goldspan.trace
def search_web(query: str) -> list[str]:
    """Pages about something."""
    time.sleep(_TOOL_LATENCY_S)
    return [f"10 things about {query}"]


@goldspan.trace
def convert_currency(amount: float, source: str, target: str) -> float:
    """An amount in another currency."""
    time.sleep(_TOOL_LATENCY_S)
    return round(amount * (1.09 if (source, target) == ("EUR", "USD") else 0.92), 2)


@goldspan.trace
def send_email(to: str, subject: str) -> bool:
    """Send a mail."""
    time.sleep(_TOOL_LATENCY_S)
    return bool(to and subject)


@goldspan.trace
def list_bookings(user: str) -> list[str]:
    """The bookings of a user."""
    time.sleep(_TOOL_LATENCY_S)
    return [f"BK-1 of {user}"]


@goldspan.trace
def cancel_booking(booking: str) -> str:
    """Cancel a booking."""
    time.sleep(_TOOL_LATENCY_S)
    return f"cancelled {booking}"


@goldspan.trace(capture_arguments=False, capture_result=False)
def charge_card(card: str, amount: float) -> str:
    """Take an amount from a card. Neither may be in a trace."""
    time.sleep(_TOOL_LATENCY_S)
    return f"charged {amount} to {card}"


@goldspan.trace
def search_policies(topic: str) -> list[str]:
    """Policies about a topic."""
    time.sleep(_TOOL_LATENCY_S)
    return [f"{topic}-2026", f"{topic}-2025"]


@goldspan.trace
def read_policy(policy: str) -> str:
    """The text of a policy."""
    time.sleep(_TOOL_LATENCY_S)
    return f"{policy}: free until 24 hours before arrival"


@goldspan.trace(kind="component")
def look_up_policy(topic: str) -> str:
    """A part of the agent that has a golden of its own. It answers from the title alone: it does not read."""
    return search_policies(topic)[0]


@goldspan.trace(kind="agent", name="travel-agent")
def answer_request(request: str) -> str:
    """Serve one request."""
    return REQUESTS[request]()


def _book_cheapest() -> str:
    cheapest = min(search_hotels("Paris"), key=lambda found: str(found["price"]).zfill(6))
    return book_hotel(str(cheapest["hotel"]), nights=2)


def _book_without_email() -> str:
    return book_hotel("Roma Inn")


def _call_wrong_tool() -> str:
    return search_web("weather Oslo")[0]


def _swap_currencies() -> str:
    return str(convert_currency(100, source="USD", target="EUR"))


def _book_before_searching() -> str:
    booked = book_hotel("Alfama House")
    return f"{booked}; {get_weather('Lisbon')}"


def _try_again() -> str:
    try:
        return book_hotel("Casa do Porto", nights=0)
    except ValueError:
        return book_hotel("Casa do Porto", nights=1)


def _call_extra_tool() -> str:
    booking, *_ = list_bookings("ana")
    return cancel_booking(booking.split()[0])


def _tidy_up() -> str:
    booking, *_ = list_bookings("ana")
    return f"{cancel_booking(booking.split()[0])}; {send_email('ana@example.org', 'Your account is tidy')}"


def _pay_unseen() -> str:
    return charge_card("5555 4444 3333 1111", amount=180)


def _skip_reading_policy() -> str:
    return look_up_policy("cancellation")


def _say_goodbye() -> str:
    return "Have a good trip!"


def _make_a_joke() -> str:
    return "Why do hotels never get lost? They have reservations."


REQUESTS = {
    "Please find a hotel in Paris and book the cheapest one!": _book_cheapest,
    "Book the Roma Inn and mail me the confirmation.": _book_without_email,
    "What is the weather in Oslo?": _call_wrong_tool,
    "How much is 100 EUR in USD?": _swap_currencies,
    "Check the weather in Lisbon, then book the Alfama House.": _book_before_searching,
    "Book the Casa do Porto.": _try_again,
    "Which bookings do I have?": _call_extra_tool,
    "Tidy up my account.": _tidy_up,
    "Charge my card for two nights.": _pay_unseen,
    "Can I cancel my booking for free?": _skip_reading_policy,
    "Thanks, that is all!": _say_goodbye,
    "Tell me a joke.": _make_a_joke,
}
"""The requests, and what the scripted model makes of each."""
