"""The API over the store."""
