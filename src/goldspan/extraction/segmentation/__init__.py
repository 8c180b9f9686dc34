"""Decides which spans belong to which request or component.

``boundaries``: splits one trace into requests and components.
``stitching``: splits and joins unmarked traces by the history that model turns repeat.
``detached_tools``: attaches servers, tools and resumed work that are separate traces to their request.
"""
