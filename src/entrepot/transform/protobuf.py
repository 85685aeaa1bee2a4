"""Protobuf: messages of one type, by Google's package, as its mapping to JSON says.

The schema is what `protoc --descriptor_set_out=FILE --include_imports` writes, as base64, and the
full name of a message. By that mapping, integers of 64 bits are texts in JSON.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

from entrepot.transform.refusal import Refused, check_document, check_size


class Protobuf:
    content_type = "application/x-protobuf"

    def __init__(self, schema: Mapping[str, Any]) -> None:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

        name, descriptors = schema.get("message"), schema.get("descriptors")
        if not isinstance(name, str) or not isinstance(descriptors, str):
            raise Refused("descriptors as base64 and the name of a message make a schema")
        files = descriptor_pb2.FileDescriptorSet()
        pool = descriptor_pool.DescriptorPool()
        try:
            files.ParseFromString(b64decode(descriptors, validate=True))
            for each in files.file:
                pool.Add(each)
            self._made = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        except Exception as error:  # Of several layers, and a schema is somebody else's.
            raise Refused(f"no descriptors with message {name}: {error}") from None

    def read(self, data: bytes) -> dict[str, Any]:
        from google.protobuf import json_format
        from google.protobuf.message import DecodeError

        check_size(data)
        message = self._made()
        try:
            message.ParseFromString(data)
            found: dict[str, Any] = json_format.MessageToDict(
                message, preserving_proto_field_name=True
            )
        except (DecodeError, json_format.Error, ValueError, TypeError, RecursionError) as error:
            raise Refused(f"not a message of this type: {error}") from None
        check_document(found)
        return found

    def write(self, document: dict[str, Any]) -> bytes:
        from google.protobuf import json_format

        check_document(document)
        message = self._made()
        try:
            json_format.ParseDict(document, message)
            written: bytes = message.SerializeToString()
        except (json_format.Error, ValueError, TypeError, RecursionError) as error:
            raise Refused(f"it does not fit the message: {error}") from None
        check_size(written)
        return written
