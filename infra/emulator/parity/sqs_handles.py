"""Receipt handles: which receive of which message in which queue.

**On AWS** a receipt handle belongs to one *receive*, not to the message (Amazon SQS Developer Guide, "Queue and message
identifiers"): each receive of a message gives a new one. It is opaque, long, and useless on another queue.

**MiniStack** gives out a random UUID and forgets the one before, so that a handle from an earlier receive cannot be
told apart from garbage.

**Here** a handle carries the queue's ARN, the message's id, the number of the receive and the moment of it, scrambled
with a nonce, and a checksum. So every handle can be judged by itself: malformed, of another queue, of an earlier
receive, too old. :func:`check_delete` and :func:`check_change` decide what a handle may do; how AWS decides it is told
in :mod:`parity.sqs_store`."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from typing import NamedTuple

from parity import sqs_errors as errors

MAX_VISIBILITY = 43_200  # seconds, counted from the receive
_VERSION = b"\x01\x01\x01"  # shows as "AQEB", the way handles of AWS begin
_NONCE = 9
_CHECK = 6
_SEPARATOR = "\x1f"  # in no ARN and no message id


class Receipt(NamedTuple):
    """What a receipt handle says."""

    queue_arn: str
    message_id: str
    receive: int  # 1 for the first receive of the message
    at: float  # epoch seconds of that receive


def _scramble(data: bytes, nonce: bytes) -> bytes:
    mask = hashlib.shake_128(nonce).digest(len(data))
    return (int.from_bytes(data, "big") ^ int.from_bytes(mask, "big")).to_bytes(len(data), "big")


def encode(receipt: Receipt) -> str:
    """A new handle for ``receipt``: no two calls give the same one."""
    nonce = os.urandom(_NONCE)
    fields = (receipt.queue_arn, receipt.message_id, str(receipt.receive), repr(receipt.at))
    hidden = _scramble(_SEPARATOR.join(fields).encode(), nonce)
    check = hashlib.blake2b(nonce + hidden, digest_size=_CHECK).digest()
    return base64.b64encode(_VERSION + nonce + check + hidden).decode()


def decode(handle: str) -> Receipt | None:
    """What ``handle`` says, or ``None`` when it is not a receipt handle at all."""
    try:
        data = base64.b64decode(handle, validate=True)
    except (binascii.Error, ValueError):
        return None
    head = len(_VERSION) + _NONCE
    nonce, check, hidden = data[len(_VERSION) : head], data[head : head + _CHECK], data[head + _CHECK :]
    if not hidden or hashlib.blake2b(nonce + hidden, digest_size=_CHECK).digest() != check:
        return None
    queue_arn, message_id, receive, at = _scramble(hidden, nonce).decode().split(_SEPARATOR)
    return Receipt(queue_arn, message_id, int(receive), float(at))


def check_delete(handle: str, *, fifo: bool, newest: bool, in_flight: bool, age: float) -> bool:
    """Whether ``handle`` deletes its message; raises when it has expired. ``newest``: it is of the message's last
    receive. ``in_flight``: the message is. ``age``: seconds since the receive of the handle."""
    if (fifo and not (newest and in_flight)) or age > MAX_VISIBILITY:
        raise errors.expired_handle(handle)
    return newest


def check_change(handle: str, seconds: int, *, fifo: bool, newest: bool, in_flight: bool, age: float) -> None:
    """Raise unless ``handle`` may hide its message for ``seconds``. ``age``: seconds since its last receive."""
    if fifo and not (newest and in_flight):
        raise errors.expired_handle(handle)
    if int(age) + seconds > MAX_VISIBILITY:
        raise errors.beyond_total(seconds, MAX_VISIBILITY)
