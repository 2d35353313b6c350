"""Which AWS answers: the embedded stand-in, LocalStack, or a real account behind two switches.

=============  ==================================================  =================================================
target         chosen by                                           what it is
=============  ==================================================  =================================================
``embedded``   nothing, or ``LABKIT_TARGET=embedded``              MiniStack with the parity modules, on 127.0.0.1
``localstack`` ``LABKIT_TARGET=localstack``                        a LocalStack that runs, or host mode; the embedded
                                                                   stand-in beside it for services that it lacks
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
from dataclasses import dataclass, field
from typing import Any

from labkit import embedded, localstack, loopback, servers
from labkit.errors import EndpointDown, TargetError
from labkit.servers import Running, Server

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
    # Where it is a process of ours: which, and its server.
    running: Running | None = field(default=None, compare=False)
    server: Server | None = field(default=None, compare=False)
    beside: tuple[str, ...] = ()  # the services that the embedded stand-in answers for, beside this target

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
            endpoint = self.endpoint_of(service)
            if endpoint is None:
                import boto3

                return boto3.client(service, region_name=self.region, config=config)
            with _MAKING:
                return _own_session().client(
                    service,
                    region_name=self.region,
                    endpoint_url=endpoint,
                    aws_access_key_id=account,
                    aws_secret_access_key="lab",
                    # The emulators have one name: StartSyncExecution and others would be sent to sync-127.0.0.1.
                    config=config.merge(Config(proxies={}, inject_host_prefix=False, s3={"addressing_style": "path"})),
                )
        except (BotoCoreError, ValueError) as error:
            raise TargetError(f"no client for {service}: {error}") from error

    def endpoint_of(self, service: str) -> str | None:
        """Where ``service`` answers; the stand-in beside this target is started if need be.

        A variable such as ``AWS_ENDPOINT_URL_PIPES`` names another place for one of those services.
        """
        if self.endpoint is None or service not in self.beside:
            return self.endpoint
        return os.environ.get(_variable(service)) or embedded.beside(self.endpoint).ensure().endpoint

    def environment(self, account: str) -> dict[str, str]:
        """The variables that point another process, the AWS CLI or any SDK at ``account`` here; none on AWS itself."""
        if self.endpoint is None:
            return {}
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            **self.elsewhere(),
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ACCESS_KEY_ID": account,
            "AWS_SECRET_ACCESS_KEY": "lab",
        }

    def elsewhere(self) -> dict[str, str]:
        """The variables that lead to the stand-in beside this target, for the services that it answers for."""
        companion = embedded.beside(self.endpoint).running() if self.beside and self.endpoint else None
        return {_variable(service): companion.endpoint for service in self.beside} if companion else {}

    def answers(self) -> bool:
        """Whether the process that this target was connected to still is the one that answers.

        Raises :class:`EndpointDown` when it is there and does not answer.
        """
        if self.server is None or self.running is None:
            return self.endpoint is None or loopback.answers(self.endpoint, servers.PATIENCE)
        if self.server.ready_within(self.running, servers.PATIENCE):
            return True
        if self.server.process(self.running) is not None:
            raise EndpointDown(f"{self.server.what} does not answer; what was made there is still there")
        return False


def _variable(service: str) -> str:
    """The variable in which any SDK looks for the endpoint of one service."""
    return f"AWS_ENDPOINT_URL_{service.upper().replace('-', '_')}"


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


def chosen(named: str | None = None) -> str:
    """The chosen target's name, or the one that is ``named``. Raises :class:`TargetError` for an unknown one."""
    name = (named or os.environ.get("LABKIT_TARGET", "")).strip().lower() or "embedded"
    if name not in NAMES:
        raise TargetError(f"{'the target' if named else 'LABKIT_TARGET'} is {name!r}; it can be {', '.join(NAMES)}.")
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
        found = embedded.SERVER.ensure()
        version = f"MiniStack {found.version} with the parity modules"
        says = f"{version}, {found.endpoint}, {found.note}"
        return Target(name, found.endpoint, region(), says, running=found, server=embedded.SERVER)
    if name == "localstack":
        return on_localstack(localstack.ensure())
    return _aws()


def on_localstack(found: localstack.Found) -> Target:
    """The target that a LocalStack is."""
    server = localstack.SERVER if found.running else None
    return Target(
        "localstack",
        found.endpoint,
        region(),
        found.says,
        running=found.running,
        server=server,
        beside=found.lacking,
    )


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
