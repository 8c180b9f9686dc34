"""The page: what a store holds, to look at in a browser, live or as one file.

`site.Site` makes every view from a store and templates; `routing` serves it over HTTP, `viewing` on this machine
alone, and `report` writes what it shows into a file that stands alone.
"""
