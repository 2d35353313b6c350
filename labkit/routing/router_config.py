"""Router configuration: a LiteLLM file, read strictly, before anything is called.

LiteLLM takes what it is given: a fallback to a group that nobody defined loads, and fails in the outage for which
it was written; a misspelt setting is ignored. Here each name is checked at load, and the first thing that is wrong ends
it with one sentence. What is checked beyond names:

* **A fallback leads somewhere** and never back: the groups form no cycle.
* **Retries at one layer.** A provider's SDK, a deployment and the router can each retry, and layers multiply: with 2
  retries each, two of them make 9 calls of one. In LiteLLM 1.110.2 the SDK's are 2 in a plain ``completion()`` and 0
  under its Router, and a deployment's number silently replaces the Router's (measured). Nobody should have to know:
  only ``router_settings.num_retries`` may say a number, and every deployment gets ``max_retries: 0``.
* **Every call has a timeout.** Without one a call may outlast the message's visibility, and run twice.
* **Windows grow.** Who falls back because a conversation is too long needs a larger window; who falls back for another
  reason to a smaller one needs ``enable_pre_call_checks``, so that it is not called in vain (and each deployment must
  say its ``model_info.max_input_tokens``, else LiteLLM checks nothing).

The file is one that LiteLLM's proxy takes too. A value ``os.environ/NAME`` stands for that variable. What runs on
loopback gets no credentials: keys that the file leaves out are placeholders, so that nobody looks for real ones.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from labkit.models._input import ModelError, number, whole
from labkit.routing import router_chains
from labkit.routing.router_outcome import RouterConfigError, RouterError

__all__ = ["Deployment", "RouterConfig", "RouterConfigError", "RouterError"]

_FALLBACKS = ("fallbacks", "context_window_fallbacks")
_COOLING = ("allowed_fails", "allowed_fails_policy", "cooldown_time", "disable_cooldowns")
_ROUTER = ("num_retries", "timeout", "enable_pre_call_checks", "routing_strategy", *_COOLING, *_FALLBACKS)
_LITELLM = ("drop_params", "num_retries", *_FALLBACKS)
_PARAMS = (
    "model", "api_base", "api_key", "api_version", "organization", "max_tokens", "temperature", "timeout", "weight",
    "rpm", "tpm", "max_parallel_requests", "drop_params", "max_retries", "num_retries", "aws_region_name",
    "aws_bedrock_runtime_endpoint", "aws_access_key_id", "aws_secret_access_key", "aws_session_token", "aws_role_name",
    "aws_session_name", "aws_profile_name", "aws_web_identity_token", "aws_sts_endpoint",
)  # fmt: skip
_INFO = (
    "id", "max_input_tokens", "max_output_tokens", "base_model", "allowed_fails", "allowed_fails_policy",
    "cooldown_time", "input_cost_per_token", "output_cost_per_token",
)  # fmt: skip
_POLICY = tuple(
    f"{name}AllowedFails"
    for name in (
        "BadRequestError", "AuthenticationError", "TimeoutError", "RateLimitError", "InternalServerError",
        "ContentPolicyViolationError", "ServiceUnavailableError", "BadGatewayError", "NotFoundError",
    )
)  # fmt: skip
_ENVIRON, _LOOPBACK = "os.environ/", ("127.0.0.1", "localhost", "::1")
_MOST_RETRIES, _LONGEST = 10, 86_400.0


@dataclass(frozen=True, slots=True)
class Deployment:
    """One model at one place. ``params`` are LiteLLM's, with keys: not shown. ``window``: input tokens, where said."""

    id: str
    group: str
    params: Mapping[str, Any] = field(repr=False)
    info: Mapping[str, Any] = field(repr=False)

    @property
    def window(self) -> int | None:
        window: int | None = self.info.get("max_input_tokens")
        return window


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """What the file says. Times are in seconds. ``fallbacks`` and ``context_window_fallbacks``: group to groups."""

    deployments: tuple[Deployment, ...]
    timeout: float
    num_retries: int = 0
    fallbacks: router_chains.Chains = field(default_factory=dict)
    context_window_fallbacks: router_chains.Chains = field(default_factory=dict)
    cooling: Mapping[str, Any] = field(default_factory=dict)  # LiteLLM's settings of cooldowns, as they stand there
    enable_pre_call_checks: bool = False
    drop_params: bool = False

    @classmethod
    def load(cls, path: str | Path | None = None, *, environ: Mapping[str, str] = os.environ) -> RouterConfig:
        """Read a YAML file, by default ``infra/litellm/router.yaml``. Raises :class:`RouterConfigError`."""
        import yaml

        from labkit import places

        where = Path(path) if path is not None else places.repository() / "infra" / "litellm" / "router.yaml"
        try:
            found = yaml.safe_load(where.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise RouterConfigError(f"{where.name} cannot be read: {' '.join(str(error).split())}.") from error
        return cls.of(found, environ=environ)

    @classmethod
    def of(cls, document: Any, *, environ: Mapping[str, str] = os.environ) -> RouterConfig:
        """The same from a mapping. Raises :class:`RouterConfigError`."""
        try:
            return _read(_resolved(document, "", environ))
        except ModelError as error:
            raise RouterConfigError(str(error)) from error

    @property
    def groups(self) -> tuple[str, ...]:
        """The names that callers may ask for, in the file's order."""
        return tuple(dict.fromkeys(each.group for each in self.deployments))

    def members(self, group: str) -> tuple[Deployment, ...]:
        """The deployments that share the group's load: none of them is the primary one."""
        return tuple(each for each in self.deployments if each.group == group)

    def slowest(self, group: str) -> float:
        """Seconds for which one attempt in the group may be silent."""
        return max(float(each.params.get("timeout", self.timeout)) for each in self.members(group))

    def window(self, group: str) -> int | None:
        """Input tokens that every deployment of the group takes; None where one does not say."""
        sizes = [each.window for each in self.members(group)]
        return None if None in sizes else min(size for size in sizes if size is not None)


def _read(document: Any) -> RouterConfig:
    document = _known(document, ("model_list", "router_settings", "litellm_settings"), "the file")
    router = _known(document.get("router_settings"), _ROUTER, "router_settings")
    litellm = _known(document.get("litellm_settings"), _LITELLM, "litellm_settings")
    deployments = tuple(_deployments(document.get("model_list")))
    if "num_retries" in litellm:
        raise RouterConfigError(_layers("litellm_settings.num_retries", litellm["num_retries"]))
    if router.get("timeout") is None:
        raise RouterConfigError("router_settings.timeout is missing: without one a call may hang, in seconds.")
    if router.get("routing_strategy", "simple-shuffle") != "simple-shuffle":
        raise RouterConfigError(
            f"router_settings.routing_strategy must be simple-shuffle; got {router['routing_strategy']!r:.40}."
        )
    for name in _FALLBACKS:
        if name in router and name in litellm:
            raise RouterConfigError(f"{name} is set in router_settings and in litellm_settings; say it in one place.")
    cooling = {name: router[name] for name in _COOLING if router.get(name) is not None}
    _check_cooling(cooling, "router_settings")
    said = {**litellm, **router}
    config = RouterConfig(
        deployments,
        number("router_settings.timeout", router["timeout"], low=0.001, high=_LONGEST, unit="s"),
        whole("router_settings.num_retries", router.get("num_retries", 0), low=0, high=_MOST_RETRIES),
        router_chains.read(said.get("fallbacks"), "fallbacks"),
        router_chains.read(said.get("context_window_fallbacks"), "context_window_fallbacks"),
        cooling,
        _switch("router_settings.enable_pre_call_checks", router.get("enable_pre_call_checks", False)),
        _switch("litellm_settings.drop_params", litellm.get("drop_params", False)),
    )
    router_chains.check(config)
    return config


def _deployments(found: Any) -> Iterator[Deployment]:
    if not isinstance(found, Sequence) or isinstance(found, str) or not found:
        raise RouterConfigError(f"model_list must be a list of deployments; got {found!r:.60}.")
    ids: set[str] = set()
    for at, entry in enumerate(found):
        where = f"model_list[{at}]"
        entry = _known(entry, ("model_name", "litellm_params", "model_info"), where)
        params = dict(_known(entry.get("litellm_params"), _PARAMS, f"{where}.litellm_params"))
        info = dict(_known(entry.get("model_info"), _INFO, f"{where}.model_info"))
        model, group = params.get("model"), entry.get("model_name")
        if not isinstance(model, str) or "/" not in model:
            raise RouterConfigError(f"{where}.litellm_params.model must be provider/model; got {model!r:.60}.")
        if not isinstance(group, str) or not group.strip():
            raise RouterConfigError(f"{model} at {where} is in no group: model_name must be a name; got {group!r:.60}.")
        for name in ("max_retries", "num_retries"):
            if params.get(name):
                raise RouterConfigError(_layers(f"{where}.litellm_params.{name}", params[name]))
            params.pop(name, None)
        number(f"{where}: timeout", params.get("timeout", 1), low=0.001, high=_LONGEST, unit="s")
        whole(f"{where}: max_input_tokens", info.get("max_input_tokens", 1))
        _check_cooling(info, f"{where}.model_info")
        id = str(info.setdefault("id", f"{group}-{at}"))
        if id in ids:
            raise RouterConfigError(f"{where}.model_info.id {id!r} is another deployment's too; ids must differ.")
        ids.add(id)
        # Zero is said, and not left to defaults: P47's second layer of retries is the SDK's.
        yield Deployment(id, group, {**_placeholders(params), **params, "max_retries": 0}, {**info, "id": id})


def _placeholders(params: Mapping[str, Any]) -> dict[str, str]:
    where = params.get("aws_bedrock_runtime_endpoint") or params.get("api_base")
    if not isinstance(where, str) or urlsplit(where).hostname not in _LOOPBACK:
        return {}
    if str(params["model"]).startswith("bedrock/"):
        # Else botocore asks the instance metadata service, at an address off this machine.
        return {"aws_access_key_id": "lab", "aws_secret_access_key": "lab", "aws_region_name": "us-east-1"}
    return {"api_key": "none"}


# -- names and values --------------------------------------------------------------------------------------------------


def _known(found: Any, names: Collection[str], where: str) -> Mapping[str, Any]:
    if found is None:
        found = {}
    if not isinstance(found, Mapping):
        raise RouterConfigError(f"{where} must be a mapping; got {found!r:.60}.")
    for name in found:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}."
            raise RouterConfigError(f"{where} has no setting {name!r:.60}; {hint}")
    return found


def _check_cooling(found: Mapping[str, Any], where: str) -> None:
    policy = _known(found.get("allowed_fails_policy"), _POLICY, f"{where}.allowed_fails_policy")
    for name, value in {"allowed_fails": found.get("allowed_fails", 0), **policy}.items():
        whole(f"{where}.{name}", value, low=0)
    number(f"{where}.cooldown_time", found.get("cooldown_time", 0), high=_LONGEST, unit="s")
    _switch(f"{where}.disable_cooldowns", found.get("disable_cooldowns", False))


def _switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise RouterConfigError(f"{name} must be true or false; got {value!r:.40}.")
    return value


def _layers(name: str, value: Any) -> str:
    return (
        f"{name} is {value!r:.40}: retries are router_settings.num_retries alone. "
        "A second layer multiplies them, or takes their place."
    )


def _resolved(found: Any, where: str, environ: Mapping[str, str]) -> Any:
    if isinstance(found, Mapping):
        return {name: _resolved(each, f"{where}.{name}".strip("."), environ) for name, each in found.items()}
    if isinstance(found, list):
        return [_resolved(each, f"{where}[{at}]", environ) for at, each in enumerate(found)]
    if not isinstance(found, str) or not found.startswith(_ENVIRON):
        return found
    name = found.removeprefix(_ENVIRON)
    if not environ.get(name, "").strip():
        raise RouterConfigError(f"{where} is {found}, and {name} is not set in the environment.")
    return environ[name]
