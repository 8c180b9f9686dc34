"""Runs the command line: `python -m goldspan`."""

from goldspan.cli import main

main()
