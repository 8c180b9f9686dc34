"""Decompresses and validates export requests within limits, and encodes the responses to them.

`decompression`: inflates a body piece by piece, with limits on its size.
`request_validation`: checks a request in protobuf and drops items that cannot be read.
`json_validation`: the same for OTLP/JSON, with an estimate of the memory that parsing takes.
`export_response`: the response to a request, encoded for HTTP and gRPC.
"""
