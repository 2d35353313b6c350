"""One script for five brokers: what they deliver, repeat, lose and bury when the same things go wrong.

Six sessions of ordered steps; the name of a session says what happens to its step 2:

- ``calm``: nothing
- ``dies``: its worker vanishes in the middle of it, without a word
- ``slow``: its first try takes much longer than any lease
- ``poison``: it fails, every time
- ``twice``: its producer publishes it a second time, as one does that has heard no answer
- ``night``: the whole session is published while the consumer is down, for hours

The consumer is a plain loop, as one writes it first: take a batch, work through it in order, acknowledge what went
well, leave what failed. It renews nothing and remembers nothing. Where the broker pushes, each attempt is a call of its
own, and a failed step answers with an error. A worker that left something behind does not close its session.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping
from functools import partial

from labkit.models._input import ModelError, limit
from labkit.models.clouds.broker import Broker
from labkit.models.clouds.eventbridge import EventBridge
from labkit.models.clouds.eventgrid import EventGrid
from labkit.models.clouds.pubsub import PubSub
from labkit.models.clouds.report import Completion, Report, Script
from labkit.models.clouds.servicebus import ServiceBus
from labkit.models.clouds.sqs import Sqs
from labkit.models.clouds.vocabulary import NEVER, Clock, Delivery

__all__ = ["COLUMNS", "VARIANTS", "play"]

_MOST = 100_000  # turns of the loop: a bound, not a limit of any broker
Make = Callable[[Clock], Broker]

COLUMNS: Mapping[str, Make] = {
    "SQS FIFO": lambda c: Sqs(c, fifo=True, max_receive_count=limit("sqs.redrive.max_receives.default")),
    "Pub/Sub": lambda c: PubSub(c, ordering=True, max_attempts=limit("pubsub.dead_letter.attempts.default")),
    "Service Bus": lambda c: ServiceBus(c, sessions=True, dedup_window=limit("servicebus.dedup_window.default")),
    "Event Grid": EventGrid,
    "EventBridge": EventBridge,
}
"""The five as they come, with a dead-letter place, and with their order and duplicate check where they have one."""

VARIANTS: Mapping[str, Make] = {
    "EventBridge V2, FIFO": lambda c: EventBridge(c, hold="group"),
    "EventBridge, no DLQ": lambda c: EventBridge(c, dead_letter=False),
    "Pub/Sub, exactly once": lambda c: PubSub(
        c, ordering=True, exactly_once=True, max_attempts=limit("pubsub.dead_letter.attempts.default")
    ),
    "Event Grid, no dead letters": lambda c: EventGrid(c, dead_letter=False),
    "Service Bus, receive-and-delete": lambda c: ServiceBus(c, sessions=True, mode="receive-and-delete"),
}
"""One switch away from the five."""


def play(make: Make, script: Script | None = None) -> Report:
    """Run ``script`` against the broker that ``make`` makes for a clock, until nothing happens any more."""
    return _Stage(make, script or Script()).run()


class _Stage:
    def __init__(self, make: Make, script: Script) -> None:
        self.script, self.clock = script, Clock()
        self.broker = make(self.clock)
        self.todo: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.workers = itertools.count(1)
        self.seen: set[str] = set()  # what has had its accident
        self.done: list[Completion] = []
        self.published: list[str] = []

    def run(self) -> Report:
        script = self.script
        for place, session in enumerate(script.sessions):
            night = script.down_at + min(1800.0, script.down / 2)
            begin = night if session == "night" else place * script.apart
            for step in range(1, script.steps + 1):
                self.at(begin + (step - 1) * script.gap, partial(self.publish, f"{session}/{step}"))
            if session == "twice":
                self.at(begin + script.gap + script.again, partial(self.publish, "twice/2"))
        self.at(script.down_at + script.down, lambda: None)  # the consumer is back, and looks
        for _ in range(_MOST):
            due = self.broker.due()
            moment = min(NEVER if due is None else due, self.todo[0][0] if self.todo else NEVER)
            if moment == NEVER:
                break
            self.clock.until(moment)
            while self.todo and self.todo[0][0] <= self.clock():
                heapq.heappop(self.todo)[2]()
            self.poll()
        else:
            raise ModelError(f"more than {_MOST} turns: set a dead-letter place or a shorter retention.")
        given = tuple(dict.fromkeys(self.published))
        return Report(script, tuple(self.broker.history), tuple(self.done), tuple(self.broker.left), given)

    def at(self, moment: float, what: Callable[[], None]) -> None:
        heapq.heappush(self.todo, (moment, next(self.order), what))

    def publish(self, body: str) -> None:
        self.published.append(body)
        self.broker.publish(body, key=body.split("/")[0], name=body)

    def poll(self) -> None:
        script, broker = self.script, self.broker
        down = script.down_at <= self.clock() < script.down_at + script.down
        if down and not broker.pushes:
            return
        most = 1 if broker.pushes else script.batch
        while batch := broker.receive(most, by=(worker := f"worker {next(self.workers)}")):
            if down:
                broker.nack(batch[0], "503")
            else:
                self.work(worker, batch, clean=True)

    def work(self, worker: str, batch: list[Delivery], *, clean: bool) -> None:
        if not batch:
            if clean:
                self.broker.close(worker)
            return
        first, takes = batch[0], self.script.work
        accident = first.body if first.body not in self.seen else ""
        self.seen.add(first.body)
        if accident == "dies/2":
            return  # without a word, and without the rest of the batch
        if accident == "slow/2":
            takes = self.script.slow
        self.at(self.clock() + takes, partial(self.finish, worker, batch, clean))

    def finish(self, worker: str, batch: list[Delivery], clean: bool) -> None:
        first = batch[0]
        if first.body == "poison/2":
            if self.broker.pushes:
                self.broker.nack(first, "500")
            else:
                clean = False
        else:
            self.done.append(Completion(self.clock(), first.body, first.id, worker))
            self.broker.ack(first)
        self.work(worker, batch[1:], clean=clean)
