"""Reads traces out of the tools that teams already use, so that `goldspan score` can evaluate them.

Modules in reading order:

- ``time_window``: `TimeWindow`, and `SliceCursor` for tools whose search returns no cursor.
- ``trace_source``: `TraceSource`, how the traces of one tool are read page by page.
- ``otlp_documents``: writes spans that are not OTLP as OTLP/JSON.
- ``phoenix_source``, ``mlflow_source``, ``langfuse_source``, ``tempo_source``, ``jaeger_source``: the tools.
- ``source_catalog``: `create_source` returns the source of a URL such as `phoenix://localhost:6006`.
- ``pull_folder``: `PullFolder` keeps the pages that were read, and where to continue.
- ``trace_pull``: `TracePull` reads all pages of a time window, and repeats requests that failed.
"""
