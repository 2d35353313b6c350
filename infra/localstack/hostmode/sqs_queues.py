"""Queues: names, attributes, redrive policies, lists.

**On AWS**: see :mod:`parity.sqs_queues` and :mod:`parity.sqs_policies`.

**LocalStack** checks a part of it, with other texts, a RedrivePolicy only after it is stored, and a
RedriveAllowPolicy not at all; ListDeadLetterSourceQueues has no pages. A message whose dead-letter queue is gone is
lost on the receive that would move it.

**Here** the rules are asked before LocalStack's own operations. A dead-letter queue that is gone counts as none."""

from __future__ import annotations

from typing import Any

from parity.sqs_mailbox import redrive_policy
from parity.sqs_policies import Source, check_allow_policy, check_redrive_policy, sources_of
from parity.sqs_queues import asks_for_fifo, check_name, check_settable, page, page_limit

POLICIES = {"RedrivePolicy", "RedriveAllowPolicy"}


def view(queue: Any) -> dict[str, Any]:
    """LocalStack's queue as the rules of :mod:`parity` see one."""
    from localstack.services.sqs.models import FifoQueue

    fifo = isinstance(queue, FifoQueue)
    return {"name": queue.name, "attributes": queue.attributes, "is_fifo": fifo, "queue": queue}


def find(arn: str) -> Any:
    """LocalStack's queue with this ARN, or None."""
    from localstack.services.sqs.models import sqs_stores

    parts = arn.split(":")
    if len(parts) != 6:
        return None
    region, account, name = parts[3:]
    known = account in sqs_stores and region in sqs_stores[account]
    return sqs_stores[account][region].queues.get(name) if known else None


def find_view(arn: str) -> dict[str, Any] | None:
    queue = find(arn)
    return view(queue) if queue is not None else None


def check_policies(attributes: dict[str, Any], source: Source) -> None:
    if attributes.get("RedrivePolicy"):
        check_redrive_policy(str(attributes["RedrivePolicy"]), source, find_view)
    if attributes.get("RedriveAllowPolicy"):
        check_allow_policy(str(attributes["RedriveAllowPolicy"]))


def dead_letters(queue: Any) -> tuple[Any, int] | None:
    """The dead-letter queue of a queue and its maxReceiveCount."""
    policy = redrive_policy({"attributes": queue.attributes})
    target = find(policy[0]) if policy else None
    return (target, policy[1]) if policy and target is not None else None


def install() -> None:
    from localstack.services.sqs.models import SqsQueue
    from localstack.services.sqs.provider import SqsProvider

    create, change, lists = SqsProvider.create_queue, SqsProvider.set_queue_attributes, SqsProvider.list_queues
    _ = SqsProvider.list_dead_letter_source_queues, SqsProvider._resolve_queue, SqsQueue.max_receive_count

    def create_queue(self: Any, context: Any, queue_name: str, attributes: Any = None, **more: Any) -> Any:
        attributes = dict(attributes or {})
        fifo = asks_for_fifo(attributes)
        check_name(queue_name, fifo=fifo)
        check_settable(attributes, fifo=fifo)
        arn = f"arn:aws:sqs:{context.region}:{context.account_id}:{queue_name}"
        check_policies(attributes, Source(arn, fifo))
        kept = {name: value for name, value in attributes.items() if value != "" or name not in POLICIES}
        return create(self, context, queue_name=queue_name, attributes=kept or None, **more)

    def set_queue_attributes(self: Any, context: Any, queue_url: str, attributes: Any, **more: Any) -> None:
        queue = view(self._resolve_queue(context, queue_url=queue_url))
        check_settable(attributes or {}, fifo=queue["is_fifo"])
        check_policies(attributes or {}, Source(queue["queue"].arn, queue["is_fifo"]))
        change(self, context, queue_url=queue_url, attributes=attributes, **more)

    def list_queues(self: Any, context: Any, max_results: Any = None, **more: Any) -> Any:
        return lists(self, context, max_results=page_limit(max_results), **more)

    def list_sources(
        self: Any, context: Any, queue_url: str, next_token: Any = None, max_results: Any = None, **more: Any
    ) -> dict[str, Any]:
        queue = self._resolve_queue(context, queue_url=queue_url)
        limit = page_limit(max_results)
        queues = [view(other) for other in self.get_store(queue.account_id, queue.region).queues.values()]
        found = sorted(source["queue"].url(context) for source in sources_of(queues, queue.arn))
        urls, token = page(found, limit, next_token)
        return {"queueUrls": urls, "NextToken": token} if token else {"queueUrls": urls}

    def max_receive_count(self: Any) -> int | None:
        found = dead_letters(self)
        return found[1] if found else None

    SqsProvider.create_queue = create_queue
    SqsProvider.set_queue_attributes = set_queue_attributes
    SqsProvider.list_queues = list_queues
    SqsProvider.list_dead_letter_source_queues = list_sources
    SqsQueue.max_receive_count = property(max_receive_count)
