"""Reported: patterns that match too much or too little, events that vanish, replays that do the work twice."""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from labkit import Lab
from labkit.control.bus import SOURCE, Bus, PatternError, RetryPolicy
from labkit.control.envelope import Envelope
from labkit.ops import metrics
from labkit.work.functions import Function
from labkit.work.queues import Message, Queue

FAST = {"lab:clock-scale": "200000"}  # EventBridge's waits between retries, a day of them in half a second
WITHIN = 60.0  # seconds


def within(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds; fails when it does not in time."""
    end = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < end, "it did not come to that in time"
        time.sleep(0.05)


def taken(queue: Queue, count: int) -> list[Message]:
    """The queue's messages, deleted, once there are ``count`` of them; fails when there are more."""
    found: list[Message] = []
    end = time.monotonic() + WITHIN
    while len(found) < count and time.monotonic() < end:
        for message in queue.receive(wait=1):
            queue.delete(message)
            found.append(message)
    found += queue.receive()
    assert len(found) == count
    return found


def step(number: int = 7) -> Envelope:
    return Envelope.new(conversation_id="8842", step=number, agent_class="researcher", payload={"n": number})


def event(**detail: Any) -> dict[str, Any]:
    return {
        "version": "0",
        "id": "1",
        "detail-type": "step.done",
        "source": SOURCE,
        "account": "123456789012",
        "time": "2026-01-01T00:00:00Z",
        "region": "us-east-1",
        "resources": [],
        "detail": detail,
    }


def tags(given: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in given.items()]


def deliver(lab: Lab, bus: Bus, pattern: dict[str, Any], *details: dict[str, Any]) -> list[Any]:
    """What a rule with this pattern delivers of events with these details, and of one more that it has to take."""
    queue, mark = Queue.create(lab, "caught"), {"mark": True}
    bus.rule("caught", pattern, queue)
    bus.rule("mark", {"detail": {"mark": [True]}}, queue)
    entries = [
        {"EventBusName": bus.name, "Source": SOURCE, "DetailType": "step.done", "Detail": json.dumps(detail)}
        for detail in (*details, mark)
    ]
    answer = bus.client.put_events(Entries=entries)
    assert answer["FailedEntryCount"] == 0
    found: list[Any] = []
    end = time.monotonic() + WITHIN
    while mark not in found and time.monotonic() < end:
        found += [json.loads(message.body)["detail"] for message in queue.receive(wait=1)]
    found += [json.loads(message.body)["detail"] for message in queue.receive()]
    found.remove(mark)
    return found


def test_p19_an_array_matches_when_any_of_its_elements_does(lab: Lab) -> None:
    """The user expected that a pattern's list must be equal to the event's. It is an intersection.

    Who wants to keep an event out because of an element must say so by another key: anything-but is an intersection
    as well, and one element that passes is enough.
    """
    bus = Bus.create(lab, "fleet")
    both, one, none, empty = ({"type": each} for each in (["1", "2"], ["3", "1"], ["3", "4"], []))
    assert deliver(lab, bus, {"detail": {"type": ["1", "2"]}}, both, one, none, empty) == [both, one]
    but = {"detail": {"type": [{"anything-but": "1"}]}}
    assert [bus.matches(but, event(type=each)) for each in (["3", "1"], ["1"], ["3"], [])] == [True, False, True, False]


def test_p21_anything_but_takes_a_wildcard_as_an_object_and_in_no_list(lab: Lab) -> None:
    """A list of objects was refused, and the user took the operator for broken. It is an object with a list in it."""
    bus, queue = Bus.create(lab, "fleet"), Queue.create(lab, "work")
    for wrong in ([{"wildcard": "*/tmp/*"}], [{"wildcard": "*/tmp/*"}, {"wildcard": "*.log"}]):
        with pytest.raises(PatternError, match="Inside anything but list"):
            bus.rule("files", {"detail": {"path": [{"anything-but": wrong}]}}, queue)
    assert not bus.client.list_rules(EventBusName=bus.name)["Rules"]  # nothing half-made is left
    right = {"detail": {"path": [{"anything-but": {"wildcard": ["*/tmp/*", "*.log"]}}]}}
    kept, tmp, log = ({"path": path} for path in ("a/b.txt", "a/tmp/b.txt", "a/b.log"))
    assert deliver(lab, bus, right, tmp, kept, log) == [kept]


def test_p22_alternatives_do_not_match_what_has_none_of_their_keys(lab: Lab) -> None:
    """A rule with $or took every event of the bus: an emulator read a key that the event lacks as no condition."""
    bus = Bus.create(lab, "fleet")
    pattern = {"detail": {"$or": [{"agent_class": ["coder"]}, {"cost": [{"numeric": [">", 5]}]}], "tenant": ["acme"]}}
    coder, costly = {"tenant": "acme", "agent_class": "coder"}, {"tenant": "acme", "cost": 6}
    others = [
        {},
        {"tenant": "acme"},
        {"tenant": "acme", "agent_class": "writer", "cost": 5},
        {"agent_class": "coder", "cost": 6},
        {"other": "acme"},
    ]
    assert deliver(lab, bus, pattern, *others, coder, costly) == [coder, costly]


def test_p24_a_function_that_fails_is_no_failed_delivery(lab: Lab) -> None:
    """The target's dead-letter queue stays empty when the function throws: its invocation was accepted.

    What failed goes to the function's own destination; the rule's queue is for events that it could not hand over.
    """
    bus = Bus.create(lab, "fleet")
    undelivered, failed = Queue.create(lab, "undelivered"), Queue.create(lab, "failed")
    source = """
        def handler(event, context):
            raise ValueError("the tool call cannot be parsed")
    """
    function = Function.deploy(lab, "step", source=textwrap.dedent(source), timeout=10)
    function.client.put_function_event_invoke_config(
        FunctionName=function.name, MaximumRetryAttempts=0, DestinationConfig={"OnFailure": {"Destination": failed.arn}}
    )
    rule = bus.client.put_rule(
        Name="work", EventBusName=bus.name, EventPattern=json.dumps({"source": [SOURCE]}), Tags=tags(FAST)
    )["RuleArn"]
    undelivered.allow("events.amazonaws.com", rule)
    target = {"Id": "step", "Arn": function.arn, "DeadLetterConfig": {"Arn": undelivered.arn}}
    bus.client.put_targets(Rule="work", EventBusName=bus.name, Targets=[target])

    refused, accepted = step(1), step(2)
    bus.publish([refused])  # the function does not let EventBridge invoke it: this is what the queue is for
    [letter] = taken(undelivered, 1)
    assert letter.attributes["ERROR_CODE"] == "NO_PERMISSIONS"
    assert Envelope.from_event(letter.body).trace_id == refused.trace_id

    function.client.add_permission(
        FunctionName=function.name,
        StatementId="rule",
        Action="lambda:InvokeFunction",
        Principal="events.amazonaws.com",
        SourceArn=rule,
    )
    bus.publish([accepted])
    [record] = [json.loads(message.body) for message in taken(failed, 1)]
    assert Envelope.from_event(json.dumps(record["requestPayload"])).trace_id == accepted.trace_id
    assert record["responsePayload"]["errorType"] == "ValueError"
    assert undelivered.depth().total == 0


def test_p25_a_target_without_a_queue_loses_the_event_and_a_queue_without_a_policy_too(lab: Lab) -> None:
    """The event was retried and then gone, with no trace but a metric; and a queue alone did not help.

    The dead-letter queue needs a policy that lets events.amazonaws.com send for this rule. Then the body is the event
    as it was put, and the attributes say what happened (EventBridge User Guide, "Using dead-letter queues to process
    undelivered events").
    """
    bus, target = Bus.create(lab, "fleet"), Queue.create(lab, "work")
    undelivered = Queue.create(lab, "undelivered")
    target.client.tag_queue(QueueUrl=target.url, Tags={"lab:fault": "THROTTLING"})
    retry = RetryPolicy(attempts=2)
    pattern = {"detail": {"agent_class": ["researcher"]}}

    def counted(name: str) -> float:
        return metrics.sums(lab, "AWS/Events", [name], {"EventBusName": bus.name, "RuleName": "work"})[name]

    bus.rule("work", pattern, target, retry=retry, tags=FAST)  # no queue
    bus.publish([step(1)])
    within(lambda: counted("FailedInvocations") == 1)

    arn = bus.rule("work", pattern, target, retry=retry, dlq=undelivered, tags=FAST)
    policy = undelivered.client.get_queue_attributes(QueueUrl=undelivered.url, AttributeNames=["Policy"])["Attributes"]
    undelivered.client.set_queue_attributes(QueueUrl=undelivered.url, Attributes={"Policy": ""})
    bus.publish([step(2)])
    within(lambda: counted("InvocationsFailedToBeSentToDlq") == 1)
    assert undelivered.depth().total == 0  # it is lost in silence

    [statement] = json.loads(policy["Policy"])["Statement"]
    assert statement["Principal"] == {"Service": "events.amazonaws.com"}
    assert arn in json.dumps(statement["Condition"])
    undelivered.client.set_queue_attributes(QueueUrl=undelivered.url, Attributes=policy)
    third = step(3)
    [identity] = bus.publish([third]).ids
    [letter] = taken(undelivered, 1)
    body = json.loads(letter.body)
    assert (body["id"], body["source"]) == (identity, SOURCE)
    assert Envelope.from_event(letter.body).trace_id == third.trace_id
    assert letter.attributes == {
        "ERROR_CODE": "THROTTLING",
        "ERROR_MESSAGE": letter.attributes["ERROR_MESSAGE"],
        "EXHAUSTED_RETRY_CONDITION": "MaximumRetryAttempts",
        "RETRY_ATTEMPTS": "2",
        "RULE_ARN": arn,
        "TARGET_ARN": target.arn,
    }


def test_p25_each_failed_event_is_one_letter_that_says_what_happened(lab: Lab) -> None:
    """Kinds of failure times retry policies, on one bus and one queue: every event once, with its own rule's words.

    What a retry cannot mend is not retried and exhausts nothing (EventBridge User Guide, "Using dead-letter queues to
    process undelivered events").
    """
    bus, undelivered = Bus.create(lab, "fleet", tags=FAST), Queue.create(lab, "undelivered")
    at_once, retried = ("NO_PERMISSIONS", "NO_RESOURCE"), ("THROTTLING", "TIMEOUT", "INTERNAL_ERROR")
    expected: dict[str, dict[str, str]] = {}  # by trace id
    sent: list[Envelope] = []
    for code in (*at_once, *retried):
        target = Queue.create(lab, code.lower())
        target.client.tag_queue(QueueUrl=target.url, Tags={"lab:fault": code})
        for attempts in (0, 1, 5):
            name = f"{code.lower().replace('_', '-')}-{attempts}"
            retry = RetryPolicy(attempts=attempts, age=86_400)
            arn = bus.rule(name, {"detail": {"agent_class": [name]}}, target, retry=retry, dlq=undelivered, tags=FAST)
            limit = {} if code in at_once else {"EXHAUSTED_RETRY_CONDITION": "MaximumRetryAttempts"}
            for number in range(3):
                made = Envelope.new(conversation_id=name, step=number, agent_class=name, payload={"n": number})
                sent.append(made)
                expected[made.trace_id] = {
                    "ERROR_CODE": code,
                    "RETRY_ATTEMPTS": "0" if code in at_once else str(attempts),
                    "RULE_ARN": arn,
                    "TARGET_ARN": target.arn,
                    **limit,
                }
    ids = dict(zip((each.trace_id for each in sent), bus.publish(sent).ids, strict=True))
    found = {}
    for letter in taken(undelivered, len(sent)):
        trace = Envelope.from_event(letter.body).trace_id
        assert json.loads(letter.body)["id"] == ids[trace]
        assert letter.attributes["ERROR_MESSAGE"]
        found[trace] = {name: value for name, value in letter.attributes.items() if name != "ERROR_MESSAGE"}
    assert found == expected


def replay(bus: Bus, archive: str, name: str, rules: list[str] | None = None) -> None:
    now = datetime.now(UTC)
    bus.client.start_replay(
        ReplayName=name,
        EventSourceArn=archive,
        EventStartTime=now - timedelta(hours=1),
        EventEndTime=now + timedelta(hours=1),
        Destination={"Arn": bus.arn, **({"FilterArns": rules} if rules else {})},
    )
    within(lambda: bus.client.describe_replay(ReplayName=name)["State"] == "COMPLETED")


def test_p54_a_replay_names_itself_is_not_archived_and_reaches_the_chosen_rules(lab: Lab) -> None:
    """Replayed events come to every rule again, as the same events: a consumer that does not know them does all twice.

    They carry replay-name and are not archived a second time, or each replay would double the next one. A rule that
    must not see them asks for replay-name to be absent; a replay that is for one rule names it. The stand-in keeps the
    event's id, by which the report tells consumers to know it again; AWS documents neither. A step's trace id is safe.
    """
    bus = Bus.create(lab, "fleet")
    work, live, audit = (Queue.create(lab, name) for name in ("work", "live", "audit"))
    pattern = {"source": [SOURCE]}
    chosen = bus.rule("work", pattern, work)
    bus.rule("live", {**pattern, "replay-name": [{"exists": False}]}, live)
    bus.rule("audit", pattern, audit)
    archive = lab.resource_name("archive")
    made = bus.client.create_archive(ArchiveName=archive, EventSourceArn=bus.arn)["ArchiveArn"]
    try:
        done: dict[str, str] = {}  # what a consumer has done, by the event's id
        steps = {each.trace_id: each for each in (step(1), step(2), step(3))}

        def consume(queue: Queue, replayed: str | None) -> list[str]:
            """The trace ids of what the consumer does now, that is, of the events that it did not know."""
            new = []
            for message in taken(queue, 3):
                found = json.loads(message.body)
                assert found.get("replay-name") == replayed
                if found["id"] not in done:
                    done[found["id"]] = Envelope.from_event(message.body).trace_id
                    new.append(done[found["id"]])
            return sorted(new)

        bus.publish(steps.values())
        within(lambda: bus.client.describe_archive(ArchiveName=archive)["EventCount"] == 3)
        assert consume(work, None) == sorted(steps)
        taken(live, 3)
        taken(audit, 3)

        replay(bus, made, lab.resource_name("again"))
        assert consume(work, lab.resource_name("again")) == []
        taken(audit, 3)
        replay(bus, made, lab.resource_name("once-more"), [chosen])
        assert consume(work, lab.resource_name("once-more")) == []  # three, not six: the first replay is not archived
        assert bus.client.describe_archive(ArchiveName=archive)["EventCount"] == 3
        assert live.depth().total == audit.depth().total == 0
        assert sorted(done.values()) == sorted(steps)
    finally:
        bus.client.delete_archive(ArchiveName=archive)
