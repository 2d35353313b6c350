"""The router's file: what is wrong in it is said at load, in one sentence, and LiteLLM is not even imported."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labkit.routing.router import Router, RouterConfig, RouterConfigError

ENVIRON = {
    "AGENT_PRIMARY_URL": "http://127.0.0.1:1",
    "AGENT_OVERFLOW_URL": "http://127.0.0.1:1/v1",
    "AGENT_OVERFLOW_KEY": "none",
}


def deployment(group: str, model: str, **info: Any) -> dict[str, Any]:
    params = {"model": f"openai/{model}", "api_base": "http://127.0.0.1:1/v1"}
    return {"model_name": group, "litellm_params": params, "model_info": {"id": model, **info}}


def document(**settings: Any) -> dict[str, Any]:
    return {
        "model_list": [deployment("primary", "a"), deployment("primary", "b"), deployment("overflow", "o")],
        "router_settings": {"timeout": 30, "fallbacks": [{"primary": ["overflow"]}], **settings},
    }


# -- the course's own file ---------------------------------------------------------------------------------------------


def test_the_courses_file_has_two_groups_in_two_dialects() -> None:
    config = RouterConfig.load(environ=ENVIRON)
    assert config.groups == ("agent-primary", "agent-overflow")
    assert [each.id for each in config.members("agent-primary")] == ["primary-us", "primary-global"]
    assert {each.params["model"].partition("/")[0] for each in config.deployments} == {"bedrock", "openai"}
    assert config.fallbacks == {"agent-primary": ("agent-overflow",)}
    assert config.window("agent-overflow") == 128_000


def test_every_deployment_is_told_not_to_retry() -> None:
    assert all(each.params["max_retries"] == 0 for each in RouterConfig.load(environ=ENVIRON).deployments)


def test_loopback_gets_placeholders_and_no_credentials() -> None:
    bedrock = RouterConfig.load(environ=ENVIRON).members("agent-primary")[0]
    assert bedrock.params["aws_access_key_id"] == "lab"
    real = {**ENVIRON, "AGENT_PRIMARY_URL": "https://bedrock-runtime.us-east-1.amazonaws.com"}
    assert "aws_access_key_id" not in RouterConfig.load(environ=real).members("agent-primary")[0].params


def test_keys_are_not_shown() -> None:
    config = RouterConfig.load(environ={**ENVIRON, "AGENT_OVERFLOW_KEY": "sk-secret"})
    assert config.members("agent-overflow")[0].params["api_key"] == "sk-secret"
    assert "sk-secret" not in repr(config)


def test_nothing_is_imported_to_read_a_file() -> None:
    import subprocess

    script = (
        "import sys; from labkit.routing.router import Router, RouterConfig;"
        f"Router(RouterConfig.load(environ={ENVIRON!r}));"
        "print([name for name in ('litellm', 'boto3', 'openai', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


# -- what cannot be ----------------------------------------------------------------------------------------------------


def _settings(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda found: found["router_settings"].update(changes)


def _params(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda found: found["model_list"][2]["litellm_params"].update(changes)


def _info(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda found: found["model_list"][2]["model_info"].update(changes)


def _sized(*sizes: int) -> Callable[[dict[str, Any]], None]:
    def change(found: dict[str, Any]) -> None:
        for entry, size in zip(found["model_list"], sizes, strict=True):
            entry["model_info"]["max_input_tokens"] = size

    return change


def _both(*changes: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], None]:
    return lambda found: [change(found) for change in changes] and None


WRONG: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a fallback to nowhere": (
        _settings(fallbacks=[{"primary": ["agent-overflow"]}]),
        r"^fallbacks: primary leads to agent-overflow, and agent-overflow is no group of model_list; those are",
    ),
    "a fallback from nowhere": (_settings(fallbacks=[{"first": ["overflow"]}]), r"first is no group of model_list"),
    "a circle": (
        _settings(fallbacks=[{"primary": ["overflow"]}, {"overflow": ["primary"]}]),
        r"^fallbacks go in a circle: primary -> overflow -> primary\. A chain must end\.$",
    ),
    "a group that is its own fallback": (_settings(fallbacks=[{"primary": ["primary"]}]), r"primary -> primary"),
    "a group said twice": (
        _settings(fallbacks=[{"primary": ["overflow"]}, {"primary": ["overflow"]}]),
        r"fallbacks of primary are said twice",
    ),
    "fallbacks in another form": (_settings(fallbacks={"primary": "overflow"}), r"must be a list of group: \[groups\]"),
    "fallbacks in two sections": (
        lambda found: found.update(litellm_settings={"fallbacks": [{"primary": ["overflow"]}]}),
        r"^fallbacks is set in router_settings and in litellm_settings; say it in one place\.$",
    ),
    "a model in no group": (
        lambda found: found["model_list"][1].pop("model_name"),
        r"^openai/b at model_list\[1\] is in no group: model_name must be a name; got None\.$",
    ),
    "a model without a provider": (_params(model="gpt-4o"), r"must be provider/model; got 'gpt-4o'"),
    "an empty list": (
        lambda found: found.update(model_list=[]),
        r"^model_list must be a list of deployments; got \[\]",
    ),
    "an id twice": (_info(id="a"), r"^model_list\[2\]\.model_info\.id 'a' is another deployment's too"),
    "a misspelt setting": (
        _settings(alowed_fails=2),
        r"^router_settings has no setting 'alowed_fails'; did you mean allowed_fails\?$",
    ),
    "a setting of nobody": (_settings(xyz=1), r"router_settings has no setting 'xyz'; known are num_retries, timeout,"),
    "a misspelt parameter": (_params(apibase="x"), r"litellm_params has no setting 'apibase'; did you mean api_base\?"),
    "an unknown section": (lambda found: found.update(general_settings={}), r"the file has no setting 'general_sett"),
    "a policy for no exception": (
        _settings(allowed_fails_policy={"RateLimitAllowedFails": 1}),
        r"did you mean RateLimitErrorAllowedFails\?",
    ),
    "another strategy": (_settings(routing_strategy="least-busy"), r"routing_strategy must be simple-shuffle"),
    "no timeout": (_settings(timeout=None), r"^router_settings\.timeout is missing: without one a call may hang"),
    "a timeout of nothing": (
        _settings(timeout=0),
        r"^router_settings\.timeout must be from 0\.001 to 86400 s; got 0\.$",
    ),
    "retries without end": (_settings(num_retries=11), r"router_settings\.num_retries must be .* from 0 to 10; got 11"),
    "retries in the SDK too": (
        _params(max_retries=2),
        r"^model_list\[2\]\.litellm_params\.max_retries is 2: retries are router_settings\.num_retries alone\.",
    ),
    "retries at a deployment too": (_params(num_retries=1), r"litellm_params\.num_retries is 1: retries are"),
    "retries in the other section": (
        lambda found: found.update(litellm_settings={"num_retries": 2}),
        r"^litellm_settings\.num_retries is 2: retries are",
    ),
    "checks that know nothing": (
        _settings(enable_pre_call_checks=True),
        r"^model_info\.max_input_tokens of a is missing: without it nobody can tell what fits there\.$",
    ),
    "a smaller window, unchecked": (
        _sized(200_000, 200_000, 128_000),
        r"^fallbacks: primary takes 200,000 tokens and overflow only 128,000; set router_settings\.enable_pre_call",
    ),
    "too long, to a smaller one": (
        _both(
            _sized(200_000, 200_000, 128_000),
            _settings(fallbacks=[], context_window_fallbacks=[{"primary": ["overflow"]}]),
        ),
        r"^context_window_fallbacks must lead to larger and larger windows; got primary 200,000, overflow 128,000\.$",
    ),
    "no number of fails": (_settings(allowed_fails="two"), r"^router_settings\.allowed_fails must be a whole number"),
    "no switch": (_settings(disable_cooldowns="no"), r"disable_cooldowns must be true or false; got 'no'"),
    "a variable that is not set": (
        _params(api_base="os.environ/NOT_SET"),
        r"^model_list\[2\]\.litellm_params\.api_base is os\.environ/NOT_SET, and NOT_SET is not set in the environment",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_is_said_in_one_sentence(what: str) -> None:
    change, says = WRONG[what]
    found = copy.deepcopy(document())
    change(found)
    with pytest.raises(RouterConfigError, match=says):
        RouterConfig.of(found, environ={})


@pytest.mark.parametrize("found", [None, [], "model_list", 7, {"model_list": None}, {"model_list": [None]}])
def test_what_is_no_configuration_at_all(found: Any) -> None:
    with pytest.raises(RouterConfigError):
        RouterConfig.of(found, environ={})


def test_a_file_that_is_no_yaml_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "router.yaml").write_text("model_list: [")
    with pytest.raises(RouterConfigError, match=r"^router\.yaml cannot be read: while parsing"):
        RouterConfig.load(tmp_path / "router.yaml")
    with pytest.raises(RouterConfigError, match=r"^none\.yaml cannot be read"):
        RouterConfig.load(tmp_path / "none.yaml")


def test_a_window_is_the_smallest_of_the_group() -> None:
    found = document(enable_pre_call_checks=True)
    _sized(200_000, 100_000, 128_000)(found)
    config = RouterConfig.of(found, environ={})
    assert config.window("primary") == 100_000


# -- the router itself, before any call --------------------------------------------------------------------------------


class _Gate:
    lease = 20.0

    def permit(self, *, within: float = 0.0) -> Any:
        raise AssertionError("nobody asks")


def test_a_gate_of_no_group_or_with_a_lease_shorter_than_a_call() -> None:
    config = RouterConfig.of(document(), environ={})
    with pytest.raises(RouterConfigError, match=r"^gates: 'other' is no group; those are primary, overflow\.$"):
        Router(config, gates={"other": _Gate()})
    with pytest.raises(RouterConfigError, match=r"the gate of overflow has a lease of 20 s, and a call may take 30 s"):
        Router(config, gates={"overflow": _Gate()})


def test_a_deployments_own_timeout_counts() -> None:
    found = document()
    found["model_list"][2]["litellm_params"]["timeout"] = 90
    config = RouterConfig.of(found, environ={})
    assert (config.slowest("primary"), config.slowest("overflow")) == (30, 90)
    gate = _Gate()
    gate.lease = 60.0
    with pytest.raises(RouterConfigError, match=r"the gate of overflow has a lease of 60 s, and a call may take 90 s"):
        Router(config, gates={"overflow": gate})


def test_the_longest_call_is_known_beforehand() -> None:
    config = RouterConfig.of(document(num_retries=1), environ={})
    gate = _Gate()
    gate.lease = 60.0
    router = Router(config, gates={"overflow": gate}, within=5, patience=8)
    assert router.longest("overflow") == 2 * (30 + 5) + 8
    assert router.longest("primary") == 2 * 30 + 8 + router.longest("overflow")


def test_what_a_call_may_not_set() -> None:
    router = Router(RouterConfig.of(document(), environ={}))
    with pytest.raises(Exception, match=r"^num_retries, stream is the router's to set, not a call's\.$"):
        router.complete("primary", "Hello", stream=True, num_retries=3)
    with pytest.raises(Exception, match=r"^'third' is no group; those are primary, overflow\.$"):
        router.complete("third", "Hello")
    router.close()
    router.close()
    with pytest.raises(Exception, match=r"^this router is closed\.$"):
        router.complete("primary", "Hello")
