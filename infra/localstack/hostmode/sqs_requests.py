"""The message plane: what is refused, how a batch answers, what is counted.

**On AWS**: see :mod:`parity.sqs_requests`.

**LocalStack** checks fewer parameters, with other texts for some, and a batch reports what LocalStack calls an error
within itself (class name as the code, never the sender's fault).

**Here** the rules are asked before LocalStack's own operations, and put a batch's answer together; sending, receiving
and deleting one message are LocalStack's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from parity import sqs_errors as errors
from parity import sqs_requests as requests

from hostmode.sqs_errors import understood
from hostmode.sqs_metrics import tell
from hostmode.sqs_polls import client_of
from hostmode.sqs_queues import view
from hostmode.sqs_receive import Request, receiving_for


def data_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters by the names that they have in a request: ``queue_url`` is ``QueueUrl``."""
    return {"".join(word.capitalize() for word in name.split("_")): value for name, value in given.items()}


def check_send(queue: Any, data: Mapping[str, Any], *, in_batch: bool = False) -> None:
    seen = view(queue)
    requests.check_send(
        data,
        max_size=queue.maximum_message_size,
        queue_delay=queue.delay_seconds,
        fifo=seen["is_fifo"],
        content_based=_content_based(queue),
        in_batch=in_batch,
    )


def _content_based(queue: Any) -> bool:
    return str(queue.attributes.get("ContentBasedDeduplication", "")).lower() == "true"


def handle_in(data: Mapping[str, Any]) -> str:
    if not data.get("ReceiptHandle"):
        raise errors.missing("ReceiptHandle")
    return str(data["ReceiptHandle"])


def answer_each(entries: Any, act: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    from localstack.aws.api import ServiceException

    def done(entry: dict[str, Any]) -> dict[str, Any]:
        try:
            return act(entry)
        except ServiceException as error:
            raise understood(error) from error

    return requests.answer_each(entries, done)


def install() -> None:
    from localstack.services.sqs import provider as module

    provider = module.SqsProvider
    send, put, receive = provider.send_message, provider._put_message, provider.receive_message
    delete_batch = provider.delete_message_batch
    _ = provider.send_message_batch, provider.delete_message, provider._resolve_queue
    _ = provider.change_message_visibility, provider.change_message_visibility_batch
    attributes_md5, has_override = module.create_message_attribute_hash, module.extract_message_count_from_headers

    def put_message(self: Any, queue: Any, context: Any, message_body: str, *more: Any, **named: Any) -> Any:
        stored = put(self, queue, context, message_body, *more, **named)
        attributes = stored.message.get("MessageAttributes") or {}
        size = requests.size_of({"MessageBody": message_body, "MessageAttributes": attributes})
        if getattr(stored, "duplicate", False):
            tell(queue, "deduplicated")
        else:
            tell(queue, "sent", size)
        return stored

    def send_message(self: Any, context: Any, queue_url: str, **given: Any) -> Any:
        check_send(self._resolve_queue(context, queue_url=queue_url), data_of(given))
        return send(self, context, queue_url=queue_url, **given)

    def send_message_batch(self: Any, context: Any, queue_url: str, entries: Any = None, **more: Any) -> Any:
        queue = self._resolve_queue(context, queue_url=queue_url)
        entries = entries or []
        requests.check_batch(entries, "SendMessageBatchRequestEntry")
        requests.check_batch_size(entries)
        if view(queue)["is_fifo"]:
            for entry in entries:
                requests.check_fifo(entry, content_based=_content_based(queue), in_batch=True)

        def act(entry: dict[str, Any]) -> dict[str, Any]:
            check_send(queue, entry, in_batch=True)
            system = entry.get("MessageSystemAttributes")
            stored = self._put_message(
                queue,
                context,
                entry["MessageBody"],
                entry.get("DelaySeconds"),
                entry.get("MessageAttributes"),
                system,
                entry.get("MessageDeduplicationId"),
                entry.get("MessageGroupId"),
            )
            answer = {
                "MessageId": stored.message["MessageId"],
                "MD5OfMessageBody": stored.message["MD5OfBody"],
                "MD5OfMessageAttributes": stored.message.get("MD5OfMessageAttributes"),
                "MD5OfMessageSystemAttributes": attributes_md5(system),
                "SequenceNumber": stored.sequence_number,
            }
            return {name: value for name, value in answer.items() if value is not None}

        return answer_each(entries, act)

    def receive_message(self: Any, context: Any, queue_url: str, **given: Any) -> Any:
        queue = self._resolve_queue(context, queue_url=queue_url)
        data = data_of(given)
        requests.max_messages(data), requests.wait_seconds(data, 0), requests.visibility(data, 0)
        name = requests.token(data, "ReceiveRequestAttemptId") if view(queue)["is_fifo"] else None
        with receiving_for(Request(name, client_of(context))):
            answer = receive(self, context, queue_url=queue_url, **given)
        if answer.get("Messages"):
            tell(queue, "received", len(answer["Messages"]))
        else:
            tell(queue, "empty")
        return answer

    def delete(queue: Any, data: Mapping[str, Any]) -> dict[str, Any]:
        queue.remove(handle_in(data))
        tell(queue, "deleted")
        return {}

    def delete_message(self: Any, context: Any, queue_url: str, **given: Any) -> None:
        delete(self._resolve_queue(context, queue_url=queue_url), data_of(given))

    def delete_message_batch(self: Any, context: Any, queue_url: str, entries: Any = None, **more: Any) -> Any:
        queue = self._resolve_queue(context, queue_url=queue_url)
        if has_override(context):  # LocalStack's event source mappings: more than ten at once
            answer = delete_batch(self, context, queue_url=queue_url, entries=entries, **more)
            tell(queue, "deleted", len(answer["Successful"]))
            return answer
        requests.check_batch(entries or [], "DeleteMessageBatchRequestEntry")
        return answer_each(entries, lambda entry: delete(queue, entry))

    def change(queue: Any, data: Mapping[str, Any]) -> dict[str, Any]:
        handle = handle_in(data)
        if data.get("VisibilityTimeout") is None:
            raise errors.missing("VisibilityTimeout")
        queue.update_visibility_timeout(handle, requests.visibility(data, 0))
        return {}

    def change_visibility(self: Any, context: Any, queue_url: str, **given: Any) -> None:
        change(self._resolve_queue(context, queue_url=queue_url), data_of(given))

    def change_visibility_batch(self: Any, context: Any, queue_url: str, entries: Any = None, **more: Any) -> Any:
        queue = self._resolve_queue(context, queue_url=queue_url)
        requests.check_batch(entries or [], "ChangeMessageVisibilityBatchRequestEntry")
        return answer_each(entries, lambda entry: change(queue, entry))

    provider._put_message = put_message
    provider.send_message, provider.send_message_batch = send_message, send_message_batch
    provider.receive_message = receive_message
    provider.delete_message, provider.delete_message_batch = delete_message, delete_message_batch
    provider.change_message_visibility = change_visibility
    provider.change_message_visibility_batch = change_visibility_batch
