"""Cases: evaluates rows of called and expected tools, from files or from code, without a trace.

``case_evaluation``: `evaluate_cases`; evaluates rows in order, optionally in several threads.
``case_fields``: field names of rows, calls and expected calls in the formats of several tools.
``case_files``: reads rows from JSON Lines, JSON and CSV files.
"""
