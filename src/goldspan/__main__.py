"""`python -m goldspan` is the command line."""

from goldspan.cli import main

main()
