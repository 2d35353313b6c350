"""Activities, and the tags of activities and state machines.

**On AWS** making the same activity again is no error, nor is removing one that is gone. GetActivityTask waits up to 60
seconds for a task. A version of a state machine has no tags (Step Functions API Reference; answers recorded on AWS).

**MiniStack** refuses an activity that exists or is gone, and looks for a task every half second.

**Here** they are as recorded, and a task is found at once. A worker that is told by an error that its activity does not
exist any more learns it while it waits, too.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from .states_callbacks import Response, refusable, refused
from .states_machines import json_answer
from .states_requests import Row, check_arn, check_name, page
from .states_tokens import TOKENS, Refused

LONGEST_POLL = 60.0  # seconds
LOOK = 0.05  # seconds between two looks at the queue


def stored_activity(arn: Any) -> dict[str, Any]:
    """The record of an activity, or :class:`Refused`."""
    from ministack.services import stepfunctions as sfn

    check_arn(arn, "activity")
    found: dict[str, Any] | None = sfn._activities.get(arn)
    if found is None:
        raise Refused("ActivityDoesNotExist", f"Activity Does Not Exist: '{arn}'")
    return found


async def next_task(arn: Any, worker: str | None, seconds: float = LONGEST_POLL) -> dict[str, Any]:
    """The next task whose attempt has not ended while it lay there; after so many seconds none."""
    from ministack.services import stepfunctions as sfn

    deadline = time.monotonic() + seconds
    while True:
        stored_activity(arn)
        queue = sfn._activity_tasks.get(arn, [])
        while queue:
            task = queue.pop(0)
            try:
                TOKENS.look(task["taskToken"]).notify_activity_task_start(worker_name=worker)
            except Refused:
                continue
            return {"taskToken": task["taskToken"], "input": task["input"]}
        if time.monotonic() >= deadline:
            return {}
        await asyncio.sleep(LOOK)


def check_taggable(arn: Any) -> None:
    """Raise :class:`Refused` unless this can have tags and exists."""
    from ministack.services import stepfunctions as sfn

    check_arn(arn, "stateMachine", "activity")
    if arn not in sfn._state_machines and arn not in sfn._activities:
        raise Refused("ResourceNotFound", f"Resource not found: '{arn}'")


def install() -> None:
    from ministack.services import stepfunctions as sfn

    create, delete = sfn._create_activity, sfn._delete_activity

    @refusable
    def create_activity(data: dict[str, Any]) -> Response:
        from ministack.core.responses import get_account_id, get_region

        check_name(data.get("name"))
        arn = f"arn:aws:states:{get_region()}:{get_account_id()}:activity:{data['name']}"
        made = sfn._activities.get(arn)
        if made is not None:
            return json_answer({"activityArn": arn, "creationDate": made["creationDate"]})
        answer: Response = create(data)
        return answer

    @refusable
    def delete_activity(data: dict[str, Any]) -> Response:
        arn = data.get("activityArn")
        check_arn(arn, "activity")
        answer: Response = delete(data) if arn in sfn._activities else json_answer({})
        return answer

    @refusable
    def describe_activity(data: dict[str, Any]) -> Response:
        found = stored_activity(data.get("activityArn"))
        return json_answer({**found, "encryptionConfiguration": {"type": "AWS_OWNED_KEY"}})

    @refusable
    def list_activities(data: dict[str, Any]) -> Response:
        rows: list[Row] = [
            (made["creationDate"], arn, {key: made[key] for key in ("activityArn", "name", "creationDate")})
            for arn, made in sfn._activities.items()
        ]
        return json_answer(page(data, "activities", rows, newest_first=False))

    async def get_activity_task(data: dict[str, Any]) -> Response:
        try:
            return json_answer(await next_task(data.get("activityArn"), data.get("workerName")))
        except Refused as error:
            return refused(error)

    def of_tags(operation: Any) -> Any:
        @refusable
        def asked(data: dict[str, Any]) -> Response:
            check_taggable(data.get("resourceArn"))
            answer: Response = operation(data)
            return answer

        return asked

    _ = sfn._describe_activity, sfn._list_activities, sfn._get_activity_task, sfn._activity_tasks
    sfn._create_activity = create_activity
    sfn._delete_activity = delete_activity
    sfn._describe_activity = describe_activity
    sfn._list_activities = list_activities
    sfn._get_activity_task = get_activity_task
    sfn._tag_resource = of_tags(sfn._tag_resource)
    sfn._untag_resource = of_tags(sfn._untag_resource)
    sfn._list_tags_for_resource = of_tags(sfn._list_tags_for_resource)
