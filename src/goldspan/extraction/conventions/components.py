"""goldspan's own mark: a span that people want scored on its own."""

from __future__ import annotations

from goldspan import semconv
from goldspan.extraction.convention import ANY, Convention, Places

CONVENTION = Convention(
    name="components",
    title="goldspan components",
    source="goldspan's own decorator, or any span that carries the attribute",
    versions="all",
    roles={semconv.COMPONENT_NAME: {ANY: "component"}},
    of={
        "component": Places(
            name=(semconv.COMPONENT_NAME,), input=(semconv.COMPONENT_INPUT,), output=(semconv.COMPONENT_OUTPUT,)
        )
    },
)
