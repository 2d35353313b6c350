"""How a Map run fails that cannot read its items or write its results.

**On AWS** such a run fails with States.ItemReaderFailed or States.ResultWriterFailed: MapRunFailed and ExecutionFailed
have the error and its cause, which says what S3 said (Step Functions Developer Guide, "Handling errors"; histories
recorded on AWS).

**MiniStack** has no Map runs. moto's interpreter ends an execution with States.Runtime where S3 refuses something.

**Here** they are as documented. Not verified: the words around what S3 said (here: as the service's other causes).
"""

from __future__ import annotations

from typing import Any


def told(error: Exception) -> str:
    """What a failure of S3 says, as the service's Java client puts it."""
    answer = getattr(error, "response", None) or {}
    if "Error" not in answer:
        return str(error)
    about = answer.get("ResponseMetadata", {})
    parts = [
        "Service: Amazon S3",
        f"Status Code: {about.get('HTTPStatusCode')}",
        f"Error Code: {answer['Error'].get('Code')}",
        f"Request ID: {about.get('RequestId')}",
        "Proxy: null",
    ]
    return f"{answer['Error'].get('Message')} ({'; '.join(parts)})"


def failure(env: Any, kind: str, cause: str) -> Exception:
    """A failure of a Map run, which a Retry or a Catch of its state may name."""
    from moto.stepfunctions.parser.api import HistoryEventType
    from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import (
        FailureEvent,
        FailureEventException,
    )
    from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name import StatesErrorName
    from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name_type import StatesErrorNameType
    from moto.stepfunctions.parser.asl.eval.event.event_detail import EventDetails

    name = StatesErrorName(typ=StatesErrorNameType[kind])
    details = EventDetails(mapRunFailedEventDetails={"error": name.error_name, "cause": cause})
    event = FailureEvent(env=env, error_name=name, event_type=HistoryEventType.TaskFailed, event_details=details)
    made: Exception = FailureEventException(event)
    return made
