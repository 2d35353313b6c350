"""Which mappings are at work, and their hands in MiniStack: its queues and its functions.

**On AWS** a mapping works while it is enabled and its queue and its function are there; it stays when one of them is
deleted, and goes on when it is back (recorded for a deleted function: the mapping stays Enabled).

**MiniStack** looks at all mappings of all accounts on one thread, which also serves streams.

**Here** that thread, once a second and whenever something was sent, and each call that changes a mapping, has
:class:`Pollers` compare what should be at work with what is. Everything is found by name when it is needed, so that a
function's new code, a queue that was made again, and a mapping that CloudFormation made are all seen. Nothing of a
mapping is left when it, its queue or its function is gone: a poller has no thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from parity.esm_filter import Filter, patterns_of
from parity.esm_gather import Batch, Held
from parity.esm_loop import Loop
from parity.esm_poller import Job, Outcome, Poller, Settings
from parity.esm_records import event_of, record_of, size_of
from parity.esm_response import REPORT
from parity.esm_scaling import Bounds
from parity.esm_states import TRANSITION, deleted, receives
from parity.sqs_errors import SqsError
from parity.sqs_mailbox import Mailbox, mailbox

logger = logging.getLogger("parity.esm")

Key = tuple[str, str, str]  # account, Region, UUID
Mapped = dict[str, Any]


def settings_of(mapping: Mapping[str, Any], *, fifo: bool) -> Settings:
    return Settings(
        batch_size=int(mapping.get("BatchSize") or 10),
        window=float(mapping.get("MaximumBatchingWindowInSeconds") or 0),
        fifo=fifo,
        reports=REPORT in (mapping.get("FunctionResponseTypes") or []),
        bounds=Bounds.of(mapping, fifo=fifo),
    )


class Hands:
    """One mapping's queue and function, in MiniStack's ``sqs`` and ``lambda_svc`` modules."""

    def __init__(self, key: Key, mapping: Mapped, queue: Mapped, scope: Any, sqs: Any, functions: Any) -> None:
        self.account, self.region, _ = key
        self.mapping = mapping
        self.url = queue["url"]
        self.box: Mailbox = mailbox(queue)
        self.poller: Poller | None = None
        self.idle = False  # messages were left alone, as below: no change of the queue will tell when that is over
        self._scope = scope
        self._sqs = sqs
        self._functions = functions

    # -- the queue -------------------------------------------------------------------------------------------------

    def receive(self, limit: int) -> list[Held]:
        with self._scope(self.account, self.region):
            # Not to be taken any more, although the thread that stops this poller has not come to it yet: the function
            # was deleted, and a message would stay invisible for nothing; or the mapping is shown as Disabled.
            if self._function() is None or not receives(self.mapping, time.time()):
                self.idle = True
                return []
            try:
                messages = self._sqs._receive_messages_for_esm(self.url, limit)
            except SqsError:  # the queue is gone
                return []
            return [self._held(message) for message in messages]

    def _held(self, message: Mapping[str, Any]) -> Held:
        record = record_of(
            message,
            arn=self.box.arn,
            digest=self._sqs._md5_msg_attrs(message.get("message_attributes")),
            sender=self.account,
            window=self.mapping.get("MaximumBatchingWindowInSeconds") or 0,
        )
        return Held(
            message["id"],
            message["receipt_handle"],
            record,
            size_of(record),
            message["received_at"],
            message["visible_at"],
        )

    def delete(self, batch: Batch) -> None:
        with self._scope(self.account, self.region):
            try:
                self._sqs._delete_messages_for_esm(self.url, [held.handle for held in batch])
            except SqsError as error:  # the queue is gone
                logger.info("%d messages of %s not deleted: %s", len(batch), self.url, error.message)
            except Exception:  # an error of ours must not cost the mapping one of its places
                logger.exception("%d messages of %s not deleted", len(batch), self.url)

    def backlog(self) -> bool:
        with self._scope(self.account, self.region):
            return self.box.counts()[0] > 0 and self._function() is not None

    def next_change(self) -> float | None:
        return self.box.next_change()

    def on_change(self, waiter: Callable[[], None]) -> None:
        self.box.on_change(waiter)

    def forget(self, waiter: Callable[[], None]) -> None:
        self.box.forget(waiter)

    # -- the function ----------------------------------------------------------------------------------------------

    def _function(self) -> Any:
        """The function as it is now, None where there is none; in the mapping's scope."""
        name, qualifier = self.mapping["FunctionName"], self.mapping.get("Qualifier")
        return self._functions._get_func_record_for_qualifier(name, qualifier)[0]

    def invoke(self, job: Job) -> None:
        """Invoke on a thread of its own: a function may call the stand-in, and may take long."""
        thread = threading.Thread(target=self._run, args=(job,), name="event-source-mapping", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # this machine has no more threads
            self._finished(job, Outcome(throttled=True))

    def _run(self, job: Job) -> None:
        try:
            with self._scope(self.account, self.region):
                outcome = self._call(event_of([held.record for held in job.batch]))
        except Exception:
            logger.exception("an invocation of %s broke", self.mapping.get("FunctionArn"))
            outcome = Outcome(error=True)
        self._finished(job, outcome)

    def _finished(self, job: Job, outcome: Outcome) -> None:
        if self.poller is not None:
            self.poller.finished(job, outcome)

    def _call(self, event: Mapped) -> Outcome:
        function = self._function()
        if function is None:
            return Outcome(error=True)
        result = self._functions._execute_function(function, event)
        return Outcome(bool(result.get("error")), bool(result.get("throttle")), result.get("body"))


class Pollers:
    def __init__(self, loop: Loop, sqs: Any, functions: Any, matches: Callable[[str, Any], bool], scope: Any) -> None:
        self._loop = loop
        self._sqs = sqs
        self._functions = functions
        self._matches = matches
        self._scope = scope
        self._lock = threading.Lock()
        self._working: dict[Key, tuple[Hands, Poller, tuple[Settings, list[str]]]] = {}

    def changed(self, at: float | None = None) -> None:
        """Look at the mappings at the moment ``at`` (epoch seconds), or as soon as may be."""
        self._loop.wake(self, at)

    def step(self) -> float | None:
        self.compare()
        # A mapping begins, or ends, when its change is over: the loop keeps one moment for this step, and a wake-up
        # for now has taken its place.
        now = time.time()
        changing = (one for _, _, one in self._functions._iter_all_esms() if TRANSITION in one)
        ends = [mapping[TRANSITION]["Until"] for mapping in changing]
        return min((end for end in ends if end > now), default=None)

    def compare(self) -> bool:
        """Start and stop pollers. In the place of MiniStack's poll of all queues, which says whether it found work."""
        with self._lock:
            wanted = dict(self._wanted())
            for key in self._working.keys() - wanted.keys():
                self._stop(key)
            for key, (mapping, queue) in wanted.items():
                self._have(key, mapping, queue)
        return False

    def _wanted(self) -> Iterator[tuple[Key, tuple[Mapped, Mapped]]]:
        now = time.time()
        for account, region, mapping in self._functions._iter_all_esms():
            if str(mapping.get("EventSourceArn")).split(":")[2:3] != ["sqs"]:
                continue
            if deleted(mapping, now):
                self._functions._esms.pop_scoped(account, region, mapping["UUID"], None)
            elif receives(mapping, now):
                with self._scope(account, region):
                    name, qualifier = mapping["FunctionName"], mapping.get("Qualifier")
                    function, _ = self._functions._get_func_record_for_qualifier(name, qualifier)
                    queue = self._sqs._queue_by_arn(mapping["EventSourceArn"])
                if function is not None and queue is not None:
                    yield (account, region, mapping["UUID"]), (mapping, queue)

    def _have(self, key: Key, mapping: Mapped, queue: Mapped) -> None:
        settings, patterns = settings_of(mapping, fifo=bool(queue.get("is_fifo"))), patterns_of(mapping)
        if key in self._working:
            hands, poller, before = self._working[key]
            if hands.box is mailbox(queue) and hands.mapping is mapping:
                if hands.idle:  # gone and back between two looks
                    hands.idle = False
                    self._loop.wake(poller)
                if before != (settings, patterns):
                    poller.configure(settings, Filter(patterns, self._matches).takes)
                    self._working[key] = hands, poller, (settings, patterns)
                    self._loop.wake(poller)
                return
            self._stop(key)
        hands = Hands(key, mapping, queue, self._scope, self._sqs, self._functions)
        poller = Poller(
            hands,
            settings,
            invoke=hands.invoke,
            wake=lambda at: self._loop.wake(poller, at),
            clock=self._loop.clock,
            takes=Filter(patterns, self._matches).takes,
        )
        hands.poller = poller
        self._working[key] = hands, poller, (settings, patterns)
        self._loop.wake(poller)

    def _stop(self, key: Key) -> None:
        _, poller, _ = self._working.pop(key)
        poller.close()
        self._loop.forget(poller)


_pollers: Pollers | None = None


def pollers() -> Pollers:
    """Those of this process, once installed."""
    if _pollers is None:
        raise RuntimeError("esm_pollers is not installed")
    return _pollers


def install() -> None:
    global _pollers

    from ministack.core.responses import request_scope
    from ministack.services import eventbridge, lambda_svc, sqs

    _ = sqs._receive_messages_for_esm, sqs._delete_messages_for_esm, sqs._md5_msg_attrs, sqs._queue_by_arn
    _ = lambda_svc._iter_all_esms, lambda_svc._execute_function, lambda_svc._get_func_record_for_qualifier
    _ = lambda_svc._poll_sqs, lambda_svc._poll_loop, eventbridge._compiled_pattern, eventbridge._matches_detail

    def matches(pattern: str, record: Mapping[str, Any]) -> bool:
        alternatives = eventbridge._compiled_pattern(pattern) or []
        return any(eventbridge._matches_detail(record, alternative) for alternative in alternatives)

    _pollers = Pollers(Loop(), sqs, lambda_svc, matches, partial(request_scope))
    lambda_svc._poll_sqs = _pollers.compare
