"""To calls: dead letters given to a function, or to a state machine, as the event that it did not get."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from labkit.ops.redrive.post import Fate, Sent
from labkit.ops.redrive.routes import payload
from labkit.ops.triage.letters import MOST_TEXT, Letter, TriageError
from labkit.ops.triage.masking import masked
from labkit.work.queues import Message, Queue

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

_LONGEST_CALL = 20  # seconds that a canary's synchronous call may take: below the read time-out of the client


class ToFunction:
    """A function that exists. Its canaries are invoked synchronously, so its time-out must be below that of a call."""

    def __init__(self, client: Any, arn: str) -> None:
        self.client, self.arn = client, arn
        self.name = arn.split(":")[6] if arn.count(":") >= 6 else arn
        self._timeout = int(client.get_function_configuration(FunctionName=arn).get("Timeout", 0))  # seconds
        self._failed = ""

    def dead_letters(self) -> Queue | None:
        return None

    def send(self, letters: Sequence[tuple[Message, Letter]]) -> Sent:
        return _one_by_one(letters, lambda message, letter: self._invoke(message, letter, "Event"))

    def ready(self) -> None:
        if self._timeout > _LONGEST_CALL:
            raise TriageError(
                f"{self.name} may run for {self._timeout} s, and a canary is watched for {_LONGEST_CALL} s at most: "
                "call it with one event by hand, then redrive without a canary."
            )

    def try_out(self, letters: Sequence[tuple[Message, Letter]]) -> Sent:
        self._failed = ""
        return _one_by_one(letters, lambda message, letter: self._invoke(message, letter, "RequestResponse"))

    def fate(self) -> tuple[Fate, str]:
        return (Fate.FAILED, self._failed) if self._failed else (Fate.GONE, f"{self.name} returned without an error")

    def _invoke(self, message: Message, letter: Letter, kind: str) -> str:
        event = payload(message, letter)
        if self._failed and kind == "RequestResponse":
            raise TriageError("a canary before it failed")
        answer = self.client.invoke(FunctionName=self.arn, InvocationType=kind, Payload=event.encode())
        if error := answer.get("FunctionError"):
            self._failed = f"{self.name} failed ({error}): {_error(answer['Payload'].read())}"
            raise TriageError(self._failed)
        return str(answer["ResponseMetadata"].get("RequestId", ""))


class ToMachine:
    """A Standard state machine: one execution a letter, named after it, so that a second start changes nothing."""

    def __init__(self, client: Any, arn: str) -> None:
        self.client, self.arn = client, arn
        self.name = arn.rsplit(":", 1)[-1]
        self._started: list[str] = []
        if client.describe_state_machine(stateMachineArn=arn)["type"] != "STANDARD":
            raise TriageError(
                f"{self.name} is an Express machine: nobody can tell how its executions end. Use a queue."
            )

    def dead_letters(self) -> Queue | None:
        return None

    def ready(self) -> None:
        """Nothing to ask: each execution tells its own fate."""

    def send(self, letters: Sequence[tuple[Message, Letter]]) -> Sent:
        return _one_by_one(letters, self._start)

    def try_out(self, letters: Sequence[tuple[Message, Letter]]) -> Sent:
        sent = self.send(letters)
        self._started = list(sent.done.values())
        return sent

    def fate(self) -> tuple[Fate, str]:
        states = [self.client.describe_execution(executionArn=arn)["status"] for arn in self._started]
        for arn, state in zip(self._started, states, strict=True):
            if state not in ("RUNNING", "PENDING_REDRIVE", "SUCCEEDED"):
                return Fate.FAILED, f"execution {arn.rsplit(':', 1)[-1]} of {self.name} is {state}"
        if all(state == "SUCCEEDED" for state in states):
            return Fate.GONE, f"the executions of {self.name} have succeeded"
        return Fate.WAITING, f"{self.name} still works: {states.count('RUNNING')} executions run"

    def _start(self, message: Message, letter: Letter) -> str:
        from botocore.exceptions import ClientError

        name = f"redrive-{letter.id}"
        try:
            answer = self.client.start_execution(stateMachineArn=self.arn, name=name, input=payload(message, letter))
        except ClientError as error:
            if error.response["Error"]["Code"] != "ExecutionAlreadyExists":
                raise
            before = self.arn.replace(":stateMachine:", ":execution:") + f":{name}"  # from before a crash
            state = self.client.describe_execution(executionArn=before)["status"]
            if state not in ("RUNNING", "PENDING_REDRIVE", "SUCCEEDED"):
                raise TriageError(
                    f"execution {name} of {self.name} is {state} already: redrive that one in Step Functions, then "
                    "delete the letter"
                ) from error
            return before
        return str(answer["executionArn"])


def refusal(error: Exception) -> TypeGuard[ClientError]:
    """Whether botocore's ``error`` says that the call was not carried out."""
    from botocore.exceptions import ClientError

    metadata = error.response.get("ResponseMetadata", {}) if isinstance(error, ClientError) else {}
    return isinstance(error, ClientError) and int(metadata.get("HTTPStatusCode", 0)) < 500


def _error(payload: bytes) -> str:
    """What a function says when it fails: by convention an object, but a runtime of one's own may say anything."""
    try:
        says: Any = json.loads(payload or b"{}")
    except (ValueError, RecursionError):
        says = payload.decode(errors="replace")
    if isinstance(says, dict):
        says = f"{says.get('errorType', '')} {says.get('errorMessage', '')}"
    return masked(str(says)[:4_000], MOST_TEXT)


def _one_by_one(letters: Sequence[tuple[Message, Letter]], call: Callable[[Message, Letter], str]) -> Sent:
    from botocore.exceptions import BotoCoreError, ClientError

    sent = Sent()
    for index, (message, letter) in enumerate(letters):
        try:
            sent.done[index] = call(message, letter)
        except (BotoCoreError, ClientError) as error:
            # After a fault of the service's own, as after no answer, nobody knows.
            (sent.refused if refusal(error) else sent.unsure)[index] = str(error)
        except TriageError as error:
            sent.unfit[index] = str(error)
    return sent
