"""Claim check: a payload too large to travel lies in S3, and the envelope carries the ticket.

The key is made of the content's hash, so publishing the same work twice writes the same object twice and leaves one.
The default threshold is not the bus's limit but the strictest one further down the road: a Step Functions state holds
256 KiB, a quarter of what the bus and the queues take.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from labkit.control.envelope import Envelope, PayloadRef
from labkit.errors import LabError
from labkit.facts import facts

if TYPE_CHECKING:
    from labkit.lab import Lab


class ClaimError(LabError):
    """A checked payload cannot be had back: it is gone, or it is not what was checked in."""


class ClaimCheck:
    """Payloads in one bucket. ``threshold`` is the largest envelope, in bytes, that travels whole."""

    def __init__(self, client: Any, bucket: str, *, threshold: int | None = None) -> None:
        self.client = client
        self.bucket = bucket
        self.threshold = int(facts("sfn.payload.max_bytes")) if threshold is None else threshold

    @classmethod
    def create(cls, lab: Lab, name: str, *, threshold: int | None = None, expire_days: int = 14) -> ClaimCheck:
        """Make the bucket in ``lab``. Objects are removed after ``expire_days``: longer than any message can live."""
        if not isinstance(expire_days, int) or expire_days < 1:
            raise ClaimError(f"objects are kept for whole days, 1 or more; expire_days is {expire_days!r}.")
        client, bucket = lab.client("s3"), lab.bucket_name(name)
        region = {} if lab.region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": lab.region}}
        client.create_bucket(Bucket=bucket, **region)
        client.put_bucket_tagging(
            Bucket=bucket, Tagging={"TagSet": [{"Key": key, "Value": value} for key, value in lab.tags.items()]}
        )
        rule = {"ID": "expire", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": expire_days}}
        client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [rule]})
        return cls(client, bucket, threshold=threshold)

    def pack(self, envelope: Envelope) -> Envelope:
        """The envelope as it is to travel: as it is when small enough, else with a ``payload_ref`` in the payload's
        place. The object is written before the envelope is returned, so no ticket is out for what is not there."""
        if envelope.payload is None or envelope.size() <= self.threshold:
            return envelope
        body = json.dumps(envelope.payload, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()
        digest = hashlib.sha256(body).hexdigest()
        key = f"conv/{envelope.conversation_id}/step-{envelope.step:02d}/{digest[:16]}.json"
        self.client.put_object(Bucket=self.bucket, Key=key, Body=body, ContentType="application/json")
        ref = PayloadRef(bucket=self.bucket, key=key, size=len(body), sha256=digest)
        return envelope.model_copy(update={"payload": None, "payload_ref": ref})

    def unpack(self, envelope: Envelope) -> Envelope:
        """The envelope with its payload back inside. Raises :class:`ClaimError` when the object is gone or altered."""
        ref = envelope.payload_ref
        if ref is None:
            return envelope
        from botocore.exceptions import ClientError

        try:
            body = self.client.get_object(Bucket=ref.bucket, Key=ref.key)["Body"].read()
        except ClientError as error:
            if error.response["Error"]["Code"] in ("NoSuchKey", "NoSuchBucket"):
                raise ClaimError(f"the payload of {envelope.trace_id} is gone from {ref.bucket}: {ref.key}.") from error
            raise
        if hashlib.sha256(body).hexdigest() != ref.sha256:
            raise ClaimError(
                f"the payload of {envelope.trace_id} was altered: its SHA-256 is not the one on the ticket."
            )
        return envelope.model_copy(update={"payload": json.loads(body), "payload_ref": None})
