"""Message attributes: what a message may carry beside its body.

**On AWS** (Developer Guide, "Amazon SQS message metadata"; API reference MessageAttributeValue) a message has at most
ten attributes. A name has letters, digits, ``_``, ``-`` and ``.``, less than 256 bytes, no period at either end and no
two in a row, and does not begin with ``AWS.`` or ``Amazon.`` in any casing; recorded: letters with diacritics pass as
well. A type is String, Number or Binary, with a suffix of one's own after a period. A value is not empty, and a text
has the characters that a body may have (recorded: here the code is InvalidParameterValue). The one system attribute is
AWSTraceHeader.

Texts: those for an empty value, the wrong type, too many attributes and a value that is no number were quoted from AWS
in public; the others are not verified. Not checked: the range and precision of a number.

**MiniStack** checks none of this, and a value that cannot be encoded makes the request fail with HTTP 500."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

from parity.sqs_errors import SqsError

MAX_ATTRIBUTES = 10
MAX_BYTES = 256  # of a name, of a type: fewer than this
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # what XML 1.0 cannot carry
_NAME = re.compile(r"[A-Za-z0-9_.\-\u00c0-\u017f]+")
_TYPE = re.compile(r"(String|Number|Binary)(\..+)?", re.S)
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")

Attributes = Mapping[str, Mapping[str, Any]]


def printable(text: str) -> str:
    """``text`` as an attribute may carry it: with a question mark for each character that none may have."""
    return FORBIDDEN.sub("?", text) or "-"


def size_of_text(text: str | None) -> int:
    return len((text or "").encode("utf-8", "surrogatepass"))


def size_of_attributes(attributes: Attributes) -> int:
    """Bytes of attributes that count against a message's limit: name, type and value of each."""
    total = 0
    for name, attribute in attributes.items():
        total += size_of_text(name) + size_of_text(attribute.get("DataType"))
        if attribute.get("BinaryValue") is not None:
            data = binary(attribute["BinaryValue"])
            total += len(attribute["BinaryValue"] if data is None else data)
        else:
            total += size_of_text(attribute.get("StringValue"))
    return total


def binary(value: str | bytes) -> bytes | None:
    """A binary value, which is Base64 on the wire; None when it is not."""
    if not isinstance(value, str):
        return bytes(value)
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        return None


def check_attributes(attributes: Attributes) -> None:
    """Raise unless a message may have these (user) attributes."""
    if len(attributes) > MAX_ATTRIBUTES:
        raise _refused(
            f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum [{MAX_ATTRIBUTES}]."
        )
    for name, attribute in attributes.items():
        _check_name(name)
        _check_value(name, attribute)


def check_system_attributes(attributes: Attributes) -> None:
    for name, attribute in attributes.items():
        if name != "AWSTraceHeader":
            raise _refused(f"Message system attribute name '{name}' is invalid.")
        if attribute.get("DataType") != "String":
            raise _refused(f"The type of message system attribute '{name}' is invalid. You must use String.")
        _check_value(name, attribute)


def _refused(text: str) -> SqsError:
    return SqsError("InvalidParameterValue", text)


def _check_name(name: str) -> None:
    if not name:
        raise _refused("The request must contain non-empty message (user) attribute names.")
    if size_of_text(name) >= MAX_BYTES:
        raise _refused("Message (user) attribute names must be shorter than 256 Bytes")
    if not _NAME.fullmatch(name):
        text = "can only contain upper and lower score characters, digits, periods, hyphens and underscores. "
        raise _refused(f"Message (user) attributes name {text}")
    if name.lower().startswith(("aws.", "amazon.")) or name.startswith(".") or name.endswith("."):
        raise _refused(
            "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These strings are reserved for "
            "internal use. Additionally, they cannot start or end with '.'."
        )
    if ".." in name:
        raise _refused("Message (user) attribute name must not have successive '.' characters.")


def _check_value(name: str, attribute: Mapping[str, Any]) -> None:
    if attribute.get("StringListValues") or attribute.get("BinaryListValues"):
        raise _refused("Message attribute list values in SendMessage operation are not supported.")
    kind = attribute.get("DataType") or ""
    known = _TYPE.fullmatch(kind)
    if not known or FORBIDDEN.search(kind):
        prefixes = "You must use only the following supported type prefixes: Binary, Number, String."
        raise _refused(f"The type of message (user) attribute '{name}' is invalid. {prefixes}")
    if size_of_text(kind) >= MAX_BYTES:
        raise _refused("Message (user) attribute types must be shorter than 256 Bytes")
    base = known[1]
    value = attribute.get("BinaryValue" if base == "Binary" else "StringValue")
    if not value:
        raise _refused(f"Message (user) attribute '{name}' must contain a non-empty value of type '{kind}'.")
    if base == "Binary":
        if binary(value) is None:
            raise _refused(f"The value of message (user) attribute '{name}' is not Base64.")
    elif FORBIDDEN.search(value):
        raise _refused(f"The value of message (user) attribute '{name}' contains characters outside the allowed set.")
    elif base == "Number" and not _NUMBER.fullmatch(value):
        raise _refused(f"Can't cast the value of message (user) attribute '{name}' to a number.")
