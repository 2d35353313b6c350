"""Which executions can be redriven, and what is kept of one that failed."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from parity.states_redrive_children import standard_only
from parity.states_redrive_history import execution_context, last_details
from parity.states_redrive_inside import Gathering, scopes_for
from parity.states_redrive_places import Inside, Place, Scope, frozen
from parity.states_redrive_rules import KEPT, TOKENS, Last, Requests, fields, why_not

END = datetime(2026, 1, 1, tzinfo=UTC)


def record(**more: Any) -> dict[str, Any]:
    found = {"executionArn": "a", "name": "e", "status": "FAILED", "events": []}
    return found | {"startDate": END.isoformat(), "stopDate": END.isoformat()} | more


@pytest.mark.parametrize("status", ["RUNNING", "SUCCEEDED", "PENDING_REDRIVE"])
def test_only_what_ended_without_success(status: str) -> None:
    assert why_not(record(status=status), END) == f"Execution is {status} and cannot be redriven"


def test_limits_of_time_and_of_events() -> None:
    day = timedelta(days=1)
    assert why_not(record(), END + 14 * day) is None
    assert why_not(record(), END + 14 * day + timedelta(seconds=1)) == "Execution redrivable period exceeded"
    old = record(startDate=(END - 365 * day).isoformat())
    assert why_not(old, END) == "Execution has exceeded the max execution time"
    assert why_not(record(events=[{}] * 24_998), END) is None
    assert why_not(record(events=[{}] * 24_999), END) == "Execution history event limit exceeded"
    assert str(KEPT) in str(why_not(record(), END, kept=False))


def test_what_a_description_says() -> None:
    assert fields(record())["redriveStatus"] == "REDRIVABLE"
    assert fields(record(mapRunArn="m"), END, kept=False)["redriveStatus"] == "REDRIVABLE_BY_MAP_RUN"
    gone = fields(record(redriveCount=2, redriveDate="d"), END, kept=False)
    assert (gone["redriveCount"], gone["redriveDate"], gone["redriveStatus"]) == (2, "d", "NOT_REDRIVABLE")


def test_client_tokens_are_answered_for_a_time() -> None:
    requests = Requests()
    assert requests.answer("A", END) is None
    requests.remember("A", "first", END)
    requests.remember(None, "none", END)
    assert requests.answer("A", END + timedelta(minutes=15)) == "first"
    assert requests.answer("A", END + timedelta(minutes=16)) is None
    assert requests.answer(None, END) is None
    for number in range(TOKENS):
        requests.remember(str(number), "later", END)
    assert requests.answer("A", END) is None
    assert requests.answer("0", END) == "later"


def test_the_last_are_kept() -> None:
    last = Last(2)
    for name in "abca":
        last.put(name, name.upper())
    assert ("b" in last, last.get("c"), last.take("a"), len(last)) == (False, "C", "A", 1)


def test_a_copy_goes_on_where_the_program_stood() -> None:
    done = Scope()
    done.end("output")
    stood = Scope(Place("T", {"n": 1}, {"v": 1}, entered=3))
    scope = Scope(Place("P", 1, {}, entered=2, inside=Inside(2, [done, stood, Scope()])))
    copy = frozen(scope)
    stood.end("too late")
    assert copy.resumes
    assert copy.place is not None
    kept = copy.place.take()
    assert kept is not None
    assert [one.done for one in kept.scopes] == [True, False, False]
    assert kept.scopes[1].place is not None
    assert (kept.scopes[1].place.name, kept.scopes[1].resumes, kept.scopes[2].resumes) == ("T", True, False)
    assert copy.place.take() is None


def test_a_state_whose_data_were_too_large_is_run_again_as_a_whole() -> None:
    done = Scope()
    done.end("output")
    scope = Scope(Place("P", 1, {}, inside=Inside(2, [done])))
    again = frozen(scope, "States.DataLimitExceeded").place
    other = frozen(scope, "States.Runtime").place
    assert again is not None
    assert other is not None
    assert (again.inside, other.inside is None) == (None, False)


def test_the_scopes_inside_a_state() -> None:
    place = Place("P", 1, {})
    first = scopes_for(place, 2, 5)
    assert place.inside == Inside(5, first)
    place.goes_on = True
    assert scopes_for(place, 2, 5) == first
    again = scopes_for(place, 2, 9)
    assert all(one is not other for one, other in zip(again, first, strict=True))


def test_the_first_failure_ends_a_gathering() -> None:
    Gathering(0).wait()
    gathering = Gathering(2)
    gathering.ended({"error": "E"})
    gathering.wait()
    gathering.ended({"error": "later"})
    assert gathering.failure == {"error": "E"}


def test_what_the_context_object_says() -> None:
    assert "RedriveTime" not in execution_context(record(), 1, "role")
    again = execution_context(record(redriveCount=1, redriveDate="d"), 1, "role")
    assert (again["RedriveCount"], again["RedriveTime"]) == (1, "d")
    assert last_details("ABORTED", {"error": None, "cause": "c"}) == {"cause": "c"}


def test_express_children_are_known_by_their_map_state() -> None:
    config = {"Mode": "DISTRIBUTED", "ExecutionType": "EXPRESS"}
    state = {"Type": "Map", "ItemProcessor": {"ProcessorConfig": config, "StartAt": "I", "States": {}}}
    text, found = standard_only(json.dumps({"StartAt": "M", "States": {"M": state}}))
    assert found == {"M": True}
    assert json.loads(text)["States"]["M"]["ItemProcessor"]["ProcessorConfig"]["ExecutionType"] == "STANDARD"
    assert standard_only("{}") == ("{}", {})
