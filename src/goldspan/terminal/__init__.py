"""Text for terminals, for the command line and for test reports.

- ``escapes``: escapes the control characters in text from traces.
- ``evaluation_text``: formats evaluations with expected and called tools side by side.
"""
