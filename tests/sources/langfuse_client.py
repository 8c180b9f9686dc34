"""Reads observations with Langfuse's official client, in an environment that has it.

Its argument is the address of a server. It reads lines of JSON, each with the parameters of a request as the API names
them, and answers each line with the observations and the cursor that the client reads, or with the first error.
"""

from __future__ import annotations

import json
import re
import sys
from datetime import datetime
from typing import Any


def main(url: str) -> None:
    """Answer each line of the standard input."""
    from langfuse.api import LangfuseAPI

    client = LangfuseAPI(base_url=url, username="pk-lf-public", password="sk-lf-secret")
    for line in sys.stdin:
        try:
            query = json.loads(line)
            arguments = {_snake_case(name): _value(name, value) for name, value in query.items()}
            reply = client.observations.get_many(**arguments)
            for observation in reply.data:
                assert not observation.model_extra, observation.model_extra
            ids = [observation.id for observation in reply.data]
            answer: Any = {"ids": ids, "cursor": reply.meta.cursor, "metadata": [each.metadata for each in reply.data]}
        except Exception as error:  # noqa: BLE001 - the test shows every error of the client
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


def _value(name: str, text: str) -> Any:
    if name.endswith("StartTime"):
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    return int(text) if name == "limit" else text


def _snake_case(name: str) -> str:
    return re.sub("([A-Z])", lambda found: f"_{found[1].lower()}", name)


if __name__ == "__main__":
    main(sys.argv[1])
