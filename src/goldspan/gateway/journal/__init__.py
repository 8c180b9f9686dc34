"""Keeps acknowledged requests on disk until every consumer has processed them.

`journal`: `Journal`, which appends entries in groups and tracks the cursors of its consumers.
`journal_file`: entries, and the SQLite file that stores them: tables, SQL, connections and checkpoints.
"""
