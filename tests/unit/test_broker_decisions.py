"""Decisions and capabilities: what a model may answer, what AppConfig may hold, and what is done about the rest."""

from __future__ import annotations

import io
import json
import logging
import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import Lab, facts
from labkit.models.retry import Fixed
from labkit.routing.conversation import Conversation
from labkit.routing.faults import ContextLength, Down, Drop, Latency, Throttle
from labkit.routing.provider import Provider, Script, ToolCall
from labkit.work import decisions
from labkit.work.capabilities import Capabilities, Capability, CapabilityError, parse
from labkit.work.capability_store import CapabilityStore
from labkit.work.decisions import Call, Decider, DecisionError, InvalidDecision, ModelRefused, ModelUnavailable, checked

MODEL = "anthropic.claude-lab-v1:0"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"task": {"type": "string", "minLength": 1}, "urgent": {"type": "boolean"}},
    "required": ["task"],
    "additionalProperties": False,
}


def record(agent: str = "coder", **other: Any) -> dict[str, Any]:
    url = f"https://sqs.us-east-1.amazonaws.com/123456789012/{agent}"
    return {"agent": agent, "description": f"The {agent}.", "queue_url": url, "input_schema": SCHEMA, **other}


FLEET = parse(json.dumps({"agents": [record("coder"), record("researcher")]}))
GOOD = ToolCall("coder", {"task": "write"})


class Model:
    """A script that says one thing after the other, whatever it is asked, and keeps what it was asked."""

    def __init__(self) -> None:
        self.says: list[Any] = []
        self.asked: list[Conversation] = []

    def __call__(self, asked: Conversation) -> Any:
        self.asked.append(asked)
        return self.says.pop(0)


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def provider(model: Model) -> Iterator[Provider]:
    with Provider(Script(model)) as made:
        yield made


@pytest.fixture
def decider(provider: Provider) -> Iterator[Decider]:
    client = provider.bedrock()
    yield Decider(client, MODEL, wait=Fixed(0.0))
    client.close()


# -- answers of the model ----------------------------------------------------------------------------------------------


def answered(*uses: tuple[str, Any], stop: str = "tool_use") -> dict[str, Any]:
    content = [{"toolUse": {"toolUseId": str(n), "name": name, "input": given}} for n, (name, given) in enumerate(uses)]
    return {"stopReason": stop, "output": {"message": {"role": "assistant", "content": [{"text": "so:"}, *content]}}}


def test_calls_that_may_be_acted_on_are_sorted_and_each_agent_is_there_once() -> None:
    uses = [("researcher", {"task": "read"}), ("coder", {"task": "write"}), ("coder", {"task": "write"})]
    assert checked(answered(*uses), FLEET) == [Call("coder", {"task": "write"}), Call("researcher", {"task": "read"})]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (answered(stop="end_turn"), "it calls no tool"),
        (answered(), "it calls no tool"),
        ({"stopReason": "tool_use"}, "it calls no tool"),
        (answered(("poet", {})), "it calls 'poet', and there are coder, researcher"),
        (answered(("coder", {})), r"its call of coder cannot be used: the input must contain \['task'\]"),
        (answered(("coder", {"task": 5})), r"the input\.task must be string"),
        (answered(("coder", {"task": ""})), r"the input\.task must be longer"),
        (answered(("coder", {"task": "a", "x": 1})), r"must not contain \{'x'\} properties"),
        (answered(("coder", ["task"])), "the input must be object"),
        (answered(("coder", {"task": "a"}), ("coder", {"task": "b"})), "it calls coder twice, with different inputs"),
        (answered(("coder", {"task": "a"}), ("poet", {})), "it calls 'poet'"),  # one bad call refuses all of it
        (answered(("coder", {"task": "a"}), stop="max_tokens"), "cut off or blocked: it ended with 'max_tokens'"),
        (answered(stop="guardrail_intervened"), "cut off or blocked"),
        (answered(("coder", {"task": "\ud83d"})), "its call of coder cannot be used: .* surrogates not allowed"),
    ],
)
def test_everything_else_is_refused(answer: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidDecision, match=says):
        checked(answer, FLEET)


@pytest.mark.parametrize(
    ("number", "value", "says"),
    [
        ({"multipleOf": 0}, 3, "cannot be checked: ZeroDivisionError"),
        ({"multipleOf": 0.1}, math.inf, "cannot be checked: OverflowError"),
        ({}, math.inf, "not JSON compliant"),
    ],
)
def test_what_a_schema_cannot_judge_is_refused(number: dict[str, Any], value: float, says: str) -> None:
    schema = {"type": "object", "properties": {"number": {"type": "number", **number}}}
    fleet = {"coder": Capability.of(record(input_schema=schema))}
    with pytest.raises(InvalidDecision, match=says):
        checked(answered(("coder", {"number": value})), fleet)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda e: st.lists(e) | st.dictionaries(st.text(), e)
)
NAMES = st.sampled_from(["coder", "researcher", "poet", ""])


@settings(max_examples=200)
@given(st.lists(st.tuples(NAMES, JSON | st.fixed_dictionaries({"task": st.text()})), max_size=4))
def test_nothing_gets_through_that_a_capability_does_not_allow(uses: list[tuple[str, Any]]) -> None:
    try:
        calls = checked(answered(*uses), FLEET)
    except InvalidDecision:
        return
    assert {call.agent for call in calls} == {name for name, _ in uses}
    assert all(isinstance(call.input["task"], str) and call.input["task"] and len(call.input) <= 2 for call in calls)


# -- asking ------------------------------------------------------------------------------------------------------------


def test_a_bad_answer_is_asked_for_again_with_the_reason(decider: Decider, model: Model) -> None:
    model.says = [ToolCall("poet", {}, invented=True), ToolCall("coder", {"task": 5}), GOOD]
    assert decider.decide({"payload": 1}, FLEET) == [Call("coder", {"task": "write"})]
    assert "Your last answer could not be used: it calls 'poet'" in model.asked[1].prompt
    assert "the input.task must be string" in model.asked[2].prompt


def test_bad_answers_end(decider: Decider, provider: Provider, model: Model) -> None:
    model.says = [ToolCall("poet", {}, invented=True)] * 9
    with pytest.raises(InvalidDecision, match="asked 3 times, the last time: it calls 'poet'"):
        decider.decide({}, FLEET)
    assert provider.hits.total == 3


@pytest.mark.parametrize("fault", [Throttle(), Down(), Down("overloaded"), Down("not_ready"), Drop()])
def test_trouble_that_passes_is_tried_again(decider: Decider, provider: Provider, model: Model, fault: Any) -> None:
    model.says = [GOOD] * 9
    provider.switch("*", fault, times=2)
    assert decider.decide({}, FLEET)[0].agent == "coder"
    assert provider.hits.total == 3


@pytest.mark.parametrize("fault", [Throttle(), Down()])
def test_trouble_that_stays_is_an_error_after_a_bounded_number_of_calls(
    decider: Decider, provider: Provider, fault: Any
) -> None:
    with provider.switch("*", fault), pytest.raises(ModelUnavailable, match=r"asked 3 times.*(Throttling|InternalSer)"):
        decider.decide({}, FLEET)
    assert provider.hits.total == 3


@pytest.mark.parametrize("fault", [Down("denied"), Down("missing"), ContextLength(1)])
def test_a_refusal_is_not_repeated(decider: Decider, provider: Provider, fault: Any) -> None:
    with provider.switch("*", fault), pytest.raises(ModelRefused, match=r"AccessDenied|ResourceNotFound|too long"):
        decider.decide({}, FLEET)
    assert provider.hits.total == 1


def test_no_call_is_begun_that_cannot_end_in_time(provider: Provider, model: Model) -> None:
    decider = Decider(provider.bedrock(), MODEL, call_seconds=2.0, wait=Fixed(0.0))
    with pytest.raises(ModelUnavailable, match=r"was not asked: 1\.5 s are left, and one call may take 2 s"):
        decider.decide({}, FLEET, left=lambda: 1.5)
    assert provider.hits.total == 0
    times = iter([9.0, 9.0, 1.0, 1.0, 1.0])
    with provider.switch("*", Down()), pytest.raises(ModelUnavailable, match="InternalServerException"):
        decider.decide({}, FLEET, left=lambda: next(times))  # the trouble is the news, not the time
    assert provider.hits.total == 1


def test_a_model_that_hangs_is_left_after_the_timeout(provider: Provider, model: Model) -> None:
    keys = {"region_name": "us-east-1", "aws_access_key_id": "lab", "aws_secret_access_key": "lab"}
    client = decisions.client(timeout=0.3, endpoint_url=provider.bedrock_url, **keys)
    assert client.meta.config.retries["total_max_attempts"] == 1
    decider = Decider(client, MODEL, tries=2, wait=Fixed(0.0))
    assert decider.call_seconds == 2.3
    model.says = [GOOD] * 2
    with provider.switch("*", Latency(20.0)), pytest.raises(ModelUnavailable, match="did not answer: Read timeout"):
        decider.decide({}, FLEET)
    client.close()


def test_the_endpoint_is_the_environments(provider: Provider, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", provider.bedrock_url)
    keys = {"region_name": "us-east-1", "aws_access_key_id": "lab", "aws_secret_access_key": "lab"}
    client = decisions.client(timeout=5, **keys)
    model.says = [GOOD]
    assert Decider(client, MODEL).decide({}, FLEET)[0].agent == "coder"
    client.close()


def test_a_long_event_is_shown_in_part_and_says_so(decider: Decider, model: Model) -> None:
    model.says = [GOOD]
    decider.decide({"payload": "x" * 100_000}, FLEET)
    assert len(model.asked[0].prompt) < 21_000
    assert "(cut: it has 100,015 characters)" in model.asked[0].prompt


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tries": 0}, "tries must be"),
        ({"call_seconds": 0}, "call_seconds must be"),
        ({"model": ""}, "model is the id"),
    ],
)
def test_settings_have_bounds(provider: Provider, options: dict[str, Any], says: str) -> None:
    with pytest.raises(DecisionError, match=says):
        Decider(provider.bedrock(), **{"model": MODEL, **options})


# -- records -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (record(agent="Coder"), r"agents\[0\]: agent is 'Coder'; it has lower-case letters"),
        (record(agent="c" * 65), "at most 64 characters"),
        (record(description=""), "needs description, a text that is not empty; it is ''"),
        (record(queue_url="arn:aws:sqs:us-east-1:1:q"), "queue_url is 'arn:aws:sqs:us-east-1:1:q'; it is the URL"),
        (record(input_schema={"type": "array"}), "input_schema has type 'array'; a tool's is 'object'"),
        (record(input_schema={"type": "object", "required": "n"}), "input_schema cannot be used: required must be"),
        (record(input_schema={"type": "object", "$ref": "http://127.0.0.1:1/x"}), "nothing is fetched"),
        (record(input_schema="{}"), "needs input_schema, an object"),
        (record(prompt="x"), "has a field 'prompt'; there are agent, description"),
        ({}, "needs agent, a text"),
        (7, "is a int; a record is an object"),
    ],
)
def test_a_bad_record_is_refused_with_a_sentence(bad: Any, says: str) -> None:
    with pytest.raises(CapabilityError, match=says):
        parse(json.dumps({"agents": [bad, record("researcher")]}))


def test_a_document_is_refused_as_a_whole() -> None:
    with pytest.raises(CapabilityError, match="are no JSON"):
        parse("{")
    for empty in ("[]", "{}", '{"agents": []}', '{"agents": {}}'):
        with pytest.raises(CapabilityError, match="a list agents that is not empty"):
            parse(empty)
    with pytest.raises(CapabilityError, match=r"agents\[1\]: there is another record of agent coder"):
        parse(json.dumps({"agents": [record(), record()]}))
    assert int(facts("bedrock.tool_name.max_chars")) == 64


def test_a_capability_is_a_tool() -> None:
    assert Capability.of(record()).tool == {
        "toolSpec": {"name": "coder", "description": "The coder.", "inputSchema": {"json": SCHEMA}}
    }


# -- AppConfig ---------------------------------------------------------------------------------------------------------


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_a_deployment_is_seen_at_the_next_poll_and_not_before(lab: Lab) -> None:
    clock, store = Clock(), CapabilityStore.create(lab, "fleet")
    store.deploy([record("coder")])
    read = store.reader(lab, poll=15, clock=clock)
    assert list(read.get()) == ["coder"]
    assert store.deploy([record("coder"), record("researcher")]) == 2
    clock.now += 14
    assert list(read.get()) == ["coder"]
    clock.now += 1
    assert list(read.get()) == ["coder", "researcher"]
    clock.now += 15
    assert list(read.get()) == ["coder", "researcher"]  # nothing is new: the answer has no content


def test_a_bad_deployment_changes_nothing_until_a_good_one_comes(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    clock, store = Clock(), CapabilityStore.create(lab, "fleet")
    store.deploy([record("coder")])
    read = store.reader(lab, poll=15, clock=clock)
    read.get()
    with pytest.raises(CapabilityError, match="agent is 'Poet'"):
        store.deploy([record("Poet")])
    store.deploy([record("coder"), record("Poet")], check=False)
    for _ in range(3):
        clock.now += 15
        with caplog.at_level(logging.ERROR):
            assert list(read.get()) == ["coder"]
        assert "agents[1]: agent is 'Poet'" in read.trouble
    assert "the capabilities were not taken, 1 older ones go on: agents[1]: agent is 'Poet'" in caplog.text
    store.deploy([record("researcher")])
    clock.now += 15
    assert (list(read.get()), read.trouble) == (["researcher"], "")


def test_without_any_good_configuration_there_is_an_error_and_then_there_is_none(lab: Lab) -> None:
    store = CapabilityStore.create(lab, "fleet")
    read = store.reader(lab, clock=Clock())
    with pytest.raises(CapabilityError, match="there are no capabilities: nothing was deployed"):
        read.get()
    store.deploy([record("coder")])
    assert list(read.get()) == ["coder"]  # no poll interval for whoever has nothing
    with pytest.raises(CapabilityError, match="ResourceNotFound"):
        Capabilities(lab.client("appconfigdata"), "no-such", "live", "agents").get()


def test_creating_again_takes_what_is_there(lab: Lab) -> None:
    first = CapabilityStore.create(lab, "fleet")
    first.deploy([record("coder")])
    again = CapabilityStore.create(lab, "fleet")
    assert vars(again) == {**vars(first), "client": again.client}
    assert again.place == "fleet/live/agents"
    assert again.deploy([record("coder")]) == 2


class Session:
    """appconfigdata, as botocore's model describes it: a token is good for one call, and too early is refused."""

    def __init__(self, clock: Clock, interval: int) -> None:
        self.clock, self.interval = clock, interval
        self.tokens: set[str] = set()
        self.calls: list[str] = []
        self.earliest = 0.0
        self.breaks = False

    def start_configuration_session(self, **arguments: Any) -> dict[str, str]:
        self.calls.append("start")
        self.tokens = {"first"}
        self.earliest = 0.0
        return {"InitialConfigurationToken": "first"}

    def get_latest_configuration(self, ConfigurationToken: str) -> dict[str, Any]:
        self.calls.append("get")
        if ConfigurationToken not in self.tokens or self.clock.now < self.earliest:
            raise ClientError({"Error": {"Code": "BadRequestException", "Message": "token"}}, "GetLatestConfiguration")
        self.tokens = {f"{ConfigurationToken}+"}
        self.earliest = self.clock.now + self.interval
        if self.breaks:
            raise ClientError({"Error": {"Code": "InternalServerException", "Message": "x"}}, "GetLatestConfiguration")
        new = json.dumps({"agents": [record()]}).encode() if ConfigurationToken == "first" else b""
        return {
            "Configuration": SimpleNamespace(read=io.BytesIO(new).read),
            "NextPollConfigurationToken": f"{ConfigurationToken}+",
            "NextPollIntervalInSeconds": self.interval,
        }


def test_appconfigs_own_interval_counts_where_it_is_longer() -> None:
    clock = Clock()
    session = Session(clock, 40)
    read = Capabilities(session, "a", "e", "p", poll=15, clock=clock)
    for _ in range(100):
        assert list(read.get()) == ["coder"]
        clock.now += 1
    assert session.calls == ["start", "get", "get", "get"]  # at 0, 40 and 80 s; never a token twice


def test_an_answer_that_is_lost_takes_its_token_along() -> None:
    clock = Clock()
    session = Session(clock, 15)
    read = Capabilities(session, "a", "e", "p", poll=15, clock=clock)
    read.get()
    clock.now, session.breaks = clock.now + 15, True
    assert list(read.get()) == ["coder"]
    assert "InternalServerException" in read.trouble
    clock.now, session.breaks = clock.now + 15, False
    assert (list(read.get()), read.trouble) == (["coder"], "")
    assert session.calls == ["start", "get", "get", "start", "get"]


def test_a_token_that_is_not_taken_any_more_is_followed_by_a_new_session(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    session = Session(clock, 15)
    read = Capabilities(session, "a", "e", "p", poll=15, clock=clock)
    read.get()
    clock.now, session.tokens = clock.now + 100_000, set()  # a day is over
    assert (list(read.get()), read.trouble) == (["coder"], "")
    assert session.calls == ["start", "get", "get", "start", "get"]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("poll", [14, 86_401, 15.0, True])
def test_a_poll_interval_has_the_bounds_of_appconfig(poll: Any) -> None:
    with pytest.raises(CapabilityError, match="poll must be a whole number from 15 to 86400"):
        Capabilities(None, "a", "e", "p", poll=poll)
