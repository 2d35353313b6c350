"""Lanes of deliveries: the words say what the history says, and nothing that cannot be drawn is drawn."""

from __future__ import annotations

import pytest

from labkit.models.clouds import COLUMNS, VARIANTS, Clock, EventGrid, PubSub, Script, Sqs, play
from labkit.models.clouds.vocabulary import Event
from labkit.teach.deliveries import comparison, delays, lanes


def history() -> list[Event]:
    clock = Clock()
    broker = PubSub(clock, ordering=True)
    for body in ("1", "2"):
        broker.publish(body, key="s")
    first, second = broker.receive(2)
    broker.ack(second)
    clock.advance(10)
    broker.ack(first)
    for delivery in broker.receive(2):
        clock.advance(1)
        broker.ack(delivery)
    return broker.history


def test_the_words_are_made_from_the_history() -> None:
    picture = lanes(history(), title="Two")
    assert repr(picture) == (
        "Two. 1: delivered twice, acknowledged at 11 s. "
        "2: delivered twice, opened again after its acknowledgement, acknowledged at 12 s."
    )
    assert picture.png.startswith(b"\x89PNG")


def test_what_ends_badly_is_said() -> None:
    clock = Clock()
    broker = EventGrid(clock, dead_letter=False)
    broker.publish("a", name="a")
    broker.publish("never", name="never")
    broker.nack(broker.receive()[0], "400")
    assert repr(lanes(broker.history)) == "a: delivered once, lost at 0 s. never: never delivered."
    kept = EventGrid(clock)
    kept.publish("a")
    kept.nack(kept.receive()[0], "400")
    clock.advance(300)
    kept.tick()
    assert repr(lanes(kept.history, unit="min")) == "a: delivered once, dead-lettered at 5 min."


def test_a_selection_counts_from_its_own_beginning() -> None:
    clock = Clock()
    broker = Sqs(clock)
    broker.publish("early", key="x")
    clock.advance(100)
    broker.publish("late", key="y")
    for delivery in broker.receive(2):
        clock.advance(5)
        broker.ack(delivery)
    assert repr(lanes(broker.history, only=lambda e: e.key == "y")) == "late: delivered once, acknowledged at 10 s."


def test_at_most_twelve_lanes_and_the_words_say_so() -> None:
    broker = Sqs(Clock())
    for number in range(20):
        broker.publish(str(number))
    assert repr(lanes(broker.history, log=True)).endswith("The picture shows the first 12 of 20 messages.")


def test_what_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match="lanes needs at least one published message"):
        lanes([])
    with pytest.raises(ValueError, match="unit must be one of s, min, h, d; got 'week'"):
        lanes(history(), unit="week")


def test_own_words() -> None:
    assert repr(lanes(history(), says="Two messages on one subscription.")) == "Two messages on one subscription."


def test_rows_side_by_side() -> None:
    reports = {name: play(COLUMNS[name]) for name in ("Pub/Sub", "Event Grid")}
    found = comparison(reports)
    assert found.cells == [
        ["Pub/Sub", "23", "12", "8", "0", "1", "–", "40 s", "8 s", "step"],
        ["Event Grid", "23", "2", "0", "0", "1", "dies, slow", "34.9 h", "3.3 h", "id or step"],
    ]
    picture = delays(reports)
    assert repr(picture).endswith(
        "Pub/Sub: done after 8 s, dead letter after 40 s; Event Grid: done after 3.3 h, dead letter after 34.9 h."
    )
    assert picture.png.startswith(b"\x89PNG")


def test_a_row_without_either_time() -> None:
    reports = {"none": play(VARIANTS["EventBridge, no DLQ"], Script(("calm",)))}
    assert repr(delays(reports)).endswith("none: neither.")
    assert comparison(reports).cells[0][-3:-1] == ["–", "–"]
