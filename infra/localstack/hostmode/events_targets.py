"""What EventBridge needs before a target takes an event: the resource, a permission, a request that it accepts.

**On AWS**: see :mod:`parity.events_targets`. In short: a queue, a topic or a function must let the rule act in its own
policy, a state machine is started with the target's role; what is missing shows at delivery, as NO_PERMISSIONS or
NO_RESOURCE.

**LocalStack** sends without asking for permission, and logs what the target's API refuses.

**Here** LocalStack's sender of each kind of target still sends. Before it does, :func:`check` looks at the target where
LocalStack keeps it; afterwards, :func:`failure_of` says what an error of the target's API is to EventBridge. A state
machine's execution is named by Step Functions, not after the event: the event that two rules send to one machine
starts two executions on AWS.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.events_delivery import Failure
from parity.events_http import failure_of_error, failure_of_status
from parity.events_targets import SERVICE, no_permission, no_resource, refusal
from parity.settings import FAULT
from parity.sqs_attributes import printable

from .events_policies import Policy, allows

HTTP_SECONDS = 5  # an endpoint that takes longer has not answered


def check(arn: str, rule_arn: str, role: str | None) -> None:
    """Raise :class:`~parity.events_delivery.Failure` unless the rule can send to the target with the ARN ``arn``."""
    _, _, service, region, account, resource = arn.split(":", 5)
    looks = {"sqs": _queue, "sns": _topic, "lambda": _function, "states": _state_machine}.get(service)
    if looks is None:
        return
    if region != rule_arn.split(":")[3] or not (account.isdigit() and len(account) == 12):
        raise no_resource(arn)
    looks(arn, account, region, resource, rule_arn, role)


def _check_policy(policy: Policy, action: str, arn: str, rule_arn: str) -> None:
    keys = {
        "aws:sourcearn": rule_arn,
        "aws:sourceaccount": rule_arn.split(":")[4],
        "aws:principalisawsservice": "true",
        "aws:principalservicename": SERVICE,
    }
    if not allows(policy, service=SERVICE, action=action, resource=arn, keys=keys):
        raise no_permission(action, arn)


def _queue(arn: str, account: str, region: str, name: str, rule_arn: str, _: str | None) -> None:
    from localstack.services.sqs.models import sqs_stores

    store = sqs_stores[account][region]
    queue = store.queues.get(name)
    if queue is None:
        raise no_resource(arn)
    _check_policy(queue.attributes.get("Policy"), "sqs:SendMessage", arn, rule_arn)
    fault = store.tags.get_tags(arn).get(FAULT, "").strip().upper()
    if fault:
        raise Failure(fault, f"The queue is tagged to fail with {fault}.")


def _topic(arn: str, account: str, region: str, _name: str, rule_arn: str, _: str | None) -> None:
    from localstack.services.sns.models import sns_stores

    topic = sns_stores[account][region].topics.get(arn)
    if topic is None:
        raise no_resource(arn)
    _check_policy(topic["attributes"].get("Policy"), "sns:Publish", arn, rule_arn)


def _function(arn: str, account: str, region: str, resource: str, rule_arn: str, _: str | None) -> None:
    from localstack.services.lambda_.invocation.models import lambda_stores

    _kind, name, *rest = resource.split(":")
    function = lambda_stores[account][region].functions.get(name)
    qualifier = rest[0] if rest else "$LATEST"
    if function is None or qualifier not in {*function.versions, *function.aliases}:
        raise no_resource(arn)
    granted = function.permissions.get(qualifier)
    policy = {"Statement": granted.policy.Statement} if granted else None
    _check_policy(policy, "lambda:InvokeFunction", arn, rule_arn)


def _state_machine(arn: str, account: str, region: str, _name: str, _rule: str, role: str | None) -> None:
    from localstack.services.stepfunctions.backend.store import sfn_stores

    store = sfn_stores[account][region]
    if arn not in store.state_machines and arn not in store.aliases:
        raise no_resource(arn)
    if not role:
        raise no_permission("states:StartExecution", arn)


def failure_of(error: Exception) -> Failure | None:
    """What an error of LocalStack's sender means, or None when it is an error of LocalStack itself."""
    import requests
    from botocore.exceptions import ClientError

    if isinstance(error, Failure):
        return error
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
        code, message = error.response["Error"].get("Code", ""), error.response["Error"].get("Message", "")
        return refusal(code.rpartition(".")[2], message) if status < 500 else Failure("INTERNAL_ERROR", message)
    if isinstance(error, NotImplementedError):
        return Failure("UNKNOWN", str(error), retried=False)
    if isinstance(error, requests.Timeout):
        return failure_of_error(TimeoutError())
    if isinstance(error, requests.RequestException):
        return failure_of_error(_cause(error))
    return None


def _cause(error: BaseException) -> Exception:
    """The innermost error: a name that does not resolve is not told from a closed port by the outer ones."""
    inner: BaseException | None = error
    while inner is not None:
        error, inner = inner, inner.__cause__ or inner.__context__
    return error if isinstance(error, Exception) else Exception()


def bury(arn: str, body: str, rule_arn: str, attributes: Mapping[str, str]) -> None:
    """Write ``body`` to the dead-letter queue with the ARN ``arn``. Raises :class:`~parity.events_delivery.Failure`."""
    from botocore.exceptions import ClientError
    from localstack.aws.connect import connect_to
    from localstack.utils.aws.arns import sqs_queue_url_for_arn

    check(arn, rule_arn, None)
    _, _, _, region, account, _ = arn.split(":", 5)
    named = {name: {"DataType": "String", "StringValue": printable(value)} for name, value in attributes.items()}
    client = connect_to(aws_access_key_id=account, region_name=region).sqs
    client = client.request_metadata(service_principal="events", source_arn=rule_arn)
    try:
        client.send_message(QueueUrl=sqs_queue_url_for_arn(arn), MessageBody=body, MessageAttributes=named)
    except ClientError as error:
        raise failure_of(error) from error


class Http:
    """What LocalStack's senders use as ``requests``: an answer outside 2xx, or none in time, is a failure."""

    @staticmethod
    def request(**arguments: Any) -> Any:
        import requests

        answer = requests.request(**{"timeout": HTTP_SECONDS} | arguments)
        failed = failure_of_status(answer.status_code)
        if failed is not None:
            raise failed
        return answer


def install() -> None:
    from localstack.services.events import target as senders
    from localstack.services.lambda_.invocation.models import lambda_stores
    from localstack.services.sns.models import sns_stores
    from localstack.services.sqs.models import sqs_stores
    from localstack.services.stepfunctions.backend.store import sfn_stores

    def start_execution(self: Any, event: Any, trace_header: Any) -> None:
        self.service = "stepfunctions"
        self.client.start_execution(stateMachineArn=self.target["Arn"], input=senders.to_json_str(event))

    # Named here so that a release without them fails at the start, not at the first delivery.
    _ = lambda_stores, sns_stores, sqs_stores, sfn_stores, senders.requests.request
    _ = senders.StatesTargetSender.send_event
    senders.requests = Http
    senders.StatesTargetSender.send_event = start_execution
