"""Golden files: read, reload and write them.

``golden_loader``: validates the files and combines them to one `Goldens` (`load_goldens`).
``golden_formats``: parses YAML, JSON and JSON Lines to plain values, with errors that name the line.
``hot_reload``: reloads the files in a background thread when they change.
``golden_writer``: writes goldens as YAML and drafts a golden from a run.
"""
