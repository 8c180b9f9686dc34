"""OTLP's trace messages, declared so that the value of an attribute stays as it came until somebody asks for it.

On the wire a list of key-value pairs is the same as a map, and a message the same as the bytes it is made of. So all
attributes are declared as `map<string, bytes>` here. A request then parses as quickly as with OTLP's own messages, keys
are found at the speed of C, and a value that nobody reads is never decoded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2


def trace_message(name: str, *, unread: Iterable[str] = ()) -> type[Any]:
    """The class of a message of `trace.proto`, with attributes as maps and the fields called `unread` as bytes.

    A field that is left unread is a list, each part of it as it came: on the wire, even what can be there once may come
    in parts, and joined together they are the whole.
    """
    pool = DescriptorPool()  # of its own: in the common one the messages are OTLP's
    for module in (common_pb2, resource_pb2, trace_pb2):
        file = FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        for message in file.message_type:
            _redeclare(message, f".{file.package}.{message.name}", frozenset(unread))
        pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName(f"{trace_pb2.DESCRIPTOR.package}.{name}"))


def _redeclare(message: DescriptorProto, full_name: str, unread: frozenset[str]) -> None:
    for inner in message.nested_type:
        _redeclare(inner, f"{full_name}.{inner.name}", unread)
    for field in message.field:
        if field.name in unread:
            field.type = FieldDescriptorProto.TYPE_BYTES
            field.label = FieldDescriptorProto.LABEL_REPEATED
            field.ClearField("type_name")
        elif field.name == "attributes":
            message.nested_type.append(_map_entry())
            field.type_name = f"{full_name}.{_map_entry().name}"


def _map_entry() -> DescriptorProto:
    """What the compiler makes of `map<string, bytes> attributes`."""
    entry = DescriptorProto(name="AttributesEntry")
    entry.options.map_entry = True
    once = FieldDescriptorProto.LABEL_OPTIONAL
    entry.field.add(name="key", number=1, type=FieldDescriptorProto.TYPE_STRING, label=once)
    entry.field.add(name="value", number=2, type=FieldDescriptorProto.TYPE_BYTES, label=once)
    return entry
