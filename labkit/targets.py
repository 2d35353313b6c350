"""Which AWS answers: the embedded stand-in, LocalStack, or a real account behind two switches.

=============  ==================================================  =================================================
target         chosen by                                           what it is
=============  ==================================================  =================================================
``embedded``   nothing, or ``LABKIT_TARGET=embedded``              MiniStack with the parity modules, on 127.0.0.1
``localstack`` ``LABKIT_TARGET=localstack``                        any LocalStack endpoint, found by localstack-client
``aws``        ``LABKIT_TARGET=aws`` and ``LABKIT_AWS_ACCOUNT``    a real account, after ``sts get-caller-identity``
               equal to the account of the credentials             has confirmed that it is the one that was named
=============  ==================================================  =================================================

The region is ``LABKIT_REGION``, by default us-east-1.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import threading
import urllib.request
from dataclasses import dataclass
from typing import Any

from labkit import embedded, loopback
from labkit.errors import EndpointDown, TargetError

NAMES = ("embedded", "localstack", "aws")
DEFAULT_REGION = "us-east-1"


@dataclass(frozen=True)
class Target:
    """Where calls go. ``endpoint`` is None for AWS itself; ``account`` is set there, and derived per lab elsewhere."""

    name: str
    endpoint: str | None
    region: str
    says: str
    account: str | None = None
    instance: str = ""  # names the process that answers, where we know it: an endpoint alone can change hands

    @property
    def shared(self) -> bool:
        """Whether others may own resources in the same account: then only what carries the lab's mark is touched."""
        return self.name == "aws"

    def client(self, service: str, account: str) -> Any:
        """A boto3 client for ``service`` in ``account`` (12 digits: on both emulators the access key selects it)."""
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        # One layer of bounded retries; a long poll lasts up to 20 s, so the read time-out is above that.
        config = Config(connect_timeout=5, read_timeout=25, retries={"mode": "standard", "total_max_attempts": 2})
        try:
            if self.endpoint is None:
                import boto3

                return boto3.client(service, region_name=self.region, config=config)
            with _MAKING:
                return _own_session().client(
                    service,
                    region_name=self.region,
                    endpoint_url=self.endpoint,
                    aws_access_key_id=account,
                    aws_secret_access_key="lab",
                    config=config.merge(Config(proxies={}, s3={"addressing_style": "path"})),
                )
        except (BotoCoreError, ValueError) as error:
            raise TargetError(f"no client for {service}: {error}") from error

    def environment(self, account: str) -> dict[str, str]:
        """The variables that point another process, the AWS CLI or any SDK at ``account`` here; none on AWS itself."""
        if self.endpoint is None:
            return {}
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ACCESS_KEY_ID": account,
            "AWS_SECRET_ACCESS_KEY": "lab",
        }

    def answers(self) -> bool:
        """Whether the process that this target was connected to still is the one that answers."""
        if self.name != "embedded":
            return self.endpoint is None or loopback.answers(self.endpoint)
        found = embedded.running()
        return found is not None and _instance(found) == self.instance


def _instance(found: embedded.Running) -> str:
    return f"{found.pid}@{found.port}"


_MAKING = threading.Lock()  # a boto3 session makes one client at a time


@functools.cache
def _own_session() -> Any:
    """A boto3 session that knows nothing of the reader's AWS configuration: profiles, files, nothing to break on."""
    import boto3
    import botocore.session

    nothing = dict.fromkeys(("config_file", "credentials_file"), (None, None, os.devnull, None))
    core = botocore.session.Session(session_vars={**nothing, "profile": (None, None, None, None)})
    return boto3.Session(botocore_session=core)


def learner() -> str:
    """Whose labs these are: ``LABKIT_LEARNER``, else one name for everybody, so that ARNs are the same everywhere."""
    return os.environ.get("LABKIT_LEARNER", "").strip() or "learner"


def account_for(learner: str, notebook: str) -> str:
    """The 12-digit account of one learner's notebook: the same on each run, another one for everybody else."""
    digest = hashlib.sha256(f"{learner}/{notebook}".encode(errors="backslashreplace")).hexdigest()
    return f"{int(digest, 16) % 9 + 1}{int(digest, 16) // 9 % 10**11:011d}"


def chosen() -> str:
    """The name of the chosen target. Raises :class:`TargetError` for an unknown one."""
    name = os.environ.get("LABKIT_TARGET", "").strip().lower() or "embedded"
    if name not in NAMES:
        raise TargetError(f"LABKIT_TARGET is {name!r}; it can be {', '.join(NAMES)}.")
    return name


def region() -> str:
    """``LABKIT_REGION`` or us-east-1. Raises :class:`TargetError` for what cannot be a Region's name."""
    name = os.environ.get("LABKIT_REGION", "").strip() or DEFAULT_REGION
    if not re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d", name):
        raise TargetError(f"LABKIT_REGION is {name!r}; a Region is named like {DEFAULT_REGION}.")
    return name


def connect() -> Target:
    """The chosen target, ready to answer: the embedded one is started if need be.

    Raises :class:`TargetError` or one of its kind, with what to type, when it cannot be used.
    """
    name = chosen()
    if name == "embedded":
        found = embedded.ensure()
        version = f"MiniStack {found.version} with the parity modules"
        says = f"{version}, {found.endpoint}, {found.note}"
        return Target(name, found.endpoint, region(), says, instance=_instance(found))
    if name == "localstack":
        return _localstack()
    return _aws()


def _localstack() -> Target:
    from localstack_client.config import get_service_endpoint

    try:
        endpoint = get_service_endpoint("sqs") or "http://localhost:4566"
        urllib.request.Request(endpoint)
    except ValueError as error:
        raise TargetError(f"LOCALSTACK_HOST or AWS_ENDPOINT_URL names no address: {error}.") from error
    # A fresh one loads a service with its first call, which takes some seconds.
    if not loopback.answers(endpoint, timeout=15.0):
        raise EndpointDown(
            f"no LocalStack answers at {endpoint}; start it, or point LOCALSTACK_HOST (host:port) "
            "or AWS_ENDPOINT_URL at it."
        )
    return Target("localstack", endpoint, region(), f"LocalStack at {endpoint}")


def _aws() -> Target:
    named = os.environ.get("LABKIT_AWS_ACCOUNT", "").strip()
    if not (named.isdigit() and len(named) == 12):
        raise TargetError(
            "LABKIT_TARGET=aws also needs LABKIT_AWS_ACCOUNT, the 12 digits of the account you mean; "
            "every call there may cost money."
        )
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        actual = boto3.client("sts", region_name=region()).get_caller_identity()["Account"]
    except (BotoCoreError, ClientError) as error:
        raise TargetError(f"AWS does not say who you are ({error}); check your credentials.") from error
    if actual != named:
        raise TargetError(
            f"your credentials belong to account {actual}, but LABKIT_AWS_ACCOUNT is {named}; nothing was done."
        )
    return Target("aws", None, region(), f"AWS account {actual}: calls are billed to it", account=actual)
