"""Claim check: a payload too large to travel lies in S3, and the envelope carries the ticket.

The key is made of the content's hash, so publishing the same work twice writes the same object twice and leaves one.
The default threshold is not the bus's limit but the strictest one further down the road: a Step Functions state holds
256 KiB, a quarter of what the bus and the queues take.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from labkit.control.envelope import Envelope, PayloadRef
from labkit.facts import facts
from labkit.state.objects import ClaimError, Objects

if TYPE_CHECKING:
    from labkit.lab import Lab

__all__ = ["ClaimCheck", "ClaimError"]


class ClaimCheck:
    """Payloads in one bucket. ``threshold`` is the largest envelope, in bytes, that travels whole."""

    def __init__(self, client: Any, bucket: str, *, threshold: int | None = None) -> None:
        self.client = client
        self.bucket = bucket
        self.threshold = int(facts("sfn.payload.max_bytes")) if threshold is None else threshold

    @classmethod
    def create(cls, lab: Lab, name: str, *, threshold: int | None = None, expire_days: int = 14) -> ClaimCheck:
        """Make the bucket in ``lab``. Objects are removed after ``expire_days``: longer than any message can live."""
        objects = Objects.create(lab, name, expire_days=expire_days)
        return cls(objects.client, objects.bucket, threshold=threshold)

    def pack(self, envelope: Envelope) -> Envelope:
        """The envelope as it is to travel: as it is when small enough, else with a ``payload_ref`` in the payload's
        place. The object is written before the envelope is returned, so no ticket is out for what is not there."""
        if envelope.payload is None or envelope.size() <= self.threshold:
            return envelope
        body = json.dumps(envelope.payload, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()
        folder = f"conv/{envelope.conversation_id}/step-{envelope.step:02d}"
        stored = Objects(self.client, self.bucket).put(folder, body)
        ref = PayloadRef(bucket=self.bucket, key=stored.key, size=stored.size, sha256=stored.sha256)
        return envelope.model_copy(update={"payload": None, "payload_ref": ref})

    def unpack(self, envelope: Envelope) -> Envelope:
        """The envelope with its payload back inside. Raises :class:`ClaimError` when the object is gone or altered."""
        ref = envelope.payload_ref
        if ref is None:
            return envelope
        what = f"the payload of {envelope.trace_id}"
        body = Objects(self.client, ref.bucket).get(ref.key, ref.sha256, what=what)
        return envelope.model_copy(update={"payload": json.loads(body), "payload_ref": None})
