"""Places: the queue that ``labkit triage`` is asked about, by URL, ARN or name, in a lab's account or in one's own."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from labkit.errors import LabError
from labkit.ops.triage.letters import TriageError
from labkit.work.queues import Queue


class Account:
    """Clients of one account, each made once: of a lab's (as ``labkit env`` names it), or of the environment's.

    A lab's resources are not touched: nothing is opened, nothing is swept.
    """

    def __init__(self, lab: str | None, *, endpoint: str | None = None) -> None:
        self._made: dict[str, Any] = {}
        self._endpoint = endpoint
        self._target: Any = None
        self._account = ""
        if lab is not None:
            from labkit import targets

            self._target = targets.connect()
            self._account = self._target.account or targets.account_for(targets.learner(), lab)

    def client(self, service: str, /) -> Any:
        if service not in self._made:
            self._made[service] = self._make(service)
        return self._made[service]

    def _make(self, service: str) -> Any:
        if self._target is not None:
            return self._target.client(service, self._account)
        import boto3
        from botocore.exceptions import BotoCoreError

        try:
            return boto3.client(service, endpoint_url=self._endpoint)
        except (BotoCoreError, ValueError) as error:
            raise LabError(
                f"no client for {service} from the environment: {error}; or name a lab with --lab."
            ) from error

    @property
    def approximate(self) -> bool:
        """Whether counts of messages are AWS's, which take up to a minute to be true."""
        return str(self.client("sqs").meta.endpoint_url).endswith((".amazonaws.com", ".amazonaws.com.cn"))


def account(lab: str | None, queue: str) -> Account:
    """The account to look for ``queue`` in. Without a lab, a URL of some other host than AWS's says where to ask."""
    host = urlsplit(queue).hostname or ""
    endpoint = None
    if lab is None and host and not host.endswith((".amazonaws.com", ".amazonaws.com.cn")):
        given = urlsplit(queue)
        endpoint = os.environ.get("AWS_ENDPOINT_URL_SQS") or os.environ.get("AWS_ENDPOINT_URL")
        endpoint = endpoint or f"{given.scheme}://{given.netloc}"
    return Account(lab, endpoint=endpoint)


def find(clients: Account, name: str) -> Queue:
    """The queue with this URL, ARN or name. Raises :class:`TriageError` when there is none, or no answer."""
    from botocore.exceptions import BotoCoreError, ClientError

    client = clients.client("sqs")
    if name.startswith(("http://", "https://")):
        return Queue(client, name)
    options = {"QueueName": name}
    if name.startswith("arn:"):
        parts = name.split(":")
        if len(parts) != 6 or parts[2] != "sqs":
            raise TriageError(f"{name!r} is no ARN of a queue.")
        options = {"QueueName": parts[5], "QueueOwnerAWSAccountId": parts[4]}
    try:
        return Queue(client, client.get_queue_url(**options)["QueueUrl"])
    except ClientError as error:
        if error.response["Error"]["Code"].endswith(("NonExistentQueue", "QueueDoesNotExist")):
            raise TriageError(f"there is no queue {name!r} in this account and Region.") from error
        raise TriageError(f"queue {name!r} could not be asked for: {error}") from error
    except BotoCoreError as error:
        raise TriageError(f"queue {name!r} could not be asked for: {error}") from error
