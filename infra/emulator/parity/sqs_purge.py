"""PurgeQueue once in 60 seconds, and waiting 60 seconds before a deleted queue's name is used again.

**On AWS**

* a second PurgeQueue within 60 seconds is refused with ``PurgeQueueInProgress`` and HTTP 403 (recorded). A purge takes
  messages in flight and delayed ones with it, and forgets deduplication ids (recorded).
* a name may be used again 60 seconds after its queue was deleted, earlier it is ``QueueDeletedRecently`` (API
  reference CreateQueue, DeleteQueue). The text and the HTTP status are not verified.

**MiniStack** purges as often as it is asked, keeps deduplication ids, and creates a deleted queue again at once.

**Here** the first is as on AWS. The second is **off by default**, because a notebook that is run again creates its
queues again: set ``LAB_QUEUE_DELETED_RECENTLY=1`` in the server's environment to have it."""

from __future__ import annotations

import os
import time
from typing import Any

from parity.sqs_errors import SqsError
from parity.sqs_mailbox import mailbox

PAUSE = 60.0  # seconds
SETTING = "LAB_QUEUE_DELETED_RECENTLY"


class Pause:
    """Remembers when something was last done to a key, for :data:`PAUSE` seconds."""

    def __init__(self) -> None:
        self._since: dict[object, float] = {}

    def running(self, key: object, now: float) -> bool:
        return now - self._since.get(key, float("-inf")) < PAUSE

    def start(self, key: object, now: float) -> None:
        self._since = {k: since for k, since in self._since.items() if now - since < PAUSE}
        self._since[key] = now

    def forget(self, key: object) -> None:
        self._since.pop(key, None)


def purge_in_progress(name: str) -> SqsError:
    text = f"Only one PurgeQueue operation on {name} is allowed every 60 seconds."
    return SqsError("PurgeQueueInProgress", text, 403)


def deleted_recently() -> SqsError:
    text = "A queue of this name was deleted less than 60 seconds ago; wait before creating it again."
    return SqsError("QueueDeletedRecently", text)


def install() -> None:
    from ministack.services import sqs

    purged, deleted = Pause(), Pause()
    create, delete = sqs._HANDLERS["CreateQueue"], sqs._HANDLERS["DeleteQueue"]
    _ = sqs._HANDLERS["PurgeQueue"], sqs._act_purge_queue, sqs._act_delete_queue
    strict = os.environ.get(SETTING) == "1"

    def purge_queue(data: dict[str, Any], url: str) -> dict[str, Any]:
        queue = sqs._get_q(data.get("QueueUrl") or url, "sqs:PurgeQueue")
        arn, now = queue["attributes"]["QueueArn"], time.time()
        if purged.running(arn, now):
            raise purge_in_progress(queue["name"])
        purged.start(arn, now)
        mailbox(queue).clear()
        return {}

    def delete_queue(data: dict[str, Any], url: str) -> dict[str, Any]:
        queue = sqs._get_q(data.get("QueueUrl") or url, "sqs:DeleteQueue")
        result = delete(data, url)
        purged.forget(queue["attributes"]["QueueArn"])
        deleted.start(queue["attributes"]["QueueArn"], time.time())
        return result

    def create_queue(data: dict[str, Any], url: str) -> dict[str, Any]:
        arn = f"arn:aws:sqs:{sqs.get_region()}:{sqs.get_account_id()}:{data.get('QueueName', '')}"
        if strict and deleted.running(arn, time.time()):
            raise deleted_recently()
        return create(data, url)

    sqs._HANDLERS["PurgeQueue"] = sqs._act_purge_queue = purge_queue
    sqs._HANDLERS["DeleteQueue"] = sqs._act_delete_queue = delete_queue
    sqs._HANDLERS["CreateQueue"] = sqs._act_create_queue = create_queue
