"""The tick engine's compiled loop; what it does stands in :mod:`labkit.models.fleet.ticks`.

Rows of the arrays: ``end[e]`` what ends in second ``e``, spread over steps and then over receives; where a message that
was never received would stand, the slots that it holds; ``end_late`` how much outlived its timeout; ``back_…`` and
``over_…`` what becomes visible, after a retry's wait and by an expiry; ``queue_…[c]`` and ``late_…[c]`` the cohort that
became visible in second ``c``, without and with a worker that is still at it, ``late_share`` how much of the latter
nobody has received yet. The late attempts themselves are lists: ``first[e]`` and ``following`` lead from one to the
next, ``cohort`` and ``weight`` say which messages, how many.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from labkit.models.fleet import tally
from labkit.models.fleet.compiled import compiled

PACKETS = 192
DUST = 1e-9
# Places in the array of levels; the first four are those of ``Engine.levels``.
VISIBLE, IN_FLIGHT, BUSY, OPEN, HELD, AT_MODEL, SLOTS = range(7)
# Places in the array of whole numbers.
NOW, HEAD, UNUSED, DRAWN = range(4)
# What the loop stopped for.
AT_END, NODES_USED, CHANCES_USED = range(3)


@compiled
def _return(
    now: int, after: int, receives: int, many: float, steps: Any, there: float, back_step: Any, back_receive: Any
) -> None:
    """Let ``many`` messages, received so often, become visible around ``after`` seconds; ``steps`` spreads ``there``.

    Up to half a second to either side has the variance of one message in 24 a second early and one a second late.
    """
    if many <= 0:
        return
    aside = 1 if after > 1 else 0
    for move in range(-aside, aside + 1):
        part = many * (1.0 if not aside else 1 / 24 if move else 22 / 24)
        b = (now + after + move) & (len(back_step) - 1)
        back_receive[b, receives] += part
        for k in range(len(steps)):
            back_step[b, k] += steps[k] * part / there


@compiled
def _draw(lasts: Any, draws: Any, random: int, table: Any) -> None:
    """How long the first half of ``draws`` last, of which the first ``random`` are at random and the others even."""
    packets = len(draws) // 2
    for i in range(packets):
        u = draws[i] if i < random else (i - random + draws[i]) / (packets - random)
        at = u * len(table) - 0.5
        low = min(max(int(at), 0), len(table) - 2)
        lasts[i] = table[low] + (table[low + 1] - table[low]) * min(max(at - low, 0.0), 1.0)


@compiled
def _spread(end: Any, starts: Any, lasts: Any, parts: Any, now: int) -> None:
    """Let ``starts`` end after each of ``lasts`` seconds; ``parts`` is when in its second each begins."""
    ends = len(end) - 1
    for i in range(len(lasts)):
        row = end[(now + min(max(1, int(lasts[i] + parts[i])), ends)) & ends]  # the last lies beyond the run
        for place in range(len(starts)):
            row[place] += starts[place]


@compiled
def advance(
    until: int, rules: Any, retry: Any, chances: Any, table: Any, arriving: Any, n: Any, level: Any, counts: Any,
    sums: Any, waits: Any, end: Any, end_late: Any, throttled_all: Any,
    throttled_held: Any, sent: Any, back_step: Any, back_receive: Any, over_step: Any, over_receive: Any,
    queue_step: Any, queue_receive: Any, late_step: Any, late_receive: Any, late_share: Any, first: Any,
    following: Any, cohort: Any, weight: Any, unused: Any,
) -> int:  # fmt: skip
    """Go on until second ``until``; returns why it stopped."""
    steps, hop, visibility, heartbeat, most, quota, gated, throttle, cap, fails = rules
    ends, backs, cohorts = len(end) - 1, len(back_step) - 1, len(queue_step) - 1
    works = 1.0 - fails
    starts = np.zeros(steps + most + 1)
    starts_step, starts_receive = starts[:steps], starts[steps:]
    good, lasts = np.zeros(steps), np.zeros(PACKETS)
    while n[NOW] < until:
        if n[UNUSED] < PACKETS:
            return NODES_USED
        if n[DRAWN] + 2 * PACKETS + 1 > len(chances):
            return CHANCES_USED
        t = n[NOW]
        new = t & cohorts
        queue_step[new], queue_receive[new] = 0.0, 0.0
        if not heartbeat:
            late_step[new], late_receive[new], late_share[new] = 0.0, 0.0, 1.0
        good[:] = 0.0

        # What ends in this second: those that still hold their message …
        e = t & ends
        ending = end[e, steps + 1 :].sum()
        level[HELD] -= end[e, steps] + throttled_held[e]
        if ending > 0:
            for k in range(steps):
                good[k] += end[e, k] * works
            if fails > 0:
                for r in range(1, most + 1):
                    some = fails * end[e, steps + r]
                    _return(t, retry[r - 1], r, some, end[e, :steps], ending, back_step, back_receive)
            counts[tally.FAILED] += ending * fails
            level[IN_FLIGHT] -= ending * works
            level[BUSY] -= ending
            level[AT_MODEL] -= ending
        # … and those whose timeout was over before: their result counts while nobody else has received the message.
        node = first[e]
        while node >= 0:
            was, w = cohort[node], weight[node]
            c = was & cohorts
            level[BUSY] -= w
            level[AT_MODEL] -= w
            counts[tally.FAILED] += w * fails
            there = late_receive[c].sum() if was >= n[HEAD] else 0.0
            if there > DUST:
                part = min(1.0, w * late_share[c] / there)
                level[VISIBLE] -= part * there * works
                for k in range(steps):
                    moved = late_step[c, k] * part
                    late_step[c, k] -= moved
                    good[k] += moved * works
                    queue_step[c, k] += moved * fails
                for r in range(most + 1):
                    moved = late_receive[c, r] * part
                    late_receive[c, r] -= moved
                    queue_receive[c, r] += moved * fails
            unused[n[UNUSED]] = node
            n[UNUSED] += 1
            node = following[node]
        first[e], end_late[e] = -1, 0.0
        level[BUSY] -= throttled_all[e]
        end[e] = 0.0
        throttled_held[e], throttled_all[e] = 0.0, 0.0

        # What becomes visible: first steps, next steps, retries, and what was hidden for too short a time.
        done = good[steps - 1]
        counts[tally.STEPS] += good.sum()
        counts[tally.DONE] += done
        level[OPEN] += arriving[t] - done
        for k in range(1, steps):
            sent[(t + hop) % len(sent), k] = good[k - 1]
        s = t % len(sent)
        sent[s, 0] = arriving[t]
        queue_step[new] += sent[s]
        fresh = sent[s].sum()
        queue_receive[new, 0] += fresh
        b = t & backs
        back, over = back_receive[b].sum(), over_receive[b].sum()
        if back > 0:
            queue_step[new] += back_step[b]
            queue_receive[new] += back_receive[b]
            back_step[b], back_receive[b] = 0.0, 0.0
        if over > 0:
            late_step[new] += over_step[b]
            late_receive[new] += over_receive[b]
            over_step[b], over_receive[b] = 0.0, 0.0
        level[VISIBLE] += fresh + back + over
        level[IN_FLIGHT] -= back + over

        # What is received. A queue in which nothing waits does not grow older.
        while n[HEAD] < t and queue_receive[n[HEAD] & cohorts].sum() + late_receive[n[HEAD] & cohorts].sum() == 0:
            n[HEAD] += 1
        free = min(level[SLOTS] - level[HELD], cap - level[IN_FLIGHT])
        room = quota - level[AT_MODEL]
        if gated:
            free = min(free, room)
        starting = refused = 0.0
        starts[:] = 0.0
        while free > DUST and n[HEAD] <= t:
            c = n[HEAD] & cohorts
            fine, late = queue_receive[c].sum(), late_receive[c].sum()
            dead = queue_receive[c, most] + late_receive[c, most]
            alive = fine + late - dead
            part = 1.0 if alive <= free else free / alive
            if dead > 0:
                counts[tally.DEAD] += dead * part
                level[OPEN] -= dead * part
            counts[tally.SUPERSEDED] += late * part
            level[VISIBLE] -= (alive + dead) * part
            free -= alive * part
            waits[min(t - n[HEAD], len(waits) - 1)] += alive * part
            sums[tally.WAIT] += (t - n[HEAD]) * alive * part
            run = alive * part if gated else min(alive * part, max(0.0, room - starting))
            turned = alive * part - run
            if alive > 0:
                for k in range(steps):
                    starts_step[k] += (queue_step[c, k] + late_step[c, k]) * run / (alive + dead)
                for r in range(most):
                    starts_receive[r + 1] += (queue_receive[c, r] + late_receive[c, r]) * run / alive
                if turned > 0:
                    for r in range(most):
                        some = (queue_receive[c, r] + late_receive[c, r]) * turned / alive
                        steps_there = queue_step[c] + late_step[c]
                        after = throttle + retry[r]
                        _return(t, after, r + 1, some, steps_there, alive + dead, back_step, back_receive)
            starting += run
            refused += turned
            if part == 1.0:
                queue_step[c], queue_receive[c] = 0.0, 0.0
                if not heartbeat:
                    late_step[c], late_receive[c] = 0.0, 0.0
                if n[HEAD] == t:
                    break
                n[HEAD] += 1
            else:
                queue_step[c] *= 1 - part
                queue_receive[c] *= 1 - part
                if not heartbeat:
                    late_step[c] *= 1 - part
                    late_receive[c] *= 1 - part
                    late_share[c] *= 1 - part
        counts[tally.RUNS] += starting
        counts[tally.THROTTLED] += refused
        level[BUSY] += starting + refused
        level[HELD] += starting + refused
        level[IN_FLIGHT] += starting + refused
        level[AT_MODEL] += starting
        if refused > 0:
            throttled_all[(t + throttle) & ends] += refused
            throttled_held[(t + throttle) & ends] += refused
        if starting > DUST:
            packets = min(PACKETS, int(np.ceil(starting)))
            w = starting / packets
            starts /= packets
            starts_receive[0] = w
            # So many at random, and the others evenly, vary together as ``starting`` single steps do.
            random = int(packets / max(w, 1.0) + chances[n[DRAWN]])
            draws = chances[n[DRAWN] + 1 : n[DRAWN] + 1 + 2 * packets]
            n[DRAWN] += 2 * packets + 1
            _draw(lasts, draws, random, table)
            if heartbeat:
                _spread(end, starts, lasts[:packets], draws[packets:], t)
            else:
                for i in range(packets):
                    in_time = lasts[i] <= visibility
                    after = min(max(1 if in_time else visibility + 1, int(lasts[i] + draws[packets + i])), ends)
                    to = (t + after) & ends
                    if in_time:
                        for place in range(len(starts)):
                            end[to, place] += starts[place]
                        continue
                    end_late[to] += w
                    end[to, steps] += w
                    n[UNUSED] -= 1
                    node = unused[n[UNUSED]]
                    cohort[node], weight[node], following[node] = t + visibility, w, first[to]
                    first[to] = node
                    b = (t + visibility) & backs
                    for k in range(steps):
                        over_step[b, k] += starts_step[k]
                    for r in range(1, most + 1):
                        over_receive[b, r] += starts_receive[r]
        for place in range(4):
            sums[place] += level[place]
        n[NOW] = t + 1
    return AT_END


@compiled
def kill_late(
    head: int, now: int, shares: Any, back_step: Any, back_receive: Any, over_step: Any, over_receive: Any,
    queue_step: Any, queue_receive: Any, late_step: Any, late_receive: Any, late_share: Any, first: Any, following: Any,
    cohort: Any, weight: Any,
) -> None:  # fmt: skip
    """End ``shares[e]`` of the late attempts of second ``e``: nobody is at their messages when these become visible."""
    for e in range(len(shares)):
        node = first[e] if shares[e] > 0 else -1
        while node >= 0:
            was, gone = cohort[node], weight[node] * shares[e]
            weight[node] -= gone
            if was >= now:
                b = was & (len(back_step) - 1)
                _move(gone, over_step[b], over_receive[b], back_step[b], back_receive[b])
            elif was >= head:
                c = was & (len(queue_step) - 1)
                _move(gone * late_share[c], late_step[c], late_receive[c], queue_step[c], queue_receive[c])
            node = following[node]


@compiled
def _move(many: float, from_step: Any, from_receive: Any, to_step: Any, to_receive: Any) -> None:
    """Move ``many`` messages, or all there are."""
    there = from_receive.sum()
    if there > DUST:
        part = min(1.0, many / there)
        to_step += from_step * part
        to_receive += from_receive * part
        from_step *= 1 - part
        from_receive *= 1 - part
