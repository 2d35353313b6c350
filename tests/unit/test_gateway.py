"""Gateway and identity: who may call what for whom, and that every call has an answer."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from labkit import Lab
from labkit.errors import LabError
from labkit.state.identity import Identity, Policy, Refused, Secret, forbid, permit, redact
from labkit.work.functions import Function
from labkit.work.gateway import Gateway, GatewayError, Tool
from labkit.work.tool_schema import flaw, misfit

ANN = Identity("planner", "acme", "ann")
LOOKUP, REFUND = "orders___lookup", "orders___refund"
ORDER = {
    "type": "object",
    "properties": {"tenant": {"type": "string"}, "order": {"type": "integer"}, "amount": {"type": "number"}},
    "required": ["tenant", "order"],
}
ASKED = {"tenant": "acme", "order": 7}
KEY = Secret("sk-very-secret")


def lookup(asked: Mapping[str, Any], identity: Identity) -> Any:
    return {"order": asked["order"], "for": identity.user, "state": "shipped"}


def tool(run: Any = lookup, name: str = "lookup", **more: Any) -> Tool:
    return Tool(name, "Looks an order up.", more.pop("schema", ORDER), run, **{"tenant": "tenant", **more})


def use(name: str = LOOKUP, asked: Any = None) -> dict[str, Any]:
    return {"toolUseId": "tooluse_1", "name": name, "input": ASKED if asked is None else asked}


def make(*tools: Tool, policy: Policy | None = None, **options: Any) -> Gateway:
    gateway = Gateway(policy or Policy(permit("planner", LOOKUP, REFUND)), **options)
    gateway.add("orders", *(tools or (tool(),)))
    return gateway


def result(gateway: Gateway, *args: Any, identity: Identity = ANN) -> tuple[str, Any]:
    answer = gateway.call(use(*args), identity)["toolResult"]
    assert answer["toolUseId"] == "tooluse_1"
    [[(kind, content)]] = [list(block.items()) for block in answer["content"]]
    assert kind == ("json" if answer["status"] == "success" else "text")
    return answer["status"], content


# -- identity ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "tenant", "allowed", "why"),
    [
        ([], None, False, "agent planner may not call orders___refund with data of tenant 'acme': no rule permits it."),
        ([permit("planner", REFUND)], None, True, "a rule permits it."),
        ([permit("planner", REFUND)], "globex", False, "'globex': it works for acme."),
        ([permit("other", REFUND)], None, False, "no rule permits it"),
        ([permit("planner", LOOKUP)], None, False, "no rule permits it"),
        ([permit("planner", REFUND, tenants=["globex"])], None, False, "no rule permits it"),
        ([permit("planner", REFUND, tenants=["acme"])], None, True, ""),
        (
            [permit("planner", REFUND), forbid("planner", REFUND, why="ask a human")],
            None,
            False,
            "a rule forbids it, ask",
        ),
        ([forbid("planner", REFUND), permit("planner", REFUND)], None, False, "forbids"),
        ([permit("planner", REFUND, when=lambda i: i["amount"] < 500)], None, True, ""),
        ([permit("planner", REFUND, when=lambda i: i["amount"] < 5)], None, False, "not with this input"),
        ([permit("planner", REFUND, when=lambda i: i["nothing"])], None, False, "not with this input"),
        (
            [permit("planner", REFUND), forbid("planner", REFUND, when=lambda i: i["amount"] > 5)],
            None,
            False,
            "forbids",
        ),
        ([permit("planner", REFUND), forbid("planner", REFUND, when=lambda i: i["nothing"])], None, False, "forbids"),
        ([permit("planner", REFUND), forbid("planner", REFUND, tenants=["globex"])], None, True, ""),
    ],
)
def test_nothing_is_permitted_unless_a_rule_does_and_forbidding_wins(
    rules: list[Any], tenant: str | None, allowed: bool, why: str
) -> None:
    policy = Policy(*rules)
    decision = policy.decide(ANN, REFUND, {"amount": 100}, tenant)
    assert decision.allowed is allowed
    assert why in decision.why
    if not allowed:
        with pytest.raises(Refused, match="planner may not call orders___refund"):
            policy.check(ANN, REFUND, {"amount": 100}, tenant)


def test_a_tool_that_is_forbidden_whatever_the_input_is_not_shown() -> None:
    def shown(*rules: Any) -> bool:
        return Policy(permit("planner", REFUND), *rules).may_see(ANN, REFUND)

    assert shown()
    assert shown(forbid("planner", REFUND, when=lambda i: True))
    assert shown(forbid("planner", REFUND, tenants=["globex"]))
    assert not shown(forbid("planner", REFUND))


NAMES = st.sampled_from(["a", "b"])
RULES = st.lists(
    st.builds(
        lambda make, workload, tool, tenants, holds: make(workload, tool, tenants=tenants, when=lambda _: holds),
        st.sampled_from([permit, forbid]),
        NAMES,
        NAMES,
        st.none() | st.sets(NAMES),
        st.booleans(),
    ),
    max_size=6,
)


@examples(RULES, RULES, NAMES, NAMES, NAMES, NAMES)
def test_more_rules_never_open_what_one_forbids(
    rules: list[Any], more: list[Any], workload: str, name: str, tenant: str, data: str
) -> None:
    who = Identity(workload, tenant)
    before, after = (Policy(*each).decide(who, name, {}, data) for each in (rules, [*more, *rules]))
    assert Policy(*rules[::-1]).decide(who, name, {}, data) == before or not before.allowed
    if "forbids" in before.why:
        assert not after.allowed
    if before.allowed:
        assert tenant == data
        assert Policy(*rules).may_see(who, name)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: permit("planner"),
        lambda: permit("planner", "orders___*"),
        lambda: forbid("*", REFUND),
        lambda: permit("planner", REFUND, tenants="acme"),
        lambda: Identity("", "acme"),
        lambda: Identity("planner", " "),
        lambda: Identity("planner", None),  # type: ignore[arg-type]
    ],
)
def test_rules_and_identities_name_what_they_are_about(bad: Any) -> None:
    with pytest.raises(Refused):
        bad()


def test_a_secret_shows_itself_to_nobody_who_does_not_ask() -> None:
    assert "very" not in f"{KEY} {KEY!r} {[KEY]} {vars(Tool)!r}"
    assert KEY.reveal() == "sk-very-secret"
    for move in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="not to be pickled"):
            move(KEY)
    with pytest.raises(LabError, match="at least 4 characters"):
        Secret("abc")
    told = redact({"a": ["x sk-very-secret", 1, None], "sk-very-secret": True}, [KEY])
    assert told == {"a": ["x ***", 1, None], "***": True}


# -- a call ------------------------------------------------------------------------------------------------------------


def test_a_call_is_answered_with_a_tool_result() -> None:
    assert result(make()) == ("success", {"order": 7, "for": "ann", "state": "shipped"})


@pytest.mark.parametrize(("says", "content"), [("x", "x"), (None, None), ([1], [1]), (3, 3), ({"a": (1,)}, None)])
def test_an_answer_is_an_object_as_converse_demands(says: Any, content: Any) -> None:
    expected = {"a": [1]} if isinstance(says, dict) else {"result": content}
    assert result(make(tool(lambda *_: says))) == ("success", expected)


@pytest.mark.parametrize(
    ("name", "asked", "says"),
    [
        ("orders___delete", ASKED, "there is no tool orders___delete; there are orders___lookup."),
        (LOOKUP, {"tenant": "acme"}, "orders___lookup was not called: input lacks order."),
        (LOOKUP, {"tenant": "acme", "order": "7"}, "input.order must be of type integer; got '7'"),
        (LOOKUP, "order 7", "input must be of type object; got 'order 7'"),
        (LOOKUP, {"tenant": "globex", "order": 7}, "with data of tenant 'globex': it works for acme"),
    ],
)
def test_what_cannot_be_called_is_told_to_the_model(name: str, asked: Any, says: str) -> None:
    called: list[Any] = []
    status, content = result(make(tool(lambda *args: called.append(args))), name, asked)
    assert (status, called) == ("error", [])
    assert says in content


def test_an_agent_sees_only_what_it_may_call() -> None:
    policy = Policy(permit("planner", LOOKUP), permit("refunder", LOOKUP, REFUND, tenants=["globex"]))
    gateway = make(tool(), tool(name="refund"), policy=policy)
    config = gateway.tool_config(ANN)
    assert config == {
        "tools": [
            {"toolSpec": {"name": LOOKUP, "description": "Looks an order up.", "inputSchema": {"json": ORDER}}},
        ]
    }
    assert gateway.names(Identity("refunder", "globex")) == [LOOKUP, REFUND]
    assert gateway.tool_config(Identity("refunder", "acme")) is None
    assert "no rule permits it" in result(gateway, REFUND)[1]
    assert "no rule permits it" in result(gateway, REFUND, {})[1]  # and nothing about what it would take
    assert "no tool x; there are none for this agent" in result(gateway, "x", identity=Identity("nobody", "acme"))[1]


def test_the_tool_config_is_what_converse_takes(lab: Lab) -> None:
    client = lab.client("bedrock-runtime")
    model = client.meta.service_model.operation_model("Converse").input_shape
    from botocore.validate import validate_parameters

    gateway = make()
    messages = [
        {"role": "assistant", "content": [{"toolUse": use()}, {"toolUse": {**use("x"), "toolUseId": "tooluse_2"}}]},
    ]
    answer = gateway.answer(messages[0], ANN)
    assert answer is not None
    assert [block["toolResult"]["status"] for block in answer["content"]] == ["success", "error"]
    validate_parameters(
        {"modelId": "m", "messages": [*messages, answer], "toolConfig": gateway.tool_config(ANN)}, model
    )
    assert gateway.answer({"role": "assistant", "content": [{"text": "done"}]}, ANN) is None


@pytest.mark.parametrize("run", [lambda *_: 1 / 0, lambda *_: object(), lambda *_: float("nan"), lambda: 1])
def test_a_tool_that_fails_is_an_error_result(run: Any) -> None:
    status, content = result(make(tool(run)))
    assert status == "error"
    assert content.startswith("orders___lookup failed: ")


def test_a_call_ends_in_time_and_the_next_one_does_not_pile_up() -> None:
    release = threading.Event()
    gateway = make(tool(lambda *_: release.wait(60)), tool(name="refund"), seconds=0.1)
    began = time.monotonic()
    assert "did not answer within 0.1 s" in result(gateway)[1]
    assert time.monotonic() - began < 30
    gateway.seconds = 30.0  # for what answers
    assert "still at work on an earlier call" in result(gateway)[1]
    assert result(gateway, REFUND)[0] == "success"  # other tools go on
    with pytest.raises(GatewayError, match=r"still at work .*: orders___lookup"):
        gateway.close(within=0.05)
    release.set()
    gateway.close()
    assert result(gateway)[0] == "success"
    gateway.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("labkit-gateway")]


def test_a_lab_says_when_a_tool_is_left_at_work(lab: Lab) -> None:
    release = threading.Event()
    gateway = Gateway.create(lab, Policy(permit("planner", LOOKUP)), seconds=0.05)
    gateway.add("orders", tool(lambda *_: release.wait(60)))
    result(gateway)
    threading.Timer(0.2, release.set).start()
    lab.close(quiet=True)  # waits for it


def test_logs_say_who_called_what_for_whom_and_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    def leaks(asked: Mapping[str, Any], identity: Identity) -> Any:
        if asked["order"] == 1:
            raise ValueError(f"401 for {KEY.reveal()}")
        return {"echo": [KEY.reveal()], KEY.reveal(): 1}

    gateway = make(tool(leaks), secrets=[KEY])
    with caplog.at_level(logging.INFO, "labkit.work.gateway"):
        answers = [
            gateway.call(use(asked={"tenant": "acme", "order": order, "note": "private"}), ANN, trace_id="t-1")
            for order in (1, 2, "x")
        ]
    told = json.dumps(answers) + caplog.text
    assert "sk-very" not in told
    assert "private" not in caplog.text
    assert [(record.levelname, record.getMessage().partition(" after")[0]) for record in caplog.records] == [
        ("WARNING", "trace t-1: planner called orders___lookup for tenant acme: failed"),
        ("INFO", "trace t-1: planner called orders___lookup for tenant acme: success"),
        ("WARNING", "trace t-1: planner called orders___lookup for tenant acme: unfit"),
    ]


def test_a_block_that_is_no_tool_use_is_the_callers_mistake() -> None:
    for block in ({}, {"name": LOOKUP}, "x", None):
        with pytest.raises(GatewayError, match="a toolUse block has"):
            make().call(block, ANN)  # type: ignore[arg-type]


# -- Lambda ------------------------------------------------------------------------------------------------------------

HANDLER = """
def handler(event, context):
    custom = context.client_context.custom
    if event["order"] == 13:
        raise KeyError("no such order")
    return {"event": event, "tool": custom["bedrockAgentCoreToolName"], "tenant": custom["labkitTenant"]}
"""


def test_a_tool_moves_to_lambda_and_the_agent_sees_no_difference(lab: Lab) -> None:
    function = Function.deploy(lab, "orders", source=HANDLER, timeout=20)
    gateway = make(tool(), seconds=25)
    before = gateway.tool_config(ANN)
    gateway.add("orders", tool(function))
    assert gateway.tool_config(ANN) == before
    assert result(gateway) == ("success", {"event": ASKED, "tool": LOOKUP, "tenant": "acme"})
    status, content = result(gateway, LOOKUP, {"tenant": "acme", "order": 13})
    assert (status, content) == ("error", "orders___lookup failed: KeyError: 'no such order'")
    function.delete()
    assert "could not be called" in result(gateway)[1]


def test_a_function_that_may_take_longer_than_a_call_is_refused(lab: Lab) -> None:
    function = Function.deploy(lab, "orders", source=HANDLER, timeout=5)
    with pytest.raises(GatewayError, match="may take 5 s, and nobody waits longer than 5 s"):
        make(tool(function), seconds=5)
    slow = Function.deploy(lab, "slow", source=HANDLER, timeout=30)
    with pytest.raises(GatewayError, match="may take 30 s, and nobody waits longer than 25 s"):
        make(tool(slow), seconds=60)


# -- what can be shown -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "bad", "says"),
    [
        ("or__ders", tool(), "a target's name has letters, digits and single hyphens"),
        ("", tool(), "a target's name"),
        ("orders", tool(name="look up"), "a tool's whole name has letters, digits, _ and -"),
        ("o" * 60, tool(), "64 at most; got '.*', 65"),
        ("orders", Tool("lookup", " ", ORDER, lookup), "needs a description"),
        ("orders", tool(schema={"type": "string"}, tenant=None), "its input is an object"),
        (
            "orders",
            tool(schema={**ORDER, "required": []}),
            "takes the tenant from tenant, which its schema must require",
        ),
    ],
)
def test_a_tool_that_cannot_be_shown_is_refused_and_none_is_added(target: str, bad: Tool, says: str) -> None:
    gateway = Gateway(Policy(permit("planner", "good___lookup", f"{target}___ok")))
    with pytest.raises(GatewayError, match=says):
        gateway.add(target, tool(name="ok"), bad)
    assert gateway.names(ANN) == []


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "string", "enum": ["a"]}, "has enum, and a gateway takes only type, properties"),
        ({"type": "object", "properties": {"a": {"type": "date"}}}, r"inputSchema\.a has a type"),
        ({"type": "array", "items": {}}, r"inputSchema\[\] has a type"),
        ({"type": "object", "required": ["a"]}, "requires a, and does not describe it"),
        ({"type": "object", "properties": []}, "properties by name"),
        ("object", "has a type"),
    ],
)
def test_schemas_are_what_a_gateway_takes(schema: Any, says: str) -> None:
    import re

    assert re.search(says, flaw(schema) or "")


def test_an_endless_schema_has_an_end() -> None:
    endless: dict[str, Any] = {"type": "array"}
    endless["items"] = endless
    assert "20 levels deep at most" in (flaw(endless) or "")


SCHEMAS = st.recursive(
    st.sampled_from([{"type": name} for name in ("string", "number", "integer", "boolean")]),
    lambda inner: (
        st.builds(lambda items: {"type": "array", "items": items}, inner)
        | st.builds(
            lambda parts: {"type": "object", "properties": parts, "required": sorted(parts)},
            st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        )
    ),
    max_leaves=6,
)


def value(schema: Mapping[str, Any]) -> Any:
    if schema["type"] == "array":
        return [value(schema["items"])]
    if schema["type"] == "object":
        return {name: value(part) for name, part in schema["properties"].items()}
    return {"string": "x", "number": 1.5, "integer": 2, "boolean": True}[schema["type"]]


@examples(SCHEMAS)
def test_what_fits_a_schema_fits_and_nothing_fits_null(schema: dict[str, Any]) -> None:
    assert flaw(schema) is None
    assert misfit(schema, value(schema)) is None
    assert misfit(schema, None) is not None


def test_what_is_nested_too_deep_or_half_a_character_is_answered_with_an_error() -> None:
    def deep(asked: Mapping[str, Any], identity: Identity) -> Any:
        found: list[Any] = []
        for _ in range(900 if sys.version_info < (3, 12) else 5_000):  # less is passed on, more JSON refuses
            found = [found]
        return found

    assert result(make(tool(deep))) == (
        "error",
        "orders___lookup: what went in or came out is nested too deep to be passed on.",
    )
    status, says = result(make(tool(lambda asked, identity: "\ud83d")))
    assert (status, "surrogates not allowed" in says) == ("error", True)
