"""Which wall comes first? Every ceiling that a fleet grows towards, with its share, its source, and whose it is.

A wall belongs to something: a quota of the account in a Region is shared with everybody else there, one of a queue is
not; one of an execution does not care how many there are. ``per`` says which. A wall that scales with the fleet has
``room``: how many times larger the fleet may get. One that does not (the length of a chain against Express) is hit by
the first conversation or by none.

Quotas are AWS's defaults from facts, by Region where they differ; for those of the smaller Regions the least that AWS
lists is taken. What is no quota of AWS (pods, the model's tokens) you say in :class:`Room`. Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from labkit.facts import fact
from labkit.models import workflows
from labkit.models._input import ModelError, a, flag, limit, number, one_of, whole
from labkit.models.amplification import calls
from labkit.models.little import Load
from labkit.models.windows import Window
from labkit.models.workload import Workload

__all__ = ["Room", "Wall", "first", "walls"]

Per = Literal["queue", "account and Region", "execution", "item", "subscriber", "cluster", "model", "record"]
_WORKERS = ("pods", "lambda", "sessions")
_MINUTE = 60.0
_HISTORY = 6  # events of a callback step: entered, scheduled, started, submitted, succeeded, exited
_ENDS = 2  # … and of the execution: started, succeeded


@dataclass(frozen=True)
class Room:
    """What the fleet runs on, beside AWS's quotas.

    ``workers``: ``pods`` (``pods`` of them with ``slots`` steps each at once), ``lambda``, or ``sessions`` of AgentCore
    (one for each open conversation; whether AWS counts one that idles after its last step is not verified, and here it
    does not). ``busiest``: the share of the messages that goes through the busiest queue, 1.0
    where there is one queue. ``slow``: seconds of a slow step (95th percentile), the mean step's where 0. ``express``:
    the chain runs in an Express workflow. ``map_seconds``: how long the Map Run of a conversation is open. ``gate``:
    each step writes so often to one item that all share (a fleet-wide semaphore: take and give back are 2).
    ``model_tokens``: the model's quota a minute. ``record``: seconds for which an idempotency record stands, held
    against what ``window`` needs. ``v2_buses``, ``filter_changes`` (of one subscriber, a day): on a V2 bus.
    0 leaves a wall out. ``region`` decides which quotas hold.
    """

    workers: Literal["pods", "lambda", "sessions"] = "pods"
    pods: int = 60
    slots: int = 10
    busiest: float = 1.0
    slow: float = 0.0
    express: bool = False
    map_seconds: float = 0.0
    gate: float = 0.0
    model_tokens: float = 0.0
    record: float = 0.0
    window: Window = field(default_factory=Window)
    v2_buses: int = 0
    filter_changes: int = 0
    region: str = "us-east-1"

    def __post_init__(self) -> None:
        one_of("workers", self.workers, _WORKERS)
        whole("pods", self.pods)
        whole("slots", self.slots)
        number("busiest", self.busiest, high=1.0)
        for name in ("slow", "map_seconds", "gate", "model_tokens", "record", "v2_buses", "filter_changes"):
            number(name, getattr(self, name), finite=True)
        flag("express", self.express)
        a("window", self.window, Window, "Window(replay=86_400)")
        a("region", self.region, str, '"eu-west-1"')

    def top(self, regions: str) -> bool:
        """Is the Region one of those that the fact ``regions`` lists?"""
        return self.region in str(fact(regions).value).split("|")


@dataclass(frozen=True)
class Wall:
    """One ceiling: ``usage`` and ``limit`` in ``unit``, ``per`` whom, whether AWS (or you) can raise it, and source.

    ``grows``: does the usage grow with the number of conversations?
    """

    name: str
    usage: float
    limit: float
    unit: str
    per: Per
    adjustable: bool
    source: str
    grows: bool = True

    @property
    def percent(self) -> float:
        """Share of the limit in per cent; over 100 means that it stands in the way now."""
        return 100 * self.usage / self.limit

    @property
    def room(self) -> float | None:
        """How many times larger the fleet may get; below 1 it is too large already. None where size is not what
        counts."""
        if not self.grows:
            return None
        return math.inf if not self.usage else self.limit / self.usage


def walls(workload: Workload, room: Room | None = None) -> list[Wall]:
    """The walls that ``workload`` has a share in, the nearest first."""
    a("workload", workload, Workload, "Workload(conversations=500)")
    if room is not None:
        a("room", room, Room, "Room(pods=60)")
    found = _walls(workload, room or Room())
    return sorted((wall for wall in found if wall.usage), key=lambda wall: (-wall.percent, wall.name))


def first(workload: Workload, room: Room | None = None) -> Wall:
    """The wall that a growing fleet of this kind meets first. Raises ModelError for a fleet that does nothing."""
    growing = [wall for wall in walls(workload, room) if wall.grows]  # the nearest is the first
    if not growing:
        raise ModelError(f"conversations must be more than 0 to meet a wall; got {workload.conversations:g}.")
    return growing[0]


def _walls(w: Workload, room: Room) -> Iterator[Wall]:
    yield from _messages(w, room)
    yield from _workflows(w, room)
    yield from _workers(w, room)
    yield from _fixed(room)
    if room.gate:
        yield _wall("the gate's one item", w.steps_per_second * w.deliveries * room.gate,
                    "dynamodb.partition.write_units", "item", adjustable=False)  # fmt: skip
    if w.memory_tokens:
        yield _wall("memory extraction", w.conversations * w.memory_tokens, "agentcore.memory.extraction")
    if room.model_tokens:
        asked = w.steps_per_minute * w.deliveries * (w.input_tokens + w.output_tokens)
        yield Wall("model tokens", asked, room.model_tokens, "tokens/min", "model", True, "yours: Service Quotas")


def _fixed(room: Room) -> Iterator[Wall]:
    """Walls that one deployment meets, or one record: no conversation makes them nearer."""
    yield _wall("V2 buses", room.v2_buses, "eventbridgev2.buses", grows=False)
    yield _wall("filter changes a day", room.filter_changes, "eventbridgev2.subscriber.filter_changes_per_day",
                "subscriber", False, grows=False)  # fmt: skip
    if room.record:
        source = "labkit.models.windows: event age, retention, dead letters, replay"
        yield Wall("idempotency window", room.window.needed, room.record, "s", "record", True, source, grows=False)


def _messages(w: Workload, room: Room) -> Iterator[Wall]:
    load = Load(w.load.rate * room.busiest, w.load.seconds)
    yield _wall("messages in flight", load.in_flight, "sqs.inflight.cap", "queue")
    top = room.top("events.put.rate.top_regions")
    put = "events.put.rate.us_east_1" if top else "events.put.rate.other.min"
    yield _wall("PutEvents requests", calls(w).per_second("PutEvents"), put)
    target = "events.invocations.rate.us_east_1" if top else "events.invocations.rate.other.min"
    yield _wall("deliveries of the bus", w.steps_per_second * w.events, target)


def _workflows(w: Workload, room: Room) -> Iterator[Wall]:
    top = room.top("sfn.callback.top_regions")
    refill = "sfn.callback.refill" if top else "sfn.callback.other.refill"
    made = calls(w)
    for operation in ("SendTaskSuccess", "SendTaskHeartbeat"):  # a bucket for each
        yield _wall(operation, made.per_second(operation), refill)
    if room.express:
        if w.callbacks:
            raise ModelError(f"callbacks must be 0 in an Express workflow, which takes no token; got {w.callbacks:g}.")
        ceiling = workflows.express_ceiling(w.steps, room.slow or w.step_seconds)
        yield _wall("Express duration", ceiling.seconds, "sfn.express.max_duration", "execution", False, grows=False)
        yield _wall("Express starts", w.conversations / _MINUTE, "sfn.start.express")
    elif w.transitions:
        start = "sfn.start.standard.refill" if top else "sfn.start.standard.other.refill"
        yield _wall("StartExecution", w.conversations / _MINUTE, start)
        moved = "sfn.transitions.us_east_1" if top else "sfn.transitions.other"
        yield _wall("state transitions", w.steps_per_second * w.transitions, moved)
        yield _wall("open executions", w.open_conversations, "sfn.executions.open")
        written = w.steps * w.transitions * _HISTORY + _ENDS
        yield _wall("history of one execution", written, "sfn.history.max_events", "execution", False, grows=False)
    if room.map_seconds:
        yield _wall("open Map Runs", w.conversations / _MINUTE * room.map_seconds, "sfn.map.open_runs",
                    adjustable=False)  # fmt: skip


def _workers(w: Workload, room: Room) -> Iterator[Wall]:
    if room.workers == "pods":
        slots = float(room.pods * room.slots)
        yield Wall("pods x slots", w.in_flight, slots, "steps", "cluster", True, "yours: maxReplicaCount, prefetch")
    elif room.workers == "sessions":
        top = room.top("agentcore.sessions.top_regions")
        yield _wall("active sessions", w.open_conversations,
                    "agentcore.sessions.us_east_1" if top else "agentcore.sessions.other")  # fmt: skip
    else:
        yield _wall("Lambda concurrency", w.in_flight, "lambda.concurrency.default")
        yield _wall(
            "Lambda timeout", room.slow or w.step_seconds, "lambda.timeout.max", "execution", False, grows=False
        )
        busiest = w.in_flight * room.busiest
        yield _wall("concurrency of one mapping", busiest, "lambda.esm.standard.cap", "queue")  # provisioned: more


def _wall(
    name: str, usage: float, key: str, per: Per = "account and Region", adjustable: bool = True, *, grows: bool = True
) -> Wall:
    known = fact(key)
    return Wall(name, usage, float(limit(key)), known.unit, per, adjustable, f"{known.id}: {known.source}", grows)
