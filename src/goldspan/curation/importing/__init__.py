"""Imports the datasets of other evaluation tools as goldens, and counts what a golden cannot state.

``golden_import``: reads a file, detects its format and returns the goldens; the entry point.
``imported_goldens``: collects the goldens and the losses of one import.
``expected_calls``: converts tool calls in the notations of other tools to expected calls.
``deepeval_datasets``: datasets of deepeval.
``adk_eval_sets``: eval sets and test files of the Google ADK.
``promptfoo_configs``: the tests of promptfoo, with their assertions about tools.
``example_datasets``: dataset exports of LangSmith and Phoenix.
``pydantic_evals_datasets``: datasets of pydantic-evals, with their evaluators of tool calls.
"""
