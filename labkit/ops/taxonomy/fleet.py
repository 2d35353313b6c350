"""A fleet to break: every hop of the topology once, and a ledger that knows what was done.

Small, and made of the pieces that the course has built: a bus, two rules with a retry policy and a dead-letter queue,
a work queue with one, a worker with an idempotency store; and when they are asked for, a function behind a queue, a
state machine that waits for a token, a model with a fallback. The worker runs from the beginning, in a thread of this
process, with AWS clients of its own: what is done to those, nobody else feels. ::

    fleet = Fleet.create(lab)
    ids = fleet.send(3)                 # three events on the bus
    fleet.settle(ids)                   # Account(sent=3, done=3, dead=0, lost=0, duplicated=0, runs=3)

The *ledger* is the outside world: a step writes into it when its work is done. The *outbox* is what was sent, kept by
the sender until the ledger has it: what a bus has dropped, nobody else can bring back.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from labkit.control.bus import Bus, RetryPolicy
from labkit.control.callbacks import Callbacks
from labkit.control.envelope import Envelope
from labkit.models.retry import Fixed
from labkit.ops.taxonomy.ledger import Account, Ledger, TaxonomyError
from labkit.ops.taxonomy.parts import Parts
from labkit.ops.triage import move_ended
from labkit.state.idempotency import IdempotencyStore, Work
from labkit.work.queues import Queue
from labkit.work.worker import Task, Worker

if TYPE_CHECKING:
    from labkit.control.executions import Execution
    from labkit.lab import Lab

__all__ = ["WITHIN", "Account", "Fleet", "TaxonomyError"]

WITHIN = 60.0  # seconds for whatever is waited for: a bound, far above what it takes
_RECEIVES = 5  # deliveries
_FASTER = 60  # EventBridge's waits between retries, on the stand-in: an hour of them is a minute


class Fleet(Parts):
    """One fleet. ``step(task)`` is what the worker runs; :meth:`stepping` puts another in its place for a while.

    Attributes: ``bus``, ``rules`` (by name, their target), ``queue`` (the worker's), ``calls`` (the function's),
    ``rule_dlq``, ``store``, ``callbacks``, ``ledger``, ``outbox``, ``executions``.
    """

    timeout = 10  # seconds, of the function and its queue

    def __init__(self, lab: Lab, name: str = "fleet", *, visibility: int = 4) -> None:
        self.lab, self.name, self.ledger, self.began = lab, name, Ledger(), datetime.now(UTC)
        self.visibility = visibility
        self.outbox: dict[str, Envelope] = {}
        self.executions: list[Execution] = []
        self.published = 0  # events that the bus has, as far as their sender knows
        sqs, events = (lab.target.client(service, lab.account) for service in ("sqs", "events"))
        self.cloudwatch = lab.client("cloudwatch")  # kept: a lab that closes gives no client to other threads
        bus = Bus.create(lab, name, tags={"lab:clock-scale": str(_FASTER)})
        self.bus = Bus(events, bus.name, tags=lab.tags)
        self.rule_dlq = Queue.create(lab, f"{name}-rule-dlq")
        self.rules: dict[str, Queue] = {}
        for consumer, hidden, most in (("researcher", self.visibility, _RECEIVES), ("caller", self.timeout, 2)):
            made = Queue.create(lab, f"{name}-{consumer}", visibility=hidden, dlq=True, max_receives=most)
            self.rules[consumer] = Queue(sqs, made.url, arn=made.arn, dlq=made.dlq)
            wanted = {"detail": {"agent_class": [consumer]}}
            self.bus.rule(consumer, wanted, made, retry=RetryPolicy(attempts=24, age=3600), dlq=self.rule_dlq)
        self.queue, self.calls = self.rules.values()
        self.store = IdempotencyStore.create(lab, f"{name}-steps", lease=0.75 * visibility)
        self.callbacks, beats = Callbacks(lab), Callbacks(lab)  # two: a late heartbeat is not a late answer
        self._keep_alive = beats.keep_alive
        self.step: Callable[[Task], Any] = self.work
        self.ask: Callable[[str], Any] = self.converse  # what a step that needs a model calls
        self._worker: Worker | None = None
        self._thread: threading.Thread | None = None
        self._numbers = 0
        self._over, self._switch = threading.Event(), threading.Lock()

    @classmethod
    def create(cls, lab: Lab, name: str = "fleet", *, visibility: int = 4) -> Fleet:
        """Make a fleet in ``lab`` and start its worker; the end of the lab ends it.

        ``visibility``, in seconds, of the worker's queue: so long a crash costs, and so long a machine may stand still
        before a healthy step is begun again. A claim holds for three quarters of it; within it a heartbeat must come.
        """
        fleet = cls(lab, name, visibility=visibility)
        lab.on_close(f"the worker of {name}", fleet.end)
        fleet.start()
        return fleet

    # -- the worker ------------------------------------------------------------------------------------------------

    def work(self, task: Task) -> str:
        """The step as it should be: begun, checked, done."""
        self.ledger.begins(task.trace_id)
        task.check()
        self.ledger.ends(task.trace_id)
        return "done"

    @contextmanager
    def stepping(self, step: Callable[[Task], Any]) -> Iterator[None]:
        """Let the worker run ``step`` until the block ends."""
        self.step, before = step, self.step
        try:
            yield
        finally:
            self.step = before

    def start(self) -> None:
        """Start the worker. A second start is harmless, and so is one of a fleet that has ended."""
        with self._switch:
            if self._thread is not None or self._over.is_set():
                return
            self._worker = Worker(
                self.queue, lambda task: self.step(task), store=self.store, consumer="researcher", parse=_parse,
                threads=2, visibility=self.visibility, wait=1, grace=5.0, retry=Fixed(0), then=self.callbacks.then,
                keep_alive=self._keep_alive, on_event=lambda event: self.ledger.hears(event.kind),
            )  # fmt: skip
            self._thread = threading.Thread(target=self._worker.run, name=f"labkit-{self.name}-worker", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the worker, and wait for that. A second stop is harmless."""
        with self._switch:
            if self._worker and self._thread:
                self._worker.stop()
                self._thread.join(WITHIN)
                self._worker = self._thread = None

    def end(self) -> None:
        """Stop for good: nobody starts the worker again, and whoever waits for this fleet is told."""
        self._over.set()
        self.stop()

    @property
    def ended(self) -> bool:
        """Whether it was stopped for good."""
        return self._over.is_set()

    # -- in ----------------------------------------------------------------------------------------------------------

    def send(self, count: int = 3, *, to: str = "researcher") -> list[str]:
        """Publish so many steps for ``to`` (``researcher``: the worker, ``caller``: the function); their trace ids."""
        if to not in self.rules:
            raise TaxonomyError(f"steps are for {' or '.join(self.rules)}; no rule sends any to {to!r:.60}.")
        made = []
        for _ in range(count):
            self._numbers += 1
            payload = {"topic": f"question {self._numbers}"}
            talk = f"{self.name}-{self._numbers}"
            made.append(Envelope.new(conversation_id=talk, step=1, agent_class=to, payload=payload))
        self.outbox.update({each.trace_id: each for each in made})
        self.published += len(self.bus.publish(made).ids)
        return [each.trace_id for each in made]

    def begin(self, count: int = 3) -> list[str]:
        """Start so many executions of the state machine; the trace ids of their steps."""
        for _ in range(count):
            self._numbers += 1
            step = {"conversation_id": f"{self.name}-{self._numbers}", "step": 1, "agent_class": "researcher"}
            self.executions.append(self.machine.start({**step, "payload": {"topic": f"question {self._numbers}"}}))
        return [f"{each.name}-step-1" for each in self.executions[len(self.executions) - count :]]

    # -- and back again --------------------------------------------------------------------------------------------

    def resend(self, ids: Iterable[str]) -> int:
        """Publish again, from the outbox, what the ledger lacks of ``ids``; how many that was.

        Records that say "done" of it are deleted first: such a record says that a step returned, and no more.
        """
        done, ids = self.done, list(ids)
        if unknown := [each for each in ids if each not in self.outbox]:
            raise TaxonomyError(f"the outbox has no {unknown[0]!r:.60}: only what was published can be sent again.")
        lacking = [self.outbox[each] for each in ids if each not in done]
        for envelope in lacking:
            key = Work.of(envelope, envelope.agent_class).key
            self.store.client.delete_item(TableName=self.store.table, Key=key)
        self.published += len(self.bus.publish(lacking).ids)
        return len(lacking)

    def send_on(self) -> int:
        """Send the letters of the rules to their targets, then delete them: no move task takes these. How many.

        What else is in the dead-letter queue stays there.
        """
        targets = {queue.arn: queue for queue in self.rules.values()}
        count, others = 0, []
        while letters := self.rule_dlq.receive(wait=1):
            for letter in letters:
                target = targets.get(str(letter.attributes.get("TARGET_ARN", "")))
                if target is None and "RULE_ARN" not in letter.attributes:
                    others.append(letter)
                    continue
                (target or self.queue).send(letter.body)  # a target that is gone: to the one that should be there
                self.rule_dlq.delete(letter)
                count += 1
        self.rule_dlq.give_back(*others)
        return count

    def redrive(self, queue: Queue) -> None:
        """Move the dead letters of ``queue`` back to it, and wait until that is over."""
        dead = queue.dlq
        if dead is not None and dead.depth().total:
            dead.client.start_message_move_task(SourceArn=dead.arn, DestinationArn=queue.arn)
            task = move_ended(dead, seconds=WITHIN)
            if task["Status"] != "COMPLETED":
                raise TaxonomyError(f"the move task out of {dead.name} is {task['Status']}.")

    # -- accounts --------------------------------------------------------------------------------------------------

    @property
    def done(self) -> Counter[str]:
        """Lines in the ledger, by trace id: the worker's, and what the function has logged."""
        return self.ledger.done + self.logged("done")

    @property
    def runs(self) -> Counter[str]:
        """Beginnings of steps, by trace id, wherever they run."""
        return self.ledger.runs + self.logged("run")

    @property
    def dead(self) -> int:
        """Letters in the three dead-letter queues."""
        return sum(each.depth().total for each in (self.rule_dlq, self.queue.dlq, self.calls.dlq) if each)

    def missing(self, ids: Iterable[str]) -> int:
        """How many of ``ids`` are neither in the ledger nor in any queue: what has vanished.

        No message is read for that, so whatever else waits in a queue may hide some.
        """
        waiting = self.dead + self.queue.depth().total + self.calls.depth().total
        done = self.done
        return max(0, sum(each not in done for each in ids) - waiting)

    def until(self, condition: Callable[[], Any], what: str, *, within: float = WITHIN) -> Any:
        """Wait until ``condition`` holds; returns what it gives. Raises :class:`TaxonomyError` after ``within``
        seconds, and when the fleet ends."""
        end, pause = time.monotonic() + within, 0.02
        while not (found := condition()):
            if self._over.is_set():
                raise TaxonomyError(f"the fleet {self.name} has ended; nobody waits for {what} any more.")
            if time.monotonic() >= end:
                raise TaxonomyError(f"waited {within:g} s for {what}.")
            time.sleep(pause)
            pause = min(0.25, pause * 1.5)
        return found

    def settle(self, ids: list[str], *, within: float = WITHIN) -> Account:
        """Wait until all of ``ids`` are in the ledger and nothing is on its way any more; the account of them.

        What has not come after ``within`` seconds counts as what it is then: dead, or lost.
        """

        def quiet() -> bool:
            done = self.done
            still = self.queue.depth().total == self.calls.depth().total == 0
            return still and all(each in done for each in ids) and all(e.status != "RUNNING" for e in self.executions)

        with suppress(TaxonomyError):
            self.until(quiet, "the fleet to be done", within=within)
        done, runs = self.done, self.runs
        there = [each for each in ids if each in done]
        again = sum(done[each] - 1 for each in there)
        return Account(len(ids), len(there), self.dead, self.missing(ids), again, sum(runs[each] for each in ids))


def _parse(body: str) -> Envelope:
    """From a rule a whole event, from a state machine the envelope alone."""
    found = json.loads(body)
    return Envelope.parse(found.get("detail", found) if isinstance(found, dict) else found)
