"""Reconciles the evidence in the spans of one request, and assembles the run.

``call_index``: finds the calls of a run by name, id and arguments.
``call_registry``: registers the calls of a run: executions first, then model requests, then histories.
``call_reconciliation``: merges executed calls, requested calls and results into the tool calls of a run.
``run_checks``: checks whether calls would be visible in a run, and whether a run contradicts itself or others.
``run_annotations``: reads what a program states about its run on its spans.
``run_assembly``: builds a run from its spans.
``run_merging``: merges duplicate runs, and the runs of one conversation.
"""
