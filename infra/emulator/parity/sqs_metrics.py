"""The metrics of the namespace AWS/SQS, with the dimension QueueName.

**On AWS** (Developer Guide, "Available CloudWatch metrics for Amazon SQS") a queue publishes, each minute while it is
active: how many messages are visible, in flight and delayed; the age of the oldest message; how many were sent,
received and deleted, the sizes of those sent, and how many receives came back empty. A FIFO queue adds the number of
groups with messages in flight and of sends that deduplication swallowed.

* ``ApproximateAgeOfOldestMessage`` leaves out what was received three times or more and not deleted, as that goes to
  the back of a standard queue. In a dead-letter queue it counts from the move, not from the send.
* ``NumberOfMessagesSent`` does not count what a redrive moves into a dead-letter queue.
* ``NumberOfMessagesDeleted`` counts every deletion with a valid handle, also of a message that is gone.

Not modelled: that a queue stops publishing some hours after its last use, and the metrics of fair queues for quiet and
noisy groups. Not verified: what AWS publishes as age when all messages are left out (0 here), and whether messages
moved by a StartMessageMoveTask count as sent (not here).

**MiniStack** publishes none of them.

**Here** counters are counted as things happen, and gauges are sampled when CloudWatch is asked, so that a reader sees
at once what AWS shows after a minute or two."""

from __future__ import annotations

import time
from collections.abc import Iterable

from parity import metrics
from parity.sqs_mailbox import Mailbox, Queue, mailbox, observe

NAMESPACE = "AWS/SQS"
COUNTERS = {
    "sent": "NumberOfMessagesSent",
    "received": "NumberOfMessagesReceived",
    "deleted": "NumberOfMessagesDeleted",
    "empty": "NumberOfEmptyReceives",
    "deduplicated": "NumberOfDeduplicatedSentMessages",
}


def gauges(box: Mailbox, now: float) -> Iterable[tuple[str, float, str]]:
    """Name, value and unit of what can be read off a queue."""
    visible, in_flight, delayed = box.counts()
    since = box.oldest()
    yield "ApproximateNumberOfMessagesVisible", visible, "Count"
    yield "ApproximateNumberOfMessagesNotVisible", in_flight, "Count"
    yield "ApproximateNumberOfMessagesDelayed", delayed, "Count"
    yield "ApproximateAgeOfOldestMessage", 0 if since is None else max(0, int(now - since)), "Seconds"
    if box.fifo:
        yield "ApproximateNumberOfGroupsWithInflightMessages", box.groups_in_flight(), "Count"


def counters(event: str, value: float) -> Iterable[tuple[str, float, str]]:
    """What an event in a mailbox adds: ``value`` is a number of messages, for "sent" the size of one message."""
    if event == "sent":
        yield COUNTERS[event], 1, "Count"
        yield "SentMessageSize", value, "Bytes"
    else:
        yield COUNTERS[event], value, "Count"


def install() -> None:
    from ministack.core.responses import request_scope
    from ministack.services import sqs

    def count(box: Mailbox, event: str, value: float) -> None:
        _, _, _, region, account, name = box.arn.split(":")
        with request_scope(account, region):  # a caller of another account counts for the queue's owner
            for metric, amount, unit in counters(event, value):
                metrics.count(NAMESPACE, metric, {"QueueName": name}, amount, unit=unit)

    def sample() -> None:
        queues: list[Queue] = sqs._queues.values()
        for queue in queues:
            for metric, value, unit in gauges(mailbox(queue), time.time()):
                metrics.gauge(NAMESPACE, metric, {"QueueName": queue["name"]}, value, unit=unit)

    observe(count)
    metrics.on_query(sample)
