"""Making, showing, changing and deleting mappings of queues."""

from __future__ import annotations

import contextlib
import uuid
from typing import Any

from .conftest import Aws
from .esm_kit import GUIDE, MODEL, RECORDED, RECORDED_API, REPORTED, REPORTS, prepared
from .lambda_kit import function, until
from .rows import ours, row
from .sqs_helpers import arn_of, queue, refused

FIELDS = {
    "BatchSize",
    "EventSourceArn",
    "EventSourceMappingArn",
    "FunctionArn",
    "FunctionResponseTypes",
    "LastModified",
    "MaximumBatchingWindowInSeconds",
    "State",
    "StateTransitionReason",
    "UUID",
}
WINDOW = "Maximum batch window in seconds must be greater than 0 if maximum batch size is greater than 10"


def members(answer: dict[str, Any]) -> set[str]:
    return set(answer) - {"ResponseMetadata"}


def status(answer: dict[str, Any]) -> int:
    return int(answer["ResponseMetadata"]["HTTPStatusCode"])


# -- answers -------------------------------------------------------------------------------------------------------


@row(
    "lambda.esm.create",
    "CreateEventSourceMapping answers 202 with the mapping in state Creating, its defaults, and no more members.",
    source=f"{RECORDED} test_event_source_mapping_default_batch_size",
)
def test_create(aws: Aws) -> None:
    work = prepared(aws)
    answer = work.map(wait=False)
    assert status(answer) == 202
    assert members(answer) == FIELDS
    assert (answer["BatchSize"], answer["MaximumBatchingWindowInSeconds"]) == (10, 0)
    assert (answer["State"], answer["StateTransitionReason"]) == ("Creating", "USER_INITIATED")
    assert answer["FunctionResponseTypes"] == []
    assert answer["FunctionArn"] == aws.arn("lambda", "function:work")
    assert answer["EventSourceMappingArn"] == aws.arn("lambda", f"event-source-mapping:{answer['UUID']}")
    assert work.settled() == "Enabled"
    shown = aws.client("lambda").get_event_source_mapping(UUID=work.uuid)
    assert status(shown) == 200
    assert members(shown) == FIELDS


@row(
    "lambda.esm.create.options",
    "Members that are set are shown as they were set.",
    source=f"{RECORDED} test_sqs_event_source_mapping_batching_reserved_concurrency, test_sqs_event_filter",
)
def test_create_with_options(aws: Aws) -> None:
    work = prepared(aws)
    options: dict[str, Any] = {
        "BatchSize": 100,
        "MaximumBatchingWindowInSeconds": 1,
        "FunctionResponseTypes": REPORTS,
        "ScalingConfig": {"MaximumConcurrency": 2},
        "FilterCriteria": {"Filters": [{"Pattern": '{"body": {"k": ["v"]}}'}]},
    }
    answer = work.map(**options)
    assert {name: answer[name] for name in options} == options
    (listed,) = aws.client("lambda").list_event_source_mappings(FunctionName="work")["EventSourceMappings"]
    assert {name: listed[name] for name in options} == options


@row(
    "lambda.esm.create.disabled",
    "A mapping made with Enabled=False is Disabled and delivers nothing until an update enables it, through Enabling.",
    source=f"{RECORDED} test_fifo_message_group_parallelism",
)
def test_create_disabled(aws: Aws) -> None:
    work = prepared(aws)
    assert work.map(Enabled=False)["State"] == "Disabled"
    work.send("waits")
    assert aws.client("sqs").receive_message(QueueUrl=work.url, WaitTimeSeconds=1, VisibilityTimeout=0)["Messages"]
    answer = work.update(Enabled=True)
    assert (status(answer), answer["State"]) == (202, "Enabling")
    (call,) = work.calls(1)
    assert call.bodies == ["waits"]


@row(
    "lambda.esm.update.disable",
    "Disabling goes by way of Disabling; a disabled mapping delivers nothing, and what is sent stays visible.",
    source=f"{MODEL}, EventSourceMappingConfiguration State",
)
def test_disable(aws: Aws) -> None:
    work = prepared(aws)
    work.map()
    assert work.update(Enabled=False)["State"] == "Disabling"
    work.send("stays")
    found = aws.client("sqs").receive_message(QueueUrl=work.url, WaitTimeSeconds=1, VisibilityTimeout=0)["Messages"]
    assert [message["Body"] for message in found] == ["stays"]
    assert work.heard() == []


@row(
    "lambda.esm.update",
    "UpdateEventSourceMapping answers 202 in state Updating; what it does not name stays.",
    source=f"{RECORDED} test_sqs_event_source_mapping_update",
)
def test_update(aws: Aws) -> None:
    work = prepared(aws)
    work.map(BatchSize=5, FunctionResponseTypes=REPORTS)
    answer = work.update(BatchSize=1)
    assert (status(answer), answer["State"]) == (202, "Updating")
    assert (answer["BatchSize"], answer["FunctionResponseTypes"]) == (1, REPORTS)
    work.send("a", "b")
    assert {call.count for call in work.messages(2)} == {1}


@row(
    "lambda.esm.update.function",
    "An update may point the mapping at another function, version or alias.",
    source=f"{RECORDED} test_sqs_event_source_mapping_update",
)
def test_update_the_function(aws: Aws) -> None:
    api = aws.client("lambda")
    work, other = prepared(aws), prepared(aws, "other")
    version = api.publish_version(FunctionName="other")["FunctionArn"]
    work.map()
    assert work.update(FunctionName=version)["FunctionArn"] == version
    work.send("for the other")
    other.calls(1)
    assert work.heard() == []


@row(
    "lambda.esm.update.remove",
    "An empty ScalingConfig in an update removes the maximum concurrency.",
    source=f"{GUIDE}, Configuring maximum concurrency for Amazon SQS event sources; CloudFormation user guide",
)
def test_remove_the_maximum_concurrency(aws: Aws) -> None:
    work = prepared(aws)
    work.map(ScalingConfig={"MaximumConcurrency": 3})
    assert "ScalingConfig" not in work.update(ScalingConfig={})


@row(
    "lambda.esm.delete",
    "DeleteEventSourceMapping answers 202 in state Deleting; the mapping can be read until it is gone.",
    source=f"{RECORDED_API} test_event_source_mapping_lifecycle, test_function_name_variations",
)
def test_delete(aws: Aws) -> None:
    api = aws.client("lambda")
    work = prepared(aws)
    work.map()
    answer = api.delete_event_source_mapping(UUID=work.uuid)
    assert (status(answer), answer["State"]) == (202, "Deleting")
    until(lambda: not api.list_event_source_mappings()["EventSourceMappings"], within=60)
    with refused("ResourceNotFoundException", "The resource you requested does not exist.", 404):
        api.get_event_source_mapping(UUID=work.uuid)
    work.send("stays")
    assert aws.client("sqs").receive_message(QueueUrl=work.url, WaitTimeSeconds=1)["Messages"]
    work.map(wait=False)  # the pair is free again


@row(
    "lambda.esm.in_use",
    "While a mapping is on its way to a state, updating or deleting it is ResourceInUseException.",
    source=f"{MODEL}, ResourceInUseException; {REPORTED}",
)
def test_in_use(aws: Aws) -> None:
    api = aws.client("lambda")
    work = prepared(aws)

    def cleared() -> bool:
        if not api.list_event_source_mappings()["EventSourceMappings"]:
            return True
        with contextlib.suppress(api.exceptions.ResourceInUseException, api.exceptions.ResourceNotFoundException):
            api.delete_event_source_mapping(UUID=work.uuid)
        return False

    for verb, call in (("update", api.update_event_source_mapping), ("delete", api.delete_event_source_mapping)):
        error = None
        for _ in range(30):  # a stand-in is quick: on a busy machine the mapping may be there before the call
            work.map(wait=False)
            try:
                call(UUID=work.uuid)
            except api.exceptions.ResourceInUseException as caught:
                error = caught.response
            until(cleared)
            if error:
                break
        assert error is not None, "it was never refused"
        assert error["Error"]["Message"] == f"Cannot {verb} the event source mapping because it is in use."
        assert error["ResponseMetadata"]["HTTPStatusCode"] == 400


@row(
    "lambda.esm.unknown",
    "A mapping that does not exist is ResourceNotFoundException in Get, Update and Delete.",
    source=f"{RECORDED_API} test_event_source_mapping_exceptions",
)
def test_unknown(aws: Aws) -> None:
    api = aws.client("lambda")
    for call in (api.get_event_source_mapping, api.delete_event_source_mapping, api.update_event_source_mapping):
        with refused("ResourceNotFoundException", "The resource you requested does not exist.", 404):
            call(UUID=str(uuid.uuid4()))


@row(
    "lambda.esm.list",
    "ListEventSourceMappings filters by function and by queue, and does not mind one that does not exist.",
    source=f"{RECORDED_API} test_event_source_mapping_exceptions",
)
def test_list(aws: Aws) -> None:
    api = aws.client("lambda")
    work, other = prepared(aws), prepared(aws, "other")
    work.map()
    other.map()

    def found(**filters: str) -> list[str]:
        return [mapping["UUID"] for mapping in api.list_event_source_mappings(**filters)["EventSourceMappings"]]

    assert sorted(found()) == sorted([work.uuid, other.uuid])
    assert found(FunctionName="other") == [other.uuid]
    assert found(EventSourceArn=work.arn) == [work.uuid]
    assert found(EventSourceArn=work.arn, FunctionName="other") == found(FunctionName="nobody") == []


@row(
    "lambda.esm.function_names",
    "A function may be named with a version, an alias or $LATEST, by name or ARN; the mapping shows what was named.",
    source=f"{RECORDED_API} test_function_name_variations",
)
def test_function_names(aws: Aws) -> None:
    api = aws.client("lambda")
    work = prepared(aws)
    version = api.publish_version(FunctionName="work")
    alias = api.create_alias(FunctionName="work", FunctionVersion=version["Version"], Name="live")
    plain = aws.arn("lambda", "function:work")
    for given, shown in [
        ("work:$LATEST", f"{plain}:$LATEST"),
        ("work:1", f"{plain}:1"),
        (alias["AliasArn"], f"{plain}:live"),
        (plain, plain),
    ]:
        answer = work.map(FunctionName=given, Enabled=False)
        assert answer["FunctionArn"] == shown


# -- refusals ------------------------------------------------------------------------------------------------------


@row(
    "lambda.esm.refused.duplicate",
    "A second mapping of the same queue and function is ResourceConflictException and names the first; one of another "
    "function is fine.",
    source=f"{RECORDED} test_duplicate_event_source_mappings",
)
def test_duplicate(aws: Aws) -> None:
    work = prepared(aws)
    work.map()
    text = (
        f'An event source mapping with SQS arn (" {work.arn} ") and function (" work ") already exists. '
        f"Please update or delete the existing mapping with UUID {work.uuid}"
    )
    with refused("ResourceConflictException", text, 409):
        aws.client("lambda").create_event_source_mapping(EventSourceArn=work.arn, FunctionName="work")
    function(aws, "other", "def handler(event, context): pass")
    aws.client("lambda").create_event_source_mapping(EventSourceArn=work.arn, FunctionName="other")


@row(
    "lambda.esm.refused.visibility",
    "A queue whose visibility timeout is shorter than the function's timeout is refused.",
    source=f"{REPORTED} (winglang/wing issue 1507)",
)
def test_visibility_below_the_timeout(aws: Aws) -> None:
    work = prepared(aws, timeout=60)
    text = "Queue visibility timeout: 30 seconds is less than Function timeout: 60 seconds"
    with refused("InvalidParameterValueException", text, 400):
        work.map()
    aws.client("sqs").set_queue_attributes(QueueUrl=work.url, Attributes={"VisibilityTimeout": "60"})
    work.map()


@row(
    "lambda.esm.refused.queue",
    "A queue that does not exist is refused with the error of its ReceiveMessage.",
    source=f"{RECORDED} test_esm_with_not_existing_sqs_queue",
)
def test_no_queue(aws: Aws) -> None:
    work = prepared(aws)
    text = (
        "Error occurred while ReceiveMessage. SQS Error Code: AWS.SimpleQueueService.NonExistentQueue. "
        "SQS Error Message: The specified queue does not exist."
    )
    with refused("InvalidParameterValueException", text, 400):
        work.map(EventSourceArn=aws.arn("sqs", "nowhere"))


@row(
    "lambda.esm.refused.function",
    "A function that does not exist is InvalidParameterValueException; so is a mapping without an event source.",
    source=f"{RECORDED_API} test_event_source_mapping_exceptions",
)
def test_no_function_and_no_source(aws: Aws) -> None:
    api = aws.client("lambda")
    arn = arn_of(aws.client("sqs"), queue(aws.client("sqs")))
    with refused("InvalidParameterValueException", "Function does not exist", 400):
        api.create_event_source_mapping(FunctionName="nobody", EventSourceArn=arn)
    with refused("InvalidParameterValueException", "Unrecognized event source.", 400):
        api.create_event_source_mapping(FunctionName="nobody")


@row(
    "lambda.esm.refused.window",
    "A BatchSize above 10 needs a batching window, in a creation and in an update.",
    source=f"{RECORDED} test_event_source_mapping_default_batch_size",
)
def test_a_large_batch_needs_a_window(aws: Aws) -> None:
    work = prepared(aws)
    with refused("InvalidParameterValueException", WINDOW, 400):
        work.map(BatchSize=11)
    work.map()
    with refused("InvalidParameterValueException", WINDOW, 400):
        aws.client("lambda").update_event_source_mapping(UUID=work.uuid, BatchSize=11)
    work.update(BatchSize=11, MaximumBatchingWindowInSeconds=1)
    with refused("InvalidParameterValueException", WINDOW, 400):
        aws.client("lambda").update_event_source_mapping(UUID=work.uuid, MaximumBatchingWindowInSeconds=0)


@row(
    "lambda.esm.refused.fifo_window",
    "A FIFO queue has no batching window, so a batch of 10 at most.",
    source=f"{REPORTED} (aws/aws-lambda-dotnet pull request 1758); {MODEL}, CreateEventSourceMapping BatchSize",
)
def test_fifo_has_no_window(aws: Aws) -> None:
    work = prepared(aws, fifo=True)
    for size in (10, 100):
        with refused("InvalidParameterValueException", "Batching window is not supported for FIFO queues", 400):
            work.map(BatchSize=size, MaximumBatchingWindowInSeconds=5)
    with refused("InvalidParameterValueException"):
        work.map(BatchSize=11)
    work.map(BatchSize=10)


@row(
    "lambda.esm.refused.bounds",
    "BatchSize is at most 10,000, the window 300 seconds, MaximumConcurrency 1,000.",
    source=MODEL,
)
def test_bounds(aws: Aws) -> None:
    work = prepared(aws)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"BatchSize": 10_001, "MaximumBatchingWindowInSeconds": 1}, "batchSize"),
        ({"MaximumBatchingWindowInSeconds": 301}, "maximumBatchingWindowInSeconds"),
        ({"ScalingConfig": {"MaximumConcurrency": 1_001}}, "scalingConfig.maximumConcurrency"),
    ]
    for options, where in cases:
        with refused("ValidationException", status=400) as refusal:
            work.map(**options)
        assert f"at '{where}' failed to satisfy constraint: Member must have value less than" in refusal.message


@row(
    "lambda.esm.refused.foreign",
    "Members of other event sources are refused: a destination, a starting position.",
    source=f"{RECORDED_API} test_event_source_mapping_exceptions; {REPORTED} (boto/boto3 issue 1613)",
)
def test_members_of_other_sources(aws: Aws) -> None:
    work = prepared(aws)
    text = "Unsupported DestinationConfig parameter for given event source mapping type."
    with refused("InvalidParameterValueException", text, 400):
        work.map(DestinationConfig={"OnSuccess": {"Destination": work.arn}})
    with refused("InvalidParameterValueException", "StartingPosition is not valid for SQS event sources.", 400):
        work.map(StartingPosition="LATEST")


@row(
    "lambda.esm.provisioned",
    "Provisioned mode takes 2 to 200 pollers at least and excludes MaximumConcurrency.",
    source=f"{MODEL}, ProvisionedPollerConfig; {GUIDE}, Configuring scaling behavior for SQS event source mappings",
)
def test_provisioned_mode(aws: Aws) -> None:
    work = prepared(aws)
    with refused("InvalidParameterValueException"):
        work.map(ProvisionedPollerConfig={"MinimumPollers": 2}, ScalingConfig={"MaximumConcurrency": 2})
    with refused("InvalidParameterValueException"):
        work.map(ProvisionedPollerConfig={"MinimumPollers": 1})
    with refused("ValidationException"):
        work.map(ProvisionedPollerConfig={"MinimumPollers": 201})
    pollers = {"MinimumPollers": 2, "MaximumPollers": 4}
    answer = work.map(ProvisionedPollerConfig=pollers)
    assert {name: answer["ProvisionedPollerConfig"][name] for name in pollers} == pollers
    work.send("a")
    work.calls(1)


@ours("AWS's text for more pollers at least than at most is not known")
def test_more_pollers_at_least_than_at_most(aws: Aws) -> None:
    with refused("InvalidParameterValueException"):
        prepared(aws).map(ProvisionedPollerConfig={"MinimumPollers": 5, "MaximumPollers": 4})
