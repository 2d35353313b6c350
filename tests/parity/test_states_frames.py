"""What the states inside of a Map or a Parallel see, and how their errors leave it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from .conftest import Aws
from .rows import row
from .states_kit import GUIDE, States, constant, inside, one


@pytest.fixture
def states(aws: Aws) -> States:
    return States(aws)


def each(state: dict[str, Any], name: str = "Inside") -> dict[str, Any]:
    """A Map state over the input, with this state for each item."""
    return {"Type": "Map", "ItemProcessor": inside(state, name)}


@row("sfn.context.map", "A Task in a Map sees index and value of its item in the context", source=GUIDE)
def test_item(states: States) -> None:
    queue = states.queue()
    body = {"index.$": "$$.Map.Item.Index", "value.$": "$$.Map.Item.Value"}
    send = {
        "Type": "Task",
        "Resource": "arn:aws:states:::sqs:sendMessage",
        "Parameters": {"QueueUrl": queue, "MessageBody": body},
    }
    assert states.run(one(each(send)), ["a", "b"])["status"] == "SUCCEEDED"
    found: list[Any] = []
    for _ in range(10):
        got = states.sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=1, MaxNumberOfMessages=10)
        found += [json.loads(message["Body"]) for message in got.get("Messages", [])]
        if len(found) == 2:
            break
    assert sorted(found, key=lambda item: item["index"]) == [
        {"index": 0, "value": "a"},
        {"index": 1, "value": "b"},
    ]


@row("sfn.context.map.inner", "In a Map inside of a Map the context has the inner item", source=GUIDE)
def test_inner_item(states: States) -> None:
    inner = each({"Type": "Pass", "Parameters": {"item.$": "$$.Map.Item.Value"}}, "Innermost")
    run = states.run(one(each(inner)), [["a", "b"], ["c"]])
    assert json.loads(run["output"]) == [[{"item": "a"}, {"item": "b"}], [{"item": "c"}]]


@row("sfn.context.entered", "EnteredTime in the context has milliseconds and ends in Z", source=GUIDE)
def test_entered(states: States) -> None:
    run = states.run(one({"Type": "Pass", "Parameters": {"at.$": "$$.State.EnteredTime"}}))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", json.loads(run["output"])["at"])


@pytest.mark.parametrize("around", ["Map", "Parallel"])
@row("sfn.inside.timeout", "A Map or a Parallel can catch States.Timeout of a state inside of it", source=GUIDE)
def test_timeout_leaves(states: States, around: str) -> None:
    late = states.task(states.queue(), TimeoutSeconds=1)
    state = each(late) if around == "Map" else {"Type": "Parallel", "Branches": [inside(late)]}
    catch = [{"ErrorEquals": ["Other"], "Next": "Other"}, {"ErrorEquals": ["States.Timeout"], "Next": "Caught"}]
    run = states.run(
        {
            "StartAt": "T",
            "States": {
                "T": {**state, "Catch": catch, "End": True},
                "Other": constant("other"),
                "Caught": constant("caught"),
            },
        },
        [{}],
    )
    assert (run["status"], json.loads(run["output"])) == ("SUCCEEDED", "caught")
