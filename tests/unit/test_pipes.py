"""Pipes: made in one call, waited for, refused in a sentence, gone with the lab."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from labkit import Lab
from labkit.control.pipes import Pipe, PipeError, template_text
from labkit.facts import facts
from labkit.work.queues import Queue


def test_a_pipe_filters_shapes_and_delivers(lab: Lab) -> None:
    source, target = Queue.create(lab, "source"), Queue.create(lab, "target")
    wanted = {"n": "<$.body.n>", "text": "step <$.body.n>", "pipe": "<aws.pipes.pipe-name>"}
    pipe = Pipe.create(lab, "steps", source, target, filters=[{"body": {"keep": [True]}}], template=wanted)
    assert pipe.state == "RUNNING"
    source.client.send_message(QueueUrl=source.url, MessageBody=json.dumps({"keep": False, "n": 1}))
    source.client.send_message(QueueUrl=source.url, MessageBody=json.dumps({"keep": True, "n": 2}))
    [message] = target.receive(wait=20)
    assert json.loads(message.body) == {"n": 2, "text": "step 2", "pipe": pipe.name}
    pipe.stop()
    assert (pipe.state, bool(pipe.reason)) == ("STOPPED", True)
    pipe.start()
    pipe.delete()
    with pytest.raises(PipeError, match="does not exist"):
        _ = pipe.state
    pipe.delete()  # what is gone is gone


def test_a_pipe_that_cannot_run_says_why_and_is_gone(lab: Lab) -> None:
    source, target = Queue.create(lab, "source"), Queue.create(lab, "target")
    source.client.delete_queue(QueueUrl=source.url)
    with pytest.raises(PipeError, match=r"CREATE_FAILED.*does not exist"):
        Pipe.create(lab, "steps", source, target)
    assert lab.client("pipes").list_pipes()["Pipes"] == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"batch": 0}, "batch is 0"),
        ({"batch": 20}, "batch size 20 is greater"),
        ({"window": 301}, "window is 301"),
        ({"filters": [{}] * 6}, "6 filters"),
        ({"filters": [{"body": "x"}]}, "was not made"),
        ({"template": "x" * 8193}, "8193 characters"),
        ({"template": {"a": object()}}, "JSON cannot hold"),
        ({"role": "me"}, "was not made"),
    ],
)
def test_what_a_pipe_cannot_be_is_a_sentence(lab: Lab, options: dict[str, Any], says: str) -> None:
    source, target = Queue.create(lab, "source"), Queue.create(lab, "target")
    with pytest.raises(PipeError, match=says):
        Pipe.create(lab, "steps", source, target, **options)
    assert lab.client("pipes").list_pipes()["Pipes"] == []


def test_a_fifo_target_needs_a_group(lab: Lab) -> None:
    source, lane = Queue.create(lab, "source"), Queue.create(lab, "lane.fifo")
    with pytest.raises(PipeError, match="message group"):
        Pipe.create(lab, "steps", source, lane)
    Pipe.create(lab, "steps", source, lane, group="$.body.who")
    source.client.send_message(QueueUrl=source.url, MessageBody=json.dumps({"who": "g1"}))
    [message] = lane.receive(wait=20)
    assert message.group == "g1"


def test_a_template_keeps_the_types_of_lone_variables() -> None:
    assert template_text(
        {"a": "<$.body.n>", "b": ["x <$.body.n>", 1]}
    ) == '{"a":<$.body.n>,"b":["x <$.body.n>", 1]}'.replace(", 1", ",1")
    assert template_text("<$.body>") == "<$.body>"
    assert int(facts("pipes.template.max_chars")) > 0


def test_closing_a_lab_deletes_its_pipes(lab: Lab) -> None:
    source, target = Queue.create(lab, "source"), Queue.create(lab, "target")
    pipe = Pipe.create(lab, "steps", source, target)
    lab.close()
    found = [one["Name"] for one in pipe.client.list_pipes()["Pipes"]]
    assert pipe.name not in found


def test_silence_is_a_sentence_too() -> None:
    class Silent:
        def describe_pipe(self, **_: Any) -> Any:
            raise EndpointConnectionError(endpoint_url="http://127.0.0.1:1/")

    with pytest.raises(PipeError, match="pipe steps: Could not connect"):
        _ = Pipe(Silent(), "steps").state
