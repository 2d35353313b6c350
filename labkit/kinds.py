"""What a lab may have left in its account, kind by kind: how to find it and how to delete it.

Kinds are deleted in the order in which they stand at the end: what calls before what is called. A rule goes before its
bus and before a queue that it delivers to; a state machine, its executions stopped, before the functions and queues
that it calls; a mapping before its function, which would be called once more, and before its queue, which it polls; a
function before its log group, which its last call would bring back.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from labkit import kinds_appconfig
from labkit.errors import LabError
from labkit.sweep import Kind, pages, patiently

Client = Any

LOGS = "/aws/lambda/"  # what a function's log group is called, before the function's name


def _until_gone(what: str, look: Callable[[], object], gone: type[Exception], within: float) -> None:
    """Look, more and more seldom, until that raises ``gone``. Raises :class:`LabError` after ``within`` seconds."""
    end, wait = time.monotonic() + within, 0.05
    try:
        while time.monotonic() < end:
            look()
            time.sleep(wait)
            wait = min(2.0, wait * 1.5)
    except gone:
        return
    raise LabError(f"{what} is still there {within:.0f} s after it was deleted.")


def _mappings(client: Client, prefix: str) -> Iterator[str]:
    for mapping in pages(client, "list_event_source_mappings", "EventSourceMappings"):
        # The function's name is the seventh part of its ARN; a mapping has no name of its own to begin with ours.
        if mapping["FunctionArn"].split(":")[6].startswith(prefix):
            yield mapping["UUID"]


def delete_mapping(client: Client, uuid: str, within: float = 60.0) -> None:
    """Delete an event source mapping and wait until it is gone: until then it may hand over another batch.

    One that is being changed refuses (``ResourceInUseException``) and is asked again. Raises :class:`LabError` when it
    is still there after ``within`` seconds.
    """
    _ask_to_delete_mapping(client, uuid, within)
    look, gone = client.get_event_source_mapping, client.exceptions.ResourceNotFoundException
    _until_gone(f"event source mapping {uuid}", lambda: look(UUID=uuid), gone, within)


def _ask_to_delete_mapping(client: Client, uuid: str, within: float = 60.0) -> None:
    with contextlib.suppress(client.exceptions.ResourceNotFoundException):
        patiently(lambda: client.delete_event_source_mapping(UUID=uuid), "ResourceInUseException", within=within)


def _machines(sfn: Client, prefix: str) -> Iterator[str]:
    for machine in pages(sfn, "list_state_machines", "stateMachines"):
        if machine["name"].startswith(prefix):
            yield machine["stateMachineArn"]


def machine_tags(sfn: Client, arn: str) -> Mapping[str, str]:
    """The tags of a state machine or an activity."""
    return {tag["key"]: tag["value"] for tag in sfn.list_tags_for_resource(resourceArn=arn).get("tags", [])}


def delete_machine(sfn: Client, arn: str, within: float = 60.0) -> None:
    """Stop what runs, delete a state machine, and wait until it is gone: until then an execution may take another step.

    Raises :class:`LabError` when it is still there after ``within`` seconds.
    """
    _ask_to_delete_machine(sfn, arn)
    look, gone = sfn.describe_state_machine, sfn.exceptions.StateMachineDoesNotExist
    _until_gone(f"state machine {arn.rsplit(':', 1)[1]}", lambda: look(stateMachineArn=arn), gone, within)


def _ask_to_delete_machine(sfn: Client, arn: str) -> None:
    with contextlib.suppress(sfn.exceptions.StateMachineDoesNotExist, sfn.exceptions.StateMachineTypeNotSupported):
        # Express ones cannot be listed, and end by themselves within minutes.
        running = list(pages(sfn, "list_executions", "executions", stateMachineArn=arn, statusFilter="RUNNING"))
        for execution in running:
            with contextlib.suppress(sfn.exceptions.ExecutionDoesNotExist):
                patiently(
                    lambda one=execution: sfn.stop_execution(executionArn=one["executionArn"]),  # type: ignore[misc]
                    "ThrottlingException",
                )
    sfn.delete_state_machine(stateMachineArn=arn)


def _activities(sfn: Client, prefix: str) -> Iterator[str]:
    for activity in pages(sfn, "list_activities", "activities"):
        if activity["name"].startswith(prefix):
            yield activity["activityArn"]


def _pipes(pipes: Client, prefix: str) -> Iterator[str]:
    for pipe in pages(pipes, "list_pipes", "Pipes", **({"NamePrefix": prefix} if prefix else {})):
        yield pipe["Name"]


def delete_pipe(pipes: Client, name: str, within: float = 120.0) -> None:
    """Delete a pipe and wait until it is gone: until then it may take another batch.

    One that is being changed refuses (``ConflictException``) and is asked again. Raises :class:`LabError` when it is
    still there after ``within`` seconds.
    """
    _ask_to_delete_pipe(pipes, name, within)
    look, gone = pipes.describe_pipe, pipes.exceptions.NotFoundException
    _until_gone(f"pipe {name}", lambda: look(Name=name), gone, within)


def _ask_to_delete_pipe(pipes: Client, name: str, within: float = 120.0) -> None:
    with contextlib.suppress(pipes.exceptions.NotFoundException):
        if pipes.describe_pipe(Name=name)["CurrentState"] != "DELETING":
            patiently(lambda: pipes.delete_pipe(Name=name), "ConflictException", within=within)


def _pipe_tags(pipes: Client, name: str) -> Mapping[str, str]:
    tags: Mapping[str, str] = pipes.describe_pipe(Name=name).get("Tags", {})
    return tags


def _functions(client: Client, prefix: str) -> Iterator[str]:
    for function in pages(client, "list_functions", "Functions"):
        if function["FunctionName"].startswith(prefix):
            yield function["FunctionName"]


def _delete_function(client: Client, name: str) -> None:
    patiently(lambda: client.delete_function(FunctionName=name), "ResourceConflictException")  # an update under way


def _log_groups(logs: Client, prefix: str) -> Iterator[str]:
    for group in pages(logs, "describe_log_groups", "logGroups", logGroupNamePrefix=f"{LOGS}{prefix}"):
        yield group["logGroupName"]


def _queues(sqs: Client, prefix: str) -> Iterator[str]:
    for url in pages(sqs, "list_queues", "QueueUrls", **({"QueueNamePrefix": prefix} if prefix else {})):
        yield url.rsplit("/", 1)[1]


def _delete_queue(sqs: Client, name: str) -> None:
    sqs.delete_queue(QueueUrl=sqs.get_queue_url(QueueName=name)["QueueUrl"])


def _buses(events: Client, prefix: str) -> Iterator[str]:
    for bus in pages(events, "list_event_buses", "EventBuses", **({"NamePrefix": prefix} if prefix else {})):
        if bus["Name"] != "default":
            yield bus["Name"]


def _rules(events: Client, prefix: str) -> Iterator[str]:
    for bus in ("default", *_buses(events, prefix)):
        below = prefix if bus == "default" and prefix else ""
        arguments = {"NamePrefix": below} if below else {}
        for rule in pages(events, "list_rules", "Rules", EventBusName=bus, **arguments):
            if not rule.get("ManagedBy"):
                yield f"{bus}/{rule['Name']}"


def _delete_rule(events: Client, path: str) -> None:
    bus, _, rule = path.partition("/")
    targets = [target["Id"] for target in pages(events, "list_targets_by_rule", "Targets", Rule=rule, EventBusName=bus)]
    if targets:
        events.remove_targets(Rule=rule, EventBusName=bus, Ids=targets)
    events.delete_rule(Name=rule, EventBusName=bus)


def _archives(events: Client, prefix: str) -> Iterator[str]:
    for archive in pages(events, "list_archives", "Archives", **({"NamePrefix": prefix} if prefix else {})):
        yield archive["ArchiveName"]


def _buckets(s3: Client, prefix: str) -> Iterator[str]:
    for bucket in s3.list_buckets().get("Buckets", []):
        if bucket["Name"].startswith(prefix):
            yield bucket["Name"]


def _delete_bucket(s3: Client, name: str) -> None:
    keys = [{"Key": item["Key"]} for item in pages(s3, "list_objects_v2", "Contents", Bucket=name)]
    for start in range(0, len(keys), 1000):  # what one DeleteObjects call takes
        s3.delete_objects(Bucket=name, Delete={"Objects": keys[start : start + 1000], "Quiet": True})
    s3.delete_bucket(Bucket=name)


def _tables(dynamodb: Client, prefix: str) -> Iterator[str]:
    for name in pages(dynamodb, "list_tables", "TableNames"):
        if name.startswith(prefix):
            yield name


def _alarms(cloudwatch: Client, prefix: str) -> Iterator[str]:
    arguments = {"AlarmNamePrefix": prefix} if prefix else {}
    for alarm in pages(cloudwatch, "describe_alarms", "MetricAlarms", **arguments):
        yield alarm["AlarmName"]


def _pairs(tags: list[dict[str, str]]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in tags}


def _queue_tags(sqs: Client, name: str) -> Mapping[str, str]:
    tags: Mapping[str, str] = sqs.list_queue_tags(QueueUrl=sqs.get_queue_url(QueueName=name)["QueueUrl"]).get(
        "Tags", {}
    )
    return tags


def _event_tags(events: Client, arn: str) -> Mapping[str, str]:
    return _pairs(events.list_tags_for_resource(ResourceARN=arn)["Tags"])


def _rule_tags(events: Client, path: str) -> Mapping[str, str]:
    bus, _, rule = path.partition("/")
    return _event_tags(events, events.describe_rule(Name=rule, EventBusName=bus)["Arn"])


def _bus_tags(events: Client, name: str) -> Mapping[str, str]:
    return _event_tags(events, events.describe_event_bus(Name=name)["Arn"])


def _mapping_tags(client: Client, uuid: str) -> Mapping[str, str]:
    return _function_tags(client, client.get_event_source_mapping(UUID=uuid)["EventSourceMappingArn"])


def _function_tags(client: Client, name: str) -> Mapping[str, str]:
    if not name.startswith("arn:"):
        name = client.get_function_configuration(FunctionName=name)["FunctionArn"]
    tags: Mapping[str, str] = client.list_tags(Resource=name).get("Tags", {})
    return tags


def _log_group_tags(logs: Client, name: str) -> Mapping[str, str]:
    [arn] = [
        group["arn"].removesuffix(":*")
        for group in pages(logs, "describe_log_groups", "logGroups", logGroupNamePrefix=name)
        if group["logGroupName"] == name
    ]
    tags: Mapping[str, str] = logs.list_tags_for_resource(resourceArn=arn).get("tags", {})
    return tags


def _bucket_tags(s3: Client, name: str) -> Mapping[str, str]:
    try:
        return _pairs(s3.get_bucket_tagging(Bucket=name)["TagSet"])
    except s3.exceptions.ClientError as error:
        if error.response["Error"]["Code"] == "NoSuchTagSet":
            return {}
        raise


def _table_tags(dynamodb: Client, name: str) -> Mapping[str, str]:
    arn = dynamodb.describe_table(TableName=name)["Table"]["TableArn"]
    return _pairs(dynamodb.list_tags_of_resource(ResourceArn=arn).get("Tags", []))


def _alarm_tags(cloudwatch: Client, name: str) -> Mapping[str, str]:
    arn = cloudwatch.describe_alarms(AlarmNames=[name])["MetricAlarms"][0]["AlarmArn"]
    return _pairs(cloudwatch.list_tags_for_resource(ResourceARN=arn).get("Tags", []))


KINDS: tuple[Kind, ...] = (
    Kind("pipes", "pipe", _pipes, delete_pipe, _pipe_tags, _ask_to_delete_pipe),
    Kind("events", "rule", _rules, _delete_rule, _rule_tags),
    Kind("events", "archive", _archives, lambda events, name: events.delete_archive(ArchiveName=name)),
    Kind("events", "event bus", _buses, lambda events, name: events.delete_event_bus(Name=name), _bus_tags),
    Kind("stepfunctions", "state machine", _machines, delete_machine, machine_tags, _ask_to_delete_machine),
    Kind("stepfunctions", "activity", _activities, lambda sfn, arn: sfn.delete_activity(activityArn=arn), machine_tags),
    Kind("lambda", "event source mapping", _mappings, delete_mapping, _mapping_tags, _ask_to_delete_mapping),
    Kind("lambda", "function", _functions, _delete_function, _function_tags),
    Kind(
        "logs", "log group", _log_groups, lambda logs, name: logs.delete_log_group(logGroupName=name), _log_group_tags
    ),
    Kind("sqs", "queue", _queues, _delete_queue, _queue_tags),
    Kind("s3", "bucket", _buckets, _delete_bucket, _bucket_tags),
    Kind("dynamodb", "table", _tables, lambda db, name: db.delete_table(TableName=name), _table_tags),
    *kinds_appconfig.KINDS,
    Kind("cloudwatch", "alarm", _alarms, lambda cw, name: cw.delete_alarms(AlarmNames=[name]), _alarm_tags),
)
