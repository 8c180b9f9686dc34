"""Decides which spans belong to which request or component.

`boundaries`: splits one trace into requests and components.
`detached_traces`: attaches servers, tools and resumed work that are separate traces to their request.
`stitching`: splits and joins unmarked traces by the history that model turns repeat.
"""
