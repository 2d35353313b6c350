"""Sizes on paper: what an entry, a message and a batch weigh, and when a payload needs a claim check.

EventBridge counts an entry, not the JSON that it sends on: 14 bytes if ``Time`` is set, and the UTF-8 bytes of
``Source``, ``DetailType``, ``Detail`` and each of ``Resources`` (``events.put.time_bytes``,
``events.put.counted_fields``). The event that a target gets is larger: :func:`event_size`. A request must stay *under*
its limit (``events.put.request_bytes``); a queue's message and a state's payload may reach theirs
(``sqs.message.max_bytes``, ``sfn.payload.max_bytes``). Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from labkit.models._input import ModelError, limit, whole

T = TypeVar("T")


class TooLarge(ModelError):
    """One item alone is over the limit of a request: no batching helps, a claim check does."""

    def __init__(self, what: str, index: int, size: int, most: int) -> None:
        super().__init__(f"{what} {index} weighs {size:,} bytes; the limit is {most:,}: send a claim check instead.")
        self.index, self.size, self.limit = index, size, most


def utf8(text: str) -> int:
    """Bytes of ``text`` in UTF-8: "é" is 2, an emoji 4."""
    return len(text.encode())


def entry_size(entry: Mapping[str, Any]) -> int:
    """Bytes that EventBridge counts for one ``PutEvents`` entry."""
    size = limit("events.put.time_bytes") if entry.get("Time") is not None else 0
    size += sum(utf8(entry.get(field) or "") for field in ("Source", "DetailType", "Detail"))
    return size + sum(utf8(resource) for resource in entry.get("Resources") or ())


def event_size(entry: Mapping[str, Any], *, region: str = "us-east-1") -> int:
    """Bytes of the JSON event that a target gets for ``entry``: what must fit a queue or a state machine's input."""
    event = {
        "version": "0",
        "id": "0" * 36,
        "detail-type": entry.get("DetailType", ""),
        "source": entry.get("Source", ""),
        "account": "0" * 12,
        "time": "0000-00-00T00:00:00Z",
        "region": region,
        "resources": list(entry.get("Resources") or ()),
    }
    frame = utf8(json.dumps(event, ensure_ascii=False, separators=(",", ":")))
    return frame + len(',"detail":') + utf8(entry.get("Detail") or "{}")


def message_size(message: Mapping[str, Any]) -> int:
    """Bytes that SQS counts for one message (``MessageBody``) or ``SendMessageBatch`` entry: the body, and name, type
    and value of each message attribute."""
    size = utf8(message.get("MessageBody") or "")
    for name, attribute in (message.get("MessageAttributes") or {}).items():
        size += utf8(name) + utf8(attribute.get("DataType", "")) + utf8(attribute.get("StringValue") or "")
        size += len(attribute.get("BinaryValue") or b"")
    return size


def batches(
    items: Iterable[T], size: Callable[[T], int], *, max_items: int, max_bytes: int, what: str = "item"
) -> list[list[T]]:
    """``items`` in order, cut into batches of at most ``max_items`` and ``max_bytes``; a batch is closed when the next
    item does not fit. Raises :class:`TooLarge` for an item over ``max_bytes``, before any batch is handed out."""
    whole("max_items", max_items)
    done: list[list[T]] = []
    used = 0
    for index, item in enumerate(items):
        weight = size(item)
        if weight > max_bytes:
            raise TooLarge(what, index, weight, max_bytes)
        if not done or len(done[-1]) == max_items or used + weight > max_bytes:
            done.append([])
            used = 0
        done[-1].append(item)
        used += weight
    return done


def event_batches(entries: Iterable[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """``PutEvents`` requests for ``entries`` on a classic bus, in order. Raises :class:`TooLarge`."""
    most = limit("events.put.request_bytes") - 1  # the total must stay under the limit
    return batches(entries, entry_size, max_items=limit("events.put.entries"), max_bytes=most, what="entry")


def message_batches(messages: Iterable[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """``SendMessageBatch`` requests for ``messages``, in order. Raises :class:`TooLarge`."""
    most = limit("sqs.batch.max_bytes")
    return batches(messages, message_size, max_items=limit("sqs.batch.entries"), max_bytes=most, what="message")


@dataclass(frozen=True)
class Hop:
    """One place that a payload passes: its ``size`` there and the largest size that fits, both in bytes."""

    name: str
    size: int
    limit: int

    @property
    def fits(self) -> bool:
        return self.size <= self.limit

    @property
    def percent(self) -> float:
        """Share of the limit, in per cent."""
        return 100 * self.size / self.limit


def hops(entry: Mapping[str, Any], *, through: Sequence[str] = ("bus", "queue", "state")) -> list[Hop]:
    """Where ``entry`` fits on its way: the ``bus`` counts the entry, a ``queue`` and a ``state`` the whole event.

    The first hop that does not fit is the one to size the claim check by, usually the state: its payload cap is a
    quarter of the bus's.
    """
    event = event_size(entry)
    known = {
        "bus": Hop("bus", entry_size(entry), limit("events.put.request_bytes") - 1),
        "queue": Hop("queue", event, limit("sqs.message.max_bytes")),
        "state": Hop("state", event, limit("sfn.payload.max_bytes")),
    }
    strange = [name for name in through if name not in known]
    if strange:
        raise ModelError(f"through must name some of {', '.join(known)}; got {strange[0]!r}.")
    return [known[name] for name in through]


def needs_claim_check(entry: Mapping[str, Any], *, through: Sequence[str] = ("bus", "queue", "state")) -> bool:
    """Must the payload of ``entry`` go to S3, with its address in the entry, to pass all of ``through``?"""
    return not all(hop.fits for hop in hops(entry, through=through))
