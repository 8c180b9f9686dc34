"""Groups acknowledged spans by trace, evaluates the runs in them and queues the results for back ends.

- ``telemetry_log``: the protocol of the logs that are scored, and the log of a journal.
- ``scoring_consumer``: reads logs, evaluates what is due and stores the evaluations.
- ``scoring_thread``: the thread that does so.
- ``journal_reader``: reads the shares of traces and sessions from log entries.
- ``trace_splitting``: splits OTLP requests by trace without decoding the spans.
- ``trace_buffer``: holds the spans of a trace until it is due.
- ``finished_traces``: finds how far another worker must read back to know the traces that were finished.
- ``trace_evaluation``: finds the runs of a trace group and evaluates them.
- ``revision_history``: finds the earlier evaluations of the runs in a trace group.
- ``verdict_queue``: queues the verdicts of a judge until their evaluations are stored.
- ``drop_publisher``: publishes what scoring dropped as counters.
- ``results_queue``: writes results and enriched spans to the journal for back ends.
"""
