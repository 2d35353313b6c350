"""The envelope: what it accepts, what it refuses and how it says so."""

from __future__ import annotations

import json
import traceback
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit import facts
from labkit.control.envelope import Envelope, EnvelopeError, EnvelopeExpired, PayloadRef
from labkit.state.idempotency import Work

NOON = datetime(2026, 11, 11, 12, 0, tzinfo=UTC)


def make(**fields: Any) -> Envelope:
    given_fields = {"conversation_id": "8842", "step": 7, "agent_class": "researcher", "payload": {"q": "why"}}
    return Envelope.new(now=lambda: NOON, **{**given_fields, **fields})


def test_the_trace_id_names_the_work_and_is_the_same_for_the_same_work() -> None:
    assert make().trace_id == make().trace_id == "conv-8842-step-7"


@given(
    payload=st.dictionaries(st.text(max_size=8), st.text() | st.integers() | st.booleans() | st.none(), max_size=5),
    step=st.integers(min_value=0, max_value=10**6),
    ttl=st.integers(min_value=1, max_value=10**7),
)
def test_an_envelope_survives_the_way_through_an_event(payload: dict[str, Any], step: int, ttl: int) -> None:
    before = make(payload=payload, step=step, ttl_seconds=ttl)
    event = {"version": "0", "detail": json.loads(before.detail())}
    assert Envelope.from_event(event) == before
    assert Envelope.from_event(json.dumps(event)) == before
    assert before.size() == len(before.detail().encode())


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"step": -1}, "step is -1"),
        ({"step": "7"}, "step is '7'"),
        ({"agent_class": "Researcher"}, "agent_class is 'Researcher'"),
        ({"ttl_seconds": 0}, "ttl_seconds is 0"),
        ({"conversation_id": ""}, "conversation_id is ''"),
        ({"schema_version": "2.0"}, "this reader knows major version 1"),
        ({"issued_at": "2026-11-11T12:00:00"}, "must say its time zone"),
        ({"polcy": "fast"}, "polcy does not exist"),
        ({"payload": None}, "payload is not what JSON can hold"),
        ({"payload": {"x": float("nan")}}, "payload is not what JSON can hold"),
        ({"payload": {"x": "\ud800"}}, "payload is not what JSON can hold"),
        ({"payload": {"x": object()}}, "payload is not what JSON can hold"),
        ({"issued_at": "9999-12-31T23:59:59-10:00"}, "is no year that work is issued in"),
        ({"payload_ref": {"bucket": "b" * 3, "key": "k", "size": 1, "sha256": "0" * 64}}, "not both"),
        ({"payload_ref": {"bucket": "b" * 3, "key": "k", "size": 1, "sha256": "zz"}}, "payload_ref.sha256 is 'zz'"),
    ],
)
def test_a_wrong_field_is_named_with_its_value(fields: dict[str, Any], names: str) -> None:
    with pytest.raises(EnvelopeError) as caught:
        make(**fields)
    assert names in str(caught.value)


@pytest.mark.parametrize(
    "event", ["[" * 100_000, "no json", "[]", {}, {"Detail": {}}, None, 7, {"detail": "no json"}, {"detail": []}]
)
def test_what_is_no_event_is_refused_with_a_sentence(event: Any) -> None:
    with pytest.raises(EnvelopeError):
        Envelope.from_event(event)


def test_a_reader_ignores_what_a_newer_minor_version_added() -> None:
    detail = {**json.loads(make().detail()), "schema_version": "1.9", "priority": "high"}
    assert Envelope.parse(detail).trace_id == "conv-8842-step-7"


def test_an_expired_envelope_is_refused_at_the_second_it_expires() -> None:
    envelope = make(ttl_seconds=60)
    assert envelope.fresh(lambda: NOON + timedelta(seconds=59.9)) is envelope
    with pytest.raises(EnvelopeExpired, match="expired 0 s ago: ttl_seconds is 60"):
        envelope.fresh(lambda: NOON + timedelta(seconds=60))


def test_the_next_step_is_of_the_same_conversation_and_has_a_name_of_its_own() -> None:
    following = make(model_policy="careful").next(agent_class="coder", payload={})
    assert (following.conversation_id, following.step, following.trace_id) == ("8842", 8, "conv-8842-step-8")
    assert following.model_policy == "careful"


def test_a_ticket_travels_in_the_payloads_place() -> None:
    ref = PayloadRef(bucket="claims", key="conv/8842", size=5, sha256="0" * 64)
    envelope = make().model_copy(update={"payload": None, "payload_ref": ref})
    assert json.loads(envelope.detail())["payload_ref"]["type"] == "s3"
    assert "payload" not in json.loads(envelope.detail())
    assert Envelope.parse(envelope.detail()).payload_ref == ref


TOKEN = "AQCgAAAAKgAAAAMAAAAA" * 4


def test_a_task_token_travels_in_the_detail_and_shows_nowhere_else() -> None:
    envelope = make(task_token=TOKEN)
    assert json.loads(envelope.detail())["task_token"] == TOKEN
    back = Envelope.parse(envelope.detail())
    assert back == envelope
    assert back.task_token is not None
    assert back.task_token.get_secret_value() == TOKEN
    assert envelope.size() == len(envelope.detail().encode())
    shown = [repr(envelope), str(envelope), f"{envelope}", str(envelope.model_dump()), envelope.model_dump_json()]
    shown.append(json.dumps(envelope.model_dump(mode="json")))
    assert [text for text in shown if TOKEN in text] == []


def test_without_a_token_an_envelope_is_as_it_always_was() -> None:
    assert "task_token" not in make().detail()


def test_a_token_belongs_to_one_step_and_names_no_work() -> None:
    envelope = make(task_token=TOKEN)
    assert envelope.next(payload={}).task_token is None
    assert Work.of(envelope, "researcher") == Work.of(make(task_token=TOKEN[::-1]), "researcher")
    assert Work.of(envelope, "researcher") == Work.of(make(), "researcher")


@pytest.mark.parametrize("token", ["", "x" * (int(facts("sfn.token.max_chars")) + 1), 17, {"secret": TOKEN}])
def test_what_can_be_no_token_is_refused_and_not_quoted(token: Any) -> None:
    with pytest.raises(EnvelopeError, match=r"^envelope field task_token: ") as refused:
        make(task_token=token)
    assert TOKEN not in "".join(traceback.format_exception(refused.value))
    assert make(task_token="x" * int(facts("sfn.token.max_chars"))).task_token is not None


@pytest.mark.parametrize("wrong", [{"step": "7"}, {"payload": None}, {"issued_at": "now"}, {"agent_class": TOKEN}])
def test_another_fields_fault_does_not_quote_the_token_that_stands_beside_it(wrong: dict[str, Any]) -> None:
    token = f"secret-{TOKEN}"
    detail = {**json.loads(make(task_token=token).detail()), **wrong}
    with pytest.raises(EnvelopeError) as refused:
        Envelope.parse(json.dumps(detail))
    assert token not in "".join(traceback.format_exception(refused.value))


def test_a_claim_check_leaves_the_token_with_the_envelope() -> None:
    ref = PayloadRef(bucket="bucket", key="k", size=1, sha256="0" * 64)
    packed = make(task_token=TOKEN).model_copy(update={"payload": None, "payload_ref": ref})
    assert json.loads(packed.detail())["task_token"] == TOKEN
