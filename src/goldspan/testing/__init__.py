"""Evaluates agents before they ship: in tests, from a program and on the command line.

- ``assertions``: asserts inside any test that an agent called the expected tools.
- ``captured_calls``: captures the tools that a block of a program calls.
- ``pytest_cases``, ``pytest_reports``: the tests of goldens and the reports of the pytest plugin, which is the module
  ``pytest_goldspan`` beside the package.
- ``agent_cases``: `goldspan.evaluate_agent` runs an agent on the input of each golden.
- ``agent_calls``: loads an agent by name, and calls it with a time limit.
- ``span_capture``: captures the spans of each case alone, and builds its run.
- ``results``: the results of an agent on goldens.
- ``results_file``: the file in which they are saved case by case.
- ``result_frames``: those results as data frames of pandas and polars.
- ``gates``: decides whether results reach the required values.
- ``regressions``: decides whether a build is worse than its baseline.
- ``rescoring``: evaluates the runs of a results file again.
- ``check_reports``: the outcome of a check as JSON, JUnit XML, GitHub annotations and Markdown.
- ``statistics``: pass^k, pass@k, intervals, and tests that compare two builds.

The package imports none of its modules, so that a program loads only what it uses.
"""
