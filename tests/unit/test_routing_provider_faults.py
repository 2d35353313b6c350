"""Switches: what each fault does to a call, that it ends, and that counting and refusing happen together."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ConnectionClosedError
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from urllib3.exceptions import ProtocolError

from labkit.models._input import ModelError
from labkit.routing.conversation import Conversation, Turn
from labkit.routing.faults import (
    Break,
    Concurrency,
    ContextLength,
    Down,
    Drop,
    Latency,
    Quota,
    Throttle,
)
from labkit.routing.hits import Hit, Hits
from labkit.routing.provider import Provider
from labkit.routing.refusals import KINDS, Refusal
from labkit.routing.script import Script
from labkit.routing.switches import Switchboard

SCRIPT = Script("one two three four")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def provider(clock: Clock) -> Iterator[Provider]:
    with Provider(SCRIPT, clock=clock) as made:
        yield made


def ask(provider: Provider, model: str = "primary", prompt: str = "x", **more: Any) -> tuple[int, Any, bytes]:
    connection = http.client.HTTPConnection(provider.url.removeprefix("http://"), timeout=60)
    body = {"model": model, "messages": [{"role": "user", "content": prompt}], **more}
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


# -- switches ----------------------------------------------------------------------------------------------------------


def test_a_switch_is_off_after_its_block_however_it_ends(provider: Provider) -> None:
    with contextlib.suppress(KeyError), provider.switch("primary", Down()) as switch:
        assert (ask(provider)[0], ask(provider, "overflow")[0], switch.on) == (500, 200, True)
        raise KeyError
    assert (ask(provider)[0], switch.on, provider.switches) == (200, False, [])


def test_a_switch_holds_for_so_many_calls(provider: Provider) -> None:
    switch = provider.switch(["primary", "overflow"], Down("overloaded"), times=3)
    assert [ask(provider, model)[0] for model in ("primary", "overflow", "third", "primary", "primary")] == [
        503, 503, 200, 503, 200,
    ]  # fmt: skip
    assert not switch.on
    switch.off()


def test_switches_may_be_turned_on_twice_and_all_off(provider: Provider) -> None:
    one, two = provider.switch("*", Down()), provider.switch("*", Down("denied"))
    assert ask(provider)[0] == 401  # the last one asked has the word
    two.off()
    assert (ask(provider)[0], one.on) == (500, True)
    provider.all_off()
    assert ask(provider)[0] == 200


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda p: p.switch("", Down()), "models must be names"),
        (lambda p: p.switch([], Down()), "models must be names"),
        (lambda p: p.switch("a", Down), "fault must be one of"),
        (lambda p: p.switch("a", Down(), times=0), "times must be"),
        (lambda p: Down("sad"), "kind must be one of"),
        (lambda p: Down("context"), "kind must be one of"),
        (lambda p: Break(0), "after must be"),
        (lambda p: Drop(-1), "after must be"),
        (lambda p: Latency(-1), "seconds must be"),
        (lambda p: Latency(601), "from 0 to 600 s"),
        (lambda p: Throttle(-1), "retry_after must be"),
        (lambda p: Quota(1, 0), "window must be"),
        (lambda p: Quota(-1), "requests must be"),
        (lambda p: Concurrency(1.5), "most must be"),  # type: ignore[arg-type]
        (lambda p: ContextLength(0), "tokens must be"),
    ],
)
def test_what_cannot_be_switched_on_is_said(provider: Provider, make: Any, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        make(provider)
    assert provider.switches == []


# -- each fault --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("context", "invalid", "unscripted")])
def test_an_outage_is_what_openai_would_say(provider: Provider, kind: str) -> None:
    with provider.switch("primary", Down(kind)):
        status, headers, body = ask(provider)
    said = KINDS[kind]
    assert (status, json.loads(body)["error"]["code"]) == (said.status, said.code)
    assert "{" not in json.loads(body)["error"]["message"]
    assert "Retry-After" not in headers
    assert provider.hits.by_model == {"primary": {kind: 1}}


def test_throttled_with_and_without_a_time_to_wait(provider: Provider) -> None:
    with provider.switch("primary", Throttle(1.25)):
        status, headers, body = ask(provider)
        assert (status, headers["Retry-After"], headers["retry-after-ms"]) == (429, "2", "1250")
        assert json.loads(body)["error"] == {
            "message": "Rate limit reached for primary. Please try again in 1.25s.",
            "type": "requests",
            "param": None,
            "code": "rate_limit_exceeded",
        }
    with provider.switch("primary", Throttle()):
        status, headers, body = ask(provider)
        assert (status, headers["Retry-After"]) == (429, None)
        assert json.loads(body)["error"]["message"] == "Rate limit reached for primary."


def test_a_quota_is_a_fixed_window_from_its_first_request(provider: Provider, clock: Clock) -> None:
    with provider.switch("primary", Quota(2, window=60)):
        clock.now += 500  # nothing happened: no window
        assert [ask(provider)[0] for _ in range(2)] == [200, 200]
        clock.now += 45.5
        status, headers, _ = ask(provider)
        assert (status, headers["Retry-After"], headers["retry-after-ms"]) == (429, "15", "14500")
        clock.now += 14.4
        assert ask(provider)[0] == 429
        clock.now += 0.1
        assert [ask(provider)[0] for _ in range(3)] == [200, 200, 429]
    assert provider.hits.by_model == {"primary": {"ok": 4, "quota": 3}}


def test_models_share_a_quota_that_stands_before_both(provider: Provider) -> None:
    with provider.switch(["a", "b"], Quota(1)):
        assert [ask(provider, model)[0] for model in "abc"] == [200, 429, 200]


def test_a_conversation_that_is_too_long_cannot_be_helped_by_waiting(provider: Provider) -> None:
    with provider.switch("primary", ContextLength(2)):
        assert ask(provider, prompt="x" * 8)[0] == 200
        status, headers, body = ask(provider, prompt="x" * 9)
    error = json.loads(body)["error"]
    assert (status, error["code"], error["param"]) == (400, "context_length_exceeded", "messages")
    assert error["message"] == (
        "This model's maximum context length is 2 tokens. However, your messages resulted in 3 tokens. "
        "Please reduce the length of the messages."
    )
    assert headers["Retry-After"] is None


def test_a_dropped_connection_has_no_byte_of_an_answer(provider: Provider) -> None:
    for stream in (False, True):
        with provider.switch("primary", Drop()), pytest.raises(http.client.RemoteDisconnected):
            ask(provider, stream=stream)
    bedrock = provider.bedrock()
    with provider.switch("primary", Drop()), pytest.raises(ConnectionClosedError):
        bedrock.converse(modelId="primary", messages=[{"role": "user", "content": [{"text": "x"}]}])
    bedrock.close()
    assert provider.hits.by_model == {"primary": {"dropped": 3}}


@pytest.mark.parametrize(("after", "words"), [(1, 1), (3, 3), (99, 4)])
def test_a_stream_is_cut_in_its_middle(provider: Provider, after: int, words: int) -> None:
    with provider.switch("primary", Drop(after)):
        with pytest.raises(http.client.IncompleteRead) as caught:
            ask(provider, stream=True)
        assert caught.value.partial.count(b'"content":"') == 1 + words
        assert b"[DONE]" not in caught.value.partial
        with pytest.raises(http.client.IncompleteRead):
            ask(provider)
    assert provider.hits.by_model == {"primary": {"dropped": 2}}


HELLO = [{"role": "user", "content": [{"text": "x"}]}]


def test_a_cut_stream_is_an_error_for_boto3(provider: Provider) -> None:
    bedrock = provider.bedrock()
    seen: list[Any] = []
    with provider.switch("primary", Drop(2)):
        stream = bedrock.converse_stream(modelId="primary", messages=HELLO)["stream"]
        with pytest.raises(ProtocolError):  # urllib3's, and none of botocore's
            seen.extend(next(iter(event)) for event in stream)
    bedrock.close()
    assert seen == ["messageStart", "contentBlockDelta", "contentBlockDelta"]


def test_boto3_takes_half_an_answer_for_one_that_says_nothing(provider: Provider) -> None:
    bedrock = provider.bedrock()
    with provider.switch("primary", Drop(1)):
        answer = bedrock.converse(modelId="primary", messages=HELLO)
    bedrock.close()
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert "output" not in answer  # botocore does not compare Content-Length with what came


def test_a_cut_stream_is_an_error_for_openai(provider: Provider) -> None:
    from openai import APIConnectionError, APIError, OpenAI

    asks: Any = {"model": "primary", "stream": True, "messages": [{"role": "user", "content": "x"}]}
    with OpenAI(base_url=provider.openai_url, api_key="none", max_retries=0) as client:
        with provider.switch("primary", Drop(2)), pytest.raises(APIConnectionError):
            list(client.chat.completions.create(**asks))
        with provider.switch("primary", Break(2, "overloaded")), pytest.raises(APIError, match="overloaded"):
            list(client.chat.completions.create(**asks))
        with provider.switch("primary", Drop()), pytest.raises(APIConnectionError):
            client.chat.completions.create(**asks)
    with provider.switch("primary", Break(2, "overloaded")):
        assert ask(provider)[0] == 503  # nothing is streamed: an ordinary refusal


def test_latency_is_waited_for_and_repeats_by_its_seed() -> None:
    with Provider(SCRIPT) as provider:
        with provider.switch("primary", Latency(0.15)):
            began = time.monotonic()
            ask(provider)
            assert time.monotonic() - began >= 0.15
        with provider.switch("primary", Latency(0.0, between=0.05)):
            began = time.monotonic()
            ask(provider, stream=True)  # four words, three gaps
            assert time.monotonic() - began >= 0.15
            ask(provider)  # not streamed: no gaps
        with provider.switch("primary", Down(after=0.1)):
            began = time.monotonic()
            assert ask(provider)[0] == 500
            assert time.monotonic() - began >= 0.1

    def waits(seed: int) -> list[float]:
        latency, found = Latency(0.2, spread=0.5, seed=seed), []
        for _ in range(200):
            call = admitted(latency)
            found.append(call.wait)
        return found

    assert waits(1) == waits(1) != waits(2)
    ordered = sorted(waits(1))
    assert 0.17 < ordered[100] < 0.23  # the median
    assert 0.35 < ordered[190] < 0.6  # 95 %: exp(1.645 × 0.5) = 2.28 times that


def admitted(fault: Any) -> Any:
    hits = Hits()
    board = Switchboard(hits)
    board.switch("m", fault)
    return board.admit(hits.arrive("m", "openai"), Conversation("m", (Turn("user", "x"),)))


def test_more_than_so_many_at_once_are_refused() -> None:
    go_on = threading.Event()
    held = Script(lambda asked: "one" if go_on.wait(60) else None)
    with Provider(held) as provider, provider.switch("primary", Concurrency(2)):
        statuses: list[int] = []
        threads = [threading.Thread(target=lambda: statuses.append(ask(provider)[0])) for _ in range(5)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + 30
        while provider.hits.count("primary", "concurrency") < 3 and time.monotonic() < until:
            time.sleep(0.005)
        go_on.set()  # the two that are in stay in until the others have been refused
        for thread in threads:
            thread.join(60)
        assert sorted(statuses) == [200, 200, 429, 429, 429]
        assert provider.hits.peak("primary") == 2
        assert ask(provider)[0] == 200  # one after the other is fine
        assert provider.hits.by_model == {"primary": {"concurrency": 3, "ok": 3}}


def test_a_refusal_at_the_door_does_not_wait_for_the_latency(provider: Provider) -> None:
    with provider.switch("primary", Latency(60)), provider.switch("primary", Throttle()):
        began = time.monotonic()
        assert ask(provider)[0] == 429
        assert time.monotonic() - began < 30


def test_client_and_provider_agree_whatever_is_switched_meanwhile() -> None:
    seen: Counter[int] = Counter()
    guard, over = threading.Lock(), threading.Event()

    def client(provider: Provider, seed: int) -> None:
        luck = random.Random(seed)
        for _ in range(60):
            try:
                status = ask(provider, luck.choice("ab"), stream=luck.random() < 0.5)[0]
            except http.client.HTTPException:
                status = 0
            with guard:
                seen[status] += 1

    def switches(provider: Provider) -> None:
        luck = random.Random(5)
        while not over.is_set():
            faults = [Down("overloaded"), Drop(), Drop(2), Throttle(1), Quota(3, 0.05), Concurrency(2), Latency(0.01)]
            with provider.switch(luck.choice("ab*"), luck.choice(faults), times=luck.choice([None, 3])):
                over.wait(0.01)

    with Provider(SCRIPT) as provider:
        provider.switch("*", Concurrency(5))
        threads = [threading.Thread(target=client, args=(provider, seed)) for seed in range(8)]
        turner = threading.Thread(target=switches, args=(provider,))
        for thread in (turner, *threads):
            thread.start()
        for thread in threads:
            thread.join(60)
        over.set()
        turner.join(30)
        hits = provider.hits
        refused = sum(hits.count(outcome=kind) for kind in ("throttled", "quota", "concurrency"))
        assert seen == Counter(
            {200: hits.count(outcome="ok"), 0: hits.count(outcome="dropped"), 429: refused,
             503: hits.count(outcome="overloaded")}
        )  # fmt: skip
        assert hits.total == seen.total() == 480
        assert max(hits.peak("a"), hits.peak("b")) <= 5
        assert hits.running("a") == hits.running("b") == 0


# -- any order of events -----------------------------------------------------------------------------------------------


class Door(RuleBasedStateMachine):
    """Calls come, are let in or refused, and end; switches and clocks change meanwhile. A model counts along."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.hits = Hits(clock=self.clock)
        self.board = Switchboard(self.hits, clock=self.clock)
        self.inside: list[Hit] = []
        self.ended = self.arrived = self.peak = 0
        self.limits: list[tuple[Any, Concurrency]] = []
        self.quotas: list[list[Any]] = []  # switch, fault, end of its window, used

    @rule(most=st.integers(0, 3))
    def limit(self, most: int) -> None:
        fault = Concurrency(most)
        self.limits.append((self.board.switch("m", fault), fault))

    @rule(requests=st.integers(1, 4), window=st.sampled_from([1.0, 10.0]))
    def quota(self, requests: int, window: float) -> None:
        fault = Quota(requests, window)
        self.quotas.append([self.board.switch("*", fault), fault, 0.0, 0])

    @rule()
    def all_off(self) -> None:
        self.board.off()
        self.limits, self.quotas = [], []

    @rule(seconds=st.sampled_from([0.4, 1.0, 10.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds

    def refused(self) -> str:
        for quota in self.quotas:
            _, fault, ends, used = quota
            if self.clock.now >= ends:
                quota[2:] = [self.clock.now + fault.window, 0]
                used = 0
            if used >= fault.requests:
                return "quota"
            quota[3] += 1
        return "concurrency" if any(len(self.inside) >= fault.most for _, fault in self.limits) else ""

    @rule()
    def comes(self) -> None:
        hit = self.hits.arrive("m", "openai")
        self.arrived += 1
        expected = self.refused()
        refused = None
        try:
            self.board.admit(hit, Conversation("m", (Turn("user", "x"),)))
        except Refusal as refusal:
            refused = refusal
            self.hits.end(hit, refusal.kind)
            self.ended += 1
        else:
            self.inside.append(hit)
            self.peak = max(self.peak, len(self.inside))
        assert (refused.kind if refused else "") == expected
        if refused and refused.kind == "quota":
            assert 0 < (refused.retry_after or 0) <= 10

    @precondition(lambda self: self.inside)
    @rule(data=st.data(), again=st.booleans())
    def ends(self, data: st.DataObject, again: bool) -> None:
        hit = self.inside.pop(data.draw(st.integers(0, len(self.inside) - 1)))
        self.hits.end(hit, "ok")
        if again:
            self.hits.end(hit, "left")  # replaces the first
        self.ended += hit.era == self.hits._era

    @rule()
    def reset(self) -> None:
        self.hits.reset()
        self.ended = self.arrived = 0
        self.peak = len(self.inside)

    @invariant()
    def the_counts_agree(self) -> None:
        assert self.hits.running("m") == len(self.inside)
        assert self.hits.peak("m") == self.peak
        assert (self.hits.total, self.hits.count()) == (self.arrived, self.ended)
        assert sum(sum(counts.values()) for counts in self.hits.by_model.values()) == self.ended


TestDoor = Door.TestCase
TestDoor.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
