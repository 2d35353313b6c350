"""LiteLLM's Router, offline and quiet: what happens inside a group is its work.

It picks one of the group's deployments (at random: two under one name share the load, neither is the primary one),
translates the call to the provider's dialect, and benches who fails too often. What LiteLLM 1.110.2 does about that,
measured:

* ``allowed_fails: N`` benches a deployment on failure N + 1 within one window. The window begins with the first failure
  and lasts ``cooldown_time``, not a minute: failures that come more slowly never bench, and a degradation that slow
  needs a breaker of your own.
* With nothing set it is the minute that counts: more than half of at least 5 calls failed, or one 429 where the group
  has another deployment.
* A provider's ``Retry-After`` replaces ``cooldown_time``, whatever it says.
* A group of one deployment is exempt, unless it has a fallback group, or ``allowed_fails_policy`` names the exception.
* Counts are each process's own (Redis would make them the fleet's; it is not used here).

Importing it takes seconds, so it is imported with the first call. It is told to read its price list from its own files,
else it would fetch it from the internet. It keeps threads named ``litellm-logging_*`` for the process: they sleep until
there is work, and end with the process. Its loggers are silenced, and so are the hints that it prints: what fails is
told by exceptions.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import threading
import time
from collections.abc import Mapping
from typing import Any

from labkit.routing.router_config import RouterConfig
from labkit.routing.router_outcome import Benched, NothingSaid, RouterConfigError, RouterError, beginning

__all__ = ["Groups", "ahead", "package"]

_LOOPBACK = ("127.0.0.1", "localhost")
_importing = threading.Lock()


def package() -> Any:
    """The module ``litellm``, imported so that nothing is looked up on a network."""
    with _importing:
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # read by the import
        for name in ("NO_PROXY", "no_proxy"):  # nothing of loopback is on the other side of a reader's proxy
            others = [each for each in os.environ.get(name, "").split(",") if each not in ("", *_LOOPBACK)]
            os.environ[name] = ",".join((*others, *_LOOPBACK))
        found: Any = importlib.import_module("litellm")
        for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        found.suppress_debug_info = True  # else each error prints where to get help
        return found


def ahead() -> threading.Thread:
    """Import LiteLLM in a thread of its own, while there is something else to do. ``join()`` it before the first use.

    What the import raises is raised again by whoever needs it: :func:`package` tries once more.
    """
    thread = threading.Thread(target=_import, name="litellm-import")
    thread.start()
    return thread


def _import() -> None:
    with contextlib.suppress(Exception):
        package()


class Groups:
    """The groups of ``config``, each answering by one of its deployments. Threads may share one."""

    def __init__(self, config: RouterConfig) -> None:
        self.config = config
        self._guard = threading.Lock()
        self._made: Any = None
        self._closed = False

    @property
    def router(self) -> Any:
        """LiteLLM's Router, made on first use. Raises :class:`RouterConfigError` where it refuses a deployment."""
        with self._guard:
            if self._closed:
                raise RouterError("this router is closed.")
            if self._made is None:
                self._made = self._make()
            return self._made

    def attempt(self, group: str, messages: list[Any], options: Mapping[str, Any]) -> Any:
        """LiteLLM's response of one deployment, called once. Its exceptions come through."""
        found = self.router.completion(model=group, messages=messages, **options, num_retries=0, disable_fallbacks=True)
        if not found.choices:
            raise NothingSaid(str(found._hidden_params.get("model_id") or ""))
        return found

    def benched(self, group: str) -> dict[str, Benched]:
        """The deployments of ``group`` that are in cooldown now, by id, as this process sees it."""
        ids = [each.id for each in self.config.members(group)]
        found = self.router.health().cooldowns.get_active_cooldowns(ids, None)
        return {
            id: Benched(at["status_code"], max(0.0, at["timestamp"] + at["cooldown_time"] - time.time()))
            for id, at in found
        }

    def close(self) -> None:
        """Take the registrations from LiteLLM. Closing twice is harmless."""
        with self._guard:
            made, self._made, self._closed = self._made, None, True
        if made is not None:
            made.retire()

    def _make(self) -> Any:
        config, litellm = self.config, package()
        listed = [
            {"model_name": each.group, "litellm_params": dict(each.params), "model_info": dict(each.info)}
            for each in config.deployments
        ]
        try:
            return litellm.Router(
                model_list=listed,
                num_retries=0,  # who walks from group to group repeats
                timeout=config.timeout,
                # Not for a walk of its own, but because a group of one is benched only if it has a fallback.
                fallbacks=[{group: list(chain)} for group, chain in config.fallbacks.items()],
                enable_pre_call_checks=config.enable_pre_call_checks,
                default_litellm_params={"drop_params": config.drop_params},
                **config.cooling,
            )
        except Exception as error:
            raise RouterConfigError(f"LiteLLM refuses the configuration: {beginning(error)}.") from error
