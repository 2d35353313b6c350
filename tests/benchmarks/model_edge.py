"""The model edge in short: a routed call beside a bare one, and what is lost of one of two deployments that is dead.

The long form, with tables: ``python -m tests.benchmarks.router``.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable

from labkit.models.outage import Outage
from labkit.routing.provider import Down, Provider, Script
from tests.benchmarks.measure import Row, in_turns
from tests.benchmarks.router import COOLDOWN, GROUPS, MESSAGES, MODES, dialects, ours, router

CALLS = 120


def rows() -> list[Row]:
    """What ``make bench`` shows: a routed call against a bare one, in turns; the leak of retries against the model's;
    and what is left of it with a fallback."""
    found: list[Row] = []
    with Provider(Script(default="Hello.")) as provider:
        for dialect, model, bare in dialects(provider):
            with router(provider, {"primary": (model,)}, **COOLDOWN) as routing:
                sides: dict[str, Callable[[int], object]] = {
                    "bare": lambda _: [bare() for _ in range(10)],  # noqa: B023
                    "routed": lambda _: [routing.complete("primary", MESSAGES) for _ in range(10)],
                }
                in_turns(sides, rounds=1)
                took = in_turns(sides, rounds=9)
            alone, through = (1000 / 10 * statistics.median(each[side] for each in took) for side in ("bare", "routed"))
            more = f"{through - alone:.1f} ms more, {through / alone:.1f} × ({alone:.1f} ms bare)"
            found.append((f"router, one call in {dialect}'s dialect: against a bare one", more, "≤ 25 ms more"))
        on_paper = f"{Outage(2, 1, 2).leak:.1%} on paper"
        with provider.switch("a", Down()):
            for name, settings, budget in (
                ("2 retries", MODES["no cooldown"], on_paper),
                ("2 retries and a cooldown", MODES["cooldown"], "≤ 1 a window"),
                ("2 retries and a fallback", MODES["fallback"], "0"),
            ):
                random.seed(12)
                with router(provider, GROUPS, num_retries=2, **settings) as routing:
                    lost = sum(not ours(routing) for _ in range(CALLS))
                found.append((f"one of two deployments dead, {name}: calls lost", f"{lost} of {CALLS}", budget))
    return found
