"""The schema of golden files: pydantic models of the keys, and the parser that makes goldens of them.

golden_validation: base class of all models; turns pydantic errors into sentences for people.
matchers: matchers such as `{regex: ...}` in arguments, results and conditions.
expected_tools: the items of `tools`, checked and converted to the model.
golden_models: models of a golden, its `when` and the file header; the published JSON Schema.
golden_parser: converts a validated golden or header to `goldspan.model` values.
"""
