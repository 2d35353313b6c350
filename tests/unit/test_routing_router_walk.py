"""The walk from group to group, with every group scripted: what holds for any configuration and any failures."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.routing.router import NoAnswer, Router, RouterConfig
from labkit.routing.router_outcome import AGAIN, CALLERS, kind_of

NAMES = ("one", "two", "three", "four")
ERRORS = {
    name: type(name, (Exception,), {})
    for name in ("RateLimitError", "InternalServerError", "Timeout", "ContextWindowExceededError", "BadRequestError",
                 "AuthenticationError", "RouterRateLimitError")
}  # fmt: skip
# What a group does, attempt by attempt; the last one goes on.
OUTCOMES = st.lists(st.sampled_from((*ERRORS, "ok")), min_size=1, max_size=4)


class Scripted:
    """Stands for LiteLLM's groups: each says what it was told to."""

    router = None

    def __init__(self, outcomes: dict[str, list[str]]) -> None:
        self.outcomes = {group: list(each) for group, each in outcomes.items()}
        self.called: list[str] = []

    def attempt(self, group: str, messages: Any, options: Any) -> Any:
        self.called.append(group)
        left = self.outcomes[group]
        outcome = left.pop(0) if len(left) > 1 else left[0]
        if outcome != "ok":
            raise ERRORS[outcome](f"{group} fails")
        choice = SimpleNamespace(message=SimpleNamespace(content=group), finish_reason="stop")
        usage = SimpleNamespace(prompt_tokens=1, completion_tokens=1)
        return SimpleNamespace(choices=[choice], usage=usage, _hidden_params={"model_id": group})

    def benched(self, group: str) -> dict[str, Any]:
        return {}


class Counting:
    def __init__(self) -> None:
        self.given = self.out = 0

    @contextlib.contextmanager
    def permit(self, *, within: float = 0.0) -> Iterator[None]:
        self.given, self.out = self.given + 1, self.out + 1
        try:
            yield
        finally:
            self.out -= 1


@st.composite
def chains(draw: st.DrawFn) -> list[dict[str, list[str]]]:
    """Chains that end: a group leads to later ones only."""
    found = []
    for at, group in enumerate(NAMES[:-1]):
        targets = draw(st.lists(st.sampled_from(NAMES[at + 1 :]), unique=True, max_size=3))
        if targets:
            found.append({group: sorted(targets, key=NAMES.index)})
    return found


@given(chains(), chains(), st.dictionaries(st.sampled_from(NAMES), OUTCOMES), st.integers(0, 3), st.sampled_from(NAMES))
def test_any_walk(
    fallbacks: list[dict[str, list[str]]],
    wider: list[dict[str, list[str]]],
    outcomes: dict[str, list[str]],
    retries: int,
    asked: str,
) -> None:
    models = [
        {
            "model_name": group,
            "litellm_params": {"model": f"openai/{group}"},
            "model_info": {"max_input_tokens": 1000 * (at + 1)},
        }
        for at, group in enumerate(NAMES)
    ]
    settings = {
        "timeout": 1,
        "num_retries": retries,
        "fallbacks": fallbacks,
        "context_window_fallbacks": wider,
    }
    slept: list[float] = []
    gates = {group: Counting() for group in NAMES}
    router = Router(
        RouterConfig.of({"model_list": models, "router_settings": settings}), gates=gates, sleep=slept.append
    )
    groups = router._groups = Scripted({group: outcomes.get(group, ["ok"]) for group in NAMES})  # type: ignore[assignment]
    failed: NoAnswer | None = None
    try:
        answer = router.complete(asked, "Hello")
        attempts, served = answer.attempts, True
        assert answer.group == groups.called[-1]
        assert len(groups.called) == len(attempts) + 1
    except NoAnswer as error:
        attempts, served, failed = error.attempts, False, error
        assert len(groups.called) == len(attempts)
    if failed is not None:
        assert failed.kind == attempts[0].kind  # the first is what it is classified by
        assert str(failed.__cause__) == f"{asked} fails"
        assert failed.again is any(each.kind in (*AGAIN, "cooldown") for each in attempts)
    # Every attempt is kept, in order, and each group has its turn once and within its bound.
    assert [each.group for each in attempts] == groups.called[: len(attempts)]
    turns = [group for at, group in enumerate(groups.called) if at == 0 or groups.called[at - 1] != group]
    assert len(turns) == len(set(turns))
    assert turns[0] == asked
    assert max(Counter(groups.called).values()) <= 1 + retries
    # One permit an attempt, none of them kept.
    assert {group: gate.given for group, gate in gates.items() if gate.given} == Counter(groups.called)
    assert not any(gate.out for gate in gates.values())
    # Only what may do better is repeated, and a request that is wrong is nobody else's business.
    for one, following in itertools.pairwise(attempts):
        if one.group == following.group:
            assert one.kind in AGAIN
    if attempts and attempts[0].kind in CALLERS:
        assert not served
        assert len(attempts) == 1
    assert len(slept) <= retries * len(turns)


def test_what_is_no_providers_failure_is_not_a_kind() -> None:
    assert kind_of(ValueError("no")) == ""
    assert kind_of(ERRORS["Timeout"]("late")) == "timeout"


def test_a_programming_error_comes_through_at_once() -> None:
    models = [{"model_name": "one", "litellm_params": {"model": "openai/one"}}]
    settings = {"timeout": 1, "num_retries": 3}
    router = Router(RouterConfig.of({"model_list": models, "router_settings": settings}))
    groups = router._groups = Scripted({"one": ["ok"]})  # type: ignore[assignment]
    groups.outcomes = {}
    with pytest.raises(KeyError, match="one"):
        router.complete("one", "Hello")
    assert groups.called == ["one"]
