"""What EventBridge needs before a target takes an event: the resource, a permission, a request that it accepts.

**On AWS** a rule sends as the service principal events.amazonaws.com with the rule's ARN as aws:SourceArn. A queue, a
topic and a function must allow that in their own policies, also within one account; a state machine is started with
the target's role (EventBridge User Guide, "Using resource-based policies", "Granting permissions to the dead-letter
queue"). ``PutTargets`` looks at none of the policies: they show at delivery, as NO_PERMISSIONS, or NO_RESOURCE when the
target is gone. For a function, delivery ends when Lambda has taken the event: what the function makes of it is not
EventBridge's concern.

**MiniStack** delivers without asking for permission, calls a function directly (so that its own retries and failure
destination never see the event), and drops what fails.

**Here** each kind of target has a sender that raises :class:`~parity.events_delivery.Failure`;
:mod:`parity.events_dispatch` gives them their events. A queue with the tag ``lab:fault`` fails each delivery with
that code, also when it serves as a dead-letter queue. Not verified: the codes for a target in another Region and for
a queue that refuses the message; whether a RoleArn could replace a queue's policy (ours: it does not).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from .events_delivery import Failure
from .events_retry import RetryPolicy
from .settings import FAULT
from .sqs_attributes import printable

SERVICE = "events.amazonaws.com"

# How a refusal of the target's own API reads in ERROR_CODE; any other is INVALID_PARAMETER.
_REFUSALS = {
    "QueueDoesNotExist": "NO_RESOURCE",
    "ResourceNotFoundException": "NO_RESOURCE",
    "AccessDenied": "NO_PERMISSIONS",
    "OverLimit": "THROTTLING",
    "StateMachineDoesNotExist": "NO_RESOURCE",
    "ExecutionLimitExceeded": "THROTTLING",
    "ThrottlingException": "THROTTLING",
}


class OfTarget:
    """What an :class:`~parity.events_delivery.Invocation` needs of the ``target`` that PutTargets was given."""

    target: Mapping[str, Any]

    @cached_property
    def policy(self) -> RetryPolicy:
        return RetryPolicy.of(self.target)

    @property
    def target_arn(self) -> str:
        return str(self.target["Arn"])

    @property
    def blocking(self) -> bool:
        return ":api-destination/" in self.target_arn

    @property
    def dead_letter_arn(self) -> str:
        return str((self.target.get("DeadLetterConfig") or {}).get("Arn") or "")

    @property
    def has_dead_letter_queue(self) -> bool:
        return bool(self.dead_letter_arn)


def refusal(code: str, message: str) -> Failure:
    """The failure for an error of the target's API."""
    return Failure(_REFUSALS.get(code, "INVALID_PARAMETER"), message)


def no_resource(arn: str) -> Failure:
    return Failure("NO_RESOURCE", f"The resource {arn} does not exist.")


def no_permission(action: str, arn: str) -> Failure:
    return Failure("NO_PERMISSIONS", f"{SERVICE} is not allowed to perform {action} on {arn}.")


def _check_policy(policy: Any, action: str, arn: str, rule_arn: str) -> None:
    """Raise NO_PERMISSIONS unless the resource's policy lets the rule perform ``action``."""
    from ministack.core.iam_evaluator import EvalContext, evaluate_resource_policy

    _, _, _, region, account, _ = rule_arn.split(":", 5)
    context = EvalContext(
        principal_arn="*",
        principal_type="Service",
        principal_account="",
        action=action,
        resource_arn=arn,
        region=region,
        service_context={"aws:sourcearn": rule_arn, "aws:sourceaccount": account},
        principal_keys={"aws:principalisawsservice": "true", "aws:principalservicename": SERVICE},
    )
    if not policy or evaluate_resource_policy(policy, context, service=SERVICE).decision != "Allow":
        raise no_permission(action, arn)


def send_to_queue(
    arn: str, body: str, rule_arn: str, *, group: str | None = None, attributes: Mapping[str, str] | None = None
) -> None:
    """Send one message as the rule would, with ``attributes`` as string attributes."""
    from ministack.core.responses import request_scope
    from ministack.services import sqs

    _, _, _, region, account, _ = arn.split(":", 5)
    queue = sqs._queue_by_arn(arn) if region == rule_arn.split(":")[3] else None
    if queue is None:
        raise no_resource(arn)
    _check_policy(queue["attributes"].get("Policy"), "sqs:SendMessage", arn, rule_arn)
    fault = str((queue.get("tags") or {}).get(FAULT, "")).strip().upper()
    if fault:
        raise Failure(fault, f"The queue is tagged to fail with {fault}.")
    message: dict[str, Any] = {"QueueUrl": queue["url"], "MessageBody": body}
    if group:
        message["MessageGroupId"] = group
    if attributes:
        message["MessageAttributes"] = {
            name: {"DataType": "String", "StringValue": printable(value)} for name, value in attributes.items()
        }
    with request_scope(account, region):
        try:
            sqs._act_send_message(message, queue["url"])
        except sqs._Err as error:
            raise refusal(error.code, error.message) from error


def send_to_topic(arn: str, body: str, rule_arn: str) -> None:
    from ministack.services import sns

    topic = sns._topic_by_arn_any_scope(arn) if arn.split(":")[3] == rule_arn.split(":")[3] else None
    if topic is None:
        raise no_resource(arn)
    _check_policy(topic.get("attributes", {}).get("Policy"), "sns:Publish", arn, rule_arn)
    try:
        sns.publish_internal(arn, body)
    except sns.SnsPublishError as error:
        raise refusal(error.code, str(error)) from error


def send_to_function(arn: str, body: str, rule_arn: str) -> None:
    from ministack.services import lambda_svc

    function, config, _ = lambda_svc._get_func_record_for_ref(arn)
    base, _, _ = lambda_svc._get_base_func_record_for_ref(arn)
    if not function or not config or not base:
        raise no_resource(arn)
    _check_policy(base.get("policy"), "lambda:InvokeFunction", arn, rule_arn)
    try:
        event = json.loads(body)
    except ValueError as error:
        raise Failure("INVALID_JSON", "The input of a function must be JSON.") from error
    lambda_svc.invoke_async_with_retry(lambda_svc._execution_record_for_config(function, config), event)


def send_to_state_machine(arn: str, body: str, role: str | None) -> None:
    from ministack.services import stepfunctions as sfn

    if sfn._resolve_state_machine_arn(arn) is None:
        raise no_resource(arn)
    if not role:
        raise no_permission("states:StartExecution", arn)
    status, _, answer = sfn._start_execution({"stateMachineArn": arn, "input": body})
    if status >= 400:
        error = json.loads(answer)
        raise refusal(error.get("__type", ""), error.get("message", ""))


def install() -> None:
    """Nothing is replaced here; a release without one of these names fails at the start, not at the first delivery."""
    from ministack.core import iam_evaluator
    from ministack.services import lambda_svc, sns, sqs
    from ministack.services import stepfunctions as sfn

    _ = iam_evaluator.EvalContext, iam_evaluator.evaluate_resource_policy
    _ = sqs._queue_by_arn, sqs._act_send_message, sqs._Err
    _ = sns._topic_by_arn_any_scope, sns.publish_internal, sns.SnsPublishError
    _ = lambda_svc._get_func_record_for_ref, lambda_svc._get_base_func_record_for_ref
    _ = lambda_svc._execution_record_for_config, lambda_svc.invoke_async_with_retry
    _ = sfn._resolve_state_machine_arn, sfn._start_execution
