"""Golden files: read, reload and write them.

``golden_loader``: validates the files and combines them to one `Goldens` (`load_goldens`).
``golden_formats``: parses YAML, JSON and JSON Lines to plain values, with the lines of goldens and of errors.
``json_positions``: finds the lines of goldens in a JSON file.
``hot_reload``: reloads the files in a background thread when they change.
``golden_writer``: writes goldens as YAML and drafts a golden from a run.
"""
