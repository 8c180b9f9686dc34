"""Requests as they come in: inflated, read, bounded, answered."""
