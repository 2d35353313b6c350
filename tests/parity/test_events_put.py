"""PutEvents: what is refused, what is counted, what arrives."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from botocore.exceptions import ClientError

from .conftest import Aws
from .events_kit import DETAIL_TYPE, GUIDE, MODEL, RECORDED, REPORTED, SOURCE, Events
from .raw import Wire
from .rows import ours, row

ENTRY = {"Source": SOURCE, "DetailType": DETAIL_TYPE, "Detail": "{}"}


@pytest.fixture
def events(aws: Aws) -> Events:
    return Events(aws)


def refused(events: Events, entries: list[dict]) -> dict:
    with pytest.raises(ClientError) as raised:
        events.unchecked().put_events(Entries=entries)
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    return raised.value.response["Error"]


@row("events.put.malformed_detail", "A Detail that is not a JSON object fails its entry alone", source=RECORDED)
@pytest.mark.parametrize("detail", ["NotJSON", "[]", "{{}", '"NotJSON"', "12", '{"a": NaN}'])
def test_malformed_detail(events: Events, detail: str) -> None:
    answer = events.api.put_events(Entries=[ENTRY | {"Detail": detail}])
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert answer["FailedEntryCount"] == 1
    assert answer["Entries"] == [{"ErrorCode": "MalformedDetail", "ErrorMessage": "Detail is malformed."}]


@ours("AWS's answer is not known: a number beyond a double, half of a surrogate pair")
@pytest.mark.parametrize("detail", ['{"a": 1e999}', '{"a": [-1e999]}', '{"a": Infinity}', r'{"a": "\ud800"}'])
def test_detail_that_cannot_be_passed_on(events: Events, detail: str) -> None:
    answer = events.api.put_events(Entries=[ENTRY | {"Detail": detail}, ENTRY | {"Detail": r'{"a": "\ud83d\ude00"}'}])
    assert [entry.get("ErrorCode") for entry in answer["Entries"]] == ["MalformedDetail", None]


@ours("AWS's answer is not known; here one entry fails, and the others are delivered")
@pytest.mark.parametrize("member", ["Source", "DetailType", "Detail", "EventBusName", "TraceHeader", "Resources"])
def test_half_of_a_surrogate_pair(events: Events, member: str) -> None:
    broken = ["\ud800"] if member == "Resources" else '{"a": "\ud800"}' if member == "Detail" else "\ud800"
    entries = [ENTRY, ENTRY | {"EventBusName": "default", member: broken}]
    with Wire(events.aws) as wire:
        status, answer = wire.json("AWSEvents.PutEvents", {"Entries": entries}, service="events")
        assert status == 200
        codes = [entry.get("ErrorCode") for entry in answer["Entries"]]
        assert codes == [None, "MalformedDetail" if member == "Detail" else "InvalidArgument"]
        status, answer = wire.json("AWSEvents.PutEvents", {"Entries": entries * 6}, service="events")
        assert (status, answer["__type"]) == (400, "ValidationException")


@ours("AWS refuses a member of the wrong type; the text is not known")
@pytest.mark.parametrize(
    "entries",
    [
        "x",
        1,
        {"Source": "a"},
        [1],
        [None],
        [[]],
        *(
            [ENTRY | {name: value}]
            for name, value in (
                ("Source", 1),
                ("DetailType", []),
                ("Detail", 1),
                ("Detail", [1]),
                ("EventBusName", {}),
                ("TraceHeader", 1),
                ("Resources", "x"),
                ("Resources", [1]),
                ("Time", []),
                ("Time", True),
                ("Time", "soon"),
                ("Time", 1e300),
            )
        ),
    ],
    ids=str,
)
def test_members_of_the_wrong_type(events: Events, entries: object) -> None:
    with Wire(events.aws) as wire:
        status, answer = wire.json("AWSEvents.PutEvents", {"Entries": entries}, service="events")
    assert (status, answer["__type"]) == (400, "SerializationException")


@ours("AWS refuses what is no JSON; the text is not known")
@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b"\xff", b"[" * 100_000], ids=lambda body: repr(body[:5]))
def test_a_request_that_is_no_json_object(events: Events, body: bytes) -> None:
    with Wire(events.aws) as wire:
        status, answer = wire.json("AWSEvents.PutEvents", body, service="events")
    assert (status, answer["__type"]) == (400, "SerializationException")


@row("events.put.missing_member", "An entry without Source, DetailType or Detail fails alone", source=RECORDED)
@pytest.mark.parametrize("missing", ["Source", "DetailType", "Detail"])
def test_missing_member(events: Events, missing: str) -> None:
    answer = events.api.put_events(Entries=[{key: value for key, value in ENTRY.items() if key != missing}])
    assert answer["Entries"] == [
        {
            "ErrorCode": "InvalidArgument",
            "ErrorMessage": f"Parameter {missing} is not valid. Reason: {missing} is a required argument.",
        }
    ]
    assert answer["FailedEntryCount"] == 1


@row("events.put.order", "The answer's entries keep the request's order; good entries pass", source=MODEL)
def test_order_of_entries(events: Events) -> None:
    queue = events.queue("q")
    events.target(events.rule(), queue.arn)
    bad, good = ENTRY | {"Detail": "no"}, ENTRY
    answer = events.api.put_events(Entries=[bad, good, bad, good | {"Source": ""}, good])
    assert answer["FailedEntryCount"] == 3
    assert [entry.get("ErrorCode") for entry in answer["Entries"]] == [
        "MalformedDetail",
        None,
        "MalformedDetail",
        "InvalidArgument",
        None,
    ]
    ids = {entry["EventId"] for entry in answer["Entries"] if "EventId" in entry}
    assert {event["id"] for event in events.events(queue, 2)} == ids


@row("events.put.size", "A request of 1 MB or more is refused whole; the limit is on its sum", source=GUIDE)
def test_size_of_request(events: Events) -> None:
    queue = events.queue("q")
    events.target(events.rule(), queue.arn, InputPath="$.detail.n")
    overhead = len(SOURCE + DETAIL_TYPE + '{"n": 1, "x": ""}')
    fits = ENTRY | {"Detail": json.dumps({"n": 1, "x": "x" * (1024 * 1024 - 1 - overhead)})}
    assert events.api.put_events(Entries=[fits])["FailedEntryCount"] == 0
    assert [message["Body"] for message in events.messages(queue)] == ["1"]

    message = "Total size of the entries in the request is over the limit."
    assert refused(events, [fits, ENTRY]) == {"Code": "ValidationException", "Message": message}
    with_time = fits | {"Time": datetime(2026, 1, 1, tzinfo=UTC)}  # 14 bytes more
    assert refused(events, [with_time])["Message"] == message
    with_resource = fits | {"Resources": ["x"]}
    assert refused(events, [with_resource])["Message"] == message
    events.nothing_in(queue, within=0.1)


@row("events.put.size_utf8", "The size counts UTF-8 bytes, not characters", source=GUIDE)
def test_size_counts_bytes(events: Events) -> None:
    entry = ENTRY | {"Detail": json.dumps({"x": "é" * 550_000}, ensure_ascii=False)}
    assert refused(events, [entry])["Code"] == "ValidationException"


@row("events.put.too_many", "More than 10 entries, or none, are refused whole", source=RECORDED)
def test_number_of_entries(events: Events) -> None:
    error = refused(events, [ENTRY] * 11)
    one = (
        f"PutEventsRequestEntry(time=null, source={SOURCE}, resources=null, detailType={DETAIL_TYPE}, detail={{}}, "
        "eventBusName=null, traceHeader=null, kmsKeyIdentifier=null, internalMetadata=null)"
    )
    assert error == {
        "Code": "ValidationException",
        "Message": f"1 validation error detected: Value '[{', '.join([one] * 11)}]' at 'entries' failed to satisfy "
        "constraint: Member must have length less than or equal to 10",
    }
    assert refused(events, [])["Code"] == "ValidationException"
    assert events.api.put_events(Entries=[ENTRY] * 10)["FailedEntryCount"] == 0


@row("events.put.time", "Time is what the target sees, in whole seconds", source=RECORDED)
def test_time(events: Events) -> None:
    queue = events.queue("q")
    events.target(events.rule(), queue.arn)
    events.put(Time=datetime(2022, 1, 1, 0, 0, 0, 900_000, tzinfo=UTC))
    assert events.events(queue)[0]["time"] == "2022-01-01T00:00:00Z"


@row("events.put.time_pattern", "A pattern sees the event's Time as text", source=GUIDE)
def test_time_in_a_pattern(events: Events) -> None:
    queue = events.queue("q")
    events.target(events.rule(pattern={"time": [{"prefix": "2022-01-01"}]}), queue.arn)
    events.put(Time=datetime(2022, 1, 1, tzinfo=UTC))
    events.put()
    assert events.events(queue, settle=0.2)[0]["time"] == "2022-01-01T00:00:00Z"


@row("events.put.trace_header", "TraceHeader is accepted and does not show in the event", source=MODEL)
def test_trace_header(events: Events) -> None:
    queue = events.queue("q")
    events.target(events.rule(), queue.arn)
    events.put(TraceHeader="Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1")
    assert "TraceHeader" not in json.dumps(events.events(queue)[0])


@row("events.put.aws_source", "A source that begins with aws. belongs to AWS", source=REPORTED)
def test_source_of_aws(events: Events) -> None:
    answer = events.api.put_events(Entries=[ENTRY | {"Source": "aws.lab"}])
    assert answer["FailedEntryCount"] == 1
    assert answer["Entries"][0]["ErrorCode"] == "NotAuthorizedForSourceException"


@row("events.put.no_such_bus", "A bus that does not exist is no error: the event is gone", source=RECORDED)
def test_bus_that_does_not_exist(events: Events) -> None:
    queue = events.queue("q")
    events.target(events.rule(), queue.arn)
    assert events.put(bus="nowhere")
    events.nothing_in(queue)


@row("events.put.bus_arn", "A bus may be named by its ARN", source=MODEL)
def test_bus_by_arn(events: Events) -> None:
    queue = events.queue("q")
    events.target(events.rule(bus="fleet"), queue.arn)
    identity = events.put(bus=events.aws.arn("events", "event-bus/fleet"))
    assert events.events(queue)[0]["id"] == identity


@row("events.put.detail_type_length", "DetailType has at most 128 characters (error text not verified)", source=MODEL)
def test_length_of_detail_type(events: Events) -> None:
    entries = [ENTRY | {"DetailType": "x" * 128}, ENTRY | {"DetailType": "x" * 129}]
    answer = events.api.put_events(Entries=entries)
    assert [entry.get("ErrorCode") for entry in answer["Entries"]] == [None, "InvalidArgument"]


@row("events.put.delivery_failure", "A delivery that fails does not show in the answer", source=RECORDED)
def test_delivery_failure_does_not_show(events: Events) -> None:
    events.target(events.rule(), events.aws.arn("sqs", "gone"))
    assert events.put()
