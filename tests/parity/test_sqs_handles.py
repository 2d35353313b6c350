"""Receipt handles and visibility timeouts."""

from __future__ import annotations

import time

from .conftest import Aws
from .rows import row
from .sqs_helpers import API, GUIDE, RECORDED, bodies, counts, queue, receive, refused


@row(
    "sqs.visibility.timeout",
    "A received message is hidden for the visibility timeout, then comes again with the next receive count.",
    source=f"{GUIDE}: visibility timeout",
)
def test_visibility_timeout(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs, VisibilityTimeout=4)
    sent = sqs.send_message(QueueUrl=url, MessageBody="a")["MessageId"]
    [first] = receive(sqs, url)
    assert receive(sqs, url) == []
    assert counts(sqs, url) == (0, 1, 0)
    started = time.monotonic()
    [second] = receive(sqs, url, WaitTimeSeconds=20)
    assert time.monotonic() - started < 18  # woken when it is due, not at the end of the wait
    assert first["MessageId"] == second["MessageId"] == sent
    assert first["ReceiptHandle"] != second["ReceiptHandle"]
    assert [m["Attributes"]["ApproximateReceiveCount"] for m in (first, second)] == ["1", "2"]
    times = [m["Attributes"]["ApproximateFirstReceiveTimestamp"] for m in (first, second)]
    assert times[0] == times[1]


@row(
    "sqs.visibility.zero",
    "With VisibilityTimeout=0 a received message stays visible; a message comes only once in one receive.",
    source=RECORDED,
)
def test_visibility_zero(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    sqs.send_message(QueueUrl=url, MessageBody="a")
    assert bodies(receive(sqs, url, 10, VisibilityTimeout=0)) == ["a"]
    assert bodies(receive(sqs, url, 10)) == ["a"]
    assert receive(sqs, url, 10) == []


@row(
    "sqs.delete.after_expiry",
    "Standard queue: the newest handle deletes also after the visibility timeout, while nobody has received again.",
    source=RECORDED,
)
def test_delete_after_expiry(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    sqs.send_message(QueueUrl=url, MessageBody="a")
    [message] = receive(sqs, url, VisibilityTimeout=1)
    time.sleep(1.1)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert counts(sqs, url) == (0, 0, 0)


@row(
    "sqs.delete.superseded",
    "Standard queue: deleting with the handle of an earlier receive succeeds, and the message stays.",
    source=f"{API}: DeleteMessage (the message might not be deleted)",
)
def test_delete_superseded(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    sqs.send_message(QueueUrl=url, MessageBody="a")
    [old] = receive(sqs, url, VisibilityTimeout=0)
    [new] = receive(sqs, url)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=old["ReceiptHandle"])
    assert counts(sqs, url) == (0, 1, 0)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=new["ReceiptHandle"])
    assert counts(sqs, url) == (0, 0, 0)


@row("sqs.delete.twice", "Deleting a message again with the same handle is no error.", source=RECORDED)
def test_delete_twice(aws: Aws) -> None:
    sqs = aws.client("sqs")
    for name in ("work", "work.fifo"):
        url = queue(sqs, name)
        group = {"MessageGroupId": "g", "MessageDeduplicationId": "d"} if name.endswith("fifo") else {}
        sqs.send_message(QueueUrl=url, MessageBody="a", **group)
        [message] = receive(sqs, url)
        for _ in range(3):
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        entry = {"Id": "1", "ReceiptHandle": message["ReceiptHandle"]}
        answer = sqs.delete_message_batch(QueueUrl=url, Entries=[entry])
        assert [done["Id"] for done in answer["Successful"]] == ["1"]
        assert "Failed" not in answer


@row(
    "sqs.delete.illegal_handle",
    "A malformed handle, or one of another queue, is ReceiptHandleIsInvalid.",
    source=f"{RECORDED} (malformed); {API}: DeleteMessage",
)
def test_illegal_handles(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url, other = queue(sqs), queue(sqs, "other")
    sqs.send_message(QueueUrl=other, MessageBody="a")
    [message] = receive(sqs, other)
    for handle in ("garbage", "AQEBgarbage=", message["ReceiptHandle"]):
        text = f'The input receipt handle "{handle}" is not a valid receipt handle.'
        with refused("ReceiptHandleIsInvalid", text):
            sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)
        with refused("ReceiptHandleIsInvalid", text):
            sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=5)
    answer = sqs.delete_message_batch(QueueUrl=url, Entries=[{"Id": "x", "ReceiptHandle": "garbage"}])
    [failed] = answer["Failed"]
    assert (failed["Id"], failed["Code"], failed["SenderFault"]) == ("x", "ReceiptHandleIsInvalid", True)
    assert counts(sqs, other) == (0, 1, 0)


@row(
    "sqs.fifo.delete.expired",
    "FIFO queue: after the visibility timeout the handle has expired; the message is not deleted.",
    source=f"{RECORDED}; the batch entry was quoted in public",
)
def test_fifo_delete_expired(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs, "work.fifo", ContentBasedDeduplication="true")
    sqs.send_message(QueueUrl=url, MessageBody="a", MessageGroupId="g")
    [message] = receive(sqs, url, VisibilityTimeout=0)
    handle = message["ReceiptHandle"]
    text = f"Value {handle} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
    with refused("InvalidParameterValue", text, 400):
        sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)
    answer = sqs.delete_message_batch(QueueUrl=url, Entries=[{"Id": "1", "ReceiptHandle": handle}])
    assert answer["Failed"] == [
        {
            "Id": "1",
            "SenderFault": True,
            "Code": "ReceiptHandleIsInvalid",
            "Message": "The receipt handle has expired",
        }
    ]
    assert "Successful" not in answer
    assert counts(sqs, url) == (1, 0, 0)


@row(
    "sqs.fifo.delete.extended",
    "FIFO queue: ChangeMessageVisibility keeps the handle valid beyond the first timeout.",
    source=RECORDED,
)
def test_fifo_delete_extended(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs, "work.fifo", ContentBasedDeduplication="true", VisibilityTimeout=4)
    sqs.send_message(QueueUrl=url, MessageBody="a", MessageGroupId="g")
    [message] = receive(sqs, url)
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=60)
    time.sleep(4.2)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert counts(sqs, url) == (0, 0, 0)


@row(
    "sqs.fifo.change_visibility.expired",
    "FIFO queue: ChangeMessageVisibility with an expired handle is refused.",
    source="reported against AWS (kombu issue 1391)",
)
def test_fifo_change_visibility_expired(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs, "work.fifo", ContentBasedDeduplication="true")
    sqs.send_message(QueueUrl=url, MessageBody="a", MessageGroupId="g")
    [message] = receive(sqs, url, VisibilityTimeout=0)
    handle = message["ReceiptHandle"]
    text = f"Value {handle} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
    with refused("InvalidParameterValue", text):
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=5)


@row(
    "sqs.change_visibility.after_expiry",
    "Standard queue: after expiry ChangeMessageVisibility succeeds and hides again (no MessageNotInflight).",
    source=RECORDED,
)
def test_change_visibility_after_expiry(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    sqs.send_message(QueueUrl=url, MessageBody="a")
    [message] = receive(sqs, url, VisibilityTimeout=1)
    time.sleep(1.1)
    assert counts(sqs, url) == (1, 0, 0)
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=30)
    assert receive(sqs, url) == []
    assert counts(sqs, url) == (0, 1, 0)


@row(
    "sqs.change_visibility.superseded",
    "Standard queue: the handle of an earlier receive still changes the visibility of the message.",
    source=RECORDED,
)
def test_change_visibility_superseded(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    sqs.send_message(QueueUrl=url, MessageBody="a")
    [old] = receive(sqs, url, VisibilityTimeout=0)
    receive(sqs, url, VisibilityTimeout=30)
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=old["ReceiptHandle"], VisibilityTimeout=0)
    assert bodies(receive(sqs, url)) == ["a"]


@row(
    "sqs.change_visibility.deleted",
    "ChangeMessageVisibility on a deleted message is InvalidParameterValue.",
    source=RECORDED,
)
def test_change_visibility_deleted(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    sqs.send_message(QueueUrl=url, MessageBody="a")
    [message] = receive(sqs, url)
    handle = message["ReceiptHandle"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)
    reason = "Message does not exist or is not available for visibility timeout change."
    with refused("InvalidParameterValue", f"Value {handle} for parameter ReceiptHandle is invalid. Reason: {reason}"):
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=5)


@row(
    "sqs.change_visibility.zero",
    "ChangeMessageVisibility to 0 makes the message visible at once and wakes a long poll.",
    source=f"{GUIDE}: visibility timeout",
)
def test_change_visibility_zero(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    sqs.send_message(QueueUrl=url, MessageBody="a")
    [message] = receive(sqs, url)
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    assert bodies(receive(sqs, url)) == ["a"]


@row(
    "sqs.change_visibility.total",
    "Visibility is at most 12 hours from the receive; beyond that the call is refused and nothing changes.",
    source=f"{GUIDE}: visibility timeout; text quoted in public",
)
def test_change_visibility_total(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    sqs.send_message(QueueUrl=url, MessageBody="a")
    [message] = receive(sqs, url)
    handle = message["ReceiptHandle"]
    time.sleep(1.1)
    reason = "Total VisibilityTimeout for the message is beyond the limit [43200 seconds]"
    text = f"Value 43200 for parameter VisibilityTimeout is invalid. Reason: {reason}"
    with refused("InvalidParameterValue", text):
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=43200)
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=43100)
    with refused("InvalidParameterValue"):
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=43201)


@row(
    "sqs.change_visibility.batch",
    "ChangeMessageVisibilityBatch reports each entry: the good one is done, the bad one fails alone.",
    source=f"{API}: ChangeMessageVisibilityBatch",
)
def test_change_visibility_batch(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    for body in "abc":
        sqs.send_message(QueueUrl=url, MessageBody=body)
    first, second, third = receive(sqs, url, 10)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=third["ReceiptHandle"])
    handles = {"a": first["ReceiptHandle"], "b": "garbage", "c": third["ReceiptHandle"]}
    answer = sqs.change_message_visibility_batch(
        QueueUrl=url,
        Entries=[{"Id": name, "ReceiptHandle": handle, "VisibilityTimeout": 0} for name, handle in handles.items()],
    )
    assert [done["Id"] for done in answer["Successful"]] == ["a"]
    failed = {entry["Id"]: (entry["Code"], entry["SenderFault"]) for entry in answer["Failed"]}
    assert failed == {"b": ("ReceiptHandleIsInvalid", True), "c": ("InvalidParameterValue", True)}
    assert bodies(receive(sqs, url, 10)) == ["a"]
    entry = {"Id": "b", "ReceiptHandle": second["ReceiptHandle"], "VisibilityTimeout": 0}
    assert "Failed" not in sqs.change_message_visibility_batch(QueueUrl=url, Entries=[entry])
