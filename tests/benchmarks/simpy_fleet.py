"""The simulated fleet once more, in simpy: a witness for the engines' results, and a measure for their speed.

One process a conversation, one resource of all slots; steps that fail wait and come again. No pods that come and go.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import simpy

from labkit.models.fleet import Fleet


def play(fleet: Fleet, seconds: int, seed: int) -> dict[str, float]:
    """Steps done, runs, mean wait (s), mean of messages in flight, conversations done."""
    rng = np.random.default_rng(seed)
    env = simpy.Environment()
    slots = simpy.Resource(env, fleet.slots * (fleet.replicas or 0))
    count = dict.fromkeys(("steps", "runs", "done", "dead", "wait", "busy"), 0.0)

    def receive(step_time: float) -> Any:
        asked = env.now
        with slots.request() as slot:
            yield slot
            count["runs"] += 1
            count["wait"] += env.now - asked
            began = env.now
            try:
                yield env.timeout(step_time)
            finally:
                count["busy"] += min(env.now, seconds) - began

    def conversation() -> Any:
        for step in range(fleet.steps):
            if step:
                yield env.timeout(fleet.hop)
            for attempt in range(fleet.max_receives + 1):
                if attempt == fleet.max_receives:
                    count["dead"] += 1
                    return
                yield from receive(fleet.step_time.draw(rng, 1)[0])
                if rng.random() >= fleet.fails:
                    break
                yield env.timeout(fleet.waits[attempt])
            count["steps"] += 1
        count["done"] += 1

    def arrivals() -> Any:
        for at in np.sort(np.repeat(np.arange(seconds), arriving) + rng.random(arriving.sum())):
            yield env.timeout(at - env.now)
            env.process(conversation())

    arriving = fleet.arrivals.counts(seconds, np.random.default_rng([seed, 0]))
    env.process(arrivals())
    env.run(until=seconds)
    return {
        **{name: count[name] for name in ("steps", "runs", "done", "dead")},
        "wait_mean": count["wait"] / max(count["runs"], 1),
    }
