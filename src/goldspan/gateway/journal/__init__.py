"""What was acknowledged, on disk."""
