"""What the gateway can be told, and where it was said."""
