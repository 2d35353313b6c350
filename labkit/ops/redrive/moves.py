"""Moves: SQS's own move task takes the rest of a lane, followed to its end.

A move task moves all that is visible, whatever its reason, keeps bodies and attributes, and makes new messages of them:
so it serves queues in which SQS alone has put letters, of one source. It is one call, however many letters there are.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from labkit.facts import facts
from labkit.ops.redrive.care import Care
from labkit.ops.redrive.to_calls import refusal
from labkit.ops.triage import move_ended
from labkit.ops.triage.letters import TriageError

if TYPE_CHECKING:
    from labkit.ops.redrive.lanes import Lane


def rest(lane: Lane, care: Care) -> None:
    """REST by a move task. It is cancelled when it moves twice what there was (letters come back as fast as they go),
    and when this is interrupted."""
    from botocore.exceptions import BotoCoreError, ClientError

    from labkit.ops.redrive.lanes import Step

    expected = max(0, lane.letters - lane.sent)
    options: dict[str, Any] = {"SourceArn": lane.queue.arn, "DestinationArn": lane.to.arn}
    if care.rate:
        options["MaxNumberOfMessagesPerSecond"] = care.rate
    client = lane.queue.client
    try:
        handle = client.start_message_move_task(**options)["TaskHandle"]
    except (BotoCoreError, ClientError) as error:
        # No answer to one of the SDK's own tries may be behind any error but a refusal of the first.
        lane.uncounted = not refusal(error) or error.response["ResponseMetadata"].get("RetryAttempts", 0) > 0
        says = "whether a move task has begun is not known" if lane.uncounted else "no move task was begun"
        raise TriageError(f"{says}: {error}") from error
    round_and_round: list[int] = []

    def look(task: dict[str, Any]) -> None:
        moved = int(task.get("ApproximateNumberOfMessagesMoved", 0))
        lane.moved = moved
        if care.progress:
            care.progress(lane.step, lane.sent, max(lane.letters, lane.sent))
        if moved > 2 * expected + 10 and not round_and_round:
            round_and_round.append(moved)
            client.cancel_message_move_task(TaskHandle=handle)

    try:
        task = move_ended(lane.queue, seconds=float(facts("sqs.move_task.max_duration")), each=look)
    except BaseException:
        lane.uncounted = True  # it has moved more since the last look
        with contextlib.suppress(BotoCoreError, ClientError):  # over already, or no answer: it ends by itself then
            client.cancel_message_move_task(TaskHandle=handle)
        raise
    if round_and_round:
        lane.enter(Step.STOPPED, f"{lane.to.name} still fails: letters came back as fast as they were moved")
    elif task["Status"] != "COMPLETED":
        lane.enter(
            Step.STOPPED, f"the move task is {task['Status']}: {task.get('FailureReason', 'cancelled by somebody')}"
        )
    else:
        lane.enter(Step.DONE, f"{lane.all_sent()}, all but the canary by a move task")


def possible(source_queues: int, *, only_sqs: bool, lanes: int, complete: bool) -> bool:
    """Whether a move task may take the rest: SQS put all of it there, it goes to one place, and nothing is unseen.

    With several source queues a letter of another one may come meanwhile, and would be moved to the wrong queue.
    """
    return source_queues == 1 and only_sqs and lanes == 1 and complete
