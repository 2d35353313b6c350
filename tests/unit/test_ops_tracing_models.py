"""Model calls: which attempt failed, which one answered, and with how many tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from labkit.ops.spans.record import Record
from labkit.ops.tracing import Tracing
from labkit.routing.provider import Down, Provider, Script, Throttle
from labkit.routing.router import NoAnswer, Router, RouterConfig, RouterError
from labkit.routing.router_outcome import Benched

CONFIG = RouterConfig.of(
    {
        "model_list": [
            {
                "model_name": group,
                "litellm_params": {"model": model, "api_base": "http://127.0.0.1:1", "api_key": "k"},
                "model_info": {"id": identity},
            }
            for group, model, identity in (
                ("primary", "openai/gpt-4o", "a"),
                ("primary", "openai/gpt-4o-copy", "b"),
                ("overflow", "openai/mini", "o"),
            )
        ],
        "router_settings": {"num_retries": 1, "timeout": 5, "fallbacks": [{"primary": ["overflow"]}]},
    }
)  # fmt: skip


class RateLimitError(Exception):  # as LiteLLM's
    status_code = 429

    def __init__(self, deployment: str) -> None:
        self.failed_deployment_id = deployment
        super().__init__("slow down, said the prompt")


class FakeGroups:
    """As much of LiteLLM as the router asks for: what each attempt comes to, one after the other."""

    router = None

    def __init__(self, answers: Sequence[Any], benched: dict[str, dict[str, Benched]] | None = None) -> None:
        self.answers, self._benched = list(answers), benched or {}

    def attempt(self, group: str, messages: list[Any], options: Any) -> Any:
        found = self.answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def benched(self, group: str) -> dict[str, Benched]:
        return self._benched.get(group, {})

    def close(self) -> None:
        """Nothing."""


def answer(deployment: str) -> Any:
    return SimpleNamespace(
        choices=[SimpleNamespace(message=SimpleNamespace(content="secret answer"), finish_reason="stop")],
        usage=SimpleNamespace(prompt_tokens=7, completion_tokens=3),
        model=f"{deployment}-2026",
        _hidden_params={"model_id": deployment},
    )


Make = Callable[..., Router]


@pytest.fixture
def tracing() -> Iterator[Tracing]:
    with Tracing("test", keep=True) as made:
        yield made


@pytest.fixture
def make(tracing: Tracing) -> Make:
    def router(*answers: Any, benched: Any = None, **options: Any) -> Router:
        made = Router(CONFIG, sleep=lambda seconds: None, **options)
        made._groups = FakeGroups(answers, benched)  # type: ignore[assignment]
        return tracing.route(made)

    return router


def shown(records: list[Record]) -> list[tuple[str, Any, Any]]:
    return [
        (each.name, each.attributes.get("labkit.deployment"), each.attributes.get("labkit.outcome")) for each in records
    ]


def test_an_answer_is_two_spans_with_usage(tracing: Tracing, make: Make) -> None:
    routed = make(answer("a")).complete("primary", "secret prompt")
    attempt, call = tracing.records()
    assert routed.text == "secret answer"
    assert (attempt.parent_id, attempt.kind, call.kind) == (call.span_id, "client", "internal")
    assert (attempt.name, call.name) == ("chat gpt-4o", "chat primary")
    wanted = {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-4o",
        "gen_ai.response.model": "a-2026", "gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 3,
        "gen_ai.response.finish_reasons": ("stop",), "labkit.group": "primary", "labkit.deployment": "a",
        "labkit.outcome": "answered",
    }  # fmt: skip
    assert dict(attempt.attributes) == wanted
    assert (call.attributes["labkit.attempts"], call.attributes["labkit.fell_back"]) == (1, False)
    assert "secret" not in repr(tracing.records())


def test_every_attempt_and_the_fallback_is_a_child(tracing: Tracing, make: Make) -> None:
    routed = make(RateLimitError("a"), RateLimitError("b"), answer("o")).complete("primary", "hi")
    *attempts, call = tracing.records()
    assert routed.fell_back
    assert shown(attempts) == [
        ("chat gpt-4o", "a", "throttled"), ("chat gpt-4o-copy", "b", "throttled"), ("chat mini", "o", "answered")
    ]  # fmt: skip
    assert {each.parent_id for each in attempts} == {call.span_id}
    assert [each.status for each in attempts] == ["error", "error", ""]
    assert attempts[0].attributes["http.response.status_code"] == 429
    assert (call.status, call.attributes["labkit.attempts"], call.attributes["labkit.fell_back"]) == ("", 3, True)
    assert "prompt" not in repr(tracing.records())


def test_no_answer_is_the_calls_error_and_raised(tracing: Tracing, make: Make) -> None:
    with pytest.raises(NoAnswer):
        make(*(RateLimitError(each) for each in "abo"), RateLimitError("o")).complete("primary", "hi")
    *attempts, call = tracing.records()
    assert len(attempts) == 4
    assert (call.status, call.attributes["error.type"]) == ("error", "NoAnswer")


def test_a_benched_group_is_an_event_and_no_attempt(tracing: Tracing, make: Make) -> None:
    benched = {"primary": {"a": Benched("429", 9.0), "b": Benched("429", 9.0)}}
    make(answer("o"), benched=benched).complete("primary", "hi")
    attempt, call = tracing.records()
    assert attempt.name == "chat mini"
    assert [(note.name, dict(note.attributes)) for note in call.notes] == [
        ("not called", {"labkit.group": "primary", "labkit.outcome": "cooldown"})
    ]


def test_a_permit_that_does_not_come_is_no_model_call(tracing: Tracing, make: Make) -> None:
    class Closed:
        def permit(self, *, within: float = 0) -> Any:
            raise TimeoutError("the gate is full")

    make(answer("o"), gates={"primary": Closed()}, within=1.0).complete("primary", "hi")
    assert [each.name for each in tracing.records()][:1] == ["permit full"]


def test_a_call_that_cannot_be_is_an_error_and_an_error_of_ours_comes_through(tracing: Tracing, make: Make) -> None:
    with pytest.raises(RouterError, match="is no group"):
        make().complete("nobody", "hi")
    with pytest.raises(ZeroDivisionError):
        make(ZeroDivisionError("ours")).complete("primary", "hi")
    assert [(each.name, each.status) for each in tracing.records()] == [
        ("chat nobody", "error"), ("chat gpt-4o", "error"), ("chat primary", "error")
    ]  # fmt: skip


def test_an_answer_in_an_odd_form_is_an_answer(tracing: Tracing, make: Make, caplog: pytest.LogCaptureFixture) -> None:
    odd = answer("a")
    odd.usage.prompt_tokens = "many"
    assert make(odd).complete("primary", "hi").text == "secret answer"
    assert "was not noted" in caplog.text
    with tracing.chat("nova") as call:
        assert call.answered("text") == "text"


def test_tracing_a_router_twice_is_once(tracing: Tracing, make: Make) -> None:
    router = make(answer("a"))
    assert tracing.route(router) is router
    router.complete("primary", "hi")
    assert len(tracing.records()) == 2


def test_a_converse_call_has_usage_and_an_error_its_class(tracing: Tracing) -> None:
    answered = {"usage": {"inputTokens": 3, "outputTokens": 5}, "stopReason": "end_turn", "output": "secret"}
    with tracing.chat("amazon.nova-lite-v1:0") as call:
        call.answered(answered)
    with pytest.raises(RuntimeError), tracing.chat("amazon.nova-lite-v1:0", provider="aws.bedrock"):
        raise RuntimeError("secret")
    fine, failed = tracing.records()
    assert (fine.name, fine.kind, fine.attributes["gen_ai.usage.input_tokens"]) == (
        "chat amazon.nova-lite-v1:0",
        "client",
        3,
    )
    assert (failed.status, failed.attributes["error.type"]) == ("error", "RuntimeError")
    assert "secret" not in repr(tracing.records())


def test_through_litellm_to_a_provider(tracing: Tracing) -> None:
    """The same with the real one: where it notes the deployment is LiteLLM's affair."""
    with Provider(Script(default="Hello.")) as provider:
        listed = [
            {
                "model_name": group,
                "litellm_params": {"model": f"openai/{model}", "api_base": provider.openai_url},
                "model_info": {"id": model},
            }
            for group, model in (("primary", "a"), ("overflow", "o"))
        ]
        settings = {"num_retries": 0, "timeout": 20, "fallbacks": [{"primary": ["overflow"]}]}
        config = RouterConfig.of({"model_list": listed, "router_settings": settings})
        with tracing.route(Router(config)) as router:
            router.complete("primary", "hi")
            provider.switch("a", Throttle())
            router.complete("primary", "hi")
            provider.switch("o", Down())
            with pytest.raises(NoAnswer):
                router.complete("primary", "hi")
    attempts = [each for each in tracing.records() if each.kind == "client"]
    assert shown(attempts) == [
        ("chat a", "a", "answered"), ("chat a", "a", "throttled"), ("chat o", "o", "answered"),
        ("chat a", "a", "throttled"), ("chat o", "o", "error"),
    ]  # fmt: skip
    assert attempts[0].attributes["gen_ai.usage.output_tokens"] > 0
