"""How long an execution environment lives: reuse, the end of an idle one, and what an update does to a running one.

**On AWS** an environment serves one invocation at a time and is used again, until it has been idle for some minutes. An
update of code or configuration, and the deletion of the function, let running invocations come to their end, and the
environments of before serve no others (recorded on AWS: an update during an invocation).

**MiniStack** kills environments that are at work, so that an update fails the invocations of the moment, and keeps one
idle process per function for ever.

**Here** an environment that is at work is retired: it ends when its invocation does. Idle ones end after five minutes,
and there are 40 of them at most, for all functions together: AWS does not say how long it keeps them, and this machine
has its limits. The one that has been idle for longest goes first.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

IDLE = 300.0  # seconds
MOST_IDLE = 40
LONG_AGO = 1.0  # seconds of the epoch


def belongs(key: str, function: str, *, version: str | None, account: str | None, region: str | None) -> bool:
    """Whether the pool ``account:region:function:version`` is one of this function's; None stands for any."""
    parts = key.split(":", 3)
    wanted = (account, region, function, version)
    return len(parts) == 4 and all(want in (None, part) for want, part in zip(wanted, parts, strict=True))


def retire(environments: Iterable[Any]) -> list[Any]:
    """Mark those that are at work; the others are returned, to be ended now."""
    idle = []
    for environment in environments:
        if environment.in_use:
            environment.retired = True
        else:
            idle.append(environment)
    return idle


def surplus(pools: dict[str, list[Any]], *, most: int, oldest: float) -> list[Any]:
    """Take the idle environments out of the pools that are too many, or were last used before ``oldest``."""
    idle = sorted(
        (found for environments in pools.values() for found in environments if not found.in_use),
        key=lambda found: found.last_used,
    )
    ended = [found for index, found in enumerate(idle) if index < len(idle) - most or found.last_used < oldest]
    for key in list(pools):
        pools[key] = [found for found in pools[key] if found not in ended]
        if not pools[key]:
            del pools[key]
    return ended


def install() -> None:
    from ministack.core import lambda_runtime as runtime
    from ministack.services import lambda_svc

    def release(environment: Any) -> None:
        if environment is None:
            return
        with runtime._lock:
            environment.in_use = False
            environment.last_used = time.time()
            if getattr(environment, "retired", False):
                environment.last_used = 0.0  # none of the future: the oldest of all
            ended = surplus(runtime._workers, most=MOST_IDLE, oldest=LONG_AGO)
            if getattr(environment, "retired", False) and environment not in ended:
                ended.append(environment)  # it had left its pool already
        runtime.kill_workers(ended)

    def invalidate(
        function: str, qualifier: str | None = None, account: str | None = None, region: str | None = None
    ) -> None:
        with runtime._lock:
            keys = [
                key
                for key in runtime._workers
                if belongs(key, function, version=qualifier, account=account, region=region)
            ]
            idle = retire(environment for key in keys for environment in runtime._workers.pop(key))
        runtime.kill_workers(idle)

    def invalidate_here(
        function: str, qualifier: str | None = None, account: str | None = None, region: str | None = None
    ) -> None:
        # UpdateFunctionConfiguration names neither account nor Region: it would end other accounts' environments.
        invalidate(function, qualifier, account or lambda_svc.get_account_id(), region or lambda_svc.get_region())

    def reap(idle: float | None = None) -> int:
        with runtime._lock:
            oldest = time.time() - (IDLE if idle is None else idle)
            ended = surplus(runtime._workers, most=MOST_IDLE, oldest=oldest)
        runtime.kill_workers(ended)
        return len(ended)

    _ = runtime.acquire_worker, runtime.kill_workers, lambda_svc._ensure_reaper_thread, lambda_svc.get_region
    for name, replacement in {
        "release_worker": release,
        "invalidate_worker": invalidate_here,
        "reap_idle_workers": reap,
    }.items():
        for module in (runtime, lambda_svc):
            _ = getattr(module, name)
            setattr(module, name, replacement)
