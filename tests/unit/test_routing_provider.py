"""The provider as an OpenAI API: raw HTTP and the openai package; who may call, what is counted, how it ends."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from labkit.models._input import ModelError
from labkit.routing.conversation import ToolCall
from labkit.routing.faults import Latency
from labkit.routing.provider import Provider, ProviderError
from labkit.routing.script import Answer, Script, contains

TOOLS = [{"type": "function", "function": {"name": "weather", "description": "d", "parameters": {"type": "object"}}}]
SCRIPT = (
    Script()
    .on("What is 2 + 2?", "It is 4.")
    .on(contains("weather"), [ToolCall("weather", {"city": "Oslo"}), lambda it: f"It is {it.result}."])
    .on("both", [Answer("Let me see.", (ToolCall("weather", {"city": "A"}), ToolCall("weather", {"city": "B"})))])
    .on("long", "one two three four five")
)


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider(SCRIPT) as made:
        yield made


def call(provider: Provider, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, Any]:
    connection = http.client.HTTPConnection(provider.url.removeprefix("http://"), timeout=60)
    try:
        content = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection.request(method, path, content, headers)
        answer = connection.getresponse()
        found = answer.read()
        return answer.status, dict(answer.getheaders()), json.loads(found) if found[:1] == b"{" else found.decode()
    finally:
        connection.close()


def ask(
    provider: Provider, prompt: str = "What is 2 + 2?", model: str = "primary", **more: Any
) -> tuple[int, Any, Any]:
    body = {"model": model, "messages": [{"role": "user", "content": prompt}], **more}
    return call(provider, "POST", "/v1/chat/completions", body)


def chunks(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


# -- answers -----------------------------------------------------------------------------------------------------------


def test_an_answer_is_a_chat_completion(provider: Provider) -> None:
    status, headers, answer = ask(provider)
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "primary"
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "It is 4.", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert answer["usage"] == {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}
    assert answer["id"].startswith("chatcmpl-")


def test_a_tool_loop_over_openais_own_client(provider: Provider) -> None:
    from openai import OpenAI

    with OpenAI(base_url=provider.openai_url, api_key="none", max_retries=0) as client:
        messages: list[Any] = [{"role": "user", "content": "How is the weather?"}]
        first = client.chat.completions.create(model="primary", messages=messages, tools=TOOLS)  # type: ignore[call-overload]
        assert first.choices[0].finish_reason == "tool_calls"
        (tool,) = first.choices[0].message.tool_calls
        assert (tool.function.name, json.loads(tool.function.arguments)) == ("weather", {"city": "Oslo"})
        messages += [first.choices[0].message, {"role": "tool", "tool_call_id": tool.id, "content": "4 degrees"}]
        second = client.chat.completions.create(model="primary", messages=messages, tools=TOOLS)  # type: ignore[call-overload]
        assert (second.choices[0].message.content, second.choices[0].finish_reason) == ("It is 4 degrees.", "stop")
        assert [each.id for each in client.models.list()] == ["primary"]


def test_a_stream_over_openais_own_client(provider: Provider) -> None:
    from openai import OpenAI

    with OpenAI(base_url=provider.openai_url, api_key="none", max_retries=0) as client:
        ask_for = {"model": "primary", "stream": True, "stream_options": {"include_usage": True}, "tools": TOOLS}
        stream = list(client.chat.completions.create(messages=[{"role": "user", "content": "both"}], **ask_for))  # type: ignore[call-overload]
    assert "".join(each.choices[0].delta.content or "" for each in stream if each.choices) == "Let me see."
    arguments = {0: "", 1: ""}
    for each in stream:
        for tool in (each.choices[0].delta.tool_calls or []) if each.choices else []:
            arguments[tool.index] += tool.function.arguments
    assert [json.loads(arguments[at]) for at in (0, 1)] == [{"city": "A"}, {"city": "B"}]
    assert stream[-2].choices[0].finish_reason == "tool_calls"
    assert stream[-1].choices == []
    assert stream[-1].usage.completion_tokens == 3 + 2 * (2 + 4)


def test_a_stream_has_usage_only_where_it_was_asked_for(provider: Provider) -> None:
    _, headers, text = ask(provider, "long", stream=True)
    assert headers["Content-Type"].startswith("text/event-stream")
    found = chunks(text)
    assert [each["choices"][0]["delta"].get("content") for each in found] == [
        "", "one", " two", " three", " four", " five", None,
    ]  # fmt: skip
    assert not any("usage" in each for each in found)
    found = chunks(ask(provider, "long", stream=True, stream_options={"include_usage": True})[2])
    assert [each["usage"] for each in found[:-1]] == [None] * 7
    assert found[-1]["usage"] == {"prompt_tokens": 1, "completion_tokens": 6, "total_tokens": 7}


def test_max_tokens_cuts_the_answer(provider: Provider) -> None:
    answer = ask(provider, "long", max_tokens=2)[2]
    assert answer["choices"][0]["message"]["content"] == "one two "
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 2


def test_runs_repeat_and_ids_do_not(provider: Provider) -> None:
    def run() -> list[Any]:
        provider.hits.reset()
        return [ask(provider, "weather", tools=TOOLS)[2] for _ in range(2)]

    def without_time(answers: list[Any]) -> list[Any]:
        return [{**answer, "created": 0} for answer in answers]

    one, two = run(), run()
    assert without_time(one) == without_time(two)
    ids = {answer["choices"][0]["message"]["tool_calls"][0]["id"] for answer in one}
    assert len(ids) == 2, "the same question asked again is another call of the tool"


# -- what is refused ---------------------------------------------------------------------------------------------------

CALLED = {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "weather", "arguments": "{}"}}]}


@pytest.mark.parametrize(
    ("more", "code", "says"),
    [
        ({"messages": []}, None, "'messages'"),
        ({"messages": [3]}, None, "messages[0]"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, None, "'wizard'"),
        ({"messages": [{"role": "tool", "tool_call_id": "a", "content": "x"}]}, None, "must be a response to a prec"),
        ({"messages": [CALLED, {"role": "user", "content": "x"}]}, None, "did not have response messages: a"),
        ({"messages": [CALLED]}, None, "did not have response messages: a"),
        ({"tool_choice": {"type": "function", "function": {"name": "x"}}}, None, "Tool choice 'x'"),
        ({"tool_choice": "sometimes"}, None, "'sometimes'"),
        ({"max_tokens": 0}, None, "max_tokens"),
        ({"n": 2}, None, "'n' must be 1"),
        ({"messages": [{"role": "user", "content": "Who knows?"}]}, "unscripted", "no answer to 'Who knows?'"),
        ({"model": ""}, None, "model"),
    ],
)
def test_a_bad_request_is_refused_as_openai_does(provider: Provider, more: Any, code: str | None, says: str) -> None:
    status, _, answer = ask(provider, **more)
    assert status == 400
    assert answer["error"]["type"] == "invalid_request_error"
    assert answer["error"]["code"] == code
    assert says in answer["error"]["message"]


def test_no_json_is_refused(provider: Provider) -> None:
    for body in (b"", b"{", b"[]", b"[" * 100_000):
        status, _, answer = call(provider, "POST", "/v1/chat/completions", body)
        assert (status, answer["error"]["type"]) == (400, "invalid_request_error")


def test_only_its_own_models_answer() -> None:
    with Provider(SCRIPT, models=["primary", "overflow"]) as provider:
        assert ask(provider)[0] == 200
        status, _, answer = ask(provider, model="other")
        assert (status, answer["error"]["code"]) == (404, "model_not_found")
        assert [each["id"] for each in call(provider, "GET", "/v1/models")[2]["data"]] == ["primary", "overflow"]
        assert provider.hits.by_model == {"other": {"unknown_model": 1}, "primary": {"ok": 1}}


@pytest.mark.parametrize("path", ["/", "/v1/completions", "/model//converse", "/model/x/invoke"])
def test_what_is_not_here_is_said(provider: Provider, path: str) -> None:
    assert call(provider, "POST", path, {})[0] == 404
    assert provider.hits.total == 0


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "rebound.example"}, 403),
        ({"Host": "127.0.0.1.example"}, 403),
        ({"Origin": "http://localhost:8888"}, 200),
        ({"Origin": "https://page.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_only_programs_and_pages_of_this_machine_may_call(
    provider: Provider, headers: dict[str, str], status: int
) -> None:
    body = {"model": "primary", "messages": [{"role": "user", "content": "long"}]}
    found, got, _ = call(provider, "POST", "/v1/chat/completions", body, **headers)
    assert found == status
    assert not any(name.lower().startswith("access-control") for name in got)
    assert provider.hits.total == (status == 200)


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"Content-Length": "x"}, 411), ({"Transfer-Encoding": "chunked"}, 411), ({"Content-Length": "9" * 10}, 413)],
)
def test_a_request_that_cannot_be_read_is_turned_away(provider: Provider, headers: dict[str, str], status: int) -> None:
    connection = http.client.HTTPConnection(provider.url.removeprefix("http://"), timeout=60)
    connection.putrequest("POST", "/v1/chat/completions")
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.getresponse().status == status
    connection.close()


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"script": "hello"}, ProviderError, "script must be"),
        ({"models": "primary"}, ProviderError, "models must be a list of names"),
        ({"models": ["a", ""]}, ProviderError, "models must be a list of names"),
        ({"port": -1}, ModelError, "port must be"),
        ({"most": 0}, ModelError, "most must be"),
    ],
)
def test_what_cannot_be_made_is_said(options: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Provider(**{"script": SCRIPT, **options})


def test_a_port_that_is_taken_is_said(provider: Provider) -> None:
    port = int(provider.url.rpartition(":")[2])
    with pytest.raises(ProviderError, match=f"port {port} cannot be used"):
        Provider(SCRIPT, port=port)


# -- counts ------------------------------------------------------------------------------------------------------------


def test_every_hit_is_counted_when_its_answer_is_there(provider: Provider) -> None:
    for number in range(20):
        ask(provider, "long", stream=bool(number % 2))
        assert provider.hits.count("primary", "ok") == number + 1
    ask(provider, "Who knows?", model="overflow")
    hits = provider.hits
    assert hits.by_model == {"overflow": {"unscripted": 1}, "primary": {"ok": 20}}
    assert (hits.total, hits.count(), hits.count(outcome="ok"), hits.count("overflow")) == (21, 21, 20, 1)
    assert hits.rows[-1] == {
        "number": 21, "model": "overflow", "dialect": "openai", "stream": False, "outcome": "unscripted", "finish": "",
        "prompt": "Who knows?", "input_tokens": 3, "output_tokens": 0,
    }  # fmt: skip
    assert hits.log[0].digest == hits.log[1].digest != hits.log[-1].digest
    assert call(provider, "GET", "/lab/hits")[2]["by_model"] == hits.by_model
    hits.reset()
    assert (hits.total, hits.count(), hits.log, hits.peak("primary")) == (0, 0, [], 0)


def test_the_peak_is_how_many_ran_at_once() -> None:
    go_on = threading.Event()
    with Provider(Script(lambda asked: "one" if go_on.wait(60) else None)) as provider:
        threads = [threading.Thread(target=ask, args=(provider,)) for _ in range(5)]
        threads += [threading.Thread(target=ask, args=(provider,), kwargs={"model": "overflow"}) for _ in range(2)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + 30
        while provider.hits.running("primary") + provider.hits.running("overflow") < 7 and time.monotonic() < until:
            time.sleep(0.005)
        assert provider.hits.peak("overflow") == 2
        provider.hits.reset()  # what runs now ends uncounted
        go_on.set()
        for thread in threads:
            thread.join()
        assert (provider.hits.peak("primary"), provider.hits.count()) == (5, 0)
        ask(provider)
        assert (provider.hits.running("primary"), provider.hits.count("primary", "ok")) == (0, 1)


def test_a_client_that_did_not_wait_is_counted_as_such() -> None:
    gone = threading.Event()
    with Provider(Script(lambda asked: "one two three four five" if gone.wait(60) else None)) as provider:
        body = json.dumps({"model": "primary", "messages": [{"role": "user", "content": "long"}]}).encode()
        link = socket.create_connection(("127.0.0.1", int(provider.url.rpartition(":")[2])))
        link.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body))
        link.sendall(body)
        link.close()
        gone.set()
        until = time.monotonic() + 30
        while not provider.hits.count() and time.monotonic() < until:
            time.sleep(0.01)
        (hit,) = provider.hits.log
        assert (hit.outcome, hit.output_tokens) == ("left", 6)  # the work was done, and is paid for
        assert provider.hits.running("primary") == 0


# -- connections, and the end ------------------------------------------------------------------------------------------


def test_a_connection_serves_many_requests(provider: Provider) -> None:
    connection = http.client.HTTPConnection(provider.url.removeprefix("http://"), timeout=60)
    body = json.dumps({"model": "primary", "messages": [{"role": "user", "content": "long"}], "stream": True})
    for _ in range(5):
        connection.request("POST", "/v1/chat/completions", body)
        assert connection.getresponse().read().endswith(b"[DONE]\n\n")
    assert provider._server.connections == 1
    connection.close()


def test_only_so_many_clients_are_connected_and_the_next_one_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labkit.routing.local_http._ROOM", 60.0)
    with Provider(SCRIPT, most=2) as provider:
        address = ("127.0.0.1", int(provider.url.rpartition(":")[2]))
        first, second = socket.create_connection(address), socket.create_connection(address)
        until = time.monotonic() + 30
        while provider._server.connections < 2 and time.monotonic() < until:
            time.sleep(0.005)
        answers: list[int] = []
        third = threading.Thread(target=lambda: answers.append(ask(provider)[0]))
        third.start()
        third.join(0.3)
        assert (answers, provider._server.connections) == ([], 2)
        first.close()
        third.join(30)
        assert answers == [200]
        second.close()


def test_who_waits_too_long_for_a_place_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labkit.routing.local_http._ROOM", 0.2)
    with Provider(SCRIPT, most=1) as provider:
        address = ("127.0.0.1", int(provider.url.rpartition(":")[2]))
        with socket.create_connection(address), socket.create_connection(address) as second:
            second.settimeout(60)
            assert second.recv(100).startswith(b"HTTP/1.1 503 ")


def ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("labkit-provider")]


def test_it_ends_at_once_whoever_is_connected() -> None:
    provider = Provider(SCRIPT)
    provider.switch("*", Latency(60.0))
    address = ("127.0.0.1", int(provider.url.rpartition(":")[2]))
    idle = [socket.create_connection(address) for _ in range(5)]
    failed: list[BaseException] = []

    def waits() -> None:
        try:
            ask(provider)
        except (http.client.HTTPException, OSError) as error:
            failed.append(error)

    waiting = [threading.Thread(target=waits) for _ in range(3)]
    for thread in waiting:
        thread.start()
    until = time.monotonic() + 30
    while provider.hits.running("primary") < 3 and time.monotonic() < until:
        time.sleep(0.005)
    began = time.monotonic()
    provider.close()
    assert time.monotonic() - began < 30.0  # the calls would take a minute
    assert not ours()
    for thread in waiting:
        thread.join(30)
    assert len(failed) == 3
    assert provider.switches == []
    provider.close()
    for link in idle:
        link.close()
    with pytest.raises(ConnectionRefusedError):
        ask(provider)


def test_an_import_pulls_nothing_heavy() -> None:
    heavy = ("litellm", "openai", "pandas", "matplotlib", "boto3", "botocore", "numpy", "pydantic")
    script = f"import sys, labkit.routing.provider; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_it_ends_with_its_lab() -> None:
    class Lab:
        def on_close(self, says: str, action: Any) -> None:
            self.said, self.action = says, action

    lab = Lab()
    provider = Provider(SCRIPT, lab=lab)  # type: ignore[arg-type]
    assert lab.said == "model provider"
    lab.action()
    assert not ours()
    assert repr(provider) == "<Provider of any model, 0 hits>"


def test_a_client_for_whom_the_system_has_no_thread_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    with Provider(Script("Yes."), most=1) as provider:
        start = threading.Thread.start

        def none_left(thread: threading.Thread) -> None:
            if thread.name.startswith("labkit-provider-"):
                raise RuntimeError("can't start new thread")
            start(thread)

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", none_left)
            with socket.create_connection(("127.0.0.1", int(provider.url.rpartition(":")[2])), timeout=60) as client:
                assert client.recv(1) == b""
        with urllib.request.urlopen(f"{provider.url}/v1/models", timeout=60) as answer:  # its place is free
            assert answer.status == 200
