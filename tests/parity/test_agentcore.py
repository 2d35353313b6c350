"""Bedrock AgentCore: memories, what is said in them, what is known in them, and the call of a runtime."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from .agentcore_kit import (
    AT,
    CAPTURED,
    CONTROL,
    GUIDE,
    INVALID,
    MISSING,
    MODEL,
    SDK,
    WHO,
    known,
    memory,
    refused,
    remember,
    say,
    texts,
    turn,
)
from .conftest import Aws
from .raw import Wire
from .rows import ours, row

SEMANTIC = {"semanticMemoryStrategy": {"name": "facts", "namespaceTemplates": ["/facts/{actorId}/"]}}


# -- memories ----------------------------------------------------------------------------------------------------------


@row(
    "agentcore.memory.create",
    "A memory is CREATING and then ACTIVE; its id is the name with ten characters more, and so is a strategy's",
    source=CONTROL,
)
def test_a_memory_becomes_active(aws: Aws) -> None:
    control = aws.client("bedrock-agentcore-control")
    strategies = [SEMANTIC, {"summaryMemoryStrategy": {"name": "short"}}]
    made = control.create_memory(name="support", eventExpiryDuration=30, memoryStrategies=strategies)["memory"]
    assert (made["status"], made["name"], made["eventExpiryDuration"]) == ("CREATING", "support", 30)
    assert re.fullmatch(r"support-[a-zA-Z0-9]{10}", made["id"])
    end = time.monotonic() + 300
    while (found := control.get_memory(memoryId=made["id"])["memory"])["status"] == "CREATING":
        assert time.monotonic() < end
        time.sleep(1.0)
    assert found["status"] == "ACTIVE"
    assert [strategy["type"] for strategy in found["strategies"]] == ["SEMANTIC", "SUMMARIZATION"]
    assert re.fullmatch(r"facts-[a-zA-Z0-9]{10}", found["strategies"][0]["strategyId"])
    assert found["strategies"][0]["namespaceTemplates"] == ["/facts/{actorId}/"]
    assert made["id"] in [each["id"] for each in control.list_memories()["memories"]]


@row(
    "agentcore.memory.same_name",
    "A second memory of one name is a ValidationException that says that it already exists",
    source=f"{CONTROL}: the name is unique; {SDK}, create_or_get_memory",
)
def test_a_name_is_taken_once(aws: Aws) -> None:
    control = aws.client("bedrock-agentcore-control")
    control.create_memory(name="support", eventExpiryDuration=30)
    with pytest.raises(control.exceptions.ValidationException, match="already exists"):
        control.create_memory(name="support", eventExpiryDuration=30)


@row(
    "agentcore.memory.client_token",
    "CreateMemory with a token that was used before makes nothing and is no error",
    source=f"{CONTROL}: CreateMemory, clientToken",
)
def test_a_memory_is_made_once(aws: Aws) -> None:
    control = aws.client("bedrock-agentcore-control")
    same = {"name": "support", "eventExpiryDuration": 30, "clientToken": "f" * 33}
    first, again = (control.create_memory(**same)["memory"]["id"] for _ in range(2))
    assert first == again
    assert len(control.list_memories()["memories"]) == 1


@row(
    "agentcore.memory.validation",
    "A memory's name, days and namespaces have the bounds of the model; anything else is a ValidationException",
    source=f"{CONTROL}; AWS's answer quoted in aws/bedrock-agentcore-sdk-python#18",
)
@pytest.mark.parametrize(
    "given",
    [
        {"name": "my-memory"},
        {"name": "m" * 49},
        {"eventExpiryDuration": 3651},
        {"memoryStrategies": [{"semanticMemoryStrategy": {"name": "two words"}}]},
        {"memoryStrategies": [{"semanticMemoryStrategy": {"name": "f", "namespaceTemplates": ["/a/", "/b/"]}}]},
        {"memoryStrategies": [{"semanticMemoryStrategy": {"name": "f", "namespaceTemplates": ["\n/{actorId}/\n"]}}]},
        {"memoryStrategies": [{"semanticMemoryStrategy": {"name": "f", "namespaceTemplates": ["/{actor-id}/"]}}]},
    ],
)
def test_a_memory_has_bounds(aws: Aws, given: dict[str, Any]) -> None:
    create = aws.client("bedrock-agentcore-control").create_memory
    assert refused(create, **{"name": "support", "eventExpiryDuration": 30, **given}) == INVALID


@row(
    "agentcore.memory.unknown",
    "A memory that is not there is a ResourceNotFoundException; an id that cannot be one a ValidationException",
    source=f"{MODEL}; {CAPTURED}",
)
@pytest.mark.parametrize(("name", "code"), [("absent-AAAAAAAAAA", MISSING), ("nope-12345678", INVALID)])
def test_a_memory_that_is_not_there(aws: Aws, name: str, code: str) -> None:
    data, control = aws.client("bedrock-agentcore"), aws.client("bedrock-agentcore-control")
    assert refused(control.get_memory, memoryId=name) == code
    assert refused(control.delete_memory, memoryId=name) == code
    assert refused(data.list_events, memoryId=name, **WHO) == code
    assert refused(data.create_event, memoryId=name, **WHO, eventTimestamp=AT, payload=turn("x")) == code
    assert refused(data.list_memory_records, memoryId=name, namespace="/a/") == code
    criteria = {"searchQuery": "tea"}
    assert refused(data.retrieve_memory_records, memoryId=name, namespace="/a/", searchCriteria=criteria) == code


@row("agentcore.memory.delete", "What was in a memory is gone with it", source=f"{CONTROL}: DeleteMemory")
def test_a_memory_takes_its_events_along(aws: Aws) -> None:
    control, made = aws.client("bedrock-agentcore-control"), memory(aws)
    say(aws, made, "hello")
    assert control.delete_memory(memoryId=made)["status"] == "DELETING"
    end = time.monotonic() + 300
    while made in [each["id"] for each in control.list_memories()["memories"]] and time.monotonic() < end:
        time.sleep(1.0)
    assert refused(control.get_memory, memoryId=made) == MISSING
    assert refused(aws.client("bedrock-agentcore").list_events, memoryId=made, **WHO) == MISSING


@ours(
    "CreateMemory takes tags, but the model does not name memories among what ListTagsForResource knows: not verified"
)
def test_a_memory_has_tags(aws: Aws) -> None:
    control, made = aws.client("bedrock-agentcore-control"), memory(aws, tags={"lab": "one", "cost": "none"})
    arn = {"resourceArn": control.get_memory(memoryId=made)["memory"]["arn"]}
    assert control.list_tags_for_resource(**arn)["tags"] == {"lab": "one", "cost": "none"}
    control.tag_resource(**arn, tags={"lab": "two", "owner": "ann"})
    control.untag_resource(**arn, tagKeys=["cost", "owner"])
    assert control.list_tags_for_resource(**arn)["tags"] == {"lab": "two"}
    control.delete_memory(memoryId=made)
    assert refused(control.list_tags_for_resource, **arn) == MISSING


# -- events ------------------------------------------------------------------------------------------------------------


@row(
    "agentcore.event.newest_first",
    "Events are listed by their eventTimestamp, the newest first, from page to page",
    source=f"{CAPTURED}; {SDK}#571",
)
def test_events_come_the_newest_first(aws: Aws) -> None:
    made = memory(aws)
    for number in (0, 1, 2, 4, 3):
        say(aws, made, str(number), AT + number)
    pages = aws.client("bedrock-agentcore").get_paginator("list_events")
    found = [*pages.paginate(memoryId=made, **WHO, PaginationConfig={"PageSize": 2})]
    assert [texts(page["events"]) for page in found] == [["4", "3"], ["2", "1"], ["0"]]


@row(
    "agentcore.event.id",
    "An event's id begins with its time in milliseconds, of 19 digits: ids are in the order of the times",
    source=f"{CAPTURED}; {SDK}#571",
)
def test_an_id_begins_with_the_time(aws: Aws) -> None:
    made = memory(aws)
    assert re.fullmatch(r"0000001789300800000#[0-9a-f]+", say(aws, made, "a")["eventId"])
    assert re.fullmatch(r"0000001789300800250#[0-9a-f]+", say(aws, made, "b", AT + 0.25)["eventId"])


@ours("AWS's ids end in random digits: which of two events of one millisecond is listed first says nothing")
def test_events_of_one_millisecond_have_no_order(aws: Aws) -> None:
    made = memory(aws)
    said = [say(aws, made, str(number))["eventId"] for number in range(40)]
    assert len({*said}) == 40
    assert said != sorted(said)
    events = aws.client("bedrock-agentcore").list_events(memoryId=made, **WHO, maxResults=100)["events"]
    assert [event["eventId"] for event in events] == sorted(said, reverse=True)


@row(
    "agentcore.event.main_branch",
    "An event that names no branch is on the branch main",
    source=CAPTURED,
)
def test_events_are_on_the_main_branch(aws: Aws) -> None:
    made = memory(aws)
    first = say(aws, made, "1")
    say(aws, made, "2", AT + 1, branch={"name": "retry", "rootEventId": first["eventId"]})
    assert first["branch"] == {"name": "main"}
    data = aws.client("bedrock-agentcore")
    listed = data.list_events(memoryId=made, **WHO)["events"]
    assert [event["branch"]["name"] for event in listed] == ["retry", "main"]
    branch = {"branch": {"name": "retry"}}
    assert texts(data.list_events(memoryId=made, **WHO, filter=branch)["events"]) == ["2"]


@row(
    "agentcore.event.apart",
    "Events belong to one actor and one session; of another one there are none, and no error",
    source=CAPTURED,
)
def test_events_of_others_are_not_seen(aws: Aws) -> None:
    made, data = memory(aws), aws.client("bedrock-agentcore")
    event = say(aws, made, "ann's")
    assert texts(data.list_events(memoryId=made, **WHO)["events"]) == ["ann's"]
    for other in ({**WHO, "actorId": "bob"}, {**WHO, "sessionId": "another"}):
        assert data.list_events(memoryId=made, **other)["events"] == []
        assert refused(data.get_event, memoryId=made, **other, eventId=event["eventId"]) == MISSING


@row(
    "agentcore.event.delete",
    "DeleteEvent names the id; after that the event is in no list, and GetEvent is a ResourceNotFoundException",
    source=CAPTURED,
)
def test_an_event_is_deleted(aws: Aws) -> None:
    made, data = memory(aws), aws.client("bedrock-agentcore")
    one, two = say(aws, made, "1"), say(aws, made, "2", AT + 1)
    where = {"memoryId": made, **WHO}
    assert texts([data.get_event(**where, eventId=one["eventId"])["event"]]) == ["1"]
    assert data.delete_event(**where, eventId=one["eventId"])["eventId"] == one["eventId"]
    assert refused(data.get_event, **where, eventId=one["eventId"]) == MISSING
    assert refused(data.delete_event, **where, eventId=one["eventId"]) == MISSING
    assert [event["eventId"] for event in data.list_events(**where)["events"]] == [two["eventId"]]


@row(
    "agentcore.event.client_token",
    "CreateEvent with a token that was used before stores nothing and is no error",
    source=f"{MODEL}: CreateEvent, clientToken",
)
def test_an_event_is_stored_once(aws: Aws) -> None:
    made, token = memory(aws), "t" * 33
    for _ in range(3):
        say(aws, made, "once", clientToken=token)
    assert texts(aws.client("bedrock-agentcore").list_events(memoryId=made, **WHO)["events"]) == ["once"]


@row(
    "agentcore.event.without_session",
    "Without a sessionId an event gets one; without any payload it is taken too",
    source=CAPTURED,
)
def test_an_event_gets_a_session(aws: Aws) -> None:
    made, data = memory(aws), aws.client("bedrock-agentcore")
    event = data.create_event(memoryId=made, actorId="ann", eventTimestamp=AT, payload=[])["event"]
    assert event["payload"] == []
    session = {"actorId": "ann", "sessionId": event["sessionId"]}
    assert [each["eventId"] for each in data.list_events(memoryId=made, **session)["events"]] == [event["eventId"]]


@row(
    "agentcore.event.bounds",
    "An actorId has 255, a sessionId 100 letters, digits, - and _ (the actor's slashes and colons too) at the most",
    source=f"{MODEL}: ActorId, SessionId",
)
@pytest.mark.parametrize(
    "who",
    [
        {"sessionId": "s" * 101},
        {"sessionId": "acme:8842"},
        {"sessionId": "-8842"},
        {"actorId": "a" * 256},
        {"actorId": "ann@example"},
    ],
)
def test_ids_have_bounds(aws: Aws, who: dict[str, str]) -> None:
    made, data = memory(aws), aws.client("bedrock-agentcore")
    where = {"memoryId": made, **WHO, **who}
    assert refused(data.create_event, **where, eventTimestamp=AT, payload=turn("x")) == INVALID
    assert refused(data.list_events, **where) == INVALID
    longest = {"memoryId": made, "actorId": "a" * 255, "sessionId": "s" * 100}
    data.create_event(**longest, eventTimestamp=AT, payload=turn("x"))
    assert texts(data.list_events(**longest)["events"]) == ["x"]


@row(
    "agentcore.event.payload_bounds",
    "An event has at most 100 parts, 15 metadata of 256 characters, one of four roles, and branches of words",
    source=f"{MODEL}: CreateEventInput",
)
@pytest.mark.parametrize(
    "given",
    [
        {"payload": turn("x") * 101},
        {"payload": turn("x", "SYSTEM")},
        {"branch": {"name": "a branch"}},
        {"branch": {"name": "retry", "rootEventId": "first"}},
        {"metadata": {str(number): {"stringValue": "x"} for number in range(16)}},
        {"metadata": {"key": {"stringValue": "x" * 257}}},
    ],
)
def test_an_event_has_bounds(aws: Aws, given: dict[str, Any]) -> None:
    event = {"memoryId": memory(aws), **WHO, "eventTimestamp": AT, "payload": turn("x"), **given}
    assert refused(aws.client("bedrock-agentcore").create_event, **event) == INVALID


@row(
    "agentcore.event.page_bounds",
    "A page has at most 100 events, 20 unless asked, and without payloads if that is asked for",
    source=f"{MODEL}: MaxResults; {CAPTURED}",
)
def test_a_page_has_bounds(aws: Aws) -> None:
    made, data = memory(aws), aws.client("bedrock-agentcore")
    for number in range(22):
        say(aws, made, str(number), AT + number)
    page = data.list_events(memoryId=made, **WHO)
    assert (len(page["events"]), "nextToken" in page) == (20, True)
    bare = data.list_events(memoryId=made, **WHO, includePayloads=False)["events"]
    assert {"payload" in event for event in bare} == {False}
    assert refused(data.list_events, memoryId=made, **WHO, maxResults=101) == INVALID


# -- records -----------------------------------------------------------------------------------------------------------


RECORDS = (
    ("/actors/ann/", "ann's tea"),
    ("/actors/ann/sessions/1/", "ann's tea in session 1"),
    ("/actors/anna/", "anna's tea"),
)


@row(
    "agentcore.record.namespace",
    "A namespace is compared exactly: what lies below it is not listed",
    source=f"{MODEL}: ListMemoryRecords, namespace",
)
def test_a_namespace_is_exact(aws: Aws) -> None:
    made = memory(aws)
    remember(aws, made, *RECORDS)
    assert known(aws, made, 1, namespace="/actors/ann/") == ["ann's tea"]
    assert known(aws, made, 0, namespace="/actors/") == []


@row(
    "agentcore.record.namespace_path",
    "A namespacePath has what lies at it and below it, and nothing of its neighbours",
    source=f"{MODEL}: ListMemoryRecords, namespacePath; {GUIDE}: Memory organization",
)
def test_a_path_has_what_is_below(aws: Aws) -> None:
    made = memory(aws)
    remember(aws, made, *RECORDS)
    assert known(aws, made, 2, namespacePath="/actors/ann/") == ["ann's tea", "ann's tea in session 1"]
    assert known(aws, made, 3, namespacePath="/actors/") == sorted(text for _, text in RECORDS)


@row(
    "agentcore.record.retrieve",
    "A search stays in its namespace or below its namespacePath, and has at most topK records",
    source=f"{MODEL}: RetrieveMemoryRecords",
)
def test_a_search_stays_in_its_namespace(aws: Aws) -> None:
    made, data = memory(aws), aws.client("bedrock-agentcore")
    remember(aws, made, *RECORDS)
    known(aws, made, 3, namespacePath="/actors/")

    def found(top: int, **where: str) -> list[str]:
        criteria = {"searchQuery": "tea", "topK": top}
        answer = data.retrieve_memory_records(memoryId=made, **where, searchCriteria=criteria)
        return sorted(record["content"]["text"] for record in answer["memoryRecordSummaries"])

    assert found(10, namespace="/actors/ann/") == ["ann's tea"]
    assert found(10, namespacePath="/actors/ann/") == ["ann's tea", "ann's tea in session 1"]
    assert len(found(1, namespacePath="/actors/")) == 1


@row(
    "agentcore.record.somewhere",
    "Records are listed and searched somewhere: without namespace and namespacePath it is a ValidationException",
    source=f"{MODEL}: either namespace or namespacePath is required",
)
def test_a_namespace_is_needed(aws: Aws) -> None:
    made, data = memory(aws), aws.client("bedrock-agentcore")
    assert refused(data.list_memory_records, memoryId=made) == INVALID
    assert refused(data.retrieve_memory_records, memoryId=made, searchCriteria={"searchQuery": "tea"}) == INVALID


@row(
    "agentcore.record.client_token",
    "A batch with a token that was used before stores nothing again",
    source=f"{MODEL}: BatchCreateMemoryRecords, clientToken",
)
def test_a_batch_is_stored_once(aws: Aws) -> None:
    made, token = memory(aws), "b" * 33
    first, again = (remember(aws, made, RECORDS[0], clientToken=token) for _ in range(2))
    assert [record["status"] for record in first["successfulRecords"]] == ["SUCCEEDED"]
    assert first["successfulRecords"] == again["successfulRecords"]
    assert known(aws, made, 1, namespace="/actors/ann/") == ["ann's tea"]


@row(
    "agentcore.record.bounds",
    "A batch has at most 100 records, a search at most 100 results",
    source=f"{MODEL}: MemoryRecordsCreateInputList, SearchCriteria",
)
def test_batches_and_searches_have_bounds(aws: Aws) -> None:
    made, data = memory(aws), aws.client("bedrock-agentcore")
    entry = {"requestIdentifier": "1", "namespaces": ["/a/"], "content": {"text": "x"}, "timestamp": AT}
    assert refused(data.batch_create_memory_records, memoryId=made, records=[entry] * 101) == INVALID
    criteria = {"searchQuery": "tea", "topK": 101}
    assert refused(data.retrieve_memory_records, memoryId=made, namespace="/a/", searchCriteria=criteria) == INVALID
    assert refused(data.list_memory_records, memoryId=made, namespace="/a/", maxResults=101) == INVALID


@row(
    "agentcore.record.times",
    "A record keeps the timestamp that it came with, beside the time at which it was written",
    source=f"{MODEL}: MemoryRecord, createdAt and timestamp",
)
def test_a_record_has_two_times(aws: Aws) -> None:
    made, data = memory(aws), aws.client("bedrock-agentcore")
    began = time.time()
    name = remember(aws, made, RECORDS[0])["successfulRecords"][0]["memoryRecordId"]
    known(aws, made, 1, namespace="/actors/ann/")
    found = data.get_memory_record(memoryId=made, memoryRecordId=name)["memoryRecord"]
    assert found["timestamp"].timestamp() == AT
    assert began - 60 <= found["createdAt"].timestamp() <= time.time() + 60
    assert (found["content"], found["namespaces"]) == ({"text": "ann's tea"}, ["/actors/ann/"])


@row(
    "agentcore.record.delete",
    "A record that was deleted is in no list, and GetMemoryRecord is a ResourceNotFoundException",
    source=f"{MODEL}: DeleteMemoryRecord",
)
def test_a_record_is_deleted(aws: Aws) -> None:
    made, data = memory(aws), aws.client("bedrock-agentcore")
    stored = remember(aws, made, RECORDS[0], (RECORDS[0][0], "the other"))["successfulRecords"]
    known(aws, made, 2, namespace="/actors/ann/")
    which = {"memoryId": made, "memoryRecordId": stored[0]["memoryRecordId"]}
    assert data.delete_memory_record(**which)["memoryRecordId"] == which["memoryRecordId"]
    assert known(aws, made, 1, namespace="/actors/ann/") == ["the other"]
    assert refused(data.get_memory_record, **which) == MISSING


# -- runtimes ----------------------------------------------------------------------------------------------------------


@row(
    "agentcore.runtime.unknown",
    "The call of a runtime that is not there is a ResourceNotFoundException",
    source=f"{MODEL}: InvokeAgentRuntime",
)
def test_a_runtime_that_is_not_there(aws: Aws) -> None:
    call = aws.client("bedrock-agentcore").invoke_agent_runtime
    arn = aws.arn("bedrock-agentcore", "runtime/dossier-0123456789")
    assert refused(call, agentRuntimeArn=arn, payload=b"{}") == MISSING


@row(
    "agentcore.runtime.session_id",
    "A runtimeSessionId has 33 to 256 characters; anything else is a ValidationException",
    source=f"{MODEL}: SessionType",
)
@pytest.mark.parametrize("length", [4, 32, 257])
def test_a_runtime_session_id_has_bounds(aws: Aws, length: int) -> None:
    arn = aws.arn("bedrock-agentcore", "runtime/dossier-0123456789")
    beside = Aws(aws.client("bedrock-agentcore").meta.endpoint_url, aws.account)
    with Wire(beside) as wire:  # the SDK does not send what is too short
        headers = {"X-Amzn-Bedrock-AgentCore-Runtime-Session-Id": "s" * length, "Content-Type": "application/json"}
        path = f"/runtimes/{arn.replace(':', '%3A').replace('/', '%2F')}/invocations"
        status, told, _ = wire.send(b"{}", headers, path=path, service="bedrock-agentcore")
    assert (status, told.get("x-amzn-errortype", "").split(":")[0]) == (400, INVALID)
