"""The JSON Schema of golden files, made from the models of the golden language."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, RootModel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from goldspan.goldens.applicability import WORDS_OF_TEXTS
from goldspan.goldens.entries import GoldenAsWritten, Head
from goldspan.goldens.matchers import MATCHER_ENTRIES


class GoldenFile(RootModel[Head | list[GoldenAsWritten]]):
    """Goldens for goldspan: a list of them, or a mapping with a head. In JSON lines each line is one golden."""


def schema() -> dict[str, Any]:
    """The JSON Schema of golden files, for editors and other programs."""
    models: tuple[type[BaseModel], ...] = (GoldenFile, *MATCHER_ENTRIES)
    _, told = models_json_schema([(model, "validation") for model in models])
    definitions = told["$defs"]
    # The models leave arguments and results alone, for `matchers` to read them without recursion.
    value = {"anyOf": [*({"$ref": f"#/$defs/{model.__name__}"} for model in MATCHER_ENTRIES), {}]}
    call = definitions["Call"]["properties"]
    for key in ("arguments", "args"):
        call[key] |= {"anyOf": [{"type": "object", "additionalProperties": value}, {"type": "null"}]}
    for key in ("result", "output"):
        call[key] |= value
    when = definitions["Conditions"]["properties"]
    texts = [{"$ref": f"#/$defs/{kind.__name__}"} for kind in MATCHER_ENTRIES if kind.word() in WORDS_OF_TEXTS]
    when["input"] |= {"anyOf": [{"type": "string", "minLength": 1}, *texts]}
    when["attributes"] |= {"additionalProperties": {"anyOf": [*texts, {}]}}
    return {"$schema": GenerateJsonSchema.schema_dialect, **definitions.pop("GoldenFile"), "$defs": definitions}
