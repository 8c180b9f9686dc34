"""Evaluates agents before they ship: in tests, from a program and on the command line.

- ``assertions``: asserts inside any test that an agent called the expected tools.
- ``results``: the results of an agent on goldens, and the file in which they are saved case by case.
- ``statistics``: pass^k, pass@k, intervals, and tests that compare two builds.

The package imports none of its modules, because pytest imports it in every project that has goldspan installed.
"""
