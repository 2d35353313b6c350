"""Mappings: Lambda's own pollers between a queue and a function.

An event source mapping belongs to Lambda, not to the queue: it polls, calls the function with a batch, and deletes what
the function was done with. The visibility timeout stays the queue's, and nobody extends it: a batch that takes longer
is handed to a second call while the first one is still at work. So AWS asks for a visibility of at least six times the
function's timeout, plus the batching window: throttled calls are tried again within it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from labkit import kinds, sweep
from labkit.facts import facts
from labkit.models.retry import Exponential
from labkit.work.functions import FunctionError

if TYPE_CHECKING:
    from labkit.work.functions import Function
    from labkit.work.queues import Queue

_POLLS = Exponential(base=0.1, factor=1.5, cap=2.0)  # seconds between two looks at a mapping that is changing
_WITHIN = 120.0  # seconds for one to come into a state; AWS says "up to a minute"


def visibility_for(timeout: int, window: int = 0) -> int:
    """The visibility, in seconds, that AWS asks of a queue for a function with this timeout and batching window."""
    return int(facts("lambda.esm.visibility_factor")) * timeout + window


class QueueMapping:
    """One event source mapping from a queue to a function. :meth:`create` makes one and waits until it polls."""

    def __init__(self, client: Any, uuid: str, name: str) -> None:
        self.client, self.uuid, self.name = client, uuid, name

    @classmethod
    def create(
        cls,
        function: Function,
        queue: Queue,
        *,
        batch_size: int | None = None,
        window: int = 0,
        partial: bool = True,
        concurrency: int | None = None,
        filters: Sequence[Mapping[str, Any]] = (),
    ) -> QueueMapping:
        """Feed ``function`` from ``queue``; a mapping that is there already is brought to these settings.

        ``batch_size`` messages at most in a call (10 unless set; FIFO queues 10 at most), gathered for up to ``window``
        seconds. ``partial`` sets ReportBatchItemFailures: without it an answer that names failed messages is not read,
        and they are deleted. ``concurrency`` bounds the calls that this queue causes, 2 or more. ``filters`` are event
        patterns on the message; one that matches none of them is deleted, unseen.

        Raises :class:`FunctionError`; before any call, when the queue's visibility is shorter than the function's
        timeout, which Lambda refuses too. Six times the timeout is what to give: :func:`visibility_for`.
        """
        from botocore.exceptions import ClientError, ParamValidationError

        name = f"{queue.name} → {function.name}"
        asked = queue.client.get_queue_attributes(QueueUrl=queue.url, AttributeNames=["VisibilityTimeout"])
        visibility = int(asked["Attributes"]["VisibilityTimeout"])
        if visibility < function.timeout:
            raise FunctionError(
                f"queue {queue.name} hides a message for {visibility} s and function {function.name} may take "
                f"{function.timeout} s: every slow batch would run twice. Give the queue a visibility of "
                f"{visibility_for(function.timeout, window)} s."
            )
        settings: dict[str, Any] = {
            "FunctionName": function.name,
            "BatchSize": int(facts("lambda.esm.batch.default")) if batch_size is None else batch_size,
            "FunctionResponseTypes": ["ReportBatchItemFailures"] if partial else [],
            "FilterCriteria": {"Filters": [{"Pattern": json.dumps(pattern)} for pattern in filters]},
            "ScalingConfig": {} if concurrency is None else {"MaximumConcurrency": concurrency},
            "Enabled": True,
        }
        if not queue.fifo:  # a FIFO queue has no window
            settings["MaximumBatchingWindowInSeconds"] = window
        elif window:
            raise FunctionError(f"{queue.name} is a FIFO queue: it has no batching window; window is {window}.")
        client = function.client
        try:
            there = client.list_event_source_mappings(FunctionName=function.name, EventSourceArn=queue.arn)
            if there["EventSourceMappings"]:
                mapping = cls(client, there["EventSourceMappings"][0]["UUID"], name)
                mapping._update(**settings)
            else:
                said = {key: value for key, value in settings.items() if value not in ({}, [], {"Filters": []})}
                made = client.create_event_source_mapping(EventSourceArn=queue.arn, Tags=function.tags, **said)
                mapping = cls(client, made["UUID"], name)
        except (ClientError, ParamValidationError) as error:
            says = error.response["Error"] if isinstance(error, ClientError) else {"Message": str(error)}
            raise FunctionError(f"mapping {name} was not made: {says['Message']}", says.get("Code", "")) from error
        mapping.wait("Enabled")
        return mapping

    @property
    def state(self) -> str:
        """Creating, Enabling, Enabled, Disabling, Disabled, Updating or Deleting."""
        return str(self.client.get_event_source_mapping(UUID=self.uuid)["State"])

    def wait(
        self,
        state: str,
        *,
        within: float = _WITHIN,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Wait until the mapping is in ``state``. Raises :class:`FunctionError` after ``within`` seconds."""
        end, looks = clock() + within, 0
        while (found := self.state) != state:
            if clock() >= end:
                raise FunctionError(f"mapping {self.name} is {found}, not {state}, after {within:g} s.")
            looks += 1
            sleep(_POLLS(looks))

    def disable(self) -> None:
        """Stop polling, and wait until that is so. A batch that was handed over is finished."""
        self._update(Enabled=False)
        self.wait("Disabled")

    def enable(self) -> None:
        """Poll again, and wait until that is so."""
        self._update(Enabled=True)
        self.wait("Enabled")

    def delete(self) -> None:
        """Delete the mapping and wait until it is gone; the queue and the function stay."""
        kinds.delete_mapping(self.client, self.uuid)

    def _update(self, **settings: Any) -> None:
        # A mapping that is still coming into its last state refuses the next change.
        busy = ("ResourceInUseException", "ResourceConflictException")
        sweep.patiently(lambda: self.client.update_event_source_mapping(UUID=self.uuid, **settings), *busy)

    def __repr__(self) -> str:
        return f"<QueueMapping {self.name}>"
