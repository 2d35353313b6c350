"""To queues: dead letters sent to a queue, without their reasons and with the mark that tells doubles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from labkit.facts import facts
from labkit.models.sizes import batches, message_size
from labkit.ops.redrive.post import Fate, Sent
from labkit.ops.triage.letters import REASONS, Letter, TriageError, Writer
from labkit.work.dead_letters import ORIGINAL
from labkit.work.entries import checked
from labkit.work.queues import Message, Queue

_NOBODY_KNOWS = {"Unknown", "InternalError", "InternalFailure", "ServiceUnavailable"}


class ToQueue:
    """A queue. Raises :class:`TriageError` when it is the dead-letter queue itself, or of the other type."""

    def __init__(self, queue: Queue, group: str = "", *, source: Queue) -> None:
        if queue.arn == source.arn:
            raise TriageError(f"The letters of {source.name} cannot be sent to {source.name} itself.")
        if queue.fifo and not source.fifo and not group:
            raise TriageError(f"The queue {queue.name} is FIFO, and the letters have no group: send them by hand.")
        self.queue, self.name, self.arn, self._group = queue, queue.name, queue.arn, group
        self._before = self._most = 0  # messages in the queue before the canaries were sent, and after
        self._taken = False

    def dead_letters(self) -> Queue | None:
        return self.queue.redrive()[0]

    def send(self, letters: Sequence[tuple[Message, Letter]]) -> Sent:
        sent = Sent()
        entries: dict[int, dict[str, Any]] = {}
        most_bytes = int(facts("sqs.batch.max_bytes"))
        for index, (message, letter) in enumerate(letters):
            made = entry(message, letter, fifo=self.queue.fifo, group=self._group)
            if isinstance(made, str):
                sent.unfit[index] = made
            elif message_size(made) > most_bytes:
                sent.unfit[index] = "with its mark the message would be larger than SQS takes"
            else:
                entries[index] = made
        if self.queue.fifo:
            self._in_order([message.group or self._group for message, _ in letters], entries, sent)
            return sent
        for some in batches(
            list(entries),
            lambda index: message_size(entries[index]),
            max_items=int(facts("sqs.batch.entries")),
            max_bytes=most_bytes,
            what="letter",
        ):
            self._call(some, entries, sent)
        return sent

    def _in_order(self, groups: Sequence[str], entries: Mapping[int, dict[str, Any]], sent: Sent) -> None:
        """One a call; after a letter that cannot be sent the rest of its group stays, so that nothing overtakes."""
        stopped: set[str] = set()
        for index, group in enumerate(groups):
            if index in entries and group in stopped:
                sent.unfit[index] = "a letter before it in its group could not be sent"
            elif index in entries:
                self._call([index], entries, sent)
            if index not in sent.done:
                stopped.add(group)

    def _call(self, some: Sequence[int], entries: Mapping[int, dict[str, Any]], sent: Sent) -> None:
        def call(indices: Sequence[int]) -> Mapping[str, Any]:
            made = [{"Id": str(index), **entries[index]} for index in indices]
            answer: Mapping[str, Any] = self.queue.client.send_message_batch(QueueUrl=self.queue.url, Entries=made)
            return answer

        done, failed = checked(call, some)
        sent.done.update({index: str(answer["MessageId"]) for index, answer in done.items()})
        for index, (code, says) in failed.items():
            # After a fault of SQS's own nobody knows; the SDK's tries before it may have had no answer either.
            (sent.unsure if code in _NOBODY_KNOWS else sent.refused)[index] = f"{code}: {says}"

    def ready(self) -> None:
        self._before = self.queue.depth().total

    def try_out(self, letters: Sequence[tuple[Message, Letter]]) -> Sent:
        sent = self.send(letters)
        self._most, self._taken = self._before + len(sent.done), False
        return sent

    def fate(self) -> tuple[Fate, str]:
        now = self.queue.depth()
        self._taken = self._taken or now.in_flight > 0 or now.total < self._most
        if now.total == 0:
            return Fate.GONE, f"{self.name} is empty again"
        if not self._taken:
            return Fate.WAITING, f"nobody consumes {self.name}: {now.visible} messages wait, and none was taken"
        if now.in_flight or now.delayed:
            return Fate.WAITING, f"{self.name} still works: {now.in_flight} in flight, {now.visible} waiting"
        return Fate.WAITING, f"{self.name} is never empty: {now.visible} messages wait, of others perhaps"


def entry(message: Message, letter: Letter, *, fifo: bool, group: str = "") -> dict[str, Any] | str:
    """The SendMessageBatch entry for a letter, without its reasons and with its mark; or why there can be none."""
    reasons = set(REASONS.get(letter.writer, frozenset()))
    if letter.writer is Writer.SQS and ORIGINAL in message.wire:  # a worker's, from before SQS moved it
        reasons |= REASONS[Writer.WORKER]
    carried = {name: _plain(value) for name, value in message.wire.items() if name not in reasons}
    if ORIGINAL not in carried:
        if len(carried) >= int(facts("sqs.message.max_attributes")):
            return "it has ten attributes of its own, and no room for the mark that tells doubles"
        carried[ORIGINAL] = {"DataType": "String", "StringValue": letter.original}
    made: dict[str, Any] = {"MessageBody": message.body, "MessageAttributes": carried}
    if header := message.system.get("AWSTraceHeader"):
        made["MessageSystemAttributes"] = {"AWSTraceHeader": {"DataType": "String", "StringValue": header}}
    if own := (message.group or group):
        made["MessageGroupId"] = own
    if fifo:
        # By the letter's own id: the original's may be one that SQS has seen within five minutes and would drop.
        made["MessageDeduplicationId"] = message.id
    return made


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """A received attribute as one that can be sent."""
    return {key: value[key] for key in ("DataType", "StringValue", "BinaryValue") if key in value}
