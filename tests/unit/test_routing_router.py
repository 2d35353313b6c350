"""The router's calls, through LiteLLM to a scripted provider on loopback. LiteLLM is imported once for the module."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from labkit import Lab
from labkit.routing.gate import Gate
from labkit.routing.local_http import LocalServer, Request
from labkit.routing.provider import (
    Concurrency,
    ContextLength,
    Down,
    Drop,
    Latency,
    Provider,
    Script,
    Throttle,
    ToolCall,
    contains,
)
from labkit.routing.router import NoAnswer, Router, RouterConfig, RouterConfigError, RouterError
from labkit.routing.router_litellm import ahead, package

LONG = "word " * 400  # some hundred tokens, by anybody's count

SCRIPT = (
    Script(default="Hello.")
    .on(contains("weather"), ToolCall("weather", {"city": "Oslo"}))
    .on(contains("who"), lambda asked: asked.model)
)

Make = Callable[..., Router]


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with Provider(SCRIPT) as serving:
        yield serving


@pytest.fixture(autouse=True)
def fresh(provider: Provider) -> Iterator[None]:
    provider.hits.reset()
    yield
    provider.all_off()


def listed(provider: Provider, groups: Mapping[str, tuple[str, ...]], **windows: int) -> list[dict[str, Any]]:
    """Deployments of the OpenAI dialect; those whose name begins with ``us.`` speak Converse."""
    found = []
    for group, models in groups.items():
        for model in models:
            params = {"model": f"openai/{model}", "api_base": provider.openai_url}
            if model.startswith("us."):
                params = {
                    "model": f"bedrock/converse/{model}",
                    "aws_bedrock_runtime_endpoint": provider.bedrock_url,
                }
            info: dict[str, Any] = {"id": model}
            if group in windows:
                info["max_input_tokens"] = windows[group]
            found.append({"model_name": group, "litellm_params": params, "model_info": info})
    return found


def built(
    provider: Provider,
    groups: Mapping[str, tuple[str, ...]] | None = None,
    *,
    windows: Mapping[str, int] | None = None,
    options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Router:
    """A router of primary [a, b] and overflow [o], which never sleeps: ``router.slept`` says."""
    models = listed(provider, groups or {"primary": ("a", "b"), "overflow": ("o",)}, **(windows or {}))
    found = {"model_list": models, "router_settings": {"timeout": 30, **settings}}
    slept: list[float] = []
    routing = Router(RouterConfig.of(found), sleep=slept.append, **(options or {}))
    routing.slept = slept  # type: ignore[attr-defined]
    return routing


@pytest.fixture
def make(provider: Provider) -> Iterator[Make]:
    """``make(fallbacks=…)``: one of :func:`built`, closed afterwards."""
    with contextlib.ExitStack() as made:
        yield lambda *groups, **settings: made.enter_context(built(provider, *groups, **settings))


FALLBACK: dict[str, Any] = {"fallbacks": [{"primary": ["overflow"]}]}


# -- an answer ---------------------------------------------------------------------------------------------------------


def test_an_answer_says_who_gave_it_and_what_it_took(make: Make, provider: Provider) -> None:
    answer = make().complete("primary", "Hello")
    assert (answer.text, answer.finish, answer.group) == ("Hello.", "stop", "primary")
    assert answer.deployment in ("a", "b")
    assert (answer.input_tokens, answer.output_tokens) == (2, 2)  # the provider's own count
    assert answer.attempts == ()
    assert not answer.fell_back
    assert 0 < answer.seconds < 30
    assert provider.hits.count(outcome="ok") == 1


def test_the_converse_dialect_and_tools(make: Make, provider: Provider) -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
    model = "us.anthropic.claude-sonnet-4-20250514-v1:0"  # LiteLLM's own list says which models take tools
    answer = make({"primary": (model,)}).complete("primary", "weather", tools=[tool], max_tokens=50)
    assert answer.finish == "tool_calls"
    assert answer.response.choices[0].message.tool_calls[0].function.name == "weather"
    assert provider.hits.log[-1].dialect == "bedrock"


def test_a_success_without_an_answer_is_a_failure_of_the_provider(make: Make) -> None:
    def nothing(request: Request) -> None:
        request.send_json(200, {"object": "chat.completion", "choices": []})

    router = make({"primary": ("a",), "overflow": ("o",)}, **FALLBACK)
    empty = LocalServer(nothing, name="labkit-empty")
    try:
        models = router.config.deployments
        params = [{**each.params, "api_base": f"{empty.url}/v1"} if each.id == "a" else each.params for each in models]
        listed = [
            {"model_name": each.group, "litellm_params": dict(said), "model_info": {"id": each.id}}
            for each, said in zip(models, params, strict=True)
        ]
        with Router(RouterConfig.of({"model_list": listed, "router_settings": {"timeout": 10, **FALLBACK}})) as routing:
            answer = routing.complete("primary", "Hello")
    finally:
        empty.close()
    assert (answer.text, answer.group) == ("Hello.", "overflow")
    assert [(each.kind, each.deployment, each.error) for each in answer.attempts] == [("error", "a", "NothingSaid")]


def test_two_deployments_under_one_name_share_the_load(make: Make, provider: Provider) -> None:
    router = make()
    for _ in range(40):
        router.complete("primary", "Hello")
    # Each is picked with 1/2: fewer than 6 of 40 has a probability of 1e-6.
    assert provider.hits.count("a") >= 6
    assert provider.hits.count("b") >= 6


def test_a_running_event_loop_is_no_obstacle(make: Make, provider: Provider) -> None:
    """As in a notebook, where every cell runs inside one."""
    router = make(allowed_fails=0, cooldown_time=60, **FALLBACK)

    async def cell() -> str:
        return router.complete("primary", "Hello").text

    with provider.switch(["a", "b"], Down()):
        assert asyncio.run(cell()) == "Hello."


def test_litellm_can_be_imported_ahead_and_prints_nothing(
    provider: Provider, capsys: pytest.CaptureFixture[str]
) -> None:
    thread = ahead()
    thread.join(250)
    assert not thread.is_alive()
    with provider.switch("a", Down()), pytest.raises(Exception, match="error"):
        package().completion(
            model="openai/a", api_base=provider.openai_url, api_key="none", messages=[{"role": "user", "content": "?"}],
            max_retries=0,
        )  # fmt: skip
    assert capsys.readouterr().out == ""


# -- failing over ------------------------------------------------------------------------------------------------------


def test_a_dead_group_is_left_and_what_failed_is_kept(make: Make, provider: Provider) -> None:
    router = make(num_retries=1, **FALLBACK)
    with provider.switch(["a", "b"], Down()):
        answer = router.complete("primary", "Hello")
    assert (answer.group, answer.deployment, answer.fell_back) == ("overflow", "o", True)
    assert [(each.group, each.kind, each.status) for each in answer.attempts] == [("primary", "error", 500)] * 2
    assert {each.deployment for each in answer.attempts} <= {"a", "b"}
    assert provider.hits.total == 3


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_retries_are_bounded_and_at_one_layer(make: Make, provider: Provider, retries: int) -> None:
    router = make({"primary": ("a",)}, num_retries=retries)
    with provider.switch("a", Throttle(0.01)), pytest.raises(NoAnswer):
        router.complete("primary", "Hello")
    assert provider.hits.total == 1 + retries


def test_a_retry_succeeds_and_waits_only_where_there_is_nobody_else(make: Make, provider: Provider) -> None:
    alone = make({"primary": ("a",)}, num_retries=1)
    with provider.switch("a", Down(), times=1):
        assert len(alone.complete("primary", "Hello").attempts) == 1
    assert len(alone.slept) == 1
    assert 0 <= alone.slept[0] <= 0.5
    two = make(num_retries=1)
    with provider.switch("*", Down(), times=1):
        assert len(two.complete("primary", "Hello").attempts) == 1
    assert two.slept == []  # type: ignore[attr-defined]


def test_retry_after_is_kept_to_and_a_long_one_is_not_waited_for(make: Make, provider: Provider) -> None:
    router = make({"primary": ("a",), "overflow": ("o",)}, num_retries=1, disable_cooldowns=True, **FALLBACK)
    with provider.switch("a", Throttle(3), times=1):
        assert router.complete("primary", "Hello").group == "primary"
    assert router.slept == [3.0]  # type: ignore[attr-defined]
    with provider.switch("a", Throttle(30)):
        answer = router.complete("primary", "Hello")
    assert answer.group == "overflow"
    assert [each.retry_after for each in answer.attempts] == [30.0]
    assert router.slept == [3.0]  # type: ignore[attr-defined]


def test_the_finer_of_two_headers_is_kept_to(make: Make, provider: Provider) -> None:
    router = make({"primary": ("a",)}, num_retries=1, disable_cooldowns=True, options={"wait": lambda failure: 0.0})
    with provider.switch("a", Throttle(0.25), times=1):  # "Retry-After: 1" and "retry-after-ms: 250"
        router.complete("primary", "Hello")
    assert router.slept == [0.25]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Throttle(), "throttled"),
        (Down(), "error"),
        (Down("overloaded"), "overloaded"),
        (Down("denied"), "denied"),
        (Down("missing"), "missing"),
        (Drop(), "error"),
        (ContextLength(1), "context"),
    ],
)
@pytest.mark.parametrize("model", ["a", "us.claude"])
def test_each_failure_has_a_kind(make: Make, provider: Provider, model: str, fault: Any, kind: str) -> None:
    router = make({"primary": (model,)}, disable_cooldowns=True)
    with provider.switch("*", fault), pytest.raises(NoAnswer) as caught:
        router.complete("primary", LONG)
    expected = {("us.claude", "error"): ("overloaded", "connection")}.get((model, kind), (kind,))  # as LiteLLM maps it
    assert caught.value.kind in expected
    assert caught.value.first.deployment == model
    assert caught.value.again is (kind in ("throttled", "error", "overloaded"))


def test_a_silent_provider_is_given_up_after_the_timeout(provider: Provider) -> None:
    models = listed(provider, {"primary": ("a",), "overflow": ("o",)})
    models[0]["litellm_params"]["timeout"] = 0.3  # of the silent one alone: the other one may take its time
    config = RouterConfig.of({"model_list": models, "router_settings": {"timeout": 30, **FALLBACK}})
    with Router(config) as router, provider.switch("a", Latency(30)):
        answer = router.complete("primary", "Hello")
    assert [each.kind for each in answer.attempts] == ["timeout"]
    assert answer.group == "overflow"


@pytest.mark.parametrize("fault", ["denied", "missing"])
def test_what_is_one_deployments_is_asked_of_its_neighbour(make: Make, provider: Provider, fault: str) -> None:
    """Neither permission nor model is there, in one of two places: the other one of the group may have both."""
    router = make(num_retries=9, **FALLBACK)
    with provider.switch("a", Down(fault)):
        found = [router.complete("primary", "Hello").group for _ in range(12)]
    assert provider.hits.count("a") > 0
    # Ten times in a row the wrong one: once in 1,024 calls.
    assert Counter(found)["overflow"] <= 3, "the one that answers is asked before the group is left"
    alone = make({"primary": ("a",), "overflow": ("o",)}, num_retries=3, **FALLBACK)
    provider.hits.reset()
    with provider.switch("a", Down(fault)):
        assert alone.complete("primary", "Hello").group == "overflow"
    assert provider.hits.count("a") == 1, "where there is no neighbour, the same question has the same answer"
    assert alone.slept == []  # type: ignore[attr-defined]


def test_what_is_the_callers_fault_is_asked_of_nobody_else(make: Make, provider: Provider) -> None:
    router = make(num_retries=2, **FALLBACK)
    with pytest.raises(NoAnswer) as caught:
        router.complete("primary", [])
    assert not caught.value.again
    assert provider.hits.count("o") == 0


def test_chains_go_on_from_group_to_group(make: Make, provider: Provider) -> None:
    router = make({"one": ("a",), "two": ("b",), "three": ("c",)}, fallbacks=[{"one": ["two"]}, {"two": ["three"]}])
    with provider.switch(["a", "b"], Down()):
        answer = router.complete("one", "who")
    assert answer.text == "c"
    assert [each.group for each in answer.attempts] == ["one", "two"]


def test_nobody_answers(make: Make, provider: Provider) -> None:
    router = make({"primary": ("a",), "overflow": ("o",)}, **FALLBACK)
    with provider.switch("a", Throttle()), provider.switch("o", Down()), pytest.raises(NoAnswer) as caught:
        router.complete("primary", "Hello")
    error = caught.value
    assert (error.kind, error.first.group, error.again) == ("throttled", "primary", True)
    assert type(error.__cause__).__name__ == "RateLimitError"
    assert "primary: throttled at a (" in str(error)
    assert "; then overflow: error at o (" in str(error)
    assert "Exception - Rate limit reached for a" in str(error)
    assert str(error).startswith("primary got no answer. ")
    assert "Rate limit reached" in str(error)


# -- cooldowns ---------------------------------------------------------------------------------------------------------


def test_a_dead_deployment_is_benched_and_bothers_nobody(make: Make, provider: Provider) -> None:
    router = make(allowed_fails=2, cooldown_time=60, **FALLBACK)
    with provider.switch("a", Down()):
        for _ in range(40):
            router.complete("primary", "Hello")
    assert provider.hits.count("a") == 3  # "on the third failure", as facts("litellm.allowed_fails_2.cooldown_on")
    assert list(router.benched("primary")) == ["a"]
    assert router.benched("primary")["a"].status == "500"
    assert 0 < router.benched("primary")["a"].seconds <= 60


def test_a_benched_group_is_not_asked_and_costs_no_permit(make: Make, provider: Provider) -> None:
    gate = Counting()
    router = make(
        {"primary": ("a",), "overflow": ("o",)},
        allowed_fails=0,
        cooldown_time=60,
        options={"gates": {"primary": gate}},
        **FALLBACK,
    )
    with provider.switch("a", Down()):
        router.complete("primary", "Hello")
        answer = router.complete("primary", "Hello")
    (attempt,) = answer.attempts
    assert (attempt.kind, attempt.deployment, attempt.says) == ("cooldown", "", "all of it is benched, after 500")
    assert attempt.retry_after is not None
    assert 0 < attempt.retry_after <= 60
    assert gate.given == 1
    assert provider.hits.count("a") == 1


# -- windows -----------------------------------------------------------------------------------------------------------


def test_what_is_too_long_goes_to_a_larger_window_without_a_call(make: Make, provider: Provider) -> None:
    router = make(
        {"small": ("a",), "large": ("o",)},
        windows={"small": 100, "large": 100_000},
        enable_pre_call_checks=True,
        context_window_fallbacks=[{"small": ["large"]}],
    )
    assert router.complete("small", "Hello").group == "small"
    answer = router.complete("small", LONG)
    assert answer.group == "large"
    assert [each.kind for each in answer.attempts] == ["context"]
    assert provider.hits.count("a") == 1


def test_what_is_too_long_does_not_go_to_an_ordinary_fallback(make: Make, provider: Provider) -> None:
    router = make(windows={"primary": 100, "overflow": 100_000}, enable_pre_call_checks=True, num_retries=2, **FALLBACK)
    with pytest.raises(NoAnswer) as caught:
        router.complete("primary", LONG)
    assert (caught.value.kind, caught.value.again) == ("context", False)
    assert len(caught.value.attempts) == 1
    assert provider.hits.total == 0


# -- gates -------------------------------------------------------------------------------------------------------------


class Counting:
    """Anything that gives permits: here it counts them, and how many are out at once."""

    def __init__(self, most: int = 1_000) -> None:
        self.given = self.out = self.peak = 0
        self._most, self._guard = most, threading.Condition()

    @contextlib.contextmanager
    def permit(self, *, within: float = 0.0) -> Iterator[None]:
        with self._guard:
            if not self._guard.wait_for(lambda: self.out < self._most, within):
                raise TimeoutError(f"no permit within {within:g} s")
            self.given += 1
            self.out += 1
            self.peak = max(self.peak, self.out)
        try:
            yield
        finally:
            with self._guard:
                self.out -= 1
                self._guard.notify_all()


def test_a_permit_is_held_for_one_attempt(make: Make, provider: Provider) -> None:
    primary, overflow = Counting(1), Counting(1)
    gates = {"primary": primary, "overflow": overflow}
    slept: list[tuple[float, int, int]] = []
    router = make({"primary": ("a",), "overflow": ("o",)}, num_retries=1, options={"gates": gates}, **FALLBACK)
    router._sleep = lambda seconds: slept.append((seconds, primary.out, overflow.out))
    with provider.switch("a", Down()):
        assert router.complete("primary", "Hello").group == "overflow"
    assert (primary.given, overflow.given) == (2, 1)
    assert len(slept) == 1
    assert slept[0][1:] == (0, 0)
    assert (primary.out, overflow.out) == (0, 0)


@pytest.fixture
def own(lab: Lab) -> Provider:
    """A provider that ends with the lab. The module's has a thread for each connection, and LiteLLM keeps those for
    some seconds: one that begins after the lab was opened would count as left behind."""
    return Provider(SCRIPT, lab=lab)


def test_a_full_overflow_names_both_causes(own: Provider, lab: Lab) -> None:
    provider, gate = own, Gate.create(lab, "overflow", cap=1)
    groups = {"primary": ("a",), "overflow": ("o",)}
    router = built(provider, groups, options={"gates": {"overflow": gate}, "within": 0, "lab": lab}, **FALLBACK)
    with provider.switch("a", Throttle()), gate.permit(), pytest.raises(NoAnswer) as caught:
        router.complete("primary", "Hello")
    error = caught.value
    assert [each.kind for each in error.attempts] == ["throttled", "full"]
    assert "throttled at a" in str(error)
    assert "gate overflow is full: 1 of 1 permits are out" in str(error)
    assert error.again
    assert 0 < error.retry_in <= 62
    assert provider.hits.count("o") == 0
    with provider.switch("a", Throttle()):
        assert router.complete("primary", "Hello").group == "overflow"
    assert gate.look().taken == 0


def test_a_full_primary_is_left_for_its_fallback(make: Make) -> None:
    primary = Counting(0)
    router = make(options={"gates": {"primary": primary}, "within": 0.01}, num_retries=2, **FALLBACK)
    answer = router.complete("primary", "Hello")
    assert answer.group == "overflow"
    assert [each.kind for each in answer.attempts] == ["full"]


def test_an_error_of_the_gate_comes_through_with_what_had_failed(make: Make, provider: Provider) -> None:
    class Broken:
        def permit(self, *, within: float = 0.0) -> Any:
            raise ConnectionError("the table does not answer")

    router = make({"primary": ("a",), "overflow": ("o",)}, options={"gates": {"overflow": Broken()}}, **FALLBACK)
    with provider.switch("a", Down()), pytest.raises(ConnectionError, match="the table does not answer") as caught:
        router.complete("primary", "Hello")
    assert "primary: error at a" in caught.value.__notes__[0]


def test_a_gate_keeps_the_storm_from_the_fallback(
    make: Make, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """24 workers, the primary throttled, an overflow that takes 4 at once: with a gate none is refused there."""
    overflow = Counting(4)
    groups = {"primary": ("a",), "overflow": ("o",)}
    gated = make(groups, options={"gates": {"overflow": overflow}, "within": 60}, **FALLBACK)
    faults = [("a", Throttle()), ("o", Latency(0.05)), ("o", Concurrency(4))]

    def storm(router: Router) -> list[str]:
        provider.hits.reset()
        found: list[str] = []

        def work() -> None:
            try:
                found.append(router.complete("primary", "Hello").group)
            except NoAnswer as error:
                found.append(error.attempts[-1].kind)

        crew = [threading.Thread(target=work) for _ in range(24)]
        for each in crew:
            each.start()
        for each in crew:
            each.join(60)
        return found

    with contextlib.ExitStack() as on:
        for model, fault in faults:
            on.enter_context(provider.switch(model, fault))
        assert storm(gated) == ["overflow"] * 24
        assert overflow.peak <= 4
        assert provider.hits.count("o", "concurrency") == 0

        def until_one_is_refused(asked: Any) -> str:
            """So that they are there together, however slowly they come."""
            end = time.monotonic() + 20
            while not provider.hits.count("o", "concurrency") and time.monotonic() < end:
                time.sleep(0.01)
            return "Hello."

        monkeypatch.setattr(provider, "script", Script(until_one_is_refused))
        assert "throttled" in storm(make(groups, **FALLBACK))


# -- what is left behind, and what is looked up ------------------------------------------------------------------------


def test_no_host_is_looked_up_and_no_thread_is_left_but_the_pool() -> None:
    """In a process of its own, with the course's own file: import, calls, an outage, a check of windows."""
    script = """
import json, socket, threading
seen, look = set(), socket.getaddrinfo
connect = socket.socket.connect
def looked(host, *rest, **named):
    seen.add(str(host)); return look(host, *rest, **named)
def connected(self, address):
    seen.add(str(address[0])); return connect(self, address)
socket.getaddrinfo, socket.socket.connect = looked, connected
from labkit.routing.provider import Down, Provider, Script
from labkit.routing.router import Router
with Provider(Script(default="Hello.")) as provider:
    environ = {"AGENT_PRIMARY_URL": provider.bedrock_url, "AGENT_OVERFLOW_URL": provider.openai_url,
               "AGENT_OVERFLOW_KEY": "none"}
    with Router.load(environ=environ) as router:
        groups = [router.complete("agent-primary", "Hello").group, router.complete("agent-overflow", "Hello").group]
        primary = [each.params["model"].rpartition("/")[2] for each in router.config.members("agent-primary")]
        with provider.switch(primary, Down()):
            groups.append(router.complete("agent-primary", "Hello", max_tokens=9, temperature=0).group)
        groups.append(router.complete("agent-overflow", "word " * 130_000).group)
left = [each.name for each in threading.enumerate() if each is not threading.main_thread()]
print(json.dumps([groups, sorted(seen), left]))
"""
    began = time.monotonic()
    # A reader's proxy, where nobody listens: loopback is not behind it.
    proxies = dict.fromkeys(("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"), "http://127.0.0.1:9")
    command, environ = [sys.executable, "-c", script], {**os.environ, **proxies, "NO_PROXY": "", "no_proxy": ""}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=250, check=True)
    groups, seen, left = json.loads(done.stdout)
    assert groups == ["agent-primary", "agent-overflow", "agent-overflow", "agent-primary"]
    assert seen == ["127.0.0.1"]
    assert all(name.startswith("litellm-logging") for name in left), left
    assert done.stderr == ""
    assert time.monotonic() - began < 250  # … and it ended by itself


def idle(pool: Any) -> None:
    """Wait until all of the pool's threads are: it starts another one only for what finds none so."""
    end = time.monotonic() + 30
    while pool._idle_semaphore._value < len(pool._threads):
        assert time.monotonic() < end
        time.sleep(0.005)


def test_threads_do_not_grow_with_calls(make: Make, provider: Provider) -> None:
    package()
    pool = importlib.import_module("litellm.litellm_core_utils.thread_pool_executor").executor
    router = make(**FALLBACK)
    router.complete("primary", "Hello")
    idle(pool)
    before = {each for each in threading.enumerate() if not each.name.startswith("labkit-provider")}
    with provider.switch("a", Down()):
        for _ in range(20):
            router.complete("primary", "Hello")
            idle(pool)
    after = {each for each in threading.enumerate() if not each.name.startswith("labkit-provider")}
    assert len(after - before) <= 1, after - before  # the pool may have one more


def test_the_lab_closes_it(own: Provider, lab: Lab) -> None:
    router = built(own, options={"lab": lab})
    assert router.complete("primary", "Hello").text == "Hello."
    lab.close()
    with pytest.raises(RouterError, match=r"^this router is closed\.$"):
        router.complete("primary", "Hello")


def test_a_refusal_of_litellm_is_a_sentence(provider: Provider) -> None:
    models = [{"model_name": "primary", "litellm_params": {"model": "nobody/m", "api_base": provider.openai_url}}]
    config = RouterConfig.of({"model_list": models, "router_settings": {"timeout": 5}})
    with (
        Router(config) as router,
        pytest.raises(RouterConfigError, match=r"^LiteLLM refuses the configuration: .*nobody/m"),
    ):
        router.complete("primary", "Hello")
