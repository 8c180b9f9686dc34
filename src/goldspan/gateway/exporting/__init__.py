"""What was acknowledged, handed on to OTLP back ends."""
