"""The same script, five brokers: the rows that notebook 18 shows, and what holds for every script."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.facts import facts
from labkit.models._input import ModelError, limit
from labkit.models.clouds import COLUMNS, VARIANTS, Clock, EventBridge, EventGrid, Report, Script, ServiceBus, Sqs, play

ORDERED = ("SQS FIFO", "Pub/Sub", "Service Bus")


def test_five_rows() -> None:
    """Each figure can be followed by hand; the reasons stand beside it."""
    rows = {name: play(make).row() for name, make in COLUMNS.items()}
    figures = {name: (row["done"], row["run again"], row["delivered after its ack"]) for name, row in rows.items()}
    assert figures == {
        "SQS FIFO": (23, 3, 0),  # the slow worker's batch of three runs twice
        "EventBridge": (23, 2, 0),  # slow/2 twice, and twice/2
        "Pub/Sub": (23, 12, 8),  # those three, twice/2, and four times two followers of the poison step
        "Event Grid": (23, 2, 0),
        "Service Bus": (23, 3, 0),
    }
    assert {row["lost"] for row in rows.values()} == {0}
    assert {row["dead letters"] for row in rows.values()} == {1}
    assert {name: row["out of order"] for name, row in rows.items() if row["out of order"]} == {
        "EventBridge": "dies, slow, night",
        "Event Grid": "dies, slow",
    }


def test_when_an_alarm_on_dead_letters_can_ring() -> None:
    found = {name: play(make).noticed for name, make in COLUMNS.items()}
    assert found["SQS FIFO"] == 9 * 30  # ten receives, each hidden for 30 s, after the first failure
    assert found["Pub/Sub"] == 4 * 10
    assert found["Service Bus"] == 9 * 60
    grid, bridge = found["Event Grid"], found["EventBridge"]
    assert grid is not None
    assert bridge is not None
    # The waits up to the twelfth attempt, where the time to live is looked at; 2 s for each failure after the first,
    # but for the three that meet nobody in the outage; then five minutes.
    waits = 10 + 30 + 60 + 300 + 600 + 1800 + 3600 + 10_800 + 21_600 + 2 * 43_200
    assert grid == waits + 7 * 2 + 300
    assert 20 * 3600 < bridge < 24 * 3600


def test_after_the_outage() -> None:
    found = {name: play(make).recovered for name, make in COLUMNS.items()}
    assert [found[name] for name in ORDERED] == [4 * 2.0] * 3  # they waited in the queue
    # Published at 5,400 s: the tenth attempt is the first that finds the consumer back at 32,400 s. The consumer that
    # was away answered 503, so the first wait was 30 s and not 10.
    assert found["Event Grid"] == 5400 + 1.5 + 38_820 + 2 - 32_400
    assert found["EventBridge"] is not None
    assert found["EventBridge"] < 600 + 2  # the longest wait, by the lab's own formula


def test_what_an_idempotent_consumer_must_remember() -> None:
    by_id = {name: play(make).effects("id") for name, make in COLUMNS.items()}
    assert by_id == {"SQS FIFO": 23, "EventBridge": 24, "Pub/Sub": 24, "Event Grid": 23, "Service Bus": 23}
    assert {play(make).effects("step") for make in COLUMNS.values()} == {23}


def test_one_switch_away() -> None:
    lost = {name: play(make).lost for name, make in VARIANTS.items()}
    assert lost["Service Bus, receive-and-delete"] == ("dies/2", "dies/3", "dies/4", "poison/2")
    assert lost["EventBridge, no DLQ"] == lost["Event Grid, no dead letters"] == ("poison/2",)
    short = play(VARIANTS["EventBridge V2, FIFO"])
    assert short.dead == ("poison/2", "night/1", "night/2", "night/3", "night/4")
    assert (short.recovered, short.out_of_order) == (None, ())
    assert (short.repeats, short.effects("id")) == (1, 19)  # slow/2; the bus drops the second publication of twice/2
    once = play(VARIANTS["Pub/Sub, exactly once"])
    # Their acknowledgements must wait for the poison step, so they run five times and die with it.
    assert (once.after_ack, once.dead, once.repeats) == (0, ("poison/2", "poison/3", "poison/4"), 12)


def test_a_long_window_holds_a_group_for_as_long() -> None:
    age = facts("eventbridgev2.retry.max_age")
    report = play(lambda c: EventBridge(c, hold="group", max_retries=185, max_age=float(age)), Script(("poison",)))
    third = next(c.at for c in report.completions if c.body == "poison/3")
    assert third > 20 * 3600
    free = play(EventBridge, Script(("poison",)))
    assert next(c.at for c in free.completions if c.body == "poison/3") < 10


def test_a_batch_of_one_keeps_followers_from_being_taken_along() -> None:
    report = play(COLUMNS["Pub/Sub"], Script(batch=1))
    assert report.after_ack == 0
    assert report.repeats == 2  # slow/2 and twice/2


@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(1, 10),
    steps=st.integers(2, 6),
    work=st.floats(0.1, 40),
    slow=st.floats(5, 500),
    down=st.floats(0, 20 * 3600),
    name=st.sampled_from(list(COLUMNS)),
)
def test_nothing_is_lost_and_order_holds_whatever_the_script(
    batch: int, steps: int, work: float, slow: float, down: float, name: str
) -> None:
    report = play(COLUMNS[name], Script(batch=batch, steps=steps, work=work, slow=slow, down=down))
    assert report.lost == ()
    assert report.left == ()
    assert set(report.published) == {*report.done, *report.dead}
    assert report.effects("step") == len(report.done) <= report.effects("id") <= report.effects()
    # A batch that outlives its lease is done by several workers at once; what they do first is then in no order.
    if name in ORDERED and min(batch, steps) * work < limit("pubsub.ack_deadline.default"):
        assert report.out_of_order == ()


def test_without_a_dead_letter_place_a_poison_message_ends_with_its_retention() -> None:
    report = play(lambda c: Sqs(c, fifo=True, retention=3600), Script(("poison",)))
    assert report.lost == ("poison/2",)
    assert report.noticed is None


def test_a_script_that_never_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labkit.models.clouds.scenario._MOST", 500)
    with pytest.raises(ModelError, match="more than 500 turns: set a dead-letter place or a shorter retention"):
        play(Sqs, Script(("poison",)))


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"sessions": ("calm", "storm")}, "sessions must be among calm, dies, slow, poison, twice, night; got storm."),
        ({"steps": 1}, "steps must be a whole number of at least 2; got 1."),
        ({"batch": 0}, "batch must be a whole number of at least 1; got 0."),
        ({"work": -1}, "work must be at least 0 s; got -1."),
    ],
)
def test_a_script_that_cannot_be(bad: dict[str, object], says: str) -> None:
    with pytest.raises(ModelError) as caught:
        Script(**bad)  # type: ignore[arg-type]
    assert str(caught.value) == says


def test_effects_knows_its_keys() -> None:
    with pytest.raises(ModelError, match="key must be 'id', 'step' or empty; got 'trace'"):
        play(EventGrid, Script(("calm",))).effects("trace")


def test_a_worker_that_closes_without_a_word_makes_a_loop() -> None:
    """Microsoft, message-sessions: closing a session with unsettled messages does not raise the delivery count."""
    clock = Clock()
    broker = ServiceBus(clock, sessions=True)
    broker.publish("poison", key="s")
    for turn in range(100):
        assert broker.receive(by=f"w{turn}")
        broker.close(f"w{turn}")
    assert broker.dead == []


def test_a_report_says_what_is_nowhere() -> None:
    report = play(VARIANTS["Service Bus, receive-and-delete"], Script(("dies",)))
    assert isinstance(report, Report)
    assert report.row()["lost"] == 3
