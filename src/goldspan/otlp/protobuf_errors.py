"""The exceptions that protobuf raises for bytes that are no valid message."""

from google.protobuf.message import DecodeError

PROTOBUF_ERRORS = (DecodeError, UnicodeDecodeError)
"""protobuf without its compiled extension, as in free-threaded Python, raises `UnicodeDecodeError` for text that is not
UTF-8, for which the extension raises `DecodeError`."""
