"""Entries: batch calls of SQS, which succeed as a call and fail entry by entry."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from labkit.errors import LabError
from labkit.facts import facts
from labkit.models.retry import Exponential, Jitter

# Entry codes that a later attempt can cure; the others are the sender's fault and fail again.
_RETRIED = {"InternalError", "InternalFailure", "ServiceUnavailable", "RequestThrottled", "ThrottlingException"}
_TOO_FAST = re.compile("Throttl|ThroughputExceeded|RequestLimitExceeded|TooManyRequests|SlowDown")
_ATTEMPTS = 5
_WAIT = Jitter(Exponential(base=0.1, cap=2.0))  # seconds between the attempts


class QueueError(LabError):
    """A queue operation failed for good; the sentence names the queue and the reason."""


class BatchError(QueueError):
    """Some entries of a batch failed for good. ``failed`` maps the index of each entry to its code and message."""

    def __init__(self, says: str, failed: Mapping[int, tuple[str, str]]) -> None:
        self.failed = dict(failed)
        some = "; ".join(f"entry {index}: {code} ({message})" for index, (code, message) in list(failed.items())[:3])
        more = f"; and {len(failed) - 3} more" if len(failed) > 3 else ""
        super().__init__(f"{says}: {some}{more}")


def passing(error: Exception) -> bool:
    """Whether botocore's ``error`` is trouble that passes (no answer, a fault of AWS's, a throttle), and no refusal."""
    from botocore.exceptions import ClientError

    if not isinstance(error, ClientError):
        return True
    code = error.response["Error"]["Code"]
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return code in _RETRIED or status >= 500 or _TOO_FAST.search(code) is not None


def tens(count: int) -> list[range]:
    """The indices of ``count`` entries in batches of the size that SQS takes."""
    most = int(facts("sqs.batch.entries"))
    return [range(start, min(start + most, count)) for start in range(0, count, most)]


def checked(
    call: Callable[[Sequence[int]], Mapping[str, Any]],
    indices: Sequence[int],
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[dict[int, Mapping[str, Any]], dict[int, tuple[str, str]]]:
    """Make a batch call and repeat it for the entries that failed and may succeed later.

    Returns what SQS said of each entry that succeeded, and code and message of each that failed for good, or of which
    nothing was said.
    """
    done: dict[int, Mapping[str, Any]] = {}
    failed: dict[int, tuple[str, str]] = {}
    waiting: Sequence[int] = indices
    from botocore.exceptions import BotoCoreError, ClientError

    for attempt in range(1, _ATTEMPTS + 1):
        try:
            answer = call(waiting)
        except BotoCoreError as error:  # the call may have arrived or not: nobody knows of these entries
            failed.update({index: ("Unknown", str(error)) for index in waiting})
            break
        except ClientError as error:  # the call as a whole was refused, after the SDK's own retries
            says = error.response["Error"]
            failed.update({index: (says["Code"], says.get("Message", "")) for index in waiting})
            break
        done.update({int(entry["Id"]): entry for entry in answer.get("Successful", [])})
        said = {*done, *(int(entry["Id"]) for entry in answer.get("Failed", []))}
        failed.update({index: ("Unknown", "the answer does not name it") for index in waiting if index not in said})
        again: list[int] = []
        for entry in answer.get("Failed", []):
            index, last = int(entry["Id"]), attempt == _ATTEMPTS
            if entry.get("SenderFault") or entry["Code"] not in _RETRIED or last:
                failed[index] = (entry["Code"], entry.get("Message", ""))
            else:
                again.append(index)
        if not again:
            break
        waiting = again
        sleep(_WAIT(attempt))
    return done, failed
