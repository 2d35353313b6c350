"""Memory: AWS's own calls, on what stands in for it; what they leave to the caller, on paper."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from labkit import Lab, facts
from labkit.state.memory import AgentMemoryError, Event, Memory
from labkit.state.memory_calls import line, named
from tests.clock import Clock

SESSION = "conversation-8842-" + "0" * 20


@pytest.fixture
def memory(lab: Lab) -> Memory:
    return Memory.create(lab, "support", clock=Clock())


def texts(events: list[Event]) -> list[str]:
    return [event.text for event in events]


# -- events ------------------------------------------------------------------------------------------------------------


def test_events_are_read_back_by_actor_and_session_the_oldest_first(memory: Memory) -> None:
    for number in range(3):
        memory.say("ann", SESSION, "USER" if number % 2 == 0 else "ASSISTANT", f"turn {number}")
    memory.say("bob", SESSION, "USER", "bob's")
    memory.say("ann", "another-session", "USER", "elsewhere")
    events = memory.events("ann", SESSION)
    assert [(event.role, event.text) for event in events] == [
        ("USER", "turn 0"),
        ("ASSISTANT", "turn 1"),
        ("USER", "turn 2"),
    ]
    # What is said within a millisecond has no order to AWS: each event is a millisecond after the one before.
    assert [event.at for event in events] == [1_900_000_000.0, 1_900_000_000.001, 1_900_000_000.002]
    assert [event.at for event in memory.events("bob", SESSION)] == [1_900_000_000.0]
    assert memory.events("cyn", SESSION) == []


def test_events_keep_their_order_when_the_clock_goes_back(memory: Memory) -> None:
    clock = memory.clock
    assert isinstance(clock, Clock)
    for step in (0.0, 5.0, -60.0, 0.0, 120.0):
        clock.now += step
        memory.say("ann", SESSION, "USER", f"{clock.now:.0f}")
    assert texts(memory.events("ann", SESSION)) == [
        "1900000000",
        "1900000005",
        "1899999945",
        "1899999945",
        "1900000065",
    ]


def test_events_come_from_every_page(memory: Memory) -> None:
    count = int(facts("agentcore.memory.page.max")) + 5
    for number in range(count):
        memory.say("ann", SESSION, "USER", str(number))
    assert texts(memory.events("ann", SESSION)) == [str(number) for number in range(count)]


def test_a_branch_goes_on_from_an_earlier_event_and_leaves_the_main_line_alone(memory: Memory) -> None:
    first, second = (memory.say("ann", SESSION, "USER", text) for text in ("1", "2"))
    memory.say("ann", SESSION, "ASSISTANT", "3")
    forked = memory.fork("ann", SESSION, second, "retry", "ASSISTANT", "3 again")
    memory.say("ann", SESSION, "USER", "4 again", branch="retry")
    memory.say("ann", SESSION, "USER", "4")
    memory.fork("ann", SESSION, forked, "third", "USER", "4 once more")
    assert first.branch is None
    assert (forked.branch, forked.root) == ("retry", second.id)
    assert texts(memory.events("ann", SESSION)) == ["1", "2", "3", "4"]
    assert texts(memory.events("ann", SESSION, branch="retry")) == ["1", "2", "3 again", "4 again"]
    assert texts(memory.events("ann", SESSION, branch="third")) == ["1", "2", "3 again", "4 once more"]
    assert memory.events("ann", SESSION, branch="nobody") == []


def event(name: str, branch: str | None = None, root: str | None = None) -> Event:
    return Event(name, "USER", name, 0.0, branch, root)


def test_a_branch_whose_root_is_gone_or_makes_no_sense_is_what_it_says() -> None:
    assert texts(line([event("1"), event("2", "b", "deleted")], "b")) == ["2"]
    assert texts(line([event("1", "b", "1"), event("2", "b")], "b")) == ["1", "2"]
    assert texts(line([event("1", "a", "2"), event("2", "b", "1")], "a")) == ["2", "1"]


class Newest:
    """Two pages of AWS's: the newest first, and an id begins with the time (captured by floci-io/floci#3556)."""

    def get_paginator(self, name: str) -> Newest:
        assert name == "list_events"
        return self

    def paginate(self, **_: Any) -> list[dict[str, Any]]:
        import datetime

        at = datetime.datetime.fromtimestamp(1_900_000_000, datetime.UTC)
        said = [
            {
                "eventId": f"{1_900_000_000_000 + number:019}#abc{number}",
                "eventTimestamp": at,
                "payload": [{"conversational": {"content": {"text": str(number)}, "role": "USER"}}],
                "branch": {"name": "main"},
            }
            for number in range(4)
        ]
        said.append({**said[0], "eventId": "0000001900000000009#f", "payload": [{"json": {"content": 1}}]})
        return [{"events": said[:1:-1]}, {"events": said[1::-1]}]


def test_the_order_is_the_same_where_the_newest_comes_first() -> None:
    assert texts(Memory(Newest(), "m-0123456789", {}).events("ann", SESSION)) == ["0", "1", "2", "3"]


# -- records -----------------------------------------------------------------------------------------------------------


def test_records_are_recalled_within_their_namespace_the_best_first(memory: Memory) -> None:
    memory.remember("SEMANTIC", "ann", ["Ann drinks tea", "Ann takes no milk in her tea"])
    memory.remember("SEMANTIC", "anna", ["Anna drinks milk and tea"])
    memory.remember("USER_PREFERENCE", "ann", ["short answers about tea"])
    found = memory.recall("SEMANTIC", "ann", "milk in tea")
    assert [record.text for record in found] == ["Ann takes no milk in her tea", "Ann drinks tea"]
    assert found[0].namespace == memory.namespace("SEMANTIC", "ann")
    assert found[0].score is not None
    assert found[0].score > (found[1].score or 0)
    assert len(memory.recall("SEMANTIC", "ann", "tea", top=1)) == 1
    assert memory.recall("SEMANTIC", "cyn", "tea") == []


def test_as_many_are_recalled_as_are_asked_for(memory: Memory) -> None:
    memory.remember("SEMANTIC", "ann", [f"tea {number}" for number in range(30)])
    assert [len(memory.recall("SEMANTIC", "ann", "tea", top=top)) for top in (1, 25, 100)] == [1, 25, 30]
    with pytest.raises(AgentMemoryError, match="nothing was recalled: ValidationException"):
        memory.recall("SEMANTIC", "ann", "tea", top=101)


def test_summaries_belong_to_one_session(memory: Memory) -> None:
    memory.remember("SUMMARIZATION", "ann", ["about tea"], session=SESSION)
    assert memory.recall("SUMMARIZATION", "ann", "tea", session="another") == []
    assert len(memory.recall("SUMMARIZATION", "ann", "tea", session=SESSION)) == 1
    with pytest.raises(AgentMemoryError, match="SUMMARIZATION keeps its records by session; say which one"):
        memory.recall("SUMMARIZATION", "ann", "tea")


def test_many_records_are_stored_in_batches(memory: Memory) -> None:
    ids = memory.remember("SEMANTIC", "ann", [f"fact {number}" for number in range(130)])
    assert len(set(ids)) == 130


def test_extraction_stores_what_a_function_makes_of_the_events(memory: Memory) -> None:
    memory.say("ann", SESSION, "USER", "No milk, please")
    memory.say("ann", SESSION, "ASSISTANT", "Noted")
    made = memory.extract(
        "ann",
        SESSION,
        {
            "USER_PREFERENCE": lambda events: [event.text for event in events if "please" in event.text],
            "SUMMARIZATION": lambda events: [f"{len(events)} turns about milk"],
            "SEMANTIC": lambda events: [],
        },
    )
    assert made == {"USER_PREFERENCE": 1, "SUMMARIZATION": 1, "SEMANTIC": 0}
    assert memory.recall("USER_PREFERENCE", "ann", "milk")[0].text == "No milk, please"
    assert memory.recall("SUMMARIZATION", "ann", "milk", session=SESSION)[0].text == "2 turns about milk"


class Refuses:
    def batch_create_memory_records(self, **given: Any) -> dict[str, Any]:
        return {
            "successfulRecords": [{"memoryRecordId": "mem-1"}],
            "failedRecords": [{"requestIdentifier": "1", "errorCode": 500, "errorMessage": "try again"}],
        }


def test_a_record_that_was_refused_is_an_error() -> None:
    memory = Memory(Refuses(), "m-0123456789", {"SEMANTIC": "s-1"})
    with pytest.raises(AgentMemoryError, match="record 1 was refused: try again; 1 of 2 were stored"):
        memory.remember("SEMANTIC", "ann", ["a", "b"])


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("do", "says"),
    [
        (lambda m: m.say("ann", "x" * 101, "USER", "a"), "1 to 100 letters.*got 'xxx.*, 101 characters"),
        (lambda m: m.events("ann", "a.b"), "sessionId of Memory"),
        (lambda m: m.say("ann", SESSION, "SYSTEM", "a"), "a role is one of ASSISTANT, USER, TOOL, OTHER; 'SYSTEM'"),
        (lambda m: m.say("a b", SESSION, "USER", "a"), "an actorId has 1 to 255"),
        (lambda m: m.recall("SEMANTIC", "*", "tea"), "an actorId has"),  # would be every actor's, where * is a pattern
        (lambda m: m.recall("SEMANTIC", "", "tea"), "an actorId has"),
        (lambda m: m.recall("SEMANTIC", "ann", ""), "nothing was recalled: Parameter validation failed"),
        (lambda m: m.remember("SEMANTIC", "ann", ["x" * 16_001]), "1 to 16000 characters"),
        (lambda m: m.remember("EPISODIC", "ann", ["x"]), "has SEMANTIC, SUMMARIZATION, USER_PREFERENCE; 'EPISODIC' is"),
        (lambda m: m.remember("PROCEDURAL", "ann", ["x"]), "'PROCEDURAL' is not among them"),
    ],
)
def test_bad_input_is_a_sentence(memory: Memory, do: Callable[[Memory], object], says: str) -> None:
    with pytest.raises(AgentMemoryError, match=says) as refused:
        do(memory)
    assert "\n" not in str(refused.value)


def test_there_is_no_procedural_strategy(lab: Lab) -> None:
    with pytest.raises(
        AgentMemoryError, match="is one of SEMANTIC, SUMMARIZATION, USER_PREFERENCE, EPISODIC, CUSTOM; 'PROCEDURAL'"
    ):
        Memory.create(lab, "m", ["PROCEDURAL"])
    with pytest.raises(AgentMemoryError, match=r"the memory was not made: .*eventExpiryDuration"):
        Memory.create(lab, "m", days=1)


# -- its life ----------------------------------------------------------------------------------------------------------


def test_every_strategy_can_be_had(lab: Lab) -> None:
    kinds = str(facts("agentcore.memory.strategies")).split("|")
    assert sorted(Memory.create(lab, "all", kinds).strategies) == sorted(kinds)


def test_a_cell_that_runs_twice_finds_the_memory_and_the_lab_deletes_it(lab: Lab) -> None:
    memory = Memory.create(lab, "support")
    memory.say("ann", SESSION, "USER", "hello")
    assert texts(Memory.create(lab, "support").events("ann", SESSION)) == ["hello"]
    with Lab.open("test") as again:  # closes the first one
        assert named(again.client("bedrock-agentcore-control"), "support") == []


def test_threads_that_make_one_at_once_get_the_same(lab: Lab) -> None:
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda _: Memory.create(lab, "support"), range(4)))
    assert [each["id"] for each in named(lab.client("bedrock-agentcore-control"), "support")] == [made[0].id]
    assert {each.id for each in made} == {made[0].id}


def test_a_text_is_not_taken_for_a_list_of_letters(memory: Memory) -> None:
    with pytest.raises(AgentMemoryError, match="texts is a list of memory records; got the text 'tea'"):
        memory.remember("SEMANTIC", "ann", "tea")
    assert memory.recall("SEMANTIC", "ann", "t") == []


def test_what_an_interrupted_run_left_is_not_found_again(lab: Lab) -> None:
    control = lab.client("bedrock-agentcore-control")
    left = control.create_memory(name="support", eventExpiryDuration=30)["memory"]["id"]
    other = Memory.create(lab, "support2")
    memory = Memory.create(lab, "support")
    assert [each["id"] for each in named(control, "support")] == [memory.id] != [left]
    assert [each["id"] for each in named(control, "support2")] == [other.id]


def test_an_unknown_memory_carries_the_code_of_aws(lab: Lab) -> None:
    memory = Memory(lab.client("bedrock-agentcore"), "nothing-0123456789", {"SEMANTIC": "s-0123456789"})
    for call in (lambda: memory.events("ann", SESSION), lambda: memory.remember("SEMANTIC", "ann", ["x"])):
        with pytest.raises(AgentMemoryError, match="ResourceNotFoundException") as missing:
            call()
        assert missing.value.code == "ResourceNotFoundException"
