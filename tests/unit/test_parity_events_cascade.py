"""What one event sets off: how many deliveries, on which thread, and what is dropped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest
from parity.events_cascade import Cascades


class World:
    """Buses that pass each event on to each other for ever, and a background that waits until it is asked to run."""

    def __init__(self, at_once: int, limit: int) -> None:
        self.later: list[Callable[[], object]] = []
        self.made: list[int] = []
        self.depth = self.deepest = 0
        self.cascades = Cascades(self.later.append, at_once=at_once, limit=limit)

    def event(self, targets: int, generations: int) -> None:
        self.cascades.add(self.walk(targets, generations), "the event")

    def walk(self, targets: int, generations: int) -> Iterator[None]:
        for _ in range(targets):
            self.depth += 1
            self.deepest = max(self.depth, self.deepest)
            self.made.append(generations)
            if generations:
                self.event(targets, generations - 1)
            self.depth -= 1
            yield

    def run(self) -> None:
        while self.later:
            self.later.pop(0)()


def test_few_deliveries_are_made_at_once() -> None:
    world = World(10, 100)
    world.event(3, 0)
    assert (world.made, world.later) == ([0] * 3, [])


def test_those_of_the_next_bus_come_after_those_of_this_one() -> None:
    world = World(100, 100)
    world.event(2, 1)
    assert world.made == [1, 1, 0, 0, 0, 0]
    assert world.deepest == 1


def test_many_deliveries_go_on_in_the_background() -> None:
    world = World(10, 100)
    world.event(5, 1)
    assert len(world.made) == 10
    world.run()
    assert len(world.made) == 30


def test_what_is_beyond_the_limit_is_dropped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    world = World(10, 100)
    with caplog.at_level(logging.WARNING, "parity.events"):
        world.event(10, 1000)
        world.run()
    assert len(world.made) == 100
    assert caplog.messages == ["the event set off more than 100 deliveries; the rest is dropped"]


def test_each_event_has_a_limit_of_its_own() -> None:
    world = World(10, 100)
    for _ in range(3):
        world.event(10, 1000)
    world.run()
    assert len(world.made) == 300


def test_a_rule_that_breaks_costs_nobody_else_anything(caplog: pytest.LogCaptureFixture) -> None:
    world = World(10, 100)

    def broken() -> Iterator[None]:
        world.event(2, 0)
        yield
        raise RuntimeError("broken")

    world.cascades.add(broken(), "the event")
    assert world.made == [0, 0]
    assert "broke" in caplog.text
    world.event(1, 0)
    assert world.made == [0, 0, 0]
