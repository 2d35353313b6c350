"""Requests that cannot be read: refused with HTTP 400, and nothing has happened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from .conftest import Aws
from .raw import Wire
from .rows import ours, row
from .sqs_helpers import RECORDED, bodies, counts, drain, queue, refused

OURS = "AWS refuses it, with which code and text is not known"
MODEL = boto3.client("sqs", region_name="us-east-1").meta.service_model
JUNK: list[Any] = [
    *(None, True, 0, -1, 1.5, 1e30, 10**30, "", "x", "\ud800", "\x00", "http://[", "9" * 5000, "²"),
    *([], [None], ["x"], ["\ud800"], [[1]], [{}], [{"Id": "a"}], [{"Id": ["a"]}], [{"Id": "a", "MessageBody": {}}]),
    *({}, {"x": None}, {"x": "y"}, {"x": 1}, {"x": {}}, {"x": {"DataType": 1}}, {"x": {"DataType": "String"}}),
    *({"\ud800": "x"}, {"x": {"DataType": "Binary", "BinaryValue": "?"}}),
]


@pytest.fixture
def wire(aws: Aws) -> Iterator[Wire]:
    with Wire(aws) as connection:
        yield connection


def valid(action: str, url: str, arn: str) -> dict[str, Any]:
    """A request that could be served."""
    values = {
        "QueueUrl": url,
        "QueueName": "other",
        "MessageBody": "a",
        "ReceiptHandle": "handle",
        "SourceArn": arn,
        "Attributes": {"DelaySeconds": "0"},
        "Tags": {"a": "b"},
        "TagKeys": ["a"],
        "Entries": [{"Id": "1", "MessageBody": "a", "ReceiptHandle": "handle", "VisibilityTimeout": 0}],
        "VisibilityTimeout": 0,
    }
    members = MODEL.operation_model(action).input_shape.members
    return {name: value for name, value in values.items() if name in members}


@ours("no promise of AWS: whatever is sent, the stand-in must not break, nor do half of it")
@pytest.mark.parametrize("action", [name for name in MODEL.operation_names if name != "PurgeQueue"])
def test_junk_in_any_parameter_is_no_error_of_the_server(aws: Aws, wire: Wire, action: str) -> None:
    url = queue(aws.client("sqs"))
    good = valid(action, url, aws.arn("sqs", "work"))
    for name in MODEL.operation_model(action).input_shape.members:
        for junk in JUNK:
            status, answer = wire.json(f"AmazonSQS.{action}", {**good, name: junk})
            assert status in (200, 400, 404), (name, junk, answer)
            assert status == 200 or ("#" in answer["__type"] and answer["message"]), (name, junk, answer)
            if isinstance(junk, str):
                text = junk.encode("utf-8", "replace").decode()
                status, page = wire.query(Action=action, **{"QueueUrl": url, "QueueName": "other", name: text})
                assert status in (200, 400, 404), (name, junk, page)
    assert wire.json("AmazonSQS.ListQueues", {})[0] == 200


@ours("no promise of AWS: the same within the entries of a batch")
@pytest.mark.parametrize(
    "action", ["SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"], ids=lambda name: name[:6]
)
def test_junk_in_any_member_of_an_entry(aws: Aws, wire: Wire, action: str) -> None:
    url = queue(aws.client("sqs"))
    good = {"Id": "1", "MessageBody": "a", "ReceiptHandle": "handle", "VisibilityTimeout": 0}
    members = MODEL.operation_model(action).input_shape.members["Entries"].member.members
    for name in members:
        for junk in JUNK:
            entries = [{**good, "Id": "0"}, {**good, name: junk}]
            status, answer = wire.json(f"AmazonSQS.{action}", {"QueueUrl": url, "Entries": entries})
            assert status in (200, 400), (name, junk, answer)
            failed = answer.get("Failed") or []
            assert "InternalError" not in {entry["Code"] for entry in failed}, (name, junk)


@ours(OURS)
@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b'"x"', b"\xff", b'{"QueueUrl": NaN}', b"[" * 100_000])
def test_what_is_no_json_object(aws: Aws, wire: Wire, body: bytes) -> None:
    for action in ("ListQueues", "CreateQueue", "ReceiveMessage"):
        status, answer = wire.json(f"AmazonSQS.{action}", body)
        assert (status, answer["__type"].partition("#")[2]) == (400, "SerializationException")


@ours(OURS)
@pytest.mark.parametrize(
    "member",
    [
        {"AttributeNames": "All"},
        {"AttributeNames": [1]},
        {"MessageSystemAttributeNames": {"All": 1}},
        {"MessageAttributeNames": [None]},
        {"MaxNumberOfMessages": "1"},
        {"VisibilityTimeout": [30]},
        {"WaitTimeSeconds": "soon"},
    ],
    ids=lambda member: next(iter(member)),
)
def test_a_receive_that_cannot_be_read_takes_no_message(aws: Aws, wire: Wire, member: dict[str, Any]) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    sqs.send_message(QueueUrl=url, MessageBody="a")
    status, answer = wire.json("AmazonSQS.ReceiveMessage", {"QueueUrl": url, **member})
    assert (status, answer["__type"].partition("#")[2]) == (400, "SerializationException")
    assert counts(sqs, url) == (1, 0, 0)


@ours(OURS)
def test_a_token_of_no_list(aws: Aws, wire: Wire) -> None:
    url = queue(aws.client("sqs"))
    for action, more in (("ListQueues", {}), ("ListDeadLetterSourceQueues", {"QueueUrl": url})):
        for token in ("x", "²", "-1", "9" * 5000):
            status, answer = wire.json(f"AmazonSQS.{action}", {"NextToken": token, "MaxResults": 1, **more})
            assert (status, answer["message"]) == (400, "Invalid or expired next token.")


@row("sqs.list.max_results", "ListQueues: MaxResults is 1 to 1000.", source="Amazon SQS API reference ListQueues")
@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_max_results(aws: Aws, limit: int) -> None:
    with refused("InvalidParameterValue", status=400):
        aws.client("sqs").list_queues(MaxResults=limit)


# -- message attributes --------------------------------------------------------------------------------------------


def text(value: str, kind: str = "String") -> dict[str, str]:
    return {"DataType": kind, "StringValue": value}


METADATA = "Amazon SQS Developer Guide: Amazon SQS message metadata"


@row(
    "sqs.send.attributes",
    "Message attributes: ten at most, names, types and values are checked (InvalidParameterValue).",
    source=METADATA,
)
@pytest.mark.parametrize(
    "attributes",
    [
        {str(number): text("x") for number in range(11)},
        {"a b": text("x")},
        {"aWs.a": text("x")},
        {"Amazon.a": text("x")},
        {".a": text("x")},
        {"a.": text("x")},
        {"a..b": text("x")},
        {"a" * 257: text("x")},
        {"a": text("x", "string")},
        {"a": text("x", "Text")},
        {"a": text("x", "Number")},
        {"a": {"DataType": "Binary", "BinaryValue": b""}},
    ],
    ids=lambda attributes: next(iter(attributes))[:10],
)
def test_attributes_that_are_refused(aws: Aws, attributes: dict[str, Any]) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    with refused("InvalidParameterValue", status=400):
        sqs.send_message(QueueUrl=url, MessageBody="a", MessageAttributes=attributes)
    assert counts(sqs, url) == (0, 0, 0)


@row(
    "sqs.send.attribute_characters",
    "A character that no body may have is InvalidParameterValue in an attribute; a name may have diacritics.",
    source=RECORDED,
)
def test_characters_of_attributes(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    with refused("InvalidParameterValue", status=400):
        sqs.send_message(QueueUrl=url, MessageBody="a", MessageAttributes={"attr1": text("Invalid-\x08,\x0b")})
    sqs.send_message(QueueUrl=url, MessageBody="a", MessageAttributes={"attr.1øßä": text("Valid")})


@row("sqs.send.attribute_types", "Types may have a suffix of one's own; all values come back.", source=METADATA)
def test_attributes_come_back(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    attributes = {
        "count": text("-1.5e3", "Number.float"),
        "data": {"DataType": "Binary.gif", "BinaryValue": b"\x00\xff"},
        "note": text("ü\n", "String.note"),
    }
    sqs.send_message(QueueUrl=url, MessageBody="a", MessageAttributes=attributes)
    [message] = sqs.receive_message(QueueUrl=url, MessageAttributeNames=["All"])["Messages"]
    assert message["MessageAttributes"] == attributes


@ours("on AWS, too, only one entry fails; with which code is not known")
def test_an_attribute_that_cannot_be_encoded_costs_its_entry_alone(aws: Aws, wire: Wire) -> None:
    """It was HTTP 500 once the entry before it had been sent, and the SDK's retries sent that one again."""
    url = queue(aws.client("sqs"))
    entries = [
        {"Id": "1", "MessageBody": "good"},
        {"Id": "2", "MessageBody": "bad", "MessageAttributes": {"a": text("\ud800")}},
        {"Id": "3", "MessageBody": "bad", "MessageAttributes": {"a": {"DataType": "Binary", "BinaryValue": "?"}}},
        {"Id": "4", "MessageBody": "\udfff"},
    ]
    status, answer = wire.json("AmazonSQS.SendMessageBatch", {"QueueUrl": url, "Entries": entries})
    assert status == 200
    assert [entry["Id"] for entry in answer["Successful"]] == ["1"]
    assert {entry["Id"]: (entry["Code"], entry["SenderFault"]) for entry in answer["Failed"]} == {
        "2": ("InvalidParameterValue", True),
        "3": ("InvalidParameterValue", True),
        "4": ("InvalidMessageContents", True),
    }
    assert bodies(drain(aws.client("sqs"), url)) == ["good"]


# -- queues --------------------------------------------------------------------------------------------------------


@row(
    "sqs.create.name",
    "A queue's name has 1 to 80 letters, digits, hyphens and underscores.",
    source="Amazon SQS API reference CreateQueue",
)
@pytest.mark.parametrize("name", ["a b", "a/b", "ä", "a.b", "a" * 81, "a\n", "../a"])
def test_names_of_queues(aws: Aws, name: str) -> None:
    sqs = aws.client("sqs")
    with refused("InvalidParameterValue", status=400):
        sqs.create_queue(QueueName=name)
    assert "QueueUrls" not in sqs.list_queues() or not sqs.list_queues()["QueueUrls"]
    assert queue(sqs, "a" * 80)


@row("sqs.create.fifo_name", "FifoQueue and a name that ends in .fifo go together.", source=RECORDED)
def test_names_of_fifo_queues(aws: Aws) -> None:
    sqs = aws.client("sqs")
    for name, attributes in (("a.fifo", {}), ("a", {"FifoQueue": "true"}), ("a.fifo", {"FifoQueue": "false"})):
        with refused("InvalidParameterValue", status=400):
            sqs.create_queue(QueueName=name, Attributes=attributes)
    assert queue(sqs, "a" * 75 + ".fifo")


@row("sqs.create.attribute_name", "An attribute for FIFO queues alone is InvalidAttributeName.", source=RECORDED)
def test_attributes_of_a_standard_queue(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs, "there")
    for name, value in (("FifoQueue", "false"), ("ContentBasedDeduplication", "false")):
        with refused("InvalidAttributeName", f"Unknown Attribute {name}.", 400):
            sqs.create_queue(QueueName="a", Attributes={name: value})
    with refused("InvalidAttributeName", "Unknown Attribute FifoQueue.", 400):
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"FifoQueue": "true"})
    for name, value in (("DeduplicationScope", "queue"), ("FifoThroughputLimit", "perQueue")):
        with refused("InvalidAttributeName", f"You can specify the {name} only when FifoQueue is set to true.", 400):
            sqs.create_queue(QueueName="a", Attributes={name: value})


@row("sqs.attributes.unknown", "An unknown attribute is InvalidAttributeName.", source=RECORDED)
def test_unknown_attributes(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    with refused("InvalidAttributeName", "Unknown Attribute Foobar.", 400):
        sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Foobar"])
    for name in ("Foobar", "QueueArn", "ApproximateNumberOfMessages"):
        with refused("InvalidAttributeName", f"Unknown Attribute {name}.", 400):
            sqs.create_queue(QueueName="a", Attributes={name: "1"})
        with refused("InvalidAttributeName", f"Unknown Attribute {name}.", 400):
            sqs.set_queue_attributes(QueueUrl=url, Attributes={name: "1"})


@row("sqs.attributes.type", "A queue's type does not change.", source=RECORDED)
def test_type_of_a_queue(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs, "a.fifo")
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"FifoQueue": "true"})
    text = "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported."
    with refused("InvalidAttributeValue", text, 400):
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"FifoQueue": "false"})
