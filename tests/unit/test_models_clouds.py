"""Five brokers: golden values of their documentation, the source beside each."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.models import queue_life
from labkit.models._input import ModelError
from labkit.models.clouds import Broker, Clock, Delivery, EventBridge, EventGrid, PubSub, ServiceBus, Sqs
from labkit.models.clouds.eventgrid import schedule
from labkit.models.delivery import Policy, Retries
from labkit.models.retry import Exponential, Jitter

HOUR = 3600.0


def bodies(deliveries: list[Delivery]) -> list[str]:
    return [d.body for d in deliveries]


def publish(broker: Broker, *names: str, key: str = "s") -> None:
    for name in names:
        broker.publish(name, key=key, name=name)


def attempts(broker: Broker, answer: str, until: float) -> list[float]:
    """The moments of all attempts up to ``until``, each answered with ``answer`` at once (or not at all)."""
    found = []
    while True:
        for delivery in broker.receive():
            found.append(delivery.at)
            if answer:
                broker.nack(delivery, answer)
        due = broker.due()
        if due is None or due > until:
            return found
        broker.clock.until(due)


# Pub/Sub


def three(**options: object) -> tuple[Clock, PubSub]:
    clock = Clock()
    broker = PubSub(clock, ordering=True, **options)  # type: ignore[arg-type]
    publish(broker, "1", "2", "3")
    return clock, broker


def test_pubsub_takes_acknowledged_followers_along() -> None:
    """Google, Pub/Sub, ordering: what is redelivered takes every later message of its key along, acknowledged too."""
    clock, broker = three()
    first, second, third = broker.receive(3)
    assert (broker.ack(second), broker.ack(third)) == ("ok", "ok")
    assert broker.left == ["1"]
    clock.advance(10)  # API reference, ackDeadlineSeconds: 10 s unless set
    assert bodies(broker.receive(3)) == ["1", "2", "3"]
    assert broker.ack(first) == "ignored"  # exactly-once-delivery: without it, a late request answers OK
    assert [e.body for e in broker.history if e.what == "reopened"] == ["2", "3"]


def test_pubsub_followers_are_forgotten_once_nothing_can_take_them_along() -> None:
    clock, broker = three()
    first, second, third = broker.receive(3)
    for delivery in (third, second, first):
        broker.ack(delivery)
    clock.advance(HOUR)
    assert broker.receive(3) == []
    assert broker.due() is None


def test_pubsub_takes_along_only_its_own_key() -> None:
    clock, broker = three()
    publish(broker, "other", key="t")
    given = broker.receive(2) + broker.receive(2)
    assert bodies(given) == ["1", "2", "other"]  # one batch of a key is outstanding at a time
    broker.ack(given[1])
    broker.extend(given[2], 60)
    clock.advance(10)
    assert bodies(broker.receive(10)) == ["1", "2", "3"]
    assert broker.ack(given[2]) == "ok"


def test_pubsub_a_batch_that_lapses_counts_for_each_of_its_messages() -> None:
    clock, broker = three(max_attempts=5)
    for _ in range(5):
        assert bodies(broker.receive(3)) == ["1", "2", "3"]
        clock.advance(10)
    broker.tick()
    assert [(e.at, e.body) for e in broker.dead] == [(50, "1"), (50, "2"), (50, "3")]


def test_pubsub_a_nack_takes_outstanding_followers_along_at_once() -> None:
    _, broker = three()
    first, _, third = broker.receive(3)
    broker.nack(first)
    assert bodies(broker.receive(3)) == ["1", "2", "3"]
    assert broker.ack(third) == "ignored"


def test_pubsub_exactly_once_acknowledges_in_order_and_refuses_what_is_late() -> None:
    """Google, Pub/Sub, exactly-once-delivery: acknowledge in order, temporary errors otherwise; 60 s unless set."""
    clock, broker = three(exactly_once=True)
    first, second, third = broker.receive(3)
    assert broker.ack(third) == "refused"
    assert (broker.ack(first), broker.ack(second)) == ("ok", "ok")
    clock.advance(59.9)
    assert broker.receive() == []
    clock.advance(0.1)
    assert broker.ack(third) == "refused"
    assert broker.extend(third, 30) == "refused"
    assert bodies(broker.receive(3)) == ["3"]


def test_pubsub_exactly_once_leaves_what_is_outstanding_alone() -> None:
    clock, broker = three(exactly_once=True)
    first, second, _ = broker.receive(3)
    broker.nack(first)
    assert broker.receive(3) == []  # the rest of the batch is outstanding, and its order is kept
    assert broker.ack(second) == "refused"
    clock.advance(60)
    assert bodies(broker.receive(3)) == ["1", "2", "3"]


def test_pubsub_extends_from_the_call_and_zero_is_a_nack() -> None:
    clock = Clock()
    broker = PubSub(clock, deadline=20)
    publish(broker, "1")
    [delivery] = broker.receive()
    clock.advance(15)
    assert broker.extend(delivery, 30) == "ok"
    clock.advance(29)
    assert broker.receive() == []
    broker.extend(delivery, 0)
    assert len(broker.receive()) == 1


def test_pubsub_dead_letters_after_five_attempts_and_waits_between_them() -> None:
    """API reference: DeadLetterPolicy, 1 + nacks + expiries, 5 unless set; RetryPolicy, exponential, 10 s to 600 s."""
    broker = PubSub(Clock(), max_attempts=5, backoff=(10, 25))
    publish(broker, "1")
    assert attempts(broker, "no", 10 * HOUR) == [0, 10, 30, 55, 80]
    assert [(e.at, e.body) for e in broker.dead] == [(80, "1")]


def test_pubsub_a_key_waits_for_its_first_message() -> None:
    clock, broker = three(backoff=(10, 600))
    [first] = broker.receive()
    broker.nack(first)
    clock.advance(9)
    assert broker.receive(3) == []
    clock.advance(1)
    assert bodies(broker.receive(3)) == ["1", "2", "3"]


def test_pubsub_a_dead_letter_takes_nobody_along() -> None:
    clock, broker = three(max_attempts=5)
    for _ in range(4):
        broker.nack(broker.receive(1)[0])
    first, second, third = broker.receive(3)
    broker.ack(second)
    broker.nack(first)
    assert bodies(broker.receive(3)) == []  # the third is outstanding, the second is done
    clock.advance(10)
    assert bodies(broker.receive(3)) == ["3"]
    assert broker.ack(third) == "ignored"


def test_pubsub_retention() -> None:
    """Google, Pub/Sub, subscription-properties: 7 days unless set, 10 minutes at least."""
    clock = Clock()
    broker = PubSub(clock, retention=600)
    publish(broker, "1")
    clock.advance(600)
    assert broker.receive() == []
    assert [e.note for e in broker.history if e.what == "lost"] == ["retention"]


# Service Bus


def test_servicebus_tells_the_holder_that_the_lock_is_lost() -> None:
    """Microsoft, message-transfers-locks-settlement; LockDuration: 1 minute unless set."""
    clock = Clock()
    broker = ServiceBus(clock)
    publish(broker, "1")
    [late] = broker.receive(by="a")
    clock.advance(60)
    assert (broker.ack(late), broker.extend(late), broker.nack(late)) == ("refused",) * 3
    [again] = broker.receive(by="b")
    assert (again.id, again.attempt) == ("1", 2)  # the producer's own MessageId
    clock.advance(59)
    assert broker.extend(again) == "ok"
    clock.advance(59)
    assert broker.ack(again) == "ok"


def test_servicebus_dead_letters_after_ten_deliveries_with_a_reason() -> None:
    """Microsoft, service-bus-dead-letter-queues: 10 unless set, MaxDeliveryCountExceeded."""
    broker = ServiceBus(Clock())
    publish(broker, "1")
    assert attempts(broker, "", HOUR) == [60.0 * n for n in range(10)]
    assert [(e.at, e.note) for e in broker.dead] == [(600, "MaxDeliveryCountExceeded")]


def test_servicebus_an_abandoned_message_keeps_its_place() -> None:
    broker = ServiceBus(Clock())
    publish(broker, "1", "2")
    [first] = broker.receive()
    broker.nack(first)
    assert bodies(broker.receive(2)) == ["1", "2"]


def test_servicebus_receive_and_delete_forgets_at_once() -> None:
    """Microsoft, message-transfers-locks-settlement: consumed as soon as it is on the wire."""
    clock = Clock()
    broker = ServiceBus(clock, mode="receive-and-delete")
    publish(broker, "1")
    [delivery] = broker.receive()
    assert broker.nack(delivery) == "refused"
    clock.advance(HOUR)
    assert (broker.receive(), broker.left, broker.dead) == ([], [], [])


def test_servicebus_duplicate_detection_within_the_window_only() -> None:
    """Microsoft, duplicate-detection: 10 minutes unless set; accepted, and dropped."""
    clock = Clock()
    broker = ServiceBus(clock, dedup_window=600)
    assert broker.publish("1", name="job") == "job"
    broker.ack(broker.receive()[0])
    clock.advance(599)
    assert broker.publish("1", name="job") is None
    clock.advance(1)
    assert broker.publish("1", name="job") == "job"
    assert ServiceBus(clock).publish("1", name="job") is not None


def test_servicebus_a_session_has_one_holder_and_its_later_messages_too() -> None:
    """Microsoft, message-sessions."""
    clock = Clock()
    broker = ServiceBus(clock, sessions=True)
    publish(broker, "a1", "a2", key="a")
    publish(broker, "b1", key="b")
    [first] = broker.receive(by="x")
    assert bodies(broker.receive(9, by="y")) == ["b1"]
    assert broker.receive(9, by="z") == []
    publish(broker, "a3", key="a")
    assert bodies(broker.receive(9, by="x")) == ["a2", "a3"]
    clock.advance(59)
    broker.extend(first)  # one lock for all that it holds
    clock.advance(59)
    assert bodies(broker.receive(9, by="z")) == ["b1"]  # y's lock has run out, x's has not
    clock.advance(1)
    assert bodies(broker.receive(9, by="w")) == ["a1", "a2", "a3"]


def test_servicebus_a_later_message_is_held_no_longer_than_its_session() -> None:
    clock = Clock()
    broker = ServiceBus(clock, sessions=True)
    publish(broker, "1", "2")
    broker.receive(by="x")
    clock.advance(50)
    [second] = broker.receive(by="x")
    clock.advance(10)
    assert broker.ack(second) == "refused"
    assert bodies(broker.receive(2, by="y")) == ["1", "2"]


def test_servicebus_renewing_one_message_renews_the_session() -> None:
    clock = Clock()
    broker = ServiceBus(clock, sessions=True)
    publish(broker, "1", "2")
    first, second = broker.receive(2)
    clock.advance(50)
    broker.extend(first)
    clock.advance(50)
    assert broker.ack(second) == "ok"


@pytest.mark.parametrize(("closes", "counted"), [(True, 0), (False, 1)])
def test_servicebus_counts_a_lost_session_lock_and_not_a_close(closes: bool, counted: int) -> None:
    """Microsoft, message-sessions, impact of delivery count."""
    clock = Clock()
    broker = ServiceBus(clock, sessions=True, max_delivery_count=1)
    publish(broker, "1")
    broker.receive(by="x")
    if closes:
        broker.close("x")
    clock.advance(60)
    broker.tick()
    assert len(broker.dead) == counted
    assert len(broker.receive(by="y")) == 1 - counted


def test_servicebus_an_idle_session_is_free_when_its_lock_ends() -> None:
    clock = Clock()
    broker = ServiceBus(clock, sessions=True)
    publish(broker, "1")
    broker.ack(broker.receive(by="x")[0])  # and never closes
    publish(broker, "2")
    assert broker.receive(by="y") == []
    assert broker.due() == 60
    clock.advance(60)
    assert bodies(broker.receive(by="y")) == ["2"]


def test_servicebus_who_holds_an_empty_session_goes_on_when_its_lock_ends() -> None:
    clock = Clock()
    broker = ServiceBus(clock, sessions=True)
    broker.publish("1", key="a")
    broker.publish("2", key="b")
    broker.ack(broker.receive(by="w")[0])
    assert broker.receive(by="w") == []  # it still holds session a, and does not look elsewhere
    assert broker.due() == 60
    clock.until(60)
    assert bodies(broker.receive(by="w")) == ["2"]


@pytest.mark.parametrize("switched_on", [True, False])
def test_servicebus_time_to_live(switched_on: bool) -> None:
    """Microsoft, service-bus-dead-letter-queues: TTLExpiredException, where dead-lettering is enabled."""
    clock = Clock()
    broker = ServiceBus(clock, ttl=100, dead_letter_expired=switched_on)
    publish(broker, "1", "2")
    [held] = broker.receive()
    clock.advance(50)
    broker.extend(held)
    clock.advance(55)
    assert broker.ack(held) == "ok"  # its lock protected it
    assert broker.left == []
    last = broker.history[-2]
    assert (last.body, last.at) == ("2", 100)
    assert (last.what, last.note) == (
        ("dead-lettered", "TTLExpiredException") if switched_on else ("lost", "time to live")
    )


def test_servicebus_what_expired_under_a_lock_goes_when_the_lock_ends() -> None:
    clock = Clock()
    broker = ServiceBus(clock, ttl=30)
    publish(broker, "1")
    broker.receive()
    clock.advance(60)
    assert broker.receive() == []
    assert [e.at for e in broker.history if e.what == "lost"] == [60]


def test_servicebus_own_dead_letter_reason() -> None:
    broker = ServiceBus(Clock())
    publish(broker, "1")
    [delivery] = broker.receive()
    assert broker.dead_letter(delivery, "no such customer") == "ok"
    assert broker.dead_letter(delivery, "again") == "refused"
    assert [e.note for e in broker.dead] == ["no such customer"]


# Event Grid


def test_eventgrid_schedule() -> None:
    """Microsoft, delivery-and-retry: 10 s, 30 s, 1, 5, 10, 30 min, 1, 3, 6 h, then every 12 h."""
    minutes = [10 / 60, 0.5, 1, 5, 10, 30, 60, 180, 360, 720, 720]
    assert [schedule(n) for n in range(1, 12)] == [60 * m for m in minutes]


def test_eventgrid_has_six_attempts_in_half_an_hour() -> None:
    """Microsoft, delivery-and-retry: 30 minutes and 10 attempts make 6 attempts at most."""
    broker = EventGrid(Clock(), ttl=30 * 60, max_attempts=10)
    publish(broker, "1")
    assert attempts(broker, "500", 40 * HOUR) == [0, 10, 40, 100, 400, 1000]
    # "checked only at the next scheduled delivery attempt" (2,800 s), then the five minutes
    assert [(e.at, e.note) for e in broker.dead] == [(2800 + 300, "time to live")]


def test_eventgrid_has_eleven_attempts_in_a_day_and_a_dead_letter_long_after_it() -> None:
    broker = EventGrid(Clock())
    publish(broker, "1")
    made = attempts(broker, "500", 48 * HOUR)
    assert made == [0, 10, 40, 100, 400, 1000, 2800, 6400, 17200, 38800, 82000]
    [dead] = broker.dead
    assert dead.at == 82000 + 12 * HOUR + 300
    assert dead.at / HOUR == pytest.approx(34.86, abs=0.01)


def test_eventgrid_waits_thirty_seconds_for_an_answer() -> None:
    clock = Clock()
    broker = EventGrid(clock)
    publish(broker, "1")
    [slow] = broker.receive()
    clock.advance(30)
    assert broker.receive() == []
    assert broker.ack(slow) == "ignored"  # within 3 minutes: a best effort, which here fails
    clock.advance(10)
    assert len(broker.receive()) == 1


def test_eventgrid_max_attempts() -> None:
    broker = EventGrid(Clock(), max_attempts=3)
    publish(broker, "1")
    assert attempts(broker, "500", HOUR) == [0, 10, 40]
    assert [(e.at, e.note) for e in broker.dead] == [(340, "MaxDeliveryAttemptsExceeded")]


@pytest.mark.parametrize(
    ("endpoint", "code", "tries"),
    [("webhook", c, 1) for c in ("400", "413", "401", "403")]
    + [("azure", c, 1) for c in ("400", "413", "403")]
    + [("azure", "401", 2), ("webhook", "404", 2), ("webhook", "429", 2)],
)
def test_eventgrid_what_is_not_retried(endpoint: str, code: str, tries: int) -> None:
    """Microsoft, delivery-and-retry, table of endpoints and errors; errata 59."""
    broker = EventGrid(Clock(), endpoint=endpoint, max_attempts=2)  # type: ignore[arg-type]
    publish(broker, "1")
    assert len(attempts(broker, code, HOUR)) == tries
    first_wait = 300 if code == "401" else 10
    assert [e.at for e in broker.dead] == [300 if tries == 1 else first_wait + 300]  # "at once", and still 5 minutes


@pytest.mark.parametrize(
    ("endpoint", "code", "made"),
    [
        ("webhook", "500", [0, 10, 40, 100, 400, 1000]),
        ("webhook", "503", [0, 30, 60, 120, 420, 1020]),
        ("webhook", "408", [0, 120, 240, 360, 660, 1260]),
        ("webhook", "404", [0, 10, 40, 100, 400, 1000]),
        ("azure", "404", [0, 300, 600, 900, 1200, 1800]),
        ("azure", "401", [0, 300, 600, 900, 1200, 1800]),
    ],
)
def test_eventgrid_some_answers_set_a_least_wait(endpoint: str, code: str, made: list[int]) -> None:
    """Microsoft, delivery-and-retry, failure codes: 503 30 s, 408 2 min, 401 and 404 of Azure resources 5 min."""
    broker = EventGrid(Clock(), endpoint=endpoint, max_attempts=6)  # type: ignore[arg-type]
    publish(broker, "1")
    assert attempts(broker, code, HOUR) == made


@pytest.mark.parametrize(
    ("down", "written"),
    [
        ((0, 100), 300),
        ((0, 301), 301),
        ((200, 300 + 4 * HOUR - 1), 300 + 4 * HOUR - 1),
        ((200, 300 + 4 * HOUR), None),
        ((400, 9 * HOUR), 300),
    ],
)
def test_eventgrid_drops_when_the_store_is_away_for_four_hours(
    down: tuple[float, float], written: float | None
) -> None:
    """Microsoft, delivery-and-retry: five minutes after the last attempt; dropped after four hours."""
    broker = EventGrid(Clock(), store_down=[down])
    publish(broker, "1")
    attempts(broker, "400", 12 * HOUR)
    assert [e.at for e in broker.dead] == ([] if written is None else [written])
    lost = [e.at for e in broker.history if e.what == "lost"]
    assert lost == ([300 + 4 * HOUR] if written is None else [])
    assert broker.left == []


def test_eventgrid_without_a_dead_letter_location_drops() -> None:
    broker = EventGrid(Clock(), dead_letter=False)
    publish(broker, "1")
    attempts(broker, "413", HOUR)
    assert [e.note for e in broker.history if e.what == "lost"] == ["answered 413"]


def test_eventgrid_overtakes() -> None:
    clock = Clock()
    broker = EventGrid(clock)
    publish(broker, "1")
    broker.nack(broker.receive()[0], "500")
    clock.advance(5)
    publish(broker, "2")
    assert bodies(broker.receive(9)) == ["2"]


# EventBridge


def test_eventbridge_tries_185_times_more_within_a_day() -> None:
    """EventBridge User Guide, eb-rule-retry-policy: 24 hours and up to 185 times."""
    broker = EventBridge(Clock())
    publish(broker, "1")
    made = attempts(broker, "ERROR_FROM_TARGET", 48 * HOUR)
    assert len(made) == 186
    assert 20 * HOUR < made[-1] < 24 * HOUR  # the lab's own waits; AWS's is the bound
    assert [e.note for e in broker.dead] == ["MaximumRetryAttempts"]


@given(retries=st.integers(0, 185), age=st.integers(60, 86_400), seed=st.integers(0, 9))
def test_eventbridge_agrees_with_the_retries_of_one_event(retries: int, age: int, seed: int) -> None:
    broker = EventBridge(Clock(), max_retries=retries, max_age=age, seed=seed)
    publish(broker, "1")
    one = Retries(Policy(retries, age), Jitter(Exponential(cap=600), "equal", f"{seed}/m1"))
    assert attempts(broker, "ERROR_FROM_TARGET", 48 * HOUR) == pytest.approx(one.times())
    assert [e.at for e in broker.dead] == pytest.approx([one.given_up_at])
    assert [e.note for e in broker.dead] == [one.exhausted]


def test_eventbridge_gives_up_at_the_age_and_not_before() -> None:
    broker = EventBridge(Clock(), max_age=60)
    publish(broker, "1")
    made = attempts(broker, "ERROR_FROM_TARGET", HOUR)
    assert made[-1] < 60
    assert [(e.at, e.note) for e in broker.dead] == [(60, "MaximumEventAgeInSeconds")]


@pytest.mark.parametrize("code", ["NO_PERMISSIONS", "NO_RESOURCE"])
@pytest.mark.parametrize("queue", [True, False])
def test_eventbridge_what_is_not_retried(code: str, queue: bool) -> None:
    """EventBridge User Guide, eb-rule-dlq."""
    broker = EventBridge(Clock(), dead_letter=queue)
    publish(broker, "1")
    assert attempts(broker, code, HOUR) == [0]
    assert [(e.what, e.note) for e in broker.history[2:3]] == [("nacked", code)]
    assert [(e.what, e.note) for e in broker.history[3:]] == [("dead-lettered" if queue else "lost", code)]


def test_eventbridge_v2_gives_up_after_five_retries() -> None:
    """eb-custom-bus-retry: 5 attempts or 300 seconds."""
    broker = EventBridge(Clock(), hold="group")
    publish(broker, "1")
    assert len(attempts(broker, "ERROR_FROM_TARGET", HOUR)) == 6


@pytest.mark.parametrize(("hold", "others"), [("group", ["b1"]), ("all", [])])
def test_eventbridge_a_failing_event_holds_its_group_or_all(hold: str, others: list[str]) -> None:
    """eb-custom-bus-retry: one copy of the page says the group, another every group (errata 56)."""
    broker = EventBridge(Clock(), hold=hold, max_retries=185, max_age=86_400)  # type: ignore[arg-type]
    publish(broker, "a1", "a2", key="a")
    publish(broker, "b1", key="b")
    first = broker.receive(9)
    assert bodies(first) == ["a1", "b1"]
    broker.nack(first[0], "ERROR_FROM_TARGET")
    broker.nack(first[1], "ERROR_FROM_TARGET")
    broker.clock.advance(1)
    assert bodies(broker.receive(9)) == ["a1", *others]


def test_eventbridge_v2_drops_a_repeat_within_its_group_for_five_minutes() -> None:
    """EventBridge User Guide, eb-custom-bus-ordering: 300 s; the check reaches as far as the event group."""
    clock = Clock()
    v2, classic = EventBridge(clock, hold="group"), EventBridge(clock)
    assert v2.publish("1", key="a", name="n") is not None
    clock.advance(299)
    assert v2.publish("1", key="a", name="n") is None
    assert v2.publish("1", key="b", name="n") is not None
    assert None not in [v2.publish("1", key="a"), v2.publish("1", key="a")]  # without an id nothing is a repeat
    clock.advance(1)
    assert v2.publish("1", key="a", name="n") is not None
    assert None not in [classic.publish("1", key="a", name="n"), classic.publish("1", key="a", name="n")]


def test_eventbridge_a_v2_group_goes_on_once_its_first_is_settled() -> None:
    broker = EventBridge(Clock(), hold="group")
    publish(broker, "a1", "a2")
    [first] = broker.receive(9)
    broker.ack(first)
    assert bodies(broker.receive(9)) == ["a2"]


# SQS


def test_sqs_fifo_the_failing_head_blocks_its_group_only() -> None:
    clock = Clock()
    broker = Sqs(clock, fifo=True, max_receive_count=2)
    publish(broker, "a1", "a2", key="a")
    publish(broker, "b1", key="b")
    [head] = broker.receive(1)
    assert bodies(broker.receive(10)) == ["b1"]
    broker.nack(head)
    assert bodies(broker.receive(1)) == ["a1"]
    clock.advance(30)
    assert bodies(broker.receive(10)) == ["a2", "b1"]
    assert [(e.at, e.body) for e in broker.dead] == [(30, "a1")]


def test_sqs_fifo_drops_a_repeat_for_five_minutes_even_when_the_first_is_gone() -> None:
    """SQS API reference, MessageDeduplicationId."""
    clock = Clock()
    broker = Sqs(clock, fifo=True)
    publish(broker, "1")
    broker.ack(broker.receive()[0])
    clock.advance(299)
    assert broker.publish("1", key="s", name="1") is None
    clock.advance(1)
    assert broker.publish("1", key="s", name="1") is not None


def test_sqs_a_late_delete_counts_on_a_standard_queue_and_is_refused_on_fifo() -> None:
    """Notebook 03 has both against the lab."""
    for fifo, answer in ((False, "ok"), (True, "refused")):
        clock = Clock()
        broker = Sqs(clock, fifo=fifo)
        publish(broker, "1")
        [late] = broker.receive()
        clock.advance(31)
        assert broker.ack(late) == answer


def test_sqs_fifo_refuses_everything_with_an_expired_handle() -> None:
    clock = Clock()
    broker = Sqs(clock, fifo=True)
    publish(broker, "1")
    [zombie] = broker.receive()
    clock.advance(30)
    [newest] = broker.receive()
    assert (broker.nack(zombie), broker.extend(zombie)) == ("refused", "refused")
    assert broker.ack(newest) == "ok"


def test_sqs_an_extension_counts_from_the_call() -> None:
    clock = Clock()
    broker = Sqs(clock)
    publish(broker, "1")
    [delivery] = broker.receive()
    clock.advance(20)
    assert broker.extend(delivery, 25) == "ok"
    clock.advance(24)
    assert (broker.receive(), broker.due()) == ([], 45)
    clock.advance(1)
    assert [d.attempt for d in broker.receive()] == [2]
    assert [e.at for e in broker.history if e.what == "lapsed"] == [45]


def test_sqs_an_older_handle_deletes_nothing_and_still_gives_back() -> None:
    clock = Clock()
    broker = Sqs(clock)
    publish(broker, "1")
    [zombie] = broker.receive()
    clock.advance(30)
    broker.receive()
    assert broker.ack(zombie) == "ignored"
    assert broker.nack(zombie) == "ok"
    assert len(broker.receive()) == 1


def test_sqs_keeps_a_message_for_its_retention_only() -> None:
    clock = Clock()
    broker = Sqs(clock, retention=60)
    publish(broker, "1")
    broker.receive()
    clock.advance(60)
    assert (broker.receive(), broker.left) == ([], [])
    assert [(e.at, e.note) for e in broker.history if e.what == "lost"] == [(60, "retention")]


@given(visibility=st.integers(1, 100), step=st.integers(1, 250), receives=st.integers(1, 6), crash=st.booleans())
def test_sqs_agrees_with_the_life_of_one_message(visibility: int, step: int, receives: int, crash: bool) -> None:
    life = queue_life.live(
        visibility=visibility, step=step, crash=0 if crash else None, max_receive_count=receives, retention=86_400
    )
    clock = Clock()
    broker = Sqs(clock, visibility=visibility, max_receive_count=receives, retention=86_400)
    publish(broker, "1")
    working = broker.receive()
    for _ in range(20):
        due = broker.due()
        ends = [] if crash else [d.at + step for d in working]
        clock.until(min([*ends, *([] if due is None else [due])], default=clock()))
        for delivery in [d for d in working if not crash and d.at + step <= clock()]:  # its own call, then the poll
            working.remove(delivery)
            broker.ack(delivery)
        working += broker.receive()
    assert [e.at for e in broker.history if e.what == "delivered"] == [d.received_at for d in life.deliveries]
    ends_as = {"deleted": "acked", "dead-lettered": "dead-lettered"}[life.ended]
    assert [e.at for e in broker.history if e.what == ends_as] == [life.ended_at]


# Bad input: one sentence that names field, value and limit


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda c: PubSub(c, deadline=9), "deadline must be from 10 to 600 s; got 9."),
        (lambda c: PubSub(c, deadline=601), "deadline must be from 10 to 600 s; got 601."),
        (lambda c: PubSub(c, max_attempts=4), "max_attempts must be a whole number from 5 to 100; got 4."),
        (lambda c: PubSub(c, max_attempts=101), "max_attempts must be a whole number from 5 to 100; got 101."),
        (lambda c: PubSub(c, backoff=(0, 601)), "backoff must be from 0 to 600 s; got 601."),
        (lambda c: PubSub(c, backoff=(20, 10)), "backoff must not have a minimum (20 s) over its maximum (10 s)."),
        (lambda c: PubSub(c, retention=599), "retention must be from 600 to 2.6784e+06 s; got 599."),
        (lambda c: ServiceBus(c, lock=301), "lock must be from 0.001 to 300 s; got 301."),
        (lambda c: ServiceBus(c, dedup_window=19), "dedup_window must be from 20 to 604800 s; got 19."),
        (lambda c: ServiceBus(c, max_delivery_count=0), "max_delivery_count must be a whole number of at least 1; got"),
        (lambda c: ServiceBus(c, mode="peek"), "mode must be 'peek-lock' or 'receive-and-delete'; got 'peek'."),
        (lambda c: EventGrid(c, ttl=59), "ttl must be from 60 to 86400 s; got 59."),
        (lambda c: EventGrid(c, ttl=90), "ttl must be whole minutes; got 90 s."),
        (lambda c: EventGrid(c, max_attempts=31), "max_attempts must be a whole number from 1 to 30; got 31."),
        (lambda c: EventGrid(c, endpoint="x"), "endpoint must be 'webhook' or 'azure'; got 'x'."),
        (lambda c: EventBridge(c, max_retries=186), "max_retries must be a whole number from 0 to 185; got 186."),
        (lambda c: EventBridge(c, max_age=59), "max_age must be from 60 to 86400 s; got 59."),
        (lambda c: EventBridge(c, hold="rule"), "hold must be 'group', 'all' or None; got 'rule'."),
        (lambda c: Sqs(c, visibility=43_201), "visibility must be from 0 to 43200 s; got 43201.0."),
        (lambda c: Sqs(c, max_receive_count=1001), "max_receive_count must be a whole number from 1 to 1000; got"),
        (lambda c: Sqs(c, retention=59), "retention must be from 60 to 1.2096e+06 s; got 59."),
        (lambda c: Sqs(c, fifo=True).publish("1"), "a FIFO queue needs a key (message group) and a name (dedup"),
        (lambda c: ServiceBus(c, sessions=True).publish("1"), "a queue with sessions takes no message without a key"),
        (lambda c: PubSub(c).publish("1", key="ế" * 342), "bytes of key must be from 0 to 1024; got 1026."),
        (lambda c: Sqs(c).receive(0), "most must be a whole number of at least 1; got 0."),
    ],
)  # fmt: skip
def test_what_is_refused(make: Callable[[Clock], object], says: str) -> None:
    with pytest.raises(ModelError) as caught:
        make(Clock())
    assert str(caught.value).startswith(says)


def test_a_delivery_of_another_broker_is_refused() -> None:
    one, other = Sqs(Clock()), PubSub(Clock())
    publish(one, "1")
    with pytest.raises(ModelError, match="delivery must be one that this broker gave; '1' is not"):
        other.ack(one.receive()[0])


def test_renewing_a_lock_takes_no_time_and_a_push_cannot_be_kept() -> None:
    bus = ServiceBus(Clock())
    publish(bus, "1")
    [delivery] = bus.receive()
    with pytest.raises(ModelError, match="seconds must be the lock's 60"):
        bus.extend(delivery, 90)
    grid = EventGrid(Clock())
    publish(grid, "1")
    assert grid.extend(grid.receive()[0], 60) == "refused"


def test_history_rows_can_be_put_into_a_table() -> None:
    broker = Sqs(Clock())
    publish(broker, "1")
    broker.ack(broker.receive()[0])
    assert [(row["at"], row["what"], row["body"]) for row in broker.rows()] == [
        (0, "published", "1"), (0, "delivered", "1"), (0, "acked", "1"),
    ]  # fmt: skip
