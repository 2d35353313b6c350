"""Graphs of state machines: every state and every way, outcomes in words and colour, the same said in a sentence."""

from __future__ import annotations

import re
from typing import Any

import pytest

from labkit.teach import graphs
from labkit.teach.graphs import animate, graph

from .test_history import Events

DEFINITION: dict[str, Any] = {
    "StartAt": "Call",
    "States": {
        "Call": {
            "Type": "Task",
            "Resource": "arn:aws:states:::lambda:invoke",
            "Retry": [{"ErrorEquals": ["TransientError"]}],
            "Catch": [{"ErrorEquals": ["Poison", "States.Timeout"], "Next": "Undo"}],
            "Next": "Which",
        },
        "Which": {
            "Type": "Choice",
            "Choices": [
                {"Variable": "$.count", "NumericGreaterThan": 3, "Next": "Both"},
                {"Condition": "{% $states.input.ready %}", "Next": "Each"},
            ],
            "Default": "Done",
        },
        "Both": {
            "Type": "Parallel",
            "Branches": [
                {"StartAt": "Left", "States": {"Left": {"Type": "Pass", "End": True}}},
                {"StartAt": "Right", "States": {"Right": {"Type": "Wait", "Seconds": 1, "End": True}}},
            ],
            "Retry": [{"ErrorEquals": ["States.ALL"]}],
            "Next": "Each",
        },
        "Each": {
            "Type": "Map",
            "ItemProcessor": {"StartAt": "One", "States": {"One": {"Type": "Pass", "End": True}}},
            "Next": "Done",
        },
        "Undo": {"Type": "Fail", "Error": "E"},
        "Done": {"Type": "Succeed"},
    },
}


def ids(text: str) -> dict[str, str]:
    """Node by the name of its state."""
    return {name: node for node, name in re.findall(r'(s\d+)[\[({]+"(\w+)(?:<br/>| \()', text)}


def test_every_state_and_every_way_is_drawn() -> None:
    text = graph(DEFINITION).rich
    at = ids(text)
    assert set(at) == {"Call", "Which", "Both", "Left", "Right", "Each", "One", "Undo", "Done"}
    for line in (
        f"from --> {at['Call']}",
        f'{at["Call"]}["Call<br/>Task<br/>retry: TransientError"]:::plain',
        f"{at['Call']} --> {at['Which']}",
        f'{at["Call"]} -.->|"catch Poison, States.Timeout"| {at["Undo"]}',
        f'{at["Which"]} -->|"$.count NumericGreaterThan 3"| {at["Both"]}',
        f'{at["Which"]} -->|"$states.input.ready"| {at["Each"]}',
        f'{at["Which"]} -->|"else"| {at["Done"]}',
        f"{at['Done']} --> to",
    ):
        assert re.search(rf"^\s*{re.escape(line)}$", text, re.M), line
    assert text.count("subgraph") == text.count("\n    end") + text.count("\n        end") == 4
    assert text.startswith("```mermaid\nflowchart TD\n")


def test_the_sentence_says_what_the_picture_shows() -> None:
    said = repr(graph(DEFINITION))
    assert said.startswith(
        "A state machine of 9 states. Call (Task) goes to Which or Undo (on Poison, States.Timeout);"
    )
    assert "it is tried again on TransientError." in said
    assert "Which (Choice) goes to Both (`$.count NumericGreaterThan 3`) or" in said
    assert "Undo (Fail) fails." in said
    assert graph(DEFINITION).rich.endswith(f"<details><summary>In words</summary>\n\n{said}\n\n</details>")


def failed() -> Events:
    events = Events()
    events.entered("Task", "Call", 0)
    for error in ("TransientError", "Poison"):
        events.scheduled()
        events.add("TaskFailed", error=error, cause="c")
    events.exited("Task", "Call", output='{"Error":"Poison"}')
    events.entered("Fail", "Undo")
    events.add("ExecutionFailed", error="E", cause="c")
    return events


def test_what_became_of_each_state_is_said_in_words_and_colour() -> None:
    shown = graph(DEFINITION, failed().history)
    text, at = shown.rich, ids(shown.rich)
    assert f'{at["Call"]}["Call<br/>Task<br/>retry: TransientError<br/>caught (Poison), attempt 2"]:::caught' in text
    assert f'{at["Undo"]}(["Undo<br/>Fail<br/>failed (E)"]):::failed' in text
    assert f'{at["Which"]}{{"Which<br/>Choice<br/>not reached"}}:::unreached' in text
    assert re.search(rf"^\s*style {at['Both']} .*stroke-dasharray", text, re.M)
    for look in ("done", "failed", "caught", "standing", "unreached"):
        assert re.search(rf"classDef {look} fill:#\w{{6}},stroke:#\w{{6}},color:#\w{{6}}", text)
    assert "Its execution is FAILED." in shown.text
    assert "caught (Poison), attempt 2." in shown.text


def test_iterations_of_a_state_are_counted_and_one_that_stands_shows() -> None:
    events = Events()
    events.entered("Map", "Each", 0)
    began = events.add("MapStateStarted", length=2)
    for index in range(2):
        events.add("MapIterationStarted", began, name="Each", index=index)
        events.entered("Pass", "One")
    events.exited("Pass", "One")
    text = graph(DEFINITION, events.history).rich
    assert "One<br/>Pass<br/>1 done, 1 standing" in text
    assert f'subgraph {ids(text)["Each"]}["Each (Map): standing"]' in text


def test_children_of_a_distributed_map_have_histories_of_their_own() -> None:
    events = Events()
    events.entered("Map", "Each", 0)
    events.add("MapStateStarted")
    events.add("MapRunStarted", mapRunArn="arn")
    processor = {"ProcessorConfig": {"Mode": "DISTRIBUTED"}, **DEFINITION["States"]["Each"]["ItemProcessor"]}
    definition = {"StartAt": "Each", "States": {"Each": {"Type": "Map", "ItemProcessor": processor, "End": True}}}
    text = graph(definition, events.history).rich
    assert "standing" in text
    assert "not reached" not in text


def test_names_that_mermaid_would_read_are_written_as_entities() -> None:
    name = 'say "<end>" & #go'
    text = graph({"StartAt": name, "States": {name: {"Type": "Pass", "End": True}}}).rich
    assert 's0["say #quot;#lt;end#gt;#quot; #38; #35;go<br/>Pass"]' in text


def test_the_sentence_is_no_markup_either() -> None:
    definition = {"StartAt": "a_b*c", "States": {"a_b*c": {"Type": "Pass", "End": True}}}
    assert r"a\_b\*c (Pass) goes to the end." in graph(definition).rich
    assert "a_b*c (Pass) goes to the end." in graph(definition).text


def test_a_name_of_the_course_is_drawn_too() -> None:
    assert "Dispatch (Task) goes to the end or GivenUp" in repr(graph("agent-step"))


def test_the_animation_walks_through_the_events() -> None:
    shown = animate(DEFINITION, failed().history)
    captions = [shown.caption(frame) for frame in range(1, shown.frames + 1)]
    assert captions[0] == f"1 of {shown.frames}: TaskStateEntered; it stands in Call."
    assert captions[-1] == f"{shown.frames} of {shown.frames}: ExecutionFailed; it stands nowhere."
    assert "standing" in shown.at(1).text
    assert shown.at(shown.frames).rich == shown.static.rich == graph(DEFINITION, failed().history).rich
    drawn: list[Any] = []
    (buttons, says) = shown.build(drawn.append).children
    _, slider = buttons.children
    slider.value = 1
    assert [each.rich for each in drawn] == [shown.at(1).rich]
    assert says.value == captions[0]


@pytest.mark.parametrize("live", [False, True])
def test_without_a_front_end_it_shows_the_last_picture(live: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(graphs, "is_live", lambda: live)
    monkeypatch.setattr(graphs, "in_notebook", lambda: live)
    monkeypatch.setattr("IPython.display.display", lambda what, **_: shown.append(what))
    animation = animate(DEFINITION, failed().history)
    animation._ipython_display_()
    if live:
        assert "application/vnd.jupyter.widget-view+json" in shown[0]
        assert shown[1].rich == animation.static.rich
    else:
        assert shown[0].rich == animation.static.rich
        assert "Run this cell in JupyterLab" in shown[1].text


def test_an_execution_without_events_is_drawn_as_well() -> None:
    empty = animate(DEFINITION, Events().history.upto(0))
    assert empty.frames == 0
    assert "not reached" in empty.static.text


def test_a_name_that_would_begin_code_lets_no_tag_through() -> None:
    name, other = "`<b>one</b>", "<i>two</i>\n# three"
    states = {
        name: {"Type": "Task", "Resource": "r", "Next": other, "Retry": [{"ErrorEquals": ["`<s>"], "MaxAttempts": 1}]},
        other: {"Type": "Pass", "End": True},
    }
    text = graph({"StartAt": name, "States": states})._repr_mimebundle_()["text/markdown"]
    prose = text.split("```")[2].split("</summary>")[1].removesuffix("</details>")
    assert "`" not in prose
    assert "\n" not in prose.strip()
    assert "<" not in prose.replace("\\<", "")
