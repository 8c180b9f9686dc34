"""Keeps acknowledged requests on disk until every consumer has processed them.

`journal`: `Journal`, which appends entries in groups and tracks the cursors of its consumers.
`journal_entries`: entries, and the SQL that inserts, selects and prunes them.
`journal_file`: the SQLite file, with its tables, connections and checkpoints.
"""
