"""Makes and maintains goldens: suggests, imports and compares them, and finds stale ones.

``golden_suggestion``: suggests a golden for each group of requests, and verifies it on the runs of the group.
``draft_rules``: builds a golden from call patterns, and drops rules until enough runs pass it.
``request_groups``: groups runs that ask for the same, and finds the condition that selects a group.
``call_patterns``: finds the calls that runs have in common, with their order and alternatives.
``argument_patterns``: finds what the arguments of similar calls have in common.
``run_conditions``: parses `--where`, and decides which runs are good.
``golden_diff``: compares what two sets of goldens state, and their verdicts on the same runs.
``stale_goldens``: finds goldens that recent runs no longer use or follow.
``importing``: imports the datasets of other evaluation tools.
"""
