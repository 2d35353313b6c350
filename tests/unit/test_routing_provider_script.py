"""What a scripted model says: which rule answers, where a conversation stands, and how tokens are counted."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.routing.chat import ChatCompletions
from labkit.routing.conversation import Conversation, Tool, ToolCall, ToolResult, Turn, tokens
from labkit.routing.converse import Converse
from labkit.routing.dialects import pieces
from labkit.routing.refusals import Refusal
from labkit.routing.script import Answer, Script, ScriptError, Unscripted, contains

WEATHER = Tool("weather", "The weather in a city", {"type": "object"})
CALL = ToolCall("weather", {"city": "Oslo"}, "call-1")


def asked(prompt: str = "Hello", *more: Turn, **options: Any) -> Conversation:
    return Conversation("primary", (Turn("user", prompt), *more), **options)


def after_tool(prompt: str = "The weather?") -> Conversation:
    done = Turn("assistant", calls=(CALL,)), Turn("user", results=(ToolResult("call-1", "4 degrees"),))
    return asked(prompt, *done, tools=(WEATHER,))


# -- rules -------------------------------------------------------------------------------------------------------------


def test_the_first_rule_that_fits_answers() -> None:
    script = (
        Script(default="What?")
        .on("Hello", "exact")
        .on(contains("HELLO"), "contains")
        .on(re.compile(r"order (\d+)"), lambda it: f"function of {it.prompt}")
        .on(lambda it: it.system == "judge", "conversation")
    )
    answers = [
        script.answer(each).text
        for each in (asked(), asked("Oh, hello"), asked("order 7"), asked("x", system="judge"), asked("x"))
    ]
    assert answers == ["exact", "contains", "function of order 7", "conversation", "What?"]


def test_a_function_without_an_answer_leaves_it_to_the_next_rule() -> None:
    script = Script().on(contains("l"), lambda it: None).on("Hello", "next")
    assert script.answer(asked()).text == "next"


def test_a_prompt_that_nobody_expected_is_refused_in_words() -> None:
    with pytest.raises(Unscripted, match=r"^the script has no answer to 'Hello', and no default\.$"):
        Script().on("Bye", "x").answer(asked())


def test_a_script_that_fails_says_how() -> None:
    with pytest.raises(Unscripted, match="ZeroDivisionError"):
        Script().on("Hello", lambda it: str(1 / 0)).answer(asked())


def test_an_agents_loop_gets_one_answer_a_step() -> None:
    script = Script().on("The weather?", [CALL, lambda it: f"It is {it.result}."])
    first = asked("The weather?", tools=(WEATHER,))
    assert script.answer(first).calls == (CALL,)
    assert script.answer(after_tool()).text == "It is 4 degrees."
    again = Conversation("primary", (*after_tool().turns, Turn("assistant", "It is."), Turn("user", "The weather?")))
    assert again.step == 0, "the same question later is a new one"
    looped = Conversation("primary", (*after_tool().turns, *after_tool().turns[1:]), tools=(WEATHER,))
    with pytest.raises(Unscripted, match="has 2 answers to 'The weather\\?', and is asked for answer 3"):
        script.answer(looped)


@pytest.mark.parametrize(
    ("options", "says", "trouble"),
    [
        ({}, CALL, "calls weather, and the request offers no tool"),
        ({"tools": (WEATHER,), "choice": "none"}, CALL, "calls a tool, and the request forbids it"),
        ({"tools": (WEATHER,), "choice": "any"}, "text", "is text, and the request demands a tool call"),
        (
            {"tools": (WEATHER, Tool("time")), "choice": "tool", "forced": "time"},
            CALL,
            "calls weather, and the request demands time",
        ),
    ],
)
def test_an_answer_that_no_model_could_give_is_a_slip(options: Any, says: Any, trouble: str) -> None:
    with pytest.raises(Unscripted, match=f"the script's answer to 'Hello' {trouble}"):
        Script(says).answer(asked(**options))


def test_a_model_may_invent_a_tool() -> None:
    invented = ToolCall("magic", invented=True)
    assert Script(invented).answer(asked()).calls == (invented,)


@pytest.mark.parametrize("says", ["", [], None, 3, [""], [["nested"]], Answer()])
def test_an_answer_that_says_nothing_is_refused_at_once(says: Any) -> None:
    with pytest.raises(ScriptError):
        Script().on("Hello", says)


@pytest.mark.parametrize("when", [None, 3, ["Hello"]])
def test_a_rule_that_fits_nothing_is_refused_at_once(when: Any) -> None:
    with pytest.raises(ScriptError):
        Script().on(when, "x")


# -- scripts as files --------------------------------------------------------------------------------------------------


def test_a_script_in_a_file_says_the_same(tmp_path: Path) -> None:
    rules = [
        {"exact": "Hello", "says": "Hi."},
        {"contains": "weather", "says": [{"tool": "weather", "input": {"city": "Oslo"}}, "Cold."]},
        {"regex": "^[0-9]+$", "says": "A number."},
    ]
    (tmp_path / "s.json").write_text(json.dumps({"rules": rules, "default": "What?"}))
    script = Script.load(tmp_path / "s.json")
    assert [script.answer(asked(prompt)).text for prompt in ("Hello", "42", "…")] == ["Hi.", "A number.", "What?"]
    assert script.answer(asked("The weather?", tools=(WEATHER,))).calls == (ToolCall("weather", {"city": "Oslo"}),)
    assert script.answer(after_tool("The weather?")).text == "Cold."


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ([], "a script is an object"),
        ({"rules": {}}, "a list of rules"),
        ({"rules": [{"says": "x"}]}, "rule 0 of the script needs one of exact, contains and regex"),
        ({"rules": [{"exact": "a", "regex": "b", "says": "x"}]}, "needs one of"),
        ({"rules": [{"exact": "a"}]}, "and says"),
        ({"rules": [{"regex": "(", "says": "x"}]}, "regular expression that is none"),
        ({"rules": [{"exact": "a", "says": {"tool": 3}}]}, "rule 0 of the script says a text"),
        ({"rules": [{"exact": "a", "says": []}]}, "at least one answer"),
        ({"default": 3}, "the default says a text"),
    ],
)
def test_a_file_that_is_no_script_is_refused_with_its_place(tmp_path: Path, data: Any, says: str) -> None:
    (tmp_path / "s.json").write_text(json.dumps(data))
    with pytest.raises(ScriptError, match=re.escape(says)):
        Script.load(tmp_path / "s.json")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match=r"none\.json cannot be read"):
        Script.load(tmp_path / "none.json")


# -- tokens ------------------------------------------------------------------------------------------------------------


def test_four_characters_are_a_token() -> None:
    assert [tokens("x" * n) for n in (0, 1, 4, 5, 8)] == [0, 1, 1, 2, 2]


@given(st.text(max_size=60), st.integers(1, 20))
def test_an_answer_is_cut_at_max_tokens(text: str, most: int) -> None:
    answer = Answer(text or "x", (CALL,)).within(most)
    assert answer.tokens <= most or not answer.short
    assert answer.short == (Answer(text or "x", (CALL,)).tokens > most)
    assert (text or "x").startswith(answer.text)


@given(st.text(max_size=80))
def test_pieces_are_the_whole_answer(text: str) -> None:
    words, parts = pieces(Answer(text, (ToolCall("t", {"text": text}),)))
    assert "".join(words) == text
    assert json.loads("".join(parts[0])) == {"text": text}


# -- both dialects read the same ---------------------------------------------------------------------------------------

OPENAI = {
    "messages": [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": [{"type": "text", "text": "The weather?"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}},
                {"id": "b", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "b", "content": "20 degrees"},
        {"role": "tool", "tool_call_id": "a", "content": '{"degrees": 4}'},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "weather",
                "description": "The weather in a city",
                "parameters": {"type": "object"},
            },
        }
    ],
    "tool_choice": "required",
    "max_tokens": 50,
}
BEDROCK = {
    "system": [{"text": "Be short."}],
    "messages": [
        {"role": "user", "content": [{"text": "The weather?"}, {"cachePoint": {"type": "default"}}]},
        {
            "role": "assistant",
            "content": [
                {"toolUse": {"toolUseId": "a", "name": "weather", "input": {"city": "Oslo"}}},
                {"toolUse": {"toolUseId": "b", "name": "weather", "input": {"city": "Rome"}}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"toolResult": {"toolUseId": "b", "content": [{"text": "20 degrees"}]}},
                {"toolResult": {"toolUseId": "a", "content": [{"json": {"degrees": 4}}]}},
            ],
        },
    ],
    "toolConfig": {
        "tools": [
            {
                "toolSpec": {
                    "name": "weather",
                    "description": "The weather in a city",
                    "inputSchema": {"json": {"type": "object"}},
                }
            }
        ],
        "toolChoice": {"any": {}},
    },
    "inferenceConfig": {"maxTokens": 50},
}


def test_both_dialects_read_the_same_conversation() -> None:
    one = ChatCompletions().read(OPENAI, "m", False)
    two = Converse().read(BEDROCK, "m", False)
    assert (one.turns, one.system, one.tools) == (two.turns, two.system, two.tools)
    assert (one.choice, one.max_tokens, one.step, one.prompt) == ("any", 50, 1, "The weather?")
    assert (two.choice, two.max_tokens, two.step, two.prompt) == ("any", 50, 1, "The weather?")
    assert (one.digest, one.input_tokens) == (two.digest, two.input_tokens)
    assert one.result == '{"degrees": 4}'


def test_what_is_said_makes_the_digest_and_ids_do_not() -> None:
    other = json.loads(json.dumps(BEDROCK).replace('"toolUseId": "a"', '"toolUseId": "c"'))
    assert Converse().read(other, "m", False).digest == Converse().read(BEDROCK, "m", False).digest
    other = json.loads(json.dumps(BEDROCK).replace("Oslo", "Bergen"))
    assert Converse().read(other, "m", False).digest != Converse().read(BEDROCK, "m", False).digest


KEYS = [
    *("role", "content", "text", "toolUse", "toolResult", "toolUseId", "name", "input", "json", "tools", "toolSpec"),
    *("inputSchema", "toolChoice", "tool", "function", "arguments", "tool_calls", "id", "status"),
]
FIELDS = ["messages", "system", "toolConfig", "inferenceConfig", "tools", "tool_choice", "max_tokens", "stream_options"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS), inner | st.sampled_from(["user", "assistant", "tool", "error"]), max_size=4
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(FIELDS), JSON), st.sampled_from([ChatCompletions(), Converse()]))
def test_whatever_is_sent_is_read_or_refused(body: Any, dialect: Any) -> None:
    for sent in (body, {**OPENAI, **body}, {**BEDROCK, **body}):
        try:
            found = dialect.read(sent, "m", False)
        except Refusal as refusal:
            dialect.refused(refusal, "m")
        else:
            assert found.input_tokens >= 0
            assert len(found.digest) == 12
