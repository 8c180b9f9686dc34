"""Capturing runs as they happen: the decorator, the scoring span processor, and the one-line set-up.

Nothing is imported here: an application that only decorates its tools should load the decorator and no more.
"""
