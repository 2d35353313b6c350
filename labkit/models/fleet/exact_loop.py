"""The event-exact engine's compiled loop; what it does stands in :mod:`labkit.models.fleet.exact`.

One row for each message: ``life``, ``where``, ``step``, ``receives``, ``since`` when it is visible. One for each
attempt, used again when it is over: ``of`` which message, in which life, on which pod, since when, of which kind.
``queue`` and ``idle`` are rings, with rising ``HEAD`` and ``TAIL``; the heap is two arrays side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from labkit.models.fleet import tally
from labkit.models.fleet.compiled import compiled

# What the loop stopped for.
AT_END, HEAP_FULL, QUEUE_FULL, IDLE_FULL, ATTEMPTS_FULL, DRAWS_USED = range(6)
# How an attempt ends, and what a thing to come is.
DONE, FAILED, THROTTLED, KILLED, FREE = range(5)
END, RETURN, EXPIRY, SENT = range(4)
# Where a message is: with a worker or waiting for a retry, in the queue, in the queue while a worker is still at it.
HIDDEN, SHOWN, EXPIRED = range(3)
# Places in the array of the loop's own whole numbers.
NEXT, HEAP, HEAD, TAIL, IDLE_HEAD, IDLE_TAIL, IDLE, UNUSED, DRAWN, AT_MODEL = range(10)
VISIBLE, IN_FLIGHT, BUSY, OPEN = range(10, 14)


@compiled
def _push(heap_at: Any, heap_what: Any, size: int, at: float, what: int) -> None:
    place = size
    while place > 0:
        above = (place - 1) >> 1
        if heap_at[above] <= at:
            break
        heap_at[place] = heap_at[above]
        heap_what[place] = heap_what[above]
        place = above
    heap_at[place] = at
    heap_what[place] = what


@compiled
def _pop(heap_at: Any, heap_what: Any, size: int) -> Any:
    first = heap_what[0]
    last = size - 1
    at, what = heap_at[last], heap_what[last]
    place = 0
    while True:
        below = 2 * place + 1
        if below >= last:
            break
        if below + 1 < last and heap_at[below + 1] < heap_at[below]:
            below += 1
        if heap_at[below] >= at:
            break
        heap_at[place] = heap_at[below]
        heap_what[place] = heap_what[below]
        place = below
    heap_at[place] = at
    heap_what[place] = what
    return first


@compiled
def _about(who: int, life: int, kind: int) -> Any:
    """A thing to come about a message, as one number."""
    return ((np.int64(life) << 32) | who) << 2 | kind


@compiled
def _about_then(at: float, seconds: float, rng: Any) -> float:
    """``seconds`` after ``at``, or up to half a second earlier or later; see ``spec``."""
    return at + seconds + (rng.random() - 0.5 if seconds >= 1 else 0.0)


@compiled
def advance(
    until: float, rules: Any, rng: Any, retry: Any, n: Any, clock: Any, counts: Any, sums: Any, waits: Any,
    arrivals: Any, times: Any, heap_at: Any, heap_what: Any, queue: Any, queue_life: Any, life: Any, where: Any,
    step: Any, receives: Any, since: Any, idle: Any, works: Any, unused: Any, of: Any, of_life: Any, of_pod: Any,
    of_start: Any, of_kind: Any,
) -> int:  # fmt: skip
    """Go on until second ``until``; returns why it stopped."""
    steps, hop, visibility, heartbeat, most, quota, gated, throttle, cap, fails = rules
    while True:
        if n[HEAP] + 2 >= len(heap_at):
            return HEAP_FULL
        if n[TAIL] - n[HEAD] >= len(queue):
            return QUEUE_FULL
        if n[IDLE_TAIL] - n[IDLE_HEAD] >= len(idle):
            return IDLE_FULL
        now = clock[0]

        if n[VISIBLE] > 0 and n[IDLE] > 0 and n[IN_FLIGHT] < cap and not (gated and n[AT_MODEL] >= quota):
            # A receive: the slot that has been free for the longest takes the message that has waited for the longest.
            if n[UNUSED] == 0:
                return ATTEMPTS_FULL
            if n[DRAWN] == len(times):
                return DRAWS_USED
            place = n[HEAD] & (len(queue) - 1)
            n[HEAD] += 1
            who = queue[place]
            if queue_life[place] != life[who]:
                continue
            n[VISIBLE] -= 1
            life[who] += 1
            counts[tally.SUPERSEDED] += where[who] == EXPIRED  # a worker is still at it, in vain from now on
            if receives[who] == most:
                where[who] = HIDDEN
                counts[tally.DEAD] += 1
                n[OPEN] -= 1
                continue
            pod = idle[n[IDLE_HEAD] & (len(idle) - 1)]
            n[IDLE_HEAD] += 1
            while not works[pod]:
                pod = idle[n[IDLE_HEAD] & (len(idle) - 1)]
                n[IDLE_HEAD] += 1
            where[who] = HIDDEN
            receives[who] += 1
            n[IDLE] -= 1
            n[BUSY] += 1
            n[IN_FLIGHT] += 1
            sums[tally.WAIT] += now - since[who]
            waits[min(int(now - since[who]), len(waits) - 1)] += 1
            n[UNUSED] -= 1
            attempt = unused[n[UNUSED]]
            of[attempt], of_life[attempt], of_pod[attempt], of_start[attempt] = who, life[who], pod, now
            if n[AT_MODEL] >= quota:
                of_kind[attempt] = THROTTLED
                lasts = float(throttle)
                counts[tally.THROTTLED] += 1
            else:
                of_kind[attempt] = FAILED if fails > 0 and rng.random() < fails else DONE
                lasts = times[n[DRAWN]]
                n[DRAWN] += 1
                n[AT_MODEL] += 1
                counts[tally.RUNS] += 1
            _push(heap_at, heap_what, n[HEAP], now + lasts, attempt << 2 | END)
            n[HEAP] += 1
            if not heartbeat and lasts > visibility:
                _push(heap_at, heap_what, n[HEAP], now + visibility, _about(who, life[who], EXPIRY))
                n[HEAP] += 1
            continue

        # The next thing to happen.
        at = heap_at[0] if n[HEAP] else np.inf
        arrives = n[NEXT] < len(arrivals) and arrivals[n[NEXT]] <= at
        if arrives:
            at = arrivals[n[NEXT]]
        passed = min(at, until) - now
        sums[tally.VISIBLE] += n[VISIBLE] * passed
        sums[tally.IN_FLIGHT] += n[IN_FLIGHT] * passed
        sums[tally.BUSY] += n[BUSY] * passed
        sums[tally.OPEN] += n[OPEN] * passed
        clock[0] = min(at, until)
        if at >= until:
            return AT_END
        if arrives:
            who, shown = n[NEXT], SHOWN
            n[NEXT] += 1
            n[OPEN] += 1
        else:
            what = _pop(heap_at, heap_what, n[HEAP])
            n[HEAP] -= 1
            kind = what & 3
            if kind != END:
                who = (what >> 2) & 0xFFFFFFFF
                if life[who] != what >> 34:
                    continue  # done, or received again, before its timeout was over
                n[IN_FLIGHT] -= kind != SENT
                shown = EXPIRED if kind == EXPIRY else SHOWN
            else:
                attempt = what >> 2
                ends, who, pod = of_kind[attempt], of[attempt], of_pod[attempt]
                of_kind[attempt] = FREE
                unused[n[UNUSED]] = attempt
                n[UNUSED] += 1
                if ends == KILLED:
                    continue
                n[BUSY] -= 1
                n[AT_MODEL] -= ends != THROTTLED
                if works[pod]:
                    idle[n[IDLE_TAIL] & (len(idle) - 1)] = pod
                    n[IDLE_TAIL] += 1
                    n[IDLE] += 1
                counts[tally.FAILED] += ends == FAILED
                holds = life[who] == of_life[attempt]
                if not holds and not (where[who] == EXPIRED and life[who] == of_life[attempt] + 1):
                    continue  # received by somebody else: this result is refused
                if ends != DONE:
                    if holds:
                        life[who] += 1
                        back = _about_then(at, retry[receives[who] - 1], rng)
                        _push(heap_at, heap_what, n[HEAP], back, _about(who, life[who], RETURN))
                        n[HEAP] += 1
                    else:
                        where[who] = SHOWN
                    continue
                n[IN_FLIGHT if holds else VISIBLE] -= 1
                counts[tally.STEPS] += 1
                step[who] += 1
                receives[who] = 0
                life[who] += 1
                where[who] = HIDDEN
                if step[who] == steps:
                    counts[tally.DONE] += 1
                    n[OPEN] -= 1
                else:
                    _push(heap_at, heap_what, n[HEAP], _about_then(at, hop, rng), _about(who, life[who], SENT))
                    n[HEAP] += 1
                continue
        life[who] += 1
        where[who] = shown
        since[who] = at
        queue[n[TAIL] & (len(queue) - 1)] = who
        queue_life[n[TAIL] & (len(queue) - 1)] = life[who]
        n[TAIL] += 1
        n[VISIBLE] += 1


@compiled
def kill(
    now: float, visibility: float, heartbeat: bool, dying: Any, n: Any, counts: Any, heap_at: Any, heap_what: Any,
    life: Any, where: Any, of: Any, of_life: Any, of_pod: Any, of_start: Any, of_kind: Any,
) -> None:  # fmt: skip
    """End all attempts of the ``dying`` pods; the heap has room for them."""
    for attempt in range(len(of)):
        kind = of_kind[attempt]
        if kind >= KILLED or not dying[of_pod[attempt]]:
            continue
        who = of[attempt]
        of_kind[attempt] = KILLED
        counts[tally.KILLED] += 1
        n[BUSY] -= 1
        n[AT_MODEL] -= kind != THROTTLED
        if life[who] == of_life[attempt]:
            beat = visibility / 2
            last = np.floor((now - of_start[attempt]) / beat) * beat if heartbeat else 0.0
            life[who] += 1
            _push(heap_at, heap_what, n[HEAP], of_start[attempt] + last + visibility, _about(who, life[who], RETURN))
            n[HEAP] += 1
        elif where[who] == EXPIRED and life[who] == of_life[attempt] + 1:
            where[who] = SHOWN
