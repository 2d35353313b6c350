"""The provider as Bedrock: boto3's Converse and ConverseStream, and refusals as boto3 raises them."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError, EventStreamError

from labkit.routing.conversation import ToolCall
from labkit.routing.faults import Break, ContextLength, Down, Throttle
from labkit.routing.provider import Provider
from labkit.routing.script import Answer, Script, contains

MODEL = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
PROFILE = f"arn:aws:bedrock:eu-west-1:000000000012:inference-profile/{MODEL}"
CONFIG: dict[str, Any] = {
    "tools": [
        {"toolSpec": {"name": "weather", "description": "d", "inputSchema": {"json": {"type": "object"}}}},
        {"toolSpec": {"name": "clock", "description": "d", "inputSchema": {"json": {"type": "object"}}}},
    ]
}
SCRIPT = (
    Script()
    .on("Hello", "Good day to you.")
    .on(contains("weather"), [ToolCall("weather", {"city": "Oslo"}), lambda it: f"It is {it.result}."])
    .on("both", Answer("Let me see.", (ToolCall("weather", {"city": "A"}), ToolCall("clock"))))
)


@pytest.fixture(scope="module")
def shared() -> Iterator[Provider]:
    with Provider(SCRIPT) as made:
        yield made


@pytest.fixture
def provider(shared: Provider) -> Iterator[Provider]:
    shared.hits.reset()
    yield shared
    shared.all_off()


@pytest.fixture(scope="module")
def bedrock(shared: Provider) -> Iterator[Any]:
    client = shared.bedrock()
    yield client
    client.close()


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"text": each} if isinstance(each, str) else each for each in content]}


def use(id: str, name: str = "weather") -> dict[str, Any]:
    return {"role": "assistant", "content": [{"toolUse": {"toolUseId": id, "name": name, "input": {}}}]}


def result(id: str, *content: Any, **more: str) -> dict[str, Any]:
    return {"toolResult": {"toolUseId": id, "content": list(content), **more}}


# -- answers -----------------------------------------------------------------------------------------------------------


def test_an_answer_is_as_bedrock_gives_it(provider: Provider, bedrock: Any) -> None:
    answer = bedrock.converse(modelId=MODEL, messages=[user("Hello")], system=[{"text": "Be kind."}])
    assert answer["output"] == {"message": {"role": "assistant", "content": [{"text": "Good day to you."}]}}
    assert answer["stopReason"] == "end_turn"
    assert answer["usage"] == {"inputTokens": 2 + 2, "outputTokens": 4, "totalTokens": 8}
    assert answer["metrics"]["latencyMs"] >= 1
    assert len(answer["ResponseMetadata"]["RequestId"]) == 36
    assert answer["ResponseMetadata"]["RetryAttempts"] == 0
    (row,) = provider.hits.rows
    assert (row["model"], row["dialect"], row["outcome"], row["prompt"]) == (MODEL, "bedrock", "ok", "Hello")


@pytest.mark.parametrize("choice", [{"auto": {}}, {"any": {}}, {"tool": {"name": "weather"}}])
def test_a_tool_loop(provider: Provider, bedrock: Any, choice: Any) -> None:
    messages = [user("How is the weather?")]
    first = bedrock.converse(modelId=MODEL, messages=messages, toolConfig={**CONFIG, "toolChoice": choice})
    assert first["stopReason"] == "tool_use"
    (block,) = first["output"]["message"]["content"]
    assert (block["toolUse"]["name"], block["toolUse"]["input"]) == ("weather", {"city": "Oslo"})
    assert block["toolUse"]["toolUseId"].startswith("tooluse_")
    answer = result(block["toolUse"]["toolUseId"], {"json": {"degrees": 4}}, status="success")
    messages += [first["output"]["message"], user(answer)]
    second = bedrock.converse(modelId=MODEL, messages=messages, toolConfig=CONFIG)
    assert second["output"]["message"]["content"] == [{"text": 'It is {"degrees": 4}.'}]
    assert second["stopReason"] == "end_turn"
    assert second["usage"]["inputTokens"] > first["usage"]["inputTokens"]


def test_a_stream_carries_text_and_tools(provider: Provider, bedrock: Any) -> None:
    answer = bedrock.converse_stream(modelId=MODEL, messages=[user("both")], toolConfig=CONFIG)
    assert answer["ResponseMetadata"]["HTTPHeaders"]["content-type"] == "application/vnd.amazon.eventstream"
    events = list(answer["stream"])
    assert [next(iter(event)) for event in events] == [
        "messageStart",
        *["contentBlockDelta"] * 3,
        "contentBlockStop",
        "contentBlockStart",
        "contentBlockDelta",
        "contentBlockStop",
        "contentBlockStart",
        "contentBlockDelta",
        "contentBlockStop",
        "messageStop",
        "metadata",
    ]
    deltas = [event["contentBlockDelta"] for event in events if "contentBlockDelta" in event]
    assert "".join(each["delta"].get("text", "") for each in deltas) == "Let me see."
    tool = [each["delta"]["toolUse"]["input"] for each in deltas if "toolUse" in each["delta"]]
    assert [json.loads(each) for each in tool] == [{"city": "A"}, {}]
    starts = [event["contentBlockStart"] for event in events if "contentBlockStart" in event]
    assert [(each["contentBlockIndex"], each["start"]["toolUse"]["name"]) for each in starts] == [
        (1, "weather"), (2, "clock"),
    ]  # fmt: skip
    assert events[-2]["messageStop"]["stopReason"] == "tool_use"
    assert events[-1]["metadata"]["usage"]["outputTokens"] == 3 + (2 + 4) + (2 + 1)
    assert provider.hits.rows[0]["stream"] is True


def test_streamed_or_not_it_is_the_same_answer(provider: Provider, bedrock: Any) -> None:
    whole = bedrock.converse(modelId=MODEL, messages=[user("Hello")])
    events = list(bedrock.converse_stream(modelId=MODEL, messages=[user("Hello")])["stream"])
    text = "".join(event["contentBlockDelta"]["delta"]["text"] for event in events if "contentBlockDelta" in event)
    assert text == whole["output"]["message"]["content"][0]["text"]
    assert events[-1]["metadata"]["usage"] == whole["usage"]


def test_max_tokens_cuts_the_answer(provider: Provider, bedrock: Any) -> None:
    answer = bedrock.converse(modelId=MODEL, messages=[user("Hello")], inferenceConfig={"maxTokens": 2})
    assert answer["stopReason"] == "max_tokens"
    assert answer["output"]["message"]["content"] == [{"text": "Good day"}]


def test_an_inference_profiles_arn_is_the_model(provider: Provider, bedrock: Any) -> None:
    bedrock.converse(modelId=PROFILE, messages=[user("Hello")])
    with provider.switch(MODEL, Down()), pytest.raises(ClientError):
        bedrock.converse(modelId=PROFILE, messages=[user("Hello")])
    assert provider.hits.by_model == {MODEL: {"error": 1, "ok": 1}}


# -- refusals ----------------------------------------------------------------------------------------------------------

# The sentences are AWS's, as public problem reports quote them.
BAD: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "A conversation must start with a user message."),
    ({"messages": [use("a")]}, "A conversation must start with a user message."),
    ({"messages": [user("x"), user("y")]}, "A conversation must alternate between user and assistant roles."),
    ({"messages": [user()]}, "The content field in the Message object at messages.0 is empty."),
    ({"messages": [user("Hello", " ")]}, "object at messages.0.content.1 is blank"),
    (
        {"messages": [user("x"), use("a"), user(result("a", {"text": "y"}))]},
        "The toolConfig field must be defined when using toolUse and toolResult content blocks.",
    ),
    (
        {"messages": [user("x"), use("a"), user("y")], "toolConfig": CONFIG},
        "Expected toolResult blocks at messages.2.content for the following Ids: a",
    ),
    (
        {"messages": [user("x"), use("a"), user(result("b", {"text": "y"}))], "toolConfig": CONFIG},
        "Expected toolResult blocks at messages.2.content for the following Ids: a",
    ),
    (
        {"messages": [user("x"), use("a"), user(result("a", {"text": "y"}), result("b"))], "toolConfig": CONFIG},
        "The number of toolResult blocks at messages.2.content exceeds the number of toolUse blocks of previous turn.",
    ),
    (
        {"messages": [user("x"), use("a"), user(result("a", status="error"))], "toolConfig": CONFIG},
        "The content field at messages.2.content.0.toolResult cannot be empty when status value is error.",
    ),
    ({"toolConfig": {**CONFIG, "toolChoice": {"tool": {"name": "none"}}}}, "none"),
    ({"messages": [user("Who knows?")]}, "the script has no answer to 'Who knows?', and no default."),
    ({"toolConfig": {**CONFIG, "toolChoice": {"any": {}}}}, "the request demands a tool call"),
]


@pytest.mark.parametrize(("more", "says"), BAD)
@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_request_is_a_validation_exception(
    provider: Provider, bedrock: Any, more: Any, says: str, stream: bool
) -> None:
    call = bedrock.converse_stream if stream else bedrock.converse
    with pytest.raises(bedrock.exceptions.ValidationException) as caught:
        call(**{"modelId": MODEL, "messages": [user("Hello")], **more})
    assert says in caught.value.response["Error"]["Message"]
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert caught.value.response["ResponseMetadata"]["RetryAttempts"] == 0


KINDS = [
    ("error", "InternalServerException", 500),
    ("overloaded", "ServiceUnavailableException", 503),
    ("not_ready", "ModelNotReadyException", 429),
    ("timeout", "ModelTimeoutException", 408),
    ("model_error", "ModelErrorException", 424),
    ("missing", "ResourceNotFoundException", 404),
    ("denied", "AccessDeniedException", 403),
    ("throttled", "ThrottlingException", 429),
]


@pytest.mark.parametrize(("kind", "name", "status"), KINDS)
def test_an_outage_is_the_exception_of_botocores_model(
    provider: Provider, bedrock: Any, kind: str, name: str, status: int
) -> None:
    for call in (bedrock.converse, bedrock.converse_stream):
        with provider.switch(MODEL, Down(kind)), pytest.raises(getattr(bedrock.exceptions, name)) as caught:
            call(modelId=MODEL, messages=[user("Hello")])
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
    assert provider.hits.by_model == {MODEL: {kind: 2}}


def test_the_names_and_statuses_are_those_of_the_api(bedrock: Any) -> None:
    model = bedrock.meta.service_model.operation_model("Converse")
    shapes = {shape.name: shape.metadata["error"]["httpStatusCode"] for shape in model.error_shapes}
    assert {name: status for _, name, status in KINDS} == {name: shapes[name] for _, name, _ in KINDS}
    assert shapes["ValidationException"] == 400


def test_bedrock_does_not_say_when_to_come_back(provider: Provider, bedrock: Any) -> None:
    with provider.switch(MODEL, Throttle(2.5)), pytest.raises(bedrock.exceptions.ThrottlingException) as caught:
        bedrock.converse(modelId=MODEL, messages=[user("Hello")])
    assert "retry-after" not in caught.value.response["ResponseMetadata"]["HTTPHeaders"]
    assert caught.value.response["Error"]["Message"] == "Too many requests, please wait before trying again."


def test_a_conversation_that_is_too_long(provider: Provider, bedrock: Any) -> None:
    with provider.switch(MODEL, ContextLength(10)), pytest.raises(bedrock.exceptions.ValidationException) as caught:
        bedrock.converse(modelId=MODEL, messages=[user("x" * 41)])
    assert caught.value.response["Error"]["Message"] == (
        "The model returned the following errors: prompt is too long: 11 tokens > 10 maximum"
    )


def test_unknown_models(bedrock: Any) -> None:
    with Provider(SCRIPT, models=[MODEL]) as provider:
        client = provider.bedrock()
        client.converse(modelId=PROFILE, messages=[user("Hello")])
        with pytest.raises(client.exceptions.ValidationException, match="The provided model identifier is invalid"):
            client.converse(modelId="other", messages=[user("Hello")])
        with pytest.raises(client.exceptions.ResourceNotFoundException, match="Could not resolve the foundation model"):
            client.converse(modelId=f"{PROFILE}x", messages=[user("Hello")])
        client.close()


@pytest.mark.parametrize(
    ("kind", "code"),
    [("throttled", "throttlingException"), ("error", "internalServerException"),
     ("timeout", "modelStreamErrorException")],
)  # fmt: skip
def test_an_error_in_the_middle_of_a_stream(provider: Provider, bedrock: Any, kind: str, code: str) -> None:
    seen: list[str] = []
    with provider.switch(MODEL, Break(after=2, kind=kind)):
        stream = bedrock.converse_stream(modelId=MODEL, messages=[user("Hello")])["stream"]
        with pytest.raises(EventStreamError, match=code):
            seen.extend(next(iter(event)) for event in stream)
    assert seen == ["messageStart", "contentBlockDelta", "contentBlockDelta"]
    assert provider.hits.by_model == {MODEL: {kind: 1}}


def test_a_request_that_boto3_would_not_send(provider: Provider) -> None:
    connection = http.client.HTTPConnection(provider.url.removeprefix("http://"), timeout=60)
    for body in ({}, {"messages": [{"role": "wizard", "content": [{"text": "x"}]}]}, {"messages": "x"}, []):
        connection.request("POST", "/model/x%2Fy/converse", json.dumps(body))
        answer = connection.getresponse()
        assert answer.status == 400
        assert answer.getheader("x-amzn-ErrorType", "").startswith("ValidationException:")
        assert set(json.loads(answer.read())) == {"message"}
    connection.close()
    assert provider.hits.by_model == {"x/y": {"invalid": 4}}
