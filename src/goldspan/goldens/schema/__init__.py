"""The schema of golden files: pydantic models of the keys, and the parser that makes goldens of them.

``golden_parser``: converts a golden or a file header to `goldspan.model` values.
``golden_models``: models of a golden, its `when` and the file header; the published JSON Schema.
``expected_tools``: models of the items of `tools`, and their conversion to the model.
``matchers``: matchers such as `{regex: ...}` in arguments, results and conditions.
``golden_validation``: base class of all models; turns pydantic errors into sentences for people.
"""
