"""FleetWatch: what it shows is measured and fresh; what does not answer is missing, and said to be."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError
from botocore.session import get_session

from labkit import Lab
from labkit.control.bus import Bus
from labkit.ops.readings import GAUGES, RULES
from labkit.ops.scrape import MetricsError
from labkit.ops.watch import FleetWatch
from labkit.work.queues import Queue, QueueError


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def queue(lab: Lab) -> Queue:
    return Queue.create(lab, "agent-researcher", visibility=45, dlq=True, max_receives=2)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def shown(watch: FleetWatch) -> dict[str, dict[tuple[str, ...], float]]:
    return {
        family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples}
        for family in watch.registry.collect()
    }


def lost(*_: Any, **__: Any) -> Any:
    raise EndpointConnectionError(endpoint_url="http://127.0.0.1:1")


def calls(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made: list[str] = []
    real = queue.client.get_queue_attributes
    monkeypatch.setattr(
        queue.client, "get_queue_attributes", lambda **given: made.append(given["QueueUrl"]) or real(**given)
    )
    return made


def test_depth_flight_setting_age_and_dead_letters(lab: Lab, queue: Queue) -> None:
    other = Queue.create(lab, "on-request-dlq")
    other.send("a dead event")
    queue.send_batch(range(5))
    queue.receive(2)
    assert queue.dlq is not None
    queue.dlq.send_batch(range(3))
    queue.dlq.receive(1)  # somebody looks at it
    watch = FleetWatch({"researcher": queue}, clients=lab, dead_letters=[other])
    watch.poll()
    found = shown(watch)
    assert found["sqs_queue_depth"] == {(queue.name, "researcher"): 3}
    assert found["sqs_queue_in_flight"] == {(queue.name, "researcher"): 2}
    assert found["sqs_queue_visibility_timeout_seconds"] == {(queue.name, "researcher"): 45}
    assert 0 <= found["sqs_queue_oldest_age_seconds"][queue.name, "researcher"] < 60
    assert found["sqs_dlq_depth"] == {(queue.dlq.name, "researcher"): 3, (other.name, ""): 1}
    assert set(found) == {*GAUGES, "watch_last_success_timestamp_seconds", "watch_failures"}


def test_a_dead_letter_queue_that_is_changed_or_taken_away_is_noticed(lab: Lab, queue: Queue, clock: Clock) -> None:
    watch = FleetWatch({"researcher": queue}, clock=clock)
    watch.poll()
    queue.client.set_queue_attributes(QueueUrl=queue.url, Attributes={"RedrivePolicy": ""})
    clock.now += 15
    watch.poll()
    assert shown(watch)["sqs_dlq_depth"] == {}


def test_what_eventbridge_counts_comes_from_cloudwatch(lab: Lab, queue: Queue) -> None:
    assert set(RULES.values()) == {
        "RetryInvocationAttempts", "InvocationsSentToDlq", "InvocationsFailedToBeSentToDlq",
    }  # fmt: skip
    bus = Bus.create(lab, "fleet")
    points = [
        {"MetricName": name, "Value": float(n + 1), "Dimensions": [{"Name": key, "Value": of} for key, of in series]}
        for n, name in enumerate(RULES.values())
        for series in ([("EventBusName", bus.name), ("RuleName", "on-request")], [("RuleName", "nightly")])
        if not (n and len(series) == 1)
    ]
    lab.client("cloudwatch").put_metric_data(Namespace="AWS/Events", MetricData=points)
    watch = FleetWatch({}, clients=lab, rules=[(bus.name, "on-request"), ("default", "nightly"), (bus.name, "quiet")])
    watch.poll()
    found = shown(watch)
    names = list(RULES)
    on_request, nightly, quiet = (bus.name, "on-request"), ("default", "nightly"), (bus.name, "quiet")
    assert found[names[0]] == {on_request: 1, nightly: 1, quiet: 0}
    assert found[names[1]] == {on_request: 2, nightly: 0, quiet: 0}
    assert found[names[2]] == {on_request: 3, nightly: 0, quiet: 0}


def test_a_queue_that_publishes_no_age_has_none(queue: Queue) -> None:
    class Silent:
        meta = queue.client.meta

        def get_metric_data(self, **_: Any) -> dict[str, Any]:
            return {"MetricDataResults": [{"Id": "m0", "Timestamps": [], "Values": []}]}

        def client(self, service: str, /) -> Any:
            return self

    watch = FleetWatch({"researcher": queue}, clients=Silent())
    watch.poll()
    found = shown(watch)
    assert found["sqs_queue_oldest_age_seconds"] == {}
    assert found["watch_last_success_timestamp_seconds"][f"cloudwatch:{queue.name}",] > 0


# -- what does not answer ----------------------------------------------------------------------------------------------


def test_an_unreachable_endpoint_is_survived_said_and_recovered_from(
    queue: Queue, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watch, key = FleetWatch({"researcher": queue}, clock=clock), (f"sqs:{queue.name}",)
    watch.poll()
    success = clock.now
    with monkeypatch.context() as broken:
        broken.setattr(queue.client, "get_queue_attributes", lost)
        for round_ in range(1, 5):
            clock.now += 15
            watch.poll()
            found = shown(watch)
            assert found["watch_failures"] == {key: round_}
            assert found["watch_last_success_timestamp_seconds"] == {key: success}
            # Known for three rounds, and then no longer shown: an old number would keep an alarm silent.
            assert bool(found["sqs_queue_depth"]) == (round_ <= 3)
    said = [record for record in caplog.records if record.name == "labkit.ops.watch"]
    assert [record.levelname for record in said].count("WARNING") == 1  # once, not in every round
    clock.now += 15
    watch.poll()
    found = shown(watch)
    assert found["sqs_queue_depth"] == {(queue.name, "researcher"): 0}
    assert found["watch_last_success_timestamp_seconds"] == {key: clock.now}


def test_never_answered_is_0_and_no_depth(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue.client, "get_queue_attributes", lost)
    watch = FleetWatch({"researcher": queue})
    watch.poll()
    found = shown(watch)
    assert found["watch_last_success_timestamp_seconds"] == {(f"sqs:{queue.name}",): 0}
    assert found["sqs_queue_depth"] == {}


def test_a_round_asks_a_silent_service_once_and_another_one_all_the_same(
    lab: Lab, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = {"researcher": queue, **{f"a{n}": Queue.create(lab, f"q{n}") for n in range(4)}}
    asked: list[str] = []

    def silent(**given: Any) -> Any:
        asked.append(given["QueueUrl"])
        lost()

    watch = FleetWatch(queues, clients=lab)
    monkeypatch.setattr(queue.client, "get_queue_attributes", silent)
    watch.poll()
    assert len(asked) == 1
    assert len(shown(watch)["sqs_queue_oldest_age_seconds"]) == 5


def test_a_queue_that_is_gone_does_not_hide_the_others(lab: Lab, queue: Queue) -> None:
    gone, there = Queue.create(lab, "gone"), Queue.create(lab, "there")
    watch = FleetWatch({"gone": gone, "there": there, "researcher": queue})
    gone.client.delete_queue(QueueUrl=gone.url)
    watch.poll()
    assert set(shown(watch)["sqs_queue_depth"]) == {(there.name, "there"), (queue.name, "researcher")}
    assert shown(watch)["watch_failures"][f"sqs:{gone.name}",] == 1


@pytest.mark.parametrize(
    "error",
    [
        QueueError("no"),
        ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "GetQueueAttributes"),
        ValueError("a number that is none"),
        KeyError("Attributes"),
    ],
)
def test_whatever_is_raised_the_round_goes_on(
    lab: Lab, queue: Queue, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(**_: Any) -> Any:
        raise error

    watch = FleetWatch({"researcher": queue}, clients=lab)
    monkeypatch.setattr(queue.client, "get_queue_attributes", fails)
    watch.poll()
    assert shown(watch)["watch_failures"][f"sqs:{queue.name}",] == 1
    assert shown(watch)["sqs_queue_oldest_age_seconds"] != {}


# -- how often ---------------------------------------------------------------------------------------------------------


def test_a_scrape_asks_nobody_and_a_round_asks_what_is_due(
    queue: Queue, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, asked = FleetWatch({"researcher": queue}, clock=clock, every=15), calls(queue, monkeypatch)
    watch.poll()
    once = len(asked)
    assert once == 2  # the queue and its dead-letter queue
    for _ in range(10):
        shown(watch)
    watch.poll()  # nothing is due yet
    assert len(asked) == once
    clock.now += 15
    watch.poll()
    assert len(asked) == 2 * once


def test_cloudwatch_is_asked_more_seldom(lab: Lab, queue: Queue, clock: Clock) -> None:
    asked: list[float] = []
    real = lab.client("cloudwatch")

    class Counting:
        meta = real.meta

        def get_metric_data(self, **given: Any) -> Any:
            asked.append(clock.now)
            return real.get_metric_data(**given)

        def client(self, service: str, /) -> Any:
            assert service == "cloudwatch"
            return self

    watch = FleetWatch({"researcher": queue}, clients=Counting(), clock=clock, every=15, seldom=60)
    for _ in range(9):  # two minutes
        watch.poll()
        clock.now += 15
    assert len(asked) == 3


def test_it_asks_until_it_is_closed_and_leaves_no_thread(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    before, asked, twice = set(threading.enumerate()), 0, threading.Event()
    real = queue.client.get_queue_attributes

    def counting(**given: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked >= 4:
            twice.set()
        return real(**given)

    monkeypatch.setattr(queue.client, "get_queue_attributes", counting)
    with FleetWatch({"researcher": queue}, every=1).start() as watch:
        assert twice.wait(30)
        with pytest.raises(MetricsError, match="runs already"):
            watch.start()
    watch.close()
    assert set(threading.enumerate()) <= before


def test_a_round_that_is_under_way_ends_with_the_close(lab: Lab, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the question under way is waited for, not the rest of the round."""
    entered, leave, asked = threading.Event(), threading.Event(), []

    def slow(**given: Any) -> Any:
        asked.append(given)
        entered.set()
        leave.wait(60)
        lost()

    watch = FleetWatch({"researcher": queue, "writer": Queue.create(lab, "w")}, clients=lab)
    monkeypatch.setattr(queue.client, "get_queue_attributes", slow)
    watch.start()
    assert entered.wait(30)
    closing = threading.Thread(target=watch.close)
    closing.start()
    assert watch._end.wait(30)  # it has been told to end
    leave.set()
    closing.join(30)
    assert not closing.is_alive()
    assert len(asked) == 1
    assert "cloudwatch" not in str(watch._asked)


# -- settings ----------------------------------------------------------------------------------------------------------


def slow_client() -> Any:
    return get_session().create_client(
        "sqs", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x",
        config=Config(connect_timeout=5, read_timeout=25, retries={"total_max_attempts": 3}),
    )  # fmt: skip


def test_a_client_that_may_wait_for_minutes_is_refused(lab: Lab, queue: Queue) -> None:
    plain = get_session().create_client(
        "sqs", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x"
    )
    for client, seconds in ((plain, 600), (slow_client(), 90)):
        with pytest.raises(MetricsError, match=f"may wait {seconds} s for one answer; .* 60 s at most"):
            FleetWatch({"researcher": Queue(client, queue.url, arn=queue.arn)})
    FleetWatch({"researcher": queue}, clients=lab)  # a lab's own clients do


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda queue: FleetWatch({"Researcher": queue}), "an agent class is 1 to 64"),
        (lambda queue: FleetWatch({"a": "url"}), "what is watched is a Queue"),
        (lambda queue: FleetWatch({"a": queue, "b": queue}), "a queue is watched once"),
        (lambda queue: FleetWatch({"a": queue}, rules=[("b", "r")]), "rules are counted by CloudWatch"),
        (lambda queue: FleetWatch({"a": queue}, every=0), "every must be from 1 to 300 s; got 0"),
        (lambda queue: FleetWatch({"a": queue}, every=60, seldom=30), "seldom must be from 60 to 900 s; got 30"),
    ],
)
def test_what_cannot_be_watched_is_refused(queue: Queue, make: Callable[[Queue], object], says: str) -> None:
    with pytest.raises(MetricsError, match=says):
        make(queue)
