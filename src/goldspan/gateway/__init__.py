"""`goldspan serve`: OTLP from agents in any language, handed on as it came, and scored.

A request is acknowledged when it is in the journal. Everything else that is done with it happens behind that: it is
forwarded to back ends, and the runs in it are scored. Needs the extra `server`.
"""
