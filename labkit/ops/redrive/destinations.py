"""Destinations: what letters are sent back to, how each send is checked, and how a canary's fate is seen.

======================  =================================  =====================================================
destination             a letter is                        a canary is well when
======================  =================================  =====================================================
:class:`ToQueue`        sent (ten a call)                  the queue is empty again and the canary is in no
                                                           dead-letter queue
:class:`ToFunction`     invoked asynchronously; a canary   the call returns without FunctionError
                        is invoked synchronously
:class:`ToMachine`      started, once for each letter id   its execution has SUCCEEDED
======================  =================================  =====================================================

Each copy carries ``ORIGINAL_MESSAGE_ID`` (a queue), or is named after the letter (an execution), so that the double
that a crash between send and delete leaves can be told. An invocation carries nothing: there the event's own id, or the
trace id in it, has to do.
"""

from __future__ import annotations

from labkit.errors import LabError
from labkit.ops.metrics import Clients
from labkit.ops.redrive.post import Destination
from labkit.ops.redrive.routes import Refusal, Route
from labkit.ops.redrive.to_calls import ToFunction, ToMachine
from labkit.ops.redrive.to_queues import ToQueue
from labkit.ops.triage.letters import TriageError
from labkit.work.queues import Queue


def destination(route: Route, queue: Queue, clients: Clients | None) -> Destination | Refusal:
    """The destination of ``route`` for letters of ``queue``, or why nothing can be sent there."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        if route.kind == "queue":
            return ToQueue(_queue(route.arn, queue), route.group, source=queue)
        if clients is None:
            return Refusal(f"A {route.kind} cannot be called without clients: give the lab, or a session of boto3.")
        if route.kind == "function":
            return ToFunction(clients.client("lambda"), route.arn)
        return ToMachine(clients.client("stepfunctions"), route.arn)
    except (BotoCoreError, ClientError) as error:
        return Refusal(f"The destination {route.arn.split(':')[-1]} does not answer: {error}")
    except LabError as error:
        return Refusal(str(error))


def _queue(arn: str, beside: Queue) -> Queue:
    account, name = arn.split(":")[4:6]
    url = beside.client.get_queue_url(QueueName=name, QueueOwnerAWSAccountId=account)["QueueUrl"]
    found = Queue(beside.client, url)
    if found.arn != arn:  # of the same name, in another Region
        raise TriageError(f"The queue {arn} is not in reach: the one of that name here is {found.arn}.")
    return found
