"""Evaluates agents before they ship: in tests, from a program and on the command line.

- ``assertions``: asserts inside any test that an agent called the expected tools.

This module imports nothing, because pytest imports it in every project that has goldspan installed.
"""
