"""A pipe's source queue in a neighbour: a long poll on a thread of its own.

**On AWS** the poller of a pipe long-polls its queue. **MiniStack** has its queues in the process, and a poller that
looks into them. **Here** :class:`BesideSource` makes of a long poll what such a poller expects. It receives when the
poller has room and not before, so that nothing is invisible that waits for nobody; it deletes what the filter does not
take; and what comes in when the pipe is already stopped is made visible again, with a receive that has counted (on AWS,
too, a receive that was under way counts; what becomes of such a message is not documented). A neighbour that does not
answer is asked again after :data:`PAUSE` seconds, for as long as the pipe runs: its messages are in its queue."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from parity.esm_gather import Batch, Held
from parity.esm_records import record_of, size_of
from parity.pipes_services import HIDDEN, Failed, Takes, Throttled

WAIT = 1  # seconds of one long poll: so long may the end of a pipe take
QUICK = 0.2  # seconds: a long poll that is over sooner, with nothing, did not wait
PAUSE = 1.0  # seconds
REFRESH = 5.0  # seconds between two looks at the queue's visibility timeout
PERSISTENT = 60.0  # seconds for which a delete that reaches nobody is tried again

logger = logging.getLogger("parity.pipes")


class FarQueue(Protocol):
    """The calls on a queue. Each raises :class:`Failed` when it is refused, :class:`Throttled` to be made again."""

    arn: str

    def receive(self, limit: int, wait: int, hidden: int | None) -> list[Mapping[str, Any]]: ...
    def delete(self, handles: Sequence[str]) -> None: ...
    def give_back(self, handles: Sequence[str]) -> None: ...
    def visibility(self) -> int: ...
    def prepare(self) -> None:
        """Do beforehand what would take time while messages are invisible."""


class BesideSource:
    """``gone()`` is called when the queue does not exist."""

    def __init__(self, queue: FarQueue, name: str, gone: Callable[[], None]) -> None:
        self._queue = queue
        self._gone = gone
        self._window = 0
        self._takes: Takes = lambda record: True
        self._changed = threading.Condition()
        self._asked = 0  # how many the poller has room for
        self._inbox: deque[Held] = deque()
        self._more = False  # the last receive gave as many as it could
        self._waiter: Callable[[], None] | None = None
        self._closed = False
        self._visibility: tuple[float, int] = (0.0, 30)  # when it was read, seconds
        self._away = False
        self._thread = threading.Thread(target=self._run, name=f"pipe {name} source", daemon=True)
        self._thread.start()

    # -- what the poller calls; none of it waits -------------------------------------------------------------------

    def serves(self, queue: Mapping[str, Any]) -> bool:
        """A queue that was deleted and made again has the same address."""
        return bool(queue.get("arn") == self._queue.arn)

    def configure(self, window: int, takes: Takes) -> Takes:
        with self._changed:
            self._window, self._takes = window, takes
        return lambda record: True  # what is not taken is deleted, which takes a call: on this side's thread

    def receive(self, limit: int) -> list[Held]:
        with self._changed:
            if not self._inbox:
                self._asked = limit
                self._changed.notify()
            return [self._inbox.popleft() for _ in range(min(limit, len(self._inbox)))]

    def backlog(self) -> bool:
        return bool(self._inbox) or self._more

    def next_change(self) -> float | None:
        return None

    def on_change(self, waiter: Callable[[], None]) -> None:
        self._waiter = waiter

    def forget(self, waiter: Callable[[], None]) -> None:
        self._waiter = None

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    def ended(self, within: float) -> bool:
        self._thread.join(within)
        return not self._thread.is_alive()

    # -- the thread of an execution --------------------------------------------------------------------------------

    def delete(self, batch: Batch) -> None:
        """Delete what was processed; while nobody answers, again and again: it would be processed once more."""
        end = min(max(held.until for held in batch), time.time() + PERSISTENT)
        for handles in tens(batch):
            while True:
                try:
                    self._queue.delete(handles)
                except Throttled as error:
                    if time.time() < end:
                        time.sleep(PAUSE)
                        continue
                    logger.warning("%d messages of %s not deleted: %s", len(handles), self._queue.arn, error)
                except Failed as error:
                    logger.info("%d messages of %s not deleted: %s", len(handles), self._queue.arn, error)
                break

    # -- the thread of the source ----------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._queue.prepare()
        except Exception:
            logger.exception("the calls of a pipe were not prepared")
        while self._is_asked():
            began = time.monotonic()
            try:
                held = self._poll()
            except Failed as error:
                if error.missing:
                    self._gone()
                    return
                self._rest(error)
                continue
            except Throttled as error:
                self._rest(error)
                continue
            except Exception:
                logger.exception("the source of a pipe goes on after an error of the stand-in")
                self._rest(None)
                continue
            if self._away:
                self._away = False
                logger.warning("%s is there again", self._queue.arn)
            if not held and time.monotonic() - began < QUICK:
                self._pause(QUICK)  # it did not wait for messages, so we do
        self._give_back(list(self._inbox))

    def _is_asked(self) -> bool:
        """Wait until the poller has room. False when the pipe is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (self._asked and not self._inbox))
            return not self._closed

    def _poll(self) -> Batch:
        with self._changed:
            limit, window, takes = self._asked, self._window, self._takes
        hidden = HIDDEN + window if window else None
        seconds = hidden if hidden is not None else self._seconds()
        messages = self._queue.receive(limit, WAIT, hidden)
        now = time.time()
        held = [held_of(message, self._queue.arn, window, now, now + seconds) for message in messages]
        if self._closed:
            self._give_back(held)
            return held
        unwanted = [one for one in held if not takes(one.record)]
        if unwanted:
            self._discard(unwanted)
        wanted = [one for one in held if one not in unwanted]
        with self._changed:
            self._more = len(held) >= limit
            if wanted:
                self._inbox.extend(wanted)
                self._asked = 0
        waiter, self._waiter = (self._waiter, None) if wanted else (None, self._waiter)
        if waiter is not None:
            waiter()
        return held

    def _seconds(self) -> int:
        """The queue's visibility timeout."""
        read, seconds = self._visibility
        if time.monotonic() - read > REFRESH or not read:
            seconds = self._queue.visibility()
            self._visibility = time.monotonic(), seconds
        return seconds

    def _discard(self, batch: Batch) -> None:
        for handles in tens(batch):
            try:
                self._queue.delete(handles)
            except (Failed, Throttled) as error:  # it comes back, and is filtered out once more
                logger.info("%d messages of %s not filtered out: %s", len(handles), self._queue.arn, error)

    def _give_back(self, batch: Batch) -> None:
        for handles in tens(batch):
            try:
                self._queue.give_back(handles)
            except (Failed, Throttled) as error:  # they come back when their time is over
                logger.info("%d messages of %s not given back: %s", len(handles), self._queue.arn, error)

    def _rest(self, error: Exception | None) -> None:
        if error is not None and not self._away:
            self._away = True
            logger.warning("%s cannot be read and is asked again every %g s: %s", self._queue.arn, PAUSE, error)
        self._pause(PAUSE)

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed, seconds)


def tens(batch: Batch) -> Iterator[list[str]]:
    """The receipt handles, in portions of what one call takes."""
    for start in range(0, len(batch), 10):
        yield [held.handle for held in batch[start : start + 10]]


def held_of(message: Mapping[str, Any], arn: str, window: int, since: float, until: float) -> Held:
    """A message of ReceiveMessage, as the poller holds it."""
    said = message.get("Attributes") or {}
    record = record_of(
        {
            "id": message["MessageId"],
            "receipt_handle": message["ReceiptHandle"],
            "body": message["Body"],
            "md5_body": message.get("MD5OfBody", ""),
            "message_attributes": message.get("MessageAttributes"),
            "receive_count": said.get("ApproximateReceiveCount", 1),
            "sent_at": int(said.get("SentTimestamp", 0)) / 1000,
            "first_receive_at": int(said.get("ApproximateFirstReceiveTimestamp", 0)) / 1000,
            "seq": said.get("SequenceNumber"),
            "group_id": said.get("MessageGroupId"),
            "dedup_id": said.get("MessageDeduplicationId"),
            "sys": said,
        },
        arn=arn,
        digest=message.get("MD5OfMessageAttributes"),
        window=window,
    )
    # The queue's own words: a time that was a number in between may have lost its last digit.
    record["attributes"] = {name: str(said.get(name, value)) for name, value in record["attributes"].items()}
    return Held(message["MessageId"], message["ReceiptHandle"], record, size_of(record), since, until)
