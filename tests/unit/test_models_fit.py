"""The decision aid: each reason alone, their order, and that it can answer no."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.models._input import ModelError
from labkit.models.fit import Case, judge

cases = st.builds(
    Case,
    interactive=st.booleans(),
    steps=st.integers(1, 60),
    minutes=st.floats(0, 60),
    classes=st.integers(1, 12),
    fan_out=st.booleans(),
    human=st.booleans(),
    exactly_once=st.booleans(),
    schema_discipline=st.booleans(),
    gpu_batch=st.booleans(),
)
SMALL = Case(steps=3, minutes=0.1, classes=1)


@pytest.mark.parametrize(
    ("field", "instead"),
    [
        ("interactive", "a synchronous gateway that streams"),
        ("exactly_once", "transactional outbox"),
        ("gpu_batch", "continuous batching"),
    ],
)
def test_each_no_alone(field: str, instead: str) -> None:
    verdict = judge(Case(**{field: True}))  # type: ignore[arg-type]
    assert verdict.answer == "no"
    assert verdict.reasons[0].field == field
    assert len(verdict.instead) == 1
    assert instead in verdict.instead[0]


def test_without_contracts_it_is_too_early() -> None:
    verdict = judge(Case(schema_discipline=False))
    assert (verdict.answer, verdict.reasons[0].field) == ("not yet", "schema_discipline")
    assert "version the envelope" in verdict.instead[0]


def test_one_small_agent_is_one_function_and_one_queue() -> None:
    verdict = judge(SMALL)
    assert verdict.answer == "not yet"
    assert verdict.reasons[0].field == "steps"
    assert "one function and one queue" in verdict.instead[0]


@pytest.mark.parametrize("more", [{"steps": 5}, {"minutes": 1.0}, {"classes": 2}, {"fan_out": True}, {"human": True}])
def test_one_thing_more_and_it_is_no_longer_small(more: dict[str, float]) -> None:
    small = {"steps": 3, "minutes": 0.1, "classes": 1, **more}
    assert "steps" not in [reason.field for reason in judge(Case(**small)).reasons]  # type: ignore[arg-type]


def test_where_nothing_is_gained_it_waits() -> None:
    verdict = judge(Case(steps=10, minutes=0.01, classes=1))  # 6 seconds
    assert (verdict.answer, verdict.reasons[0].field) == ("not yet", "gain")


@pytest.mark.parametrize(
    ("case", "field"),
    [
        (Case(steps=1, minutes=0.5, classes=1), "minutes"),  # 30 s: over the 29 s of a REST API
        (Case(steps=10, minutes=0.01, classes=2), "classes"),
        (Case(steps=10, minutes=0.01, classes=1, fan_out=True), "fan_out"),
        (Case(steps=10, minutes=0.01, classes=1, human=True), "human"),
    ],
)
def test_each_yes_alone(case: Case, field: str) -> None:
    assert [reason.field for reason in judge(case).reasons if reason.answer == "yes"] == [field]


def test_a_waiting_client_has_29_seconds() -> None:
    fields = [[r.field for r in judge(Case(steps=1, minutes=m / 60, classes=2)).reasons] for m in (29, 30)]
    assert ("minutes" in fields[0], "minutes" in fields[1]) == (False, True)


def test_a_no_outweighs_a_not_yet_and_all_reasons_are_given() -> None:
    verdict = judge(Case(exactly_once=True, schema_discipline=False, fan_out=True))
    assert verdict.answer == "no"
    assert [row[0] for row in verdict.rows()] == ["no", "not yet", "yes", "yes", "yes"]
    assert len(verdict.instead) == 1


@given(cases)
def test_the_answer_follows_from_the_reasons(case: Case) -> None:
    verdict = judge(case)
    given_for = {reason.answer for reason in verdict.reasons}
    strongest = next(answer for answer in ("no", "not yet", "yes") if answer in given_for)
    assert verdict.answer == strongest == verdict.reasons[0].answer
    assert bool(verdict.instead) == (verdict.answer != "yes")
    assert (verdict.answer == "no") == (case.interactive or case.exactly_once or case.gpu_batch)


def test_bad_input_is_named() -> None:
    with pytest.raises(ModelError, match="minutes must be at least 0 min; got -1"):
        Case(minutes=-1)
