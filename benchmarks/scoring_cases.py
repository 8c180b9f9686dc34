"""The cases that scores are timed by: 1,000 requests of a travel agent, the same each time.

About half of the runs are as expected. In the others a call is missing, swapped, repeated, of another tool, or has
another value in one of its arguments. Every call has its arguments.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from goldspan.model import ExpectedTool, Golden, Run, ToolCall

CASES = 1000

Call: TypeAlias = dict[str, Any]
"""A call or an expectation as profiles read it: `name` and `args`."""
_Value: TypeAlias = Callable[[random.Random], Any]


@dataclass(frozen=True, slots=True)
class Case:
    """What was called and what should have been."""

    called: list[Call]
    expected: list[Call]
    beside: dict[str, Any]
    """What BFCL looks at beside the two lists: the tools, and the values that are allowed."""

    def run(self) -> Run:
        """The calls as a run that was just rebuilt from telemetry."""
        calls = tuple(
            ToolCall(
                name=call["name"],
                arguments=call["args"],
                outcome="ok",
                span_id=f"{number:016x}",
                start_ns=number * 1000,
                end_ns=number * 1000 + 500,
            )
            for number, call in enumerate(self.called)
        )
        return Run(run_id="", input="Plan my trip.", tool_calls=calls)

    def golden(self) -> Golden:
        """The expectations as a golden."""
        tools = tuple(ExpectedTool(call["name"], arguments=call["args"]) for call in self.expected)
        return Golden("trip", "Plan my trip.", tools)


def cases(number: int = CASES) -> list[Case]:
    """The cases, no object of which is shared by the two sides."""
    chance = random.Random("scoring")
    return [_case(chance) for _ in range(number)]


def right_cases(calls: int, number: int = 200) -> list[Case]:
    """Cases in which so many calls, each of another tool, were made exactly as expected."""
    chance = random.Random("right")
    found = []
    for _ in range(number):
        expected = [_call(chance, name) for name in chance.sample(list(TOOLS), k=calls)]
        found.append(Case([{"name": call["name"], "args": _copy(call["args"])} for call in expected], expected, {}))
    return found


def _case(chance: random.Random) -> Case:
    expected = [_call(chance) for _ in range(chance.choices(range(9), weights=_LENGTHS)[0])]
    called = [{"name": call["name"], "args": _copy(call["args"])} for call in expected]
    for _ in range(chance.choice((0, 0, 0, 1, 1, 2))):
        chance.choice(_SLIPS)(called, chance)
    return Case(called, expected, {"func_descriptions": FUNCTIONS, "possible_answers": list(map(_answer, expected))})


def _answer(call: Call) -> dict[str, Any]:
    """Each argument with the one value that is allowed; so has each entry of a dictionary."""
    return {
        call["name"]: {
            key: [{entry: [item] for entry, item in value.items()} if isinstance(value, dict) else value]
            for key, value in call["args"].items()
        }
    }


_LENGTHS = (2, 14, 18, 20, 18, 14, 8, 4, 2)
"""How many of 100 cases expect so many calls, from none on."""


# --- what can go wrong ------------------------------------------------------------------------------------------------


def _forgets(called: list[Call], chance: random.Random) -> None:
    if called:
        called.pop(chance.randrange(len(called)))


def _adds(called: list[Call], chance: random.Random) -> None:
    called.insert(chance.randint(0, len(called)), _call(chance))


def _repeats(called: list[Call], chance: random.Random) -> None:
    if called:
        call = chance.choice(called)
        called.append({"name": call["name"], "args": _copy(call["args"])})


def _swaps(called: list[Call], chance: random.Random) -> None:
    if len(called) > 1:
        at = chance.randrange(len(called) - 1)
        called[at], called[at + 1] = called[at + 1], called[at]


def _changes(called: list[Call], chance: random.Random) -> None:
    if called:
        call = chance.choice(called)
        argument = chance.choice(list(call["args"]))
        call["args"][argument] = TOOLS[call["name"]][argument].value(chance)


_SLIPS = (_forgets, _adds, _repeats, _swaps, _changes)


# --- the tools --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a tool."""

    schema: Mapping[str, Any]
    """Its type, in the words of BFCL, which are those of JSON Schema but for `dict` and `float`."""
    value: _Value


def _one_of(*words: str) -> Argument:
    return Argument({"type": "string"}, lambda chance: chance.choice(words))


def _whole(least: int, most: int) -> Argument:
    return Argument({"type": "integer"}, lambda chance: chance.randint(least, most))


def _text(words: int) -> Argument:
    return Argument({"type": "string"}, lambda chance: " ".join(chance.choices(_WORDS, k=words)))


_WORDS = ("quiet", "room", "near", "the", "river", "late", "arrival", "two", "beds", "breakfast", "please", "with")
_CITY = _one_of("Paris", "Rome", "Lisbon", "Vienna", "Oslo")
_DAY = Argument({"type": "string"}, lambda chance: f"2026-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}")
_PRICE = Argument({"type": "float"}, lambda chance: chance.randint(60, 400) + 0.5)
_SWITCH = Argument({"type": "boolean"}, lambda chance: chance.random() < 0.5)
_TAGS = Argument(
    {"type": "array", "items": {"type": "string"}}, lambda chance: chance.sample(("pool", "bar", "gym", "spa"), k=2)
)
_GUEST = Argument(
    {"type": "dict"}, lambda chance: {"name": chance.choice(("Ada", "Alan", "Grace")), "age": chance.randint(18, 90)}
)

TOOLS: Mapping[str, Mapping[str, Argument]] = {
    "search_hotels": {"city": _CITY, "check_in": _DAY, "nights": _whole(1, 9), "tags": _TAGS},
    "compare_prices": {"city": _CITY, "most": _PRICE},
    "check_dates": {"hotel": _whole(100, 199), "check_in": _DAY},
    "book_hotel": {"hotel": _whole(100, 199), "check_in": _DAY, "guest": _GUEST, "breakfast": _SWITCH},
    "search_flights": {"origin": _CITY, "destination": _CITY, "day": _DAY, "direct": _SWITCH},
    "book_flight": {"flight": _whole(1000, 1999), "guest": _GUEST},
    "send_email": {"to": _one_of("ada@example.com", "alan@example.com"), "body": _text(12)},
    "get_weather": {"city": _CITY},
}

FUNCTIONS = [
    {
        "name": name,
        "parameters": {
            "type": "dict",
            "properties": {key: argument.schema for key, argument in arguments.items()},
            "required": list(arguments),
        },
    }
    for name, arguments in TOOLS.items()
]
"""The tools as BFCL describes them."""


def _call(chance: random.Random, name: str | None = None) -> Call:
    name = name or chance.choice(list(TOOLS))
    return {"name": name, "args": {key: argument.value(chance) for key, argument in TOOLS[name].items()}}


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return list(value) if isinstance(value, list) else value
