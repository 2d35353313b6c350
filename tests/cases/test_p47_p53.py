"""Reported: LiteLLM's retries that multiply, cooldowns that never come, a first error that is hidden by the last."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from labkit.routing.provider import Down, Provider, Script, Throttle
from labkit.routing.router import NoAnswer, Router, RouterConfig, RouterConfigError

LONG = "word " * 400


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with Provider(Script(default="Hello.")) as serving:
        yield serving


@pytest.fixture(autouse=True)
def fresh(provider: Provider) -> Iterator[None]:
    provider.hits.reset()
    yield
    provider.all_off()


def document(provider: Provider, *groups: str, windows: tuple[int, ...] = (), **settings: Any) -> dict[str, Any]:
    """One deployment a group, which has the group's name."""
    models: list[dict[str, Any]] = [
        {
            "model_name": group,
            "litellm_params": {"model": f"openai/{group}", "api_base": provider.openai_url},
            "model_info": {"id": group},
        }
        for group in groups
    ]
    for each, window in zip(models, windows, strict=False):
        each["model_info"]["max_input_tokens"] = window
    return {"model_list": models, "router_settings": {"timeout": 60, **settings}}


def never(seconds: float) -> None:
    raise AssertionError(f"it waited for {seconds} s")


FALLBACK: dict[str, Any] = {"fallbacks": [{"primary": ["overflow"]}]}


def failures(router: Router, times: int) -> list[str]:
    """The kind of each call's first failure."""
    kinds = []
    for _ in range(times):
        with pytest.raises(NoAnswer) as caught:
            router.complete("primary", "Hello")
        kinds.append(caught.value.kind)
    return kinds


def test_p47_a_429_turns_to_the_fallback_at_once_whatever_it_wants_to_be_waited_for(provider: Provider) -> None:
    """num_retries 0, and still the SDK waited for 47 s, twice: its own retries lay under the router's.

    One layer retries. A second one does not load, and every deployment tells its SDK 0.
    """
    found = document(provider, "primary", "overflow", num_retries=0, **FALLBACK)
    found["model_list"][0]["litellm_params"]["max_retries"] = 2
    with pytest.raises(RouterConfigError, match=r"max_retries is 2: retries are router_settings\.num_retries alone"):
        RouterConfig.of(found)
    del found["model_list"][0]["litellm_params"]["max_retries"]
    config = RouterConfig.of(found)
    assert {each.params["max_retries"] for each in config.deployments} == {0}
    with Router(config, sleep=never) as router, provider.switch("primary", Throttle(47)):
        answer = router.complete("primary", "Hello")
    assert answer.group == "overflow"
    assert [(each.kind, each.retry_after) for each in answer.attempts] == [("throttled", 47.0)]
    assert (provider.hits.count("primary"), provider.hits.count("overflow")) == (1, 1)


def test_p48_a_group_of_one_is_benched_only_with_a_fallback_or_by_name(provider: Provider) -> None:
    """allowed_fails 1, and a single deployment never cooled down: benching it would leave nobody.

    A group that has a fallback is not exempt, and neither is an exception that the policy names.
    """
    cooling: dict[str, Any] = {"allowed_fails": 1, "cooldown_time": 60}
    by_name = {"allowed_fails_policy": {"InternalServerErrorAllowedFails": 1}, "cooldown_time": 60}
    other = {"allowed_fails_policy": {"RateLimitErrorAllowedFails": 1}, "cooldown_time": 60}
    with provider.switch("*", Down()):
        for settings, groups, last in (
            (cooling, ("primary",), "error"),
            ({**cooling, **FALLBACK}, ("primary", "overflow"), "cooldown"),
            (by_name, ("primary",), "cooldown"),
            (other, ("primary",), "error"),
        ):
            with Router(RouterConfig.of(document(provider, *groups, **settings))) as router:
                assert failures(router, 4) == ["error", "error", last, last], settings


def test_p50_failures_that_come_slowly_never_bench(provider: Provider) -> None:
    """5 failures in 20 minutes and no cooldown: only failures within one window count together.

    In LiteLLM 1.110.2 the window begins with the first failure and lasts cooldown_time. A degradation that is slower
    needs a breaker of one's own, fed by what the router says of each call: answer.attempts.
    """

    def kinds(window: float, calls: int, pause: float) -> list[str]:
        """What became of the calls of the first group, with so many seconds between them."""
        settings = {"allowed_fails": 2, "cooldown_time": window, **FALLBACK}
        noticed = []
        with Router(RouterConfig.of(document(provider, "primary", "overflow", **settings))) as router:
            for _ in range(calls):
                noticed += router.complete("primary", "Hello").attempts
                time.sleep(pause)
        return [each.kind for each in noticed]

    with provider.switch("primary", Down()):
        # Two of them fall into one window, never three: each of them was told, and none benched it.
        assert kinds(window=0.5, calls=5, pause=0.3) == ["error"] * 5
        assert kinds(window=60, calls=4, pause=0) == ["error", "error", "error", "cooldown"]


def test_p52_the_first_error_is_the_one_that_is_told(provider: Provider) -> None:
    """A rate limit at the large model came out as "context window exceeded" of the small one behind it.

    The call is classified by its first failure, the small model is not even asked, and windows have their own chain.
    """
    settings: dict[str, Any] = {"enable_pre_call_checks": True, **FALLBACK}
    found = document(provider, "primary", "overflow", windows=(100_000, 100), **settings)
    with Router(RouterConfig.of(found)) as router, provider.switch("primary", Throttle()):
        with pytest.raises(NoAnswer) as caught:
            router.complete("primary", LONG)
        assert router.complete("primary", "Hello").group == "overflow"  # what fits there goes there
    error = caught.value
    assert (error.kind, error.again) == ("throttled", True)
    assert type(error.__cause__).__name__ == "RateLimitError"
    assert [(each.group, each.kind) for each in error.attempts] == [("primary", "throttled"), ("overflow", "context")]
    assert "throttled at primary (" in str(error)
    assert "; then overflow: context (" in str(error)
    assert provider.hits.count("overflow") == 1
    del found["router_settings"]["enable_pre_call_checks"]
    with pytest.raises(RouterConfigError, match="primary takes 100,000 tokens and overflow only 100; set"):
        RouterConfig.of(found)
