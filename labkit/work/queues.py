"""Queues: the work ledger. A queue with its dead-letter queue; sends and deletes that are checked entry by entry.

Receiving does not remove a message, it hides it; only a delete removes it. Everything here follows from that: a message
whose handler raised is left alone and comes back, a delete that fails says so, and a batch call is never trusted as a
whole, because SQS reports its failures one entry at a time.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from labkit.facts import facts
from labkit.models.sizes import batches, message_size
from labkit.work.entries import BatchError, QueueError, checked, tens

if TYPE_CHECKING:
    from labkit.lab import Lab

__all__ = ["BatchError", "Depth", "Message", "Queue", "QueueError"]

_JSON = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False)


@dataclass(frozen=True)
class Message:
    """A received message.

    ``id`` stays the same from delivery to delivery (but not across a redrive by move task); ``receipt`` is new with
    each and is what a delete needs. ``receives`` counts deliveries, this one included. ``sent_at`` is epoch seconds.
    """

    id: str
    body: str = field(repr=False)  # it may hold a task token
    receipt: str = field(repr=False)
    receives: int
    sent_at: float
    group: str | None = None
    attributes: Mapping[str, str | bytes] = field(default_factory=dict)
    system: Mapping[str, str] = field(default_factory=dict, repr=False)
    wire: Mapping[str, Any] = field(default_factory=dict, repr=False)  # the attributes with their types, to send on

    def json(self) -> Any:
        """The body as JSON; raises :class:`QueueError`, with the message's id, when it is not."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise QueueError(f"message {self.id} holds no JSON ({error}).") from error

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Message:
        """A message from what ``receive_message`` returns (with all attributes asked for)."""
        system = raw.get("Attributes", {})
        attributes = raw.get("MessageAttributes", {})
        return cls(
            id=raw["MessageId"],
            body=raw["Body"],
            receipt=raw["ReceiptHandle"],
            receives=int(system.get("ApproximateReceiveCount", 1)),
            sent_at=int(system.get("SentTimestamp", 0)) / 1000,
            group=system.get("MessageGroupId"),
            attributes={
                name: value.get("StringValue", value.get("BinaryValue", "")) for name, value in attributes.items()
            },
            system=system,
            wire=attributes,
        )


@dataclass(frozen=True)
class Depth:
    """How many messages a queue holds. Approximate on AWS, exact on the embedded stand-in."""

    visible: int
    in_flight: int
    delayed: int

    @property
    def total(self) -> int:
        return self.visible + self.in_flight + self.delayed


class Queue:
    """One queue, by client and URL. :meth:`create` makes one in a lab; the constructor takes one that exists.

    Asking about a queue raises :class:`QueueError` when it does not exist or does not answer; sending, receiving and
    hiding raise what boto3 does.
    """

    def __init__(self, client: Any, url: str, *, arn: str = "", dlq: Queue | None = None) -> None:
        self.client = client
        self.url = url
        self.name = url.rsplit("/", 1)[-1]
        self.arn = arn or self._attributes("QueueArn")["QueueArn"]
        self.dlq = dlq

    @property
    def fifo(self) -> bool:
        return self.name.endswith(".fifo")

    @classmethod
    def create(
        cls,
        lab: Lab,
        name: str,
        *,
        visibility: int | None = None,
        dlq: Queue | bool = False,
        max_receives: int = 4,
        attributes: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Queue:
        """Create a queue in ``lab``; a name that ends in ``.fifo`` makes a FIFO queue.

        ``visibility`` in seconds (AWS's default: 30). ``dlq=True`` makes a dead-letter queue beside it, with the
        longest retention that SQS has and a redrive allow policy that lets in this queue alone; an existing
        :class:`Queue` is used as it is. ``max_receives`` counts deliveries before a message goes there. ``attributes``
        are raw SQS attributes, JSON ones as dictionaries. Raises :class:`QueueError` when SQS refuses.
        """
        client = lab.client("sqs")
        fifo = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
        wanted = {**fifo, **{key: _attribute(value) for key, value in (attributes or {}).items()}}
        if visibility is not None:
            wanted["VisibilityTimeout"] = str(visibility)
        dead: Queue | None = None
        if dlq is True:
            base = name.removesuffix(".fifo")
            dead = cls.create(
                lab,
                f"{base}-dlq{'.fifo' if fifo else ''}",
                attributes={"MessageRetentionPeriod": facts("sqs.retention.max")},
                tags=tags,
            )
        elif isinstance(dlq, Queue):
            dead = dlq
        if dead is not None:
            wanted["RedrivePolicy"] = json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": max_receives})
        try:
            queue = cls._create(client, lab.resource_name(name), wanted, {**lab.tags, **(tags or {})}, dead)
        except BaseException:
            if dead is not None and dlq is True:  # nothing half-made stays
                client.delete_queue(QueueUrl=dead.url)
            raise
        if dead is not None and dlq is True:
            # After the queue, because each of the two policies names the other queue.
            allow = {"redrivePermission": "byQueue", "sourceQueueArns": [queue.arn]}
            client.set_queue_attributes(QueueUrl=dead.url, Attributes={"RedriveAllowPolicy": json.dumps(allow)})
        return queue

    @classmethod
    def _create(
        cls, client: Any, name: str, attributes: dict[str, str], tags: dict[str, str], dlq: Queue | None
    ) -> Queue:
        from botocore.exceptions import ClientError, ParamValidationError

        limit = time.monotonic() + float(facts("sqs.delete_recently")) + 5
        while True:
            try:
                url = client.create_queue(QueueName=name, Attributes=attributes, tags=tags)["QueueUrl"]
                return cls(client, url, dlq=dlq)
            except ClientError as error:
                code = error.response["Error"]["Code"]
                # AWS keeps a deleted queue's name for 60 s; a notebook that is run again meets that.
                if not code.endswith("QueueDeletedRecently") or time.monotonic() > limit:
                    raise QueueError(f"queue {name!r} was not created: {error.response['Error']['Message']}") from error
                time.sleep(2)
            except ParamValidationError as error:
                raise QueueError(f"queue {name!r} was not created: {error}") from error

    def _attributes(self, *names: str) -> dict[str, str]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=list(names))
        except (BotoCoreError, ClientError) as error:
            raise QueueError(f"queue {self.name} could not be asked for its {', '.join(names)}: {error}") from error
        found: dict[str, str] = answer.get("Attributes", {})  # absent when none of them is set
        return found

    def send(self, body: Any, *, group: str | None = None, **options: Any) -> str:
        """Send one message; returns its id. ``body`` is text or what JSON can hold; ``options`` go to boto3."""
        if group is not None:
            options["MessageGroupId"] = group
        elif self.fifo and "MessageGroupId" not in options:
            raise QueueError(f"{self.name} is a FIFO queue: each message needs a group.")
        return str(self.client.send_message(QueueUrl=self.url, MessageBody=_text(body), **options)["MessageId"])

    def send_batch(
        self,
        bodies: Iterable[Any],
        *,
        group: Callable[[Any], str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> list[str]:
        """Send many messages in as few calls as SQS allows; returns their ids in the order of ``bodies``.

        A batch call can succeed as a call and fail for single entries: those are sent again with growing waits, alone,
        and five times at most. Raises :class:`BatchError` with the entries that failed for good; the others are sent.
        """
        if isinstance(bodies, str | bytes | Mapping):
            raise QueueError(f"send_batch takes many bodies; this is one {type(bodies).__name__}: use send.")
        if self.fifo and group is None:
            raise QueueError(f"{self.name} is a FIFO queue: each message needs a group.")
        entries: list[dict[str, Any]] = []
        for body in bodies:
            entry: dict[str, Any] = {"MessageBody": _text(body)}
            if group is not None:
                entry["MessageGroupId"] = group(body)
            entries.append(entry)
        done: dict[int, str] = {}
        failed: dict[int, tuple[str, str]] = {}
        sizes = [message_size(entry) for entry in entries]
        most, most_bytes = int(facts("sqs.batch.entries")), int(facts("sqs.batch.max_bytes"))
        for indices in batches(
            range(len(entries)), sizes.__getitem__, max_items=most, max_bytes=most_bytes, what="message"
        ):
            sent, lost = checked(
                lambda chunk: self.client.send_message_batch(
                    QueueUrl=self.url, Entries=[{"Id": str(index), **entries[index]} for index in chunk]
                ),
                indices,
                sleep,
            )
            done.update({index: answer["MessageId"] for index, answer in sent.items()})
            failed.update(lost)
        if failed:
            raise BatchError(f"{len(failed)} of {len(entries)} messages were not sent to {self.name}", failed)
        return [done[index] for index in range(len(entries))]

    def receive(self, limit: int = 10, *, wait: int | None = None, visibility: int | None = None) -> list[Message]:
        """Receive up to ``limit`` (1 to 10) messages with all their attributes.

        ``wait`` is the long poll in seconds (0 to 20; default: the queue's own setting), ``visibility`` overrides the
        queue's time-out for these messages.
        """
        options: dict[str, Any] = {}
        if wait is not None:
            options["WaitTimeSeconds"] = wait
        if visibility is not None:
            options["VisibilityTimeout"] = visibility
        answer = self.client.receive_message(
            QueueUrl=self.url,
            MaxNumberOfMessages=limit,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
            **options,
        )
        return [Message.of(raw) for raw in answer.get("Messages", [])]

    def delete(self, *messages: Message, sleep: Callable[[float], None] = time.sleep) -> None:
        """Delete received messages, ten a call. Raises :class:`BatchError` with those that SQS did not delete."""
        self._each(messages, {}, self.client.delete_message_batch, "deleted from", sleep)

    def give_back(self, *messages: Message, sleep: Callable[[float], None] = time.sleep) -> None:
        """Show received messages again at once, ten a call. Raises :class:`BatchError` with those that stay hidden."""
        call = self.client.change_message_visibility_batch
        self._each(messages, {"VisibilityTimeout": 0}, call, "given back to", sleep)

    def _each(
        self,
        messages: Sequence[Message],
        fields: Mapping[str, Any],
        call: Callable[..., Mapping[str, Any]],
        done: str,
        sleep: Callable[[float], None],
    ) -> None:
        """A batch call on received messages, by their receipts."""

        def some(indices: Sequence[int]) -> Mapping[str, Any]:
            entries = [{"Id": str(index), "ReceiptHandle": messages[index].receipt, **fields} for index in indices]
            return call(QueueUrl=self.url, Entries=entries)

        failed: dict[int, tuple[str, str]] = {}
        for indices in tens(len(messages)):
            failed.update(checked(some, indices, sleep)[1])
        if failed:
            raise BatchError(f"{len(failed)} of {len(messages)} messages were not {done} {self.name}", failed)

    def hide(self, message: Message, seconds: int) -> None:
        """Hide a received message for ``seconds`` from now on; 0 gives it back at once."""
        self.client.change_message_visibility(
            QueueUrl=self.url, ReceiptHandle=message.receipt, VisibilityTimeout=seconds
        )

    def consume(
        self,
        handler: Callable[[Message], object],
        *,
        limit: int | None = None,
        wait: int = 0,
        on_error: Callable[[Message, Exception], None] | None = None,
    ) -> int:
        """Receive, handle, delete, until a receive comes back empty or ``limit`` messages are done; returns how many.

        A message whose handler raises is not deleted: it comes back when its visibility ends. With ``on_error`` the
        loop then goes on with the next message; without, the error is raised after those done so far are deleted.
        This is the bare loop of notebook 03: no heartbeat, no idempotency.
        """
        done = 0
        while limit is None or done < limit:
            batch = self.receive(min(10, limit - done) if limit is not None else 10, wait=wait)
            if not batch:
                break
            handled: list[Message] = []
            try:
                for message in batch:
                    try:
                        handler(message)
                    except Exception as error:
                        if on_error is None:
                            raise
                        on_error(message, error)
                    else:
                        handled.append(message)
            finally:
                self.delete(*handled)
            done += len(handled)
        return done

    def depth(self) -> Depth:
        names = ("", "NotVisible", "Delayed")
        found = self._attributes(*(f"ApproximateNumberOfMessages{name}" for name in names))
        return Depth(*(int(found[f"ApproximateNumberOfMessages{name}"]) for name in names))

    def redrive(self) -> tuple[Queue | None, float]:
        """The dead-letter queue and maxReceiveCount, as SQS has them; ``(None, inf)`` where there is none.

        A dead-letter queue that no longer exists counts as none: SQS leaves the message where it is then, too. Raises
        :class:`QueueError` when one of the two cannot be asked.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        policy = self._attributes("RedrivePolicy").get("RedrivePolicy")
        if not policy:
            return None, math.inf
        found = json.loads(policy)
        if self.dlq is None or self.dlq.arn != found["deadLetterTargetArn"]:
            account, name = found["deadLetterTargetArn"].split(":")[4:6]
            try:
                url = self.client.get_queue_url(QueueName=name, QueueOwnerAWSAccountId=account)["QueueUrl"]
            except (BotoCoreError, ClientError) as error:
                code = error.response["Error"]["Code"] if isinstance(error, ClientError) else ""
                if code.endswith(("NonExistentQueue", "QueueDoesNotExist")):
                    return None, math.inf
                raise QueueError(f"the dead-letter queue of {self.name}, {name}, does not answer: {error}") from error
            self.dlq = Queue(self.client, url, arn=found["deadLetterTargetArn"])
        return self.dlq, float(found["maxReceiveCount"])

    def allow(self, service: str, source_arn: str) -> None:
        """Let an AWS service (``events.amazonaws.com``) send here on behalf of ``source_arn`` and of nothing else.

        Statements that the policy already holds stay. Without one, EventBridge's delivery ends as NO_PERMISSIONS.
        """
        current = self._attributes("Policy").get("Policy")
        policy: dict[str, Any] = json.loads(current) if current else {"Version": "2012-10-17", "Statement": []}
        statement = {
            "Effect": "Allow",
            "Principal": {"Service": service},
            "Action": "sqs:SendMessage",
            "Resource": self.arn,
            "Condition": {"ArnEquals": {"aws:SourceArn": source_arn}},
        }
        if statement not in policy["Statement"]:
            policy["Statement"].append(statement)
            self.client.set_queue_attributes(QueueUrl=self.url, Attributes={"Policy": json.dumps(policy)})

    def __repr__(self) -> str:
        return f"<Queue {self.name}>"


def _attribute(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else json.dumps(value)


def _text(body: Any) -> str:
    """The body as text that SQS can take. Raises :class:`QueueError` for what is neither text nor JSON."""
    try:
        text = body if isinstance(body, str) else _JSON.encode(body)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise QueueError(f"a body is text or what JSON can hold; this {type(body).__name__} is not: {error}") from error
    if not text:
        raise QueueError("a body holds at least one character; this one is empty.")
    return text
