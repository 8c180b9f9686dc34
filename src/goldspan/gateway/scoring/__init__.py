"""What was acknowledged, gathered by trace and scored."""
