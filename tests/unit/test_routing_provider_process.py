"""The provider for other processes: served by one of its own, and asked by LiteLLM in both dialects."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

from labkit.loopback import DIRECT
from labkit.routing.conversation import ToolCall
from labkit.routing.faults import Call, Fault
from labkit.routing.provider import Provider
from labkit.routing.refusals import KINDS, Refusal
from labkit.routing.script import Script


def test_a_process_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text(json.dumps({"rules": [{"exact": "Hello", "says": "Hi."}]}))
    command = [sys.executable, "-m", "labkit.routing.serve", str(tmp_path / "script.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            urls = json.loads(process.stdout.readline())
            body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
            request = urllib.request.Request(urls["openai_url"] + "/chat/completions", json.dumps(body).encode())
            with DIRECT.open(request, timeout=60) as answer:
                assert json.load(answer)["choices"][0]["message"]["content"] == "Hi."
            with DIRECT.open(urls["bedrock_url"] + "/lab/hits", timeout=60) as answer:
                assert json.load(answer)["by_model"] == {"m": {"ok": 1}}
        finally:
            process.terminate()
        assert process.wait(60) == 0


def test_a_process_without_a_script_says_why(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "labkit.routing.serve", str(tmp_path / "none.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "none.json cannot be read" in done.stderr


LITELLM = """
import json, sys
import litellm

litellm.suppress_debug_info = True
openai_url, bedrock_url = sys.argv[1:]
model = "anthropic.claude-3-5-sonnet-20240620-v1:0"
aws = {"aws_access_key_id": "lab", "aws_secret_access_key": "lab", "aws_region_name": "us-east-1"}
function = {"name": "weather", "description": "d", "parameters": {"type": "object", "properties": {}}}
tools = [{"type": "function", "function": function}]
for where in (
    {"model": "openai/primary", "api_base": openai_url, "api_key": "none"},
    {"model": f"bedrock/converse/{model}", "aws_bedrock_runtime_endpoint": bedrock_url, **aws},
):
    def ask(messages, **more):
        return litellm.completion(messages=messages, num_retries=0, max_retries=0, timeout=20, **where, **more)

    asked = [{"role": "user", "content": "The weather?"}]
    first = ask(asked, tools=tools).choices[0]
    call = first.message.tool_calls[0]
    asked += [first.message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "4 degrees"}]
    second = ask(asked, tools=tools)
    stream = ask([{"role": "user", "content": "Hello"}], stream=True)
    said = "".join(part.choices[0].delta.content or "" for part in stream)
    found = [first.finish_reason, call.function.arguments, second.choices[0].message.content, said]
    for trouble in ("overloaded", "throttled", "quota", "context"):
        try:
            ask([{"role": "user", "content": trouble}])
        except Exception as error:
            found.append(type(error).__name__)
    print(json.dumps(found))
"""


class ByPrompt(Fault):
    """Refuses as the prompt says, so that one process, which is slow to start, sees several refusals."""

    def meet(self, call: Call) -> None:
        if call.asked.prompt == "context":
            raise Refusal("context", tokens=11, limit=10)
        if call.asked.prompt in KINDS:
            raise Refusal(call.asked.prompt)


def test_litellm_sees_the_same_in_both_dialects() -> None:
    script = Script("one two").on("The weather?", [ToolCall("weather", {"city": "Oslo"}), lambda it: it.result])
    with Provider(script) as provider, provider.switch("*", ByPrompt()):
        done = subprocess.run(
            [sys.executable, "-c", LITELLM, provider.openai_url, provider.bedrock_url],
            capture_output=True,
            text=True,
            timeout=280,
            env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "127.0.0.1"},
        )
        assert done.returncode == 0, done.stderr[-2000:]
        openai, bedrock = (json.loads(line) for line in done.stdout.splitlines())
        assert openai == bedrock
        assert openai[:4] == ["tool_calls", '{"city": "Oslo"}', "4 degrees", "one two"]
        assert openai[4:] == [
            "ServiceUnavailableError",
            "RateLimitError",
            "RateLimitError",
            "ContextWindowExceededError",
        ]
        seen: dict[str, list[object]] = {"openai": [], "bedrock": []}
        for row in provider.hits.rows:  # not its input tokens: LiteLLM writes the tools differently for Bedrock
            seen[row["dialect"]].append((row["outcome"], row["finish"], row["output_tokens"], row["stream"]))
        assert seen["openai"] == seen["bedrock"]
