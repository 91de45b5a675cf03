"""The messages that kafka-python has no classes for. The files beside this module define their fields, in the form of
Kafka's own message files; see `message_class`.

Source: KIP-932 and KIP-1226, and Kafka's files of these names.
"""

import sys
from types import ModuleType, new_class
from typing import Any

from kafka.protocol.api_message import ApiMessage


def message_class(module: ModuleType, name: str) -> Any:
    """Return the class of the message that the file of this name beside a module defines."""
    own = {"__module__": module.__name__}
    return new_class(name, (ApiMessage,), {"load_json": module}, lambda body: body.update(own))


_HERE = sys.modules[__name__]

DescribeShareGroupOffsetsRequest = message_class(_HERE, "DescribeShareGroupOffsetsRequest")
DescribeShareGroupOffsetsResponse = message_class(_HERE, "DescribeShareGroupOffsetsResponse")
