"""Extracts the runs of inputs that are larger than the memory, and in several processes.

Modules in reading order:

``spill``: keeps rows in files on disk, divided into buckets by a key.
``record_rows``: converts records to rows for a spill, and back.
``input_parts``: divides the input into parts, and reads a part into a spill.
``run_spool``: keeps extracted runs in files.
``link_groups``: finds the groups of traces that must be extracted together.
``partitioned_extraction``: extracts the runs of the records in spills.
``task_runner``: runs tasks in one process or several, and keeps their results.
``bounded_extraction``: extracts in memory as long as the records fit into a budget, and from disk otherwise.
"""
