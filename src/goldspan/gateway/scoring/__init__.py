"""Groups acknowledged spans by trace, evaluates the runs in them and queues the results for back ends.

- ``scoring_consumer``: reads the journals in a thread, evaluates what is due and stores the evaluations.
- ``journal_reader``: reads the shares of traces and sessions from journal entries.
- ``trace_splitting``: splits OTLP requests by trace without decoding the spans.
- ``trace_buffer``: holds the spans of a trace until it is due.
- ``trace_evaluation``: finds the runs of a trace group and evaluates them.
- ``revision_history``: finds the earlier evaluations of the runs in a trace group.
- ``results_queue``: writes results and enriched spans to the journal for back ends.
"""
