"""The router beside a bare call, and what retries, cooldowns and fallbacks do to failures:
``python -m tests.benchmarks.router``. ``make bench`` has the short form, :mod:`tests.benchmarks.model_edge`.

Every run is seeded: LiteLLM picks deployments with Python's ``random``. The provider is the scripted one, on loopback,
so milliseconds are what the router itself costs and counts are exact.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from labkit.routing.provider import Concurrency, Down, Latency, Provider, Script, Throttle
from labkit.routing.router import NoAnswer, Router, RouterConfig
from tests.benchmarks.measure import machine

CALLS, SEEDS = 300, 6
CLAUDE = "us.anthropic.claude-sonnet-4-20250514-v1:0"
MESSAGES = [{"role": "user", "content": "Hello"}]
GROUPS = {"primary": ("a", "b"), "overflow": ("o",)}
FALLBACK: dict[str, Any] = {"fallbacks": [{"primary": ["overflow"]}]}
COOLDOWN: dict[str, Any] = {"allowed_fails": 2, "cooldown_time": 60}


def router(provider: Provider, groups: Mapping[str, tuple[str, ...]], gates: Any = None, **settings: Any) -> Router:
    models = []
    for group, names in groups.items():
        for name in names:
            params = {"model": f"openai/{name}", "api_base": provider.openai_url}
            if name == CLAUDE:
                params = {"model": f"bedrock/converse/{name}", "aws_bedrock_runtime_endpoint": provider.bedrock_url}
            info = {"id": name, "max_input_tokens": 200_000}
            models.append({"model_name": group, "litellm_params": params, "model_info": info})
    settings.setdefault("disable_cooldowns", "allowed_fails" not in settings)
    found = {"model_list": models, "router_settings": {"timeout": 30, **settings}}
    return Router(RouterConfig.of(found), gates=gates, within=30, sleep=lambda seconds: None).warm()


def ours(routing: Router) -> bool:
    try:
        routing.complete("primary", MESSAGES)
    except NoAnswer:
        return False
    return True


def litellms(provider: Provider, retries: int, settings: Mapping[str, Any]) -> Callable[[], bool]:
    """LiteLLM's Router with its own retries and its own fallbacks, as the guide uses it."""
    from labkit.routing.router_litellm import package

    models = [
        {
            "model_name": group,
            "litellm_params": {"model": f"openai/{name}", "api_base": provider.openai_url, "api_key": "none"},
            "model_info": {"id": name},
        }
        for group, names in GROUPS.items()
        for name in names
    ]
    made = package().Router(model_list=models, num_retries=retries, timeout=30, **settings)

    def call() -> bool:
        try:
            made.completion(model="primary", messages=MESSAGES)
        except Exception:  # noqa: BLE001 - counted
            return False
        return True

    return call


def dialects(provider: Provider) -> Iterator[tuple[str, str, Callable[[], object]]]:
    """Each dialect, a model that speaks it, and a bare call."""
    body, converse = {"model": "a", "messages": MESSAGES}, [{"role": "user", "content": [{"text": "Hello"}]}]
    bedrock = provider.bedrock()
    with httpx.Client(trust_env=False) as client:
        yield "OpenAI", "a", lambda: client.post(f"{provider.openai_url}/chat/completions", json=body).json()
        yield "Converse", CLAUDE, lambda: bedrock.converse(modelId=CLAUDE, messages=converse)
    bedrock.close()


# -- milliseconds ------------------------------------------------------------------------------------------------------


def median(action: Callable[[], object], times: int = 200) -> float:
    for _ in range(10):
        action()
    took = []
    for _ in range(times):
        began = time.perf_counter()
        action()
        took.append(time.perf_counter() - began)
    return 1000 * statistics.median(took)


def overhead(provider: Provider) -> Table:
    table = Table("dialect", "bare, ms", "routed, ms", "more, ms", "goal", title="One call, median of 200")
    for dialect, model, bare in dialects(provider):
        routed = {
            "": router(provider, {"primary": (model,)}, **COOLDOWN),
            ", windows checked": router(provider, {"primary": (model,)}, enable_pre_call_checks=True, **COOLDOWN),
        }
        for what, routing in routed.items():
            with routing:
                alone = median(bare)
                through = median(lambda: routing.complete("primary", "Hello"))  # noqa: B023
            more = f"{through - alone:.1f}"
            table.add_row(f"{dialect}{what}", f"{alone:.1f}", f"{through:.1f}", more, "≤ 25 ms")
    return table


# -- failures ----------------------------------------------------------------------------------------------------------

MODES: dict[str, dict[str, Any]] = {
    "no cooldown": {"disable_cooldowns": True},
    "cooldown": COOLDOWN,
    "fallback": {"disable_cooldowns": True, **FALLBACK},
    "fallback and cooldown": {**COOLDOWN, **FALLBACK},
}


def leaks(provider: Provider, calls: int) -> Table:
    """One of two deployments is dead: which part of all calls still fails?"""
    table = Table(
        *("retries", "expected without cooldown"), *MODES, "LiteLLM's own, no cooldown",
        title=f"Failed calls of {calls}, one of two deployments dead",
    )  # fmt: skip
    with provider.switch("a", Down()):
        for retries in range(4):
            counts = []
            for settings in MODES.values():
                random.seed(1000 + retries)
                with router(provider, GROUPS, num_retries=retries, **settings) as routing:
                    counts.append(sum(not ours(routing) for _ in range(calls)))
            random.seed(1000 + retries)
            counts.append(calls - sum(map(_call(litellms(provider, retries, MODES["no cooldown"])), range(calls))))
            part = 0.5 ** (1 + retries)
            table.add_row(str(retries), f"{part:.1%}, {part * calls:.0f}", *map(str, counts))
    return table


def _call(action: Callable[[], bool]) -> Callable[[int], bool]:
    return lambda _: action()


def thirties(provider: Provider, seeds: int) -> Table:
    """The guide's experiment, 30 calls, repeated: what is 28 of 30 worth?"""
    table = Table("retries", *MODES, title=f"Served of 30, {seeds} seeds: least, median, most")
    with provider.switch("a", Down()):
        for retries in range(3):
            cells = []
            for settings in MODES.values():
                served = []
                for seed in range(seeds):
                    random.seed(seed)
                    with router(provider, GROUPS, num_retries=retries, **settings) as routing:
                        served.append(sum(ours(routing) for _ in range(30)))
                cells.append(f"{min(served)}, {statistics.median(served):g}, {max(served)}")
            table.add_row(str(retries), *cells)
    return table


def shares(provider: Provider, seeds: int) -> Table:
    """Two deployments under one name: which one is the primary?"""
    table = Table("seed", "a", "b", title="200 calls to one group with two deployments")
    for seed in range(seeds):
        random.seed(seed)
        provider.hits.reset()
        with router(provider, GROUPS) as routing:
            for _ in range(200):
                ours(routing)
        table.add_row(str(seed), str(provider.hits.count("a")), str(provider.hits.count("b")))
    return table


# -- the storm ---------------------------------------------------------------------------------------------------------


class Semaphore:
    """A gate for one process: what stands in front of a group, with the least code."""

    def __init__(self, most: int) -> None:
        self._room = threading.BoundedSemaphore(most)

    @contextlib.contextmanager
    def permit(self, *, within: float = 0.0) -> Iterator[None]:
        if not self._room.acquire(timeout=within):
            raise TimeoutError(f"no permit within {within:g} s")
        try:
            yield
        finally:
            self._room.release()


def storm(provider: Provider, workers: int = 32, each: int = 6, most: int = 4) -> Table:
    """The primary is throttled, and the whole fleet turns to an overflow that takes ``most`` calls at once."""
    table = Table(
        *("semaphore", "served", "failed", "calls at the overflow", "refused there", "most at once", "s"),
        title=f"{workers} workers, {each} calls each, primary throttled, overflow takes {most} at once",
    )
    groups = {"primary": ("a",), "overflow": ("o",)}
    with contextlib.ExitStack() as on:
        for model, fault in (("a", Throttle()), ("o", Latency(0.05)), ("o", Concurrency(most))):
            on.enter_context(provider.switch(model, fault))
        for name, gates in (("none", None), (f"{most} permits", {"overflow": Semaphore(most)})):
            provider.hits.reset()
            outcomes: deque[bool] = deque()
            with router(provider, groups, gates, num_retries=1, **COOLDOWN, **FALLBACK) as routing:

                def work(routing: Router = routing, outcomes: deque[bool] = outcomes) -> None:
                    outcomes.extend(ours(routing) for _ in range(each))

                crew = [threading.Thread(target=work) for _ in range(workers)]
                began = time.perf_counter()
                for thread in crew:
                    thread.start()
                for thread in crew:
                    thread.join()
                took = time.perf_counter() - began
            refused = provider.hits.count("o", "concurrency")
            numbers = (
                outcomes.count(True),
                outcomes.count(False),
                provider.hits.count("o"),
                refused,
                provider.hits.peak("o"),
            )
            table.add_row(name, *map(str, numbers), f"{took:.1f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description="What routing costs, and what it saves.")
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    options = parser.parse_args()
    console = Console(width=130)
    console.print(machine())
    with Provider(Script(default="Hello.")) as provider:
        for table in (
            overhead(provider), shares(provider, min(5, options.seeds)), leaks(provider, options.calls),
            thirties(provider, options.seeds), storm(provider),
        ):  # fmt: skip
            console.print(table)


if __name__ == "__main__":
    main()
