"""What SQS refuses for its form, and how errors look on the wire."""

from __future__ import annotations

import urllib.error
import urllib.parse
import urllib.request

from .conftest import Aws
from .rows import row
from .sqs_helpers import API, RECORDED, bodies, drain, queue, receive, refused

MIB = 1_048_576


@row("sqs.error.missing_queue", "A missing queue: code, shape, text, status in the JSON protocol.", source=RECORDED)
def test_missing_queue(aws: Aws) -> None:
    sqs = aws.client("sqs")
    text = "The specified queue does not exist."
    with refused("AWS.SimpleQueueService.NonExistentQueue", text, 400) as refusal:
        sqs.send_message(QueueUrl=f"{aws.endpoint}/{aws.account}/gone", MessageBody="a")
    assert refusal.shape == "QueueDoesNotExist"
    with refused("AWS.SimpleQueueService.NonExistentQueue", text):
        sqs.get_queue_url(QueueName="gone")


@row("sqs.error.query", "The Query protocol has its own code and text for a missing queue.", source=RECORDED)
def test_query_error(aws: Aws) -> None:
    form = {"Action": "ReceiveMessage", "QueueUrl": f"{aws.endpoint}/{aws.account}/gone", "Version": "2012-11-05"}
    request = urllib.request.Request(
        aws.endpoint,
        urllib.parse.urlencode(form).encode(),
        {"Authorization": f"AWS4-HMAC-SHA256 Credential={aws.account}/20260101/{aws.region}/sqs/aws4_request"},
    )
    try:
        urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        body, status = error.read().decode(), error.code
    assert status == 400
    assert "<Type>Sender</Type><Code>AWS.SimpleQueueService.NonExistentQueue</Code>" in body
    assert "The specified queue does not exist for this wsdl version." in body


@row("sqs.receive.ranges", "ReceiveMessage: parameters out of range are InvalidParameterValue.", source=RECORDED)
def test_receive_ranges(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    for name, value, reason in (
        ("MaxNumberOfMessages", 11, "Must be between 1 and 10, if provided."),
        ("MaxNumberOfMessages", 0, "Must be between 1 and 10, if provided."),
        ("WaitTimeSeconds", 21, "Must be >= 0 and <= 20, if provided."),
        ("WaitTimeSeconds", -1, "Must be >= 0 and <= 20, if provided."),
        ("VisibilityTimeout", 43201, "Must be >= 0 and <= 43200, if provided."),
    ):
        text = f"Value {value} for parameter {name} is invalid. Reason: {reason}"
        with refused("InvalidParameterValue", text, 400) as refusal:
            sqs.receive_message(QueueUrl=url, **{name: value})
        assert refusal.shape == "InvalidParameterValueException"


@row(
    "sqs.send.size",
    "A message may have as many bytes as the queue's maximum, attributes included, and not one more.",
    source=RECORDED,
)
def test_message_size(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs, MaximumMessageSize=1024)
    attributes = {"k": {"DataType": "String", "StringValue": "x"}}
    sqs.send_message(QueueUrl=url, MessageBody="a" * (1024 - 8), MessageAttributes=attributes)
    text = "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes."
    with refused("InvalidParameterValue", text, 400):
        sqs.send_message(QueueUrl=url, MessageBody="a" * (1024 - 7), MessageAttributes=attributes)
    answer = sqs.send_message_batch(
        QueueUrl=url,
        Entries=[{"Id": "big", "MessageBody": "a" * 1025}, {"Id": "small", "MessageBody": "a"}],
    )
    assert [done["Id"] for done in answer["Successful"]] == ["small"]
    assert answer["Failed"] == [
        {
            "Id": "big",
            "Code": "InvalidParameterValue",
            "Message": "One or more parameters cannot be validated. Reason: Message must be shorter than 1024 bytes.",
            "SenderFault": True,
        }
    ]


@row("sqs.send.batch_size", "A batch of more than 1 MiB in all is BatchRequestTooLong.", source=RECORDED)
def test_batch_size(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    attributes = {"k": {"DataType": "String", "StringValue": "x"}}
    entries = [
        {"Id": "1", "MessageBody": "a" * (MIB - 8), "MessageAttributes": attributes},
        {"Id": "2", "MessageBody": "a"},
    ]
    text = f"Batch requests cannot be longer than {MIB} bytes. You have sent {MIB + 1} bytes."
    with refused("AWS.SimpleQueueService.BatchRequestTooLong", text, 400):
        sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert receive(sqs, url) == []


@row("sqs.send.batch_form", "A batch of the wrong form is refused as a whole.", source=RECORDED)
def test_batch_form(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    prefix = "AWS.SimpleQueueService."
    many = [{"Id": str(n), "MessageBody": "a"} for n in range(20)]
    text = "Maximum number of entries per request are 10. You have sent 20."
    with refused(f"{prefix}TooManyEntriesInBatchRequest", text, 400) as refusal:
        sqs.send_message_batch(QueueUrl=url, Entries=many)
    assert refusal.shape == "TooManyEntriesInBatchRequest"
    for bad in ("", "a b", "x" * 81, "a:b"):
        with refused(f"{prefix}InvalidBatchEntryId", status=400):
            sqs.send_message_batch(QueueUrl=url, Entries=[{"Id": bad, "MessageBody": "a"}])
    with refused(f"{prefix}BatchEntryIdsNotDistinct", "Id a repeated."):
        sqs.send_message_batch(QueueUrl=url, Entries=[{"Id": "a", "MessageBody": "1"}] * 2)
    with refused(f"{prefix}EmptyBatchRequest"):
        sqs.send_message_batch(QueueUrl=url, Entries=[])
    assert receive(sqs, url) == []


@row(
    "sqs.send.batch_partial", "A batch with one bad body sends the others; all good: no Failed member.", source=RECORDED
)
def test_batch_partial(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    entries = [{"Id": "good", "MessageBody": "a"}, {"Id": "bad", "MessageBody": "\x01"}]
    answer = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    [failed] = answer["Failed"]
    assert (failed["Id"], failed["Code"], failed["SenderFault"]) == ("bad", "InvalidMessageContents", True)
    assert bodies(drain(sqs, url)) == ["a"]
    assert "Failed" not in sqs.send_message_batch(QueueUrl=url, Entries=entries[:1])
    with refused("InvalidMessageContents"):
        sqs.send_message(QueueUrl=url, MessageBody="\x01")


@row("sqs.send.refused", "SendMessage: empty body, empty attribute, bad group id.", source=RECORDED)
def test_send_refused(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    with refused("MissingParameter", "The request must contain the parameter MessageBody.", 400) as refusal:
        sqs.send_message(QueueUrl=url, MessageBody="")
    assert refusal.shape == "MissingRequiredParameterException"
    attributes = {"Note": {"DataType": "String", "StringValue": ""}}
    text = "Message (user) attribute 'Note' must contain a non-empty value of type 'String'."
    with refused("InvalidParameterValue", text):
        sqs.send_message(QueueUrl=url, MessageBody="a", MessageAttributes=attributes)
    for group in ("", "a" * 129, "group 123"):
        reason = "MessageGroupId can only include alphanumeric and punctuation characters. 1 to 128 in length."
        with refused(
            "InvalidParameterValue", f"Value {group} for parameter MessageGroupId is invalid. Reason: {reason}"
        ):
            sqs.send_message(QueueUrl=url, MessageBody="a", MessageGroupId=group)


@row("sqs.fifo.send.refused", "FIFO queue: group, deduplication id and DelaySeconds are checked.", source=RECORDED)
def test_fifo_send_refused(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs, "work.fifo")
    group = "The request must contain the parameter MessageGroupId."
    with refused("MissingParameter", group):
        sqs.send_message(QueueUrl=url, MessageBody="a", MessageDeduplicationId="1")
    entries = [
        {"Id": "1", "MessageBody": "a", "MessageGroupId": "g", "MessageDeduplicationId": "1"},
        {"Id": "2", "MessageBody": "b", "MessageDeduplicationId": "2"},
    ]
    with refused("InvalidParameterValue", group):
        sqs.send_message_batch(QueueUrl=url, Entries=entries)
    text = (
        "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
    )
    with refused("InvalidParameterValue", text):
        sqs.send_message(QueueUrl=url, MessageBody="a", MessageGroupId="g")
    send = {"QueueUrl": url, "MessageBody": "a", "MessageGroupId": "g", "MessageDeduplicationId": "1"}
    reason = "The request include parameter that is not valid for this queue type."
    with refused("InvalidParameterValue", f"Value 2 for parameter DelaySeconds is invalid. Reason: {reason}"):
        sqs.send_message(DelaySeconds=2, **send)
    assert receive(sqs, url) == []
    sqs.send_message(DelaySeconds=0, **send)
    assert bodies(receive(sqs, url)) == ["a"]


@row("sqs.change_visibility.missing", "A missing parameter is MissingParameter.", source=f"{API}: common errors")
def test_missing_parameter(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    with refused("MissingParameter", "The request must contain the parameter ReceiptHandle."):
        sqs.delete_message(QueueUrl=url, ReceiptHandle="")
