"""Objects: content too large for a message or an item, in S3, under the hash of what it holds.

Writing the same content twice leaves one object, and a reader checks that it got what was written. Standard library
only at import: this module travels into functions.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labkit.errors import LabError

if TYPE_CHECKING:
    from labkit.lab import Lab


class ClaimError(LabError):
    """A checked payload cannot be had back: it is gone, or it is not what was checked in."""


@dataclass(frozen=True)
class Stored:
    """Where content lies: ``size`` in bytes, ``sha256`` in hex."""

    key: str
    size: int
    sha256: str


class Objects:
    """Content in one bucket, by boto3 client and name. :meth:`create` makes the bucket in a lab."""

    def __init__(self, client: Any, bucket: str) -> None:
        self.client = client
        self.bucket = bucket

    @classmethod
    def create(cls, lab: Lab, name: str, *, expire_days: int = 14) -> Objects:
        """Make the bucket. Objects are removed after ``expire_days``. Raises :class:`ClaimError` for a bad number."""
        if not isinstance(expire_days, int) or isinstance(expire_days, bool) or expire_days < 1:
            raise ClaimError(f"objects are kept for whole days, 1 or more; expire_days is {expire_days!r}.")
        client, bucket = lab.client("s3"), lab.bucket_name(name)
        region = {} if lab.region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": lab.region}}
        client.create_bucket(Bucket=bucket, **region)
        client.put_bucket_tagging(
            Bucket=bucket, Tagging={"TagSet": [{"Key": key, "Value": value} for key, value in lab.tags.items()]}
        )
        rule = {"ID": "expire", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": expire_days}}
        client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [rule]})
        return cls(client, bucket)

    def put(self, folder: str, body: bytes) -> Stored:
        """Write JSON ``body`` below ``folder``; when this returns, it is there."""
        digest = hashlib.sha256(body).hexdigest()
        stored = Stored(f"{folder}/{digest[:16]}.json", len(body), digest)
        self.client.put_object(Bucket=self.bucket, Key=stored.key, Body=body, ContentType="application/json")
        return stored

    def get(self, key: str, sha256: str, *, what: str) -> bytes:
        """The content back. ``what`` names it in the :class:`ClaimError` for an object that is gone or altered."""
        from botocore.exceptions import ClientError

        try:
            body: bytes = self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        except ClientError as error:
            if error.response["Error"]["Code"] in ("NoSuchKey", "NoSuchBucket"):
                raise ClaimError(f"{what} is gone from {self.bucket}: {key}.") from error
            raise
        if hashlib.sha256(body).hexdigest() != sha256:
            raise ClaimError(f"{what} was altered: its SHA-256 is not the one on the ticket.")
        return body
