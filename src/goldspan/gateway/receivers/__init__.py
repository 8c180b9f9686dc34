"""OTLP over HTTP and gRPC: who may come in, and how much at once."""
