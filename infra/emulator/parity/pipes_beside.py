"""A pipe whose queue, functions, state machines and buses are in a neighbour: the calls that a pipe makes on AWS.

**On AWS** a pipe uses ReceiveMessage, DeleteMessageBatch, SendMessageBatch, PutEvents, Invoke, StartExecution and
StartSyncExecution. **LocalStack** has all of these and no Pipes. **Here** :class:`Beside` makes these calls, with the
pipe's account, so that what a service refuses, delays, redelivers or counts is the neighbour's business. What the role
may is not checked, as inside one process: for LocalStack the account is what calls. The metrics of the pipe go to the
neighbour's CloudWatch with PutMetricData (AWS refuses namespaces that begin with ``AWS/``; LocalStack takes them).

Not as inside one process: an Invoke or a StartSyncExecution that takes longer than an execution of a pipe may is given
up (see :data:`parity.neighbour.READ_LONG`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from parity.neighbour import Neighbour, Refused, Unreachable, value_of
from parity.pipes_checks import service_of
from parity.pipes_ledger import Ledger
from parity.pipes_services import Failed, Message, Unreached, each, refusal
from parity.pipes_source import BesideSource

CALLS = {  # of a service in an ARN
    "sqs": ("sqs", "receive_message"),
    "events": ("events", "put_events"),
    "lambda": ("lambda", "invoke"),
    "states": ("stepfunctions", "start_execution"),
}
BATCH_BYTES = 1_048_576  # of one SendMessageBatch

Pipe = Mapping[str, Any]
Where = tuple[str, str]  # account, Region


class Calls:
    """The neighbour's services for one account and Region, with the errors of a pipe."""

    def __init__(self, neighbour: Neighbour, where: Where) -> None:
        self._neighbour = neighbour
        self._where = where

    def __call__(self, service: str, operation: str, **members: Any) -> dict[str, Any]:
        try:
            return self._neighbour.ask(service, operation, *self._where, **members)
        except Refused as refused:
            raise refusal(refused.code, refused.message) from refused
        except Unreachable as error:
            raise Unreached(str(error)) from error

    def prepare(self, arn: str) -> None:
        """Make ready to call what ``arn`` names."""
        if (call := CALLS.get(service_of(arn))) is not None:
            self._neighbour.prepare(*call, *self._where)

    def url(self, arn: str) -> str:
        """The address of a queue. Raises :class:`Failed`, missing, when there is none."""
        *_, owner, name = arn.split(":")
        return str(self("sqs", "get_queue_url", QueueName=name, QueueOwnerAWSAccountId=owner)["QueueUrl"])


class Queue:
    """A pipe's source, as :class:`parity.pipes_source.BesideSource` needs it."""

    def __init__(self, calls: Calls, pipe: Pipe) -> None:
        self.arn = str(pipe["Source"])
        self._pipe = pipe
        self._calls = calls
        self._known = ""

    def prepare(self) -> None:
        for arn in (self.arn, self._pipe.get("Enrichment"), self._pipe["Target"]):
            self._calls.prepare(str(arn))

    def _ask(self, operation: str, **members: Any) -> dict[str, Any]:
        if not self._known:
            self._known = self._calls.url(self.arn)
        return self._calls("sqs", operation, QueueUrl=self._known, **members)

    def receive(self, limit: int, wait: int, hidden: int | None) -> list[Mapping[str, Any]]:
        timeout = {} if hidden is None else {"VisibilityTimeout": hidden}
        answer = self._ask(
            "receive_message",
            MaxNumberOfMessages=limit,
            WaitTimeSeconds=wait,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
            **timeout,
        )
        found: list[Mapping[str, Any]] = answer.get("Messages") or []
        return found

    def delete(self, handles: Sequence[str]) -> None:
        self._all("delete_message_batch", [{"ReceiptHandle": handle} for handle in handles])

    def give_back(self, handles: Sequence[str]) -> None:
        entries = [{"ReceiptHandle": handle, "VisibilityTimeout": 0} for handle in handles]
        self._all("change_message_visibility_batch", entries)

    def _all(self, operation: str, entries: Sequence[Mapping[str, Any]]) -> None:
        numbered = [{"Id": str(number), **entry} for number, entry in enumerate(entries)]
        failed = self._ask(operation, Entries=numbered).get("Failed") or []
        if failed:
            raise Failed(f"{len(failed)} of {len(entries)}: {failed[0].get('Code')}: {failed[0].get('Message')}")

    def visibility(self) -> int:
        answer = self._ask("get_queue_attributes", AttributeNames=["VisibilityTimeout"])
        return int(answer["Attributes"]["VisibilityTimeout"])


class Beside:
    """The services of a neighbour. ``current()`` is the account and the Region of the pipe that calls."""

    def __init__(self, neighbour: Neighbour, current: Callable[[], Where]) -> None:
        self._neighbour = neighbour
        self._current = current
        self._ledger = Ledger(self._put_metrics)

    @property
    def _calls(self) -> Calls:
        return Calls(self._neighbour, self._current())

    # -- queues ----------------------------------------------------------------------------------------------------

    def queue(self, arn: str) -> Mapping[str, Any] | None:
        try:
            self._calls.url(arn)
        except Failed as error:
            if error.missing:
                return None
            raise
        return self.glance(arn)

    def glance(self, arn: str) -> Mapping[str, Any] | None:
        return {"arn": arn, "is_fifo": arn.endswith(".fifo")}

    def source(self, pipe: Pipe, queue: Mapping[str, Any], gone: Callable[[], None]) -> BesideSource:
        return BesideSource(Queue(self._calls, pipe), str(pipe["Name"]), gone)

    def send(self, arn: str, messages: Sequence[Message], *, ordered: bool) -> set[int]:
        calls = self._calls
        try:
            url = calls.url(arn)
        except Failed as error:
            raise Failed(f"The queue {arn} does not exist.", missing=True) if error.missing else error from error

        def send(index: int) -> None:
            calls("sqs", "send_message", QueueUrl=url, **messages[index])

        size = sum(len(message["MessageBody"].encode()) for message in messages)
        if ordered or len(messages) == 1 or size > BATCH_BYTES:
            return each(len(messages), send, ordered=ordered)
        entries = [{"Id": str(number), **message} for number, message in enumerate(messages)]
        try:
            answer = calls("sqs", "send_message_batch", QueueUrl=url, Entries=entries)
        except Failed as error:
            if error.missing:
                raise
            return each(len(messages), send, ordered=False)  # one bad message can have a whole batch refused
        return {int(entry["Id"]) for entry in answer.get("Failed") or []}

    # -- buses -----------------------------------------------------------------------------------------------------

    def put(self, bus: str, entries: Sequence[dict[str, Any]]) -> set[int]:
        calls, name = self._calls, bus.rsplit("/", 1)[-1]
        try:
            if name != "default":
                calls("events", "describe_event_bus", Name=name)
        except Failed as error:
            raise Failed(f"The event bus {bus} does not exist.", missing=True) if error.missing else error from error
        answer = calls("events", "put_events", Entries=[{"EventBusName": bus, **entry} for entry in entries])
        return {index for index, result in enumerate(answer["Entries"]) if "EventId" not in result}

    # -- functions -------------------------------------------------------------------------------------------------

    def call(self, function: str, payload: str) -> Any:
        answer = self._calls("lambda", "invoke", FunctionName=function, Payload=payload.encode())
        if answer.get("FunctionError"):
            raise Failed(f"The function {function} failed.")
        return value_of(answer.get("Payload") or b"null")

    def send_to(self, function: str, payload: str) -> None:
        self._calls("lambda", "invoke", FunctionName=function, InvocationType="Event", Payload=payload.encode())

    # -- state machines --------------------------------------------------------------------------------------------

    def run(self, machine: str, payload: str) -> Mapping[str, Any]:
        return self._calls("stepfunctions", "start_sync_execution", stateMachineArn=machine, input=payload)

    def start(self, machine: str, payload: str) -> None:
        self._calls("stepfunctions", "start_execution", stateMachineArn=machine, input=payload)

    # -- metrics ---------------------------------------------------------------------------------------------------

    def count(self, namespace: str, name: str, dimensions: Mapping[str, str], value: float, unit: str) -> None:
        self._ledger.count(self._current(), namespace, name, dimensions, value, unit)

    def _put_metrics(self, account: str, region: str, namespace: str, data: list[dict[str, Any]]) -> None:
        Calls(self._neighbour, (account, region))("cloudwatch", "put_metric_data", Namespace=namespace, MetricData=data)


def services(neighbour: Neighbour) -> Beside:
    """Those of a neighbour, for the pipes of this process."""
    from ministack.core.responses import get_account_id, get_region

    return Beside(neighbour, lambda: (get_account_id(), get_region()))
