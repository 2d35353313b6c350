"""Calls and dollars. Golden values: facts F182 to F192 and F231, errata 41 to 44, AWS's own pricing examples."""

from __future__ import annotations

import doctest
import importlib
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.facts import facts
from labkit.models import prices
from labkit.models._input import ModelError
from labkit.models.amplification import calls, idle_receives
from labkit.models.bucket import Bucket
from labkit.models.costs import Pod, bill
from labkit.models.esm import events_per_poller, pollers
from labkit.models.workload import Workload

GUIDE = Workload()

workloads = st.builds(
    Workload,
    conversations=st.floats(0.1, 1e4),
    steps=st.integers(1, 60),
    step_seconds=st.floats(0.1, 900),
    deliveries=st.floats(1, 5),
    messages_per_call=st.floats(1, 10),
    entries_per_call=st.floats(1, 10),
    writes=st.floats(0, 4),
    events=st.floats(0, 3),
    callbacks=st.sampled_from([0.0, 1.0]),
    heartbeat=st.sampled_from([0.0, 30.0]),
)


@pytest.mark.parametrize(
    "name",
    ["amplification", "costs", "delivery", "fan_out", "fit", "limits", "migration", "prices", "workflows", "workload"],
)
def test_the_examples_in_the_docstrings_are_true(name: str) -> None:
    module: ModuleType = importlib.import_module(f"labkit.models.{name}")
    assert doctest.testmod(module).failed == 0


# --- the figures that the guide calls script-verified, right and wrong side by side ---------------------------------


def test_steps_of_the_worked_example() -> None:
    assert GUIDE.steps_per_minute == facts("fleet.steps_per_min") == 7_500
    assert GUIDE.steps_per_second == facts("fleet.steps_per_s") == 125


def test_sqs_calls_with_the_send_and_without_it() -> None:
    """Erratum 43: 21.6 million leave out SendMessage; it is 32.4 million."""
    found = calls(GUIDE)
    wrong = found.per_day("SQS", without=["SendMessage"])
    assert wrong == facts("fleet.sqs.receive_delete_per_day") == 21_600_000
    assert wrong / 1440 == facts("fleet.sqs.receive_delete_per_min") == 15_000
    assert wrong / 86_400 == facts("fleet.sqs.receive_delete_per_s") == 250
    assert found.per_day("SQS") == facts("fleet.sqs.calls_per_day") == 32_400_000


def test_dynamodb_writes_one_and_two() -> None:
    """Erratum 43: the snippet claims, and then stores the result."""
    assert calls(GUIDE.but(writes=1)).per_day("DynamoDB") == 10_800_000  # the guide's
    assert calls(GUIDE).per_day("DynamoDB") == facts("fleet.ddb_writes_per_day") == 21_600_000


def test_events_are_sent_in_requests_and_billed_one_by_one() -> None:
    """Erratum 44: ten entries in a request are ten events on the bill."""
    assert calls(GUIDE).per_day("EventBridge") == facts("fleet.put_requests_per_day") == 1_080_000
    day = GUIDE.steps_per_day * GUIDE.events
    assert day == facts("fleet.events_per_day") == 10_800_000
    by_request, by_event = prices.events(calls(GUIDE).per_day("EventBridge")), prices.events(day)
    assert (by_request, by_event) == (pytest.approx(1.08), pytest.approx(10.80))
    alone = bill(GUIDE.but(entries_per_call=1)).per_day
    assert alone["EventBridge"] == bill(GUIDE).per_day["EventBridge"] == pytest.approx(by_event)


def test_in_flight_and_its_doubles() -> None:
    """Erratum 42: twice is 18.75 %, not a quarter; both doubled are 37.5 %."""
    assert GUIDE.in_flight == facts("fleet.in_flight") == 11_250
    assert GUIDE.load.percent == facts("fleet.in_flight.share") == pytest.approx(9.375)
    twice, slower = GUIDE.scaled(2), GUIDE.but(step_seconds=180)
    assert twice.load.percent == slower.load.percent == facts("fleet.in_flight.share_doubled") == 18.75 != 25
    assert slower.scaled(2).load.percent == facts("fleet.in_flight.share_both_doubled") == 37.5


def test_callback_headroom_and_what_a_batch_of_callbacks_would_be() -> None:
    """Erratum 45: four times is right, the remedy is not: there is nothing to batch callbacks with."""
    rate = calls(GUIDE).per_second("SendTaskSuccess")
    assert facts("sfn.callback.refill") / rate == facts("fleet.callback_headroom") == 4
    assert facts("sfn.callback.batch_api") == "no"
    assert calls(GUIDE.but(messages_per_call=10)).per_second("SendTaskSuccess") == rate


def test_a_burst_of_callbacks_drains_the_bucket_and_then_waits_for_it() -> None:
    """All 11,250 in flight answer at once: 3,000 pass, the last one waits (11,250 - 3,000) / 500 seconds."""
    bucket = Bucket(
        float(facts("sfn.callback.bucket")), float(facts("sfn.callback.refill")), clock=lambda: 0.0, sleep=lambda s: s
    )
    waits = [bucket.take() for _ in range(int(GUIDE.in_flight))]
    assert sum(wait == 0 for wait in waits) == facts("sfn.callback.bucket")
    assert waits[-1] == pytest.approx(16.5)


def test_pollers_by_the_formula_and_by_the_prose() -> None:
    """Erratum 41: one poller does 100 events a second, so 1,000 need 10; the prose took 10 a second, hence 100."""
    each = events_per_poller(kilobytes=3, seconds=1, batch=10)
    assert each == facts("lambda.esm.poller.example.events_per_s") == 100
    assert pollers(1000, seconds=1, batch=10) == facts("lambda.esm.poller.example.pollers") == 10
    assert 1000 / (facts("lambda.esm.poller.invocations") / 1) == 100  # type: ignore[operator]  # the guide's


# --- the bill ------------------------------------------------------------------------------------------------------


def test_the_worked_example_costs_300_a_day_to_carry_and_48600_to_think() -> None:
    found = bill(GUIDE).per_day
    assert found["SQS"] == pytest.approx(32.4 * 0.40)
    assert found["EventBridge"] == pytest.approx(10.8 * 1.00)
    assert found["DynamoDB"] == pytest.approx(21.6 * 0.625)
    assert found["Step Functions"] == pytest.approx(10.8 * 25)
    assert found["model tokens"] == pytest.approx(10.8 * (2_000 * 1 + 500 * 5))
    assert next(iter(found)) == "model tokens"
    assert bill(GUIDE).plumbing == pytest.approx(307.26)
    assert bill(GUIDE).plumbing / bill(GUIDE).total < 0.01
    assert bill(GUIDE).per_conversation == pytest.approx(bill(GUIDE).total / 720_000)


def test_a_function_that_waits_for_the_model_costs_more_than_all_the_plumbing() -> None:
    found = bill(GUIDE, lambda_mb=512)
    assert found.per_day["Lambda"] == pytest.approx(10.8e6 * 90 * 0.5 * 0.00001667 + 10.8 * 0.20)
    assert found.per_day["Lambda"] > 20 * found.plumbing


def test_a_pod_waits_for_ten_steps_and_a_function_for_one() -> None:
    """Fargate's rates by hand: 0.04048 + 2 x 0.004445 = 0.04937 USD an hour for 1 vCPU and 2 GB."""
    pods = bill(GUIDE, pod=Pod(vcpu=1, gb=2, slots=10))
    assert Pod().needed(GUIDE) == facts("fleet.pods.needed") == 1_125
    assert pods.per_day["pods"] == pytest.approx(1_125 * 24 * 0.04937)
    assert pods.plumbing == pytest.approx(bill(GUIDE).plumbing)
    assert bill(GUIDE, pod=Pod(slots=1)).per_day["pods"] == pytest.approx(10 * pods.per_day["pods"])
    assert 6 < bill(GUIDE, lambda_mb=512).per_day["Lambda"] / pods.per_day["pods"] < 6.2
    assert Pod().needed(Workload(conversations=0)) == 0
    with pytest.raises(ModelError, match="slots must be a whole number of at least 1; got 0"):
        Pod(slots=0)


def test_aws_lambda_example() -> None:
    """https://aws.amazon.com/lambda/pricing/, example 1: 1.1 million GB-seconds are 18.34 USD, 2 million calls 0.40."""
    seconds = prices.invocations(2_000_000, seconds=1.1, mb=512)
    assert seconds == pytest.approx(18.34 + 0.40, abs=0.01)


def test_chunks() -> None:
    """https://aws.amazon.com/eventbridge/pricing/: an event of 256 KB is billed as four."""
    assert prices.events(1e6, kb=256) == 4 * prices.events(1e6, kb=64) == pytest.approx(4.0)
    assert prices.events(1e6, kb=64.001) == 2 * prices.events(1e6, kb=1)
    assert prices.writes(1e6, kb=1.5, transactional=True) == 4 * prices.writes(1e6)
    assert prices.sqs(1e6, kb=10, per_call=10) == pytest.approx(0.40 / 10 * 2)  # 100 KB in a request: two chunks
    assert prices.sqs(1e6, fifo=True) == pytest.approx(0.50)


@pytest.mark.parametrize(("kb", "chunks"), [(0, 1), (63.999, 1), (64, 1), (65, 2), (128, 2), (128.5, 3), (256, 4)])
def test_chunks_at_their_bounds(kb: float, chunks: int) -> None:
    assert prices.chunks(kb, 65_536) == chunks
    assert prices.events(1e6, kb=kb) == pytest.approx(chunks * 1.00)
    assert prices.sqs(1e6, kb=kb) == pytest.approx(chunks * 0.40)


def test_a_float_s_last_digit_is_no_chunk() -> None:
    assert (0.1 + 0.2) * 10 > 3
    assert prices.chunks((0.1 + 0.2) * 10, 1024) == 3


def test_what_no_request_holds_is_not_priced() -> None:
    """A request to SQS or EventBridge holds 1 MiB, whatever number of entries."""
    with pytest.raises(ModelError, match=r"messages_per_send must be at most 2.048 with 500 KB each.*1024 KB; got 10"):
        Workload(message_kb=500, messages_per_send=10)
    with pytest.raises(ModelError, match=r"messages_per_call must be at most 2.048"):
        Workload(message_kb=500, messages_per_call=10, events=0, callbacks=0, messages_per_send=1)
    assert Workload(message_kb=500, messages_per_call=10).message_kb == 500  # AWS sends; a receive is no such request
    with pytest.raises(ModelError, match=r"entries_per_call must be at most 5.12 with 200 KB each"):
        Workload(event_kb=200)
    assert Workload(event_kb=200, events=0).event_kb == 200
    assert Workload(message_kb=1024 / 10, messages_per_send=10).send_batch == 10
    for field, most in (("message_kb", 1024), ("item_kb", 400)):
        with pytest.raises(ModelError, match=f"{field} must be from 0 to {most} KB"):
            Workload(**{field: most + 1}, entries_per_call=1)  # type: ignore[arg-type]


def test_batching_helps_sqs_and_not_what_sends_by_itself() -> None:
    full = GUIDE.but(messages_per_call=10)
    assert calls(full).per_day("SQS") == pytest.approx(10.8e6 * (1 + 0.1 + 0.1))  # the state machine sends one by one
    assert bill(full).per_day["SQS"] == pytest.approx(10.8 * 1.2 * 0.40)
    v2 = full.but(callbacks=0, messages_per_send=10)  # AWS docs: eb-custom-bus-target-sqs
    assert calls(v2).per_day("SQS") == pytest.approx(10.8e6 * 0.3)
    assert bill(v2).per_day["SQS"] == pytest.approx(10.8 * 0.3 * 0.40)
    assert calls(v2).per_day("SQS", by="AWS") == pytest.approx(1_080_000)
    alone = full.but(callbacks=0, events=0)
    assert calls(alone).per_day("SQS") == pytest.approx(10.8e6 * 0.3)
    assert calls(alone).per_day("SQS", by="AWS") == 0


def test_heartbeats_are_calls_too() -> None:
    beating = calls(GUIDE.but(heartbeat=30))
    assert GUIDE.but(heartbeat=30).heartbeats == 2  # at 30 and 60 s; at 90 s the step is over
    assert beating.per_second("SendTaskHeartbeat") == beating.per_second("ChangeMessageVisibility") == 250
    assert calls(GUIDE.but(heartbeat=90)).per_second("SendTaskHeartbeat") == 0


def test_a_redelivery_claims_again_and_a_heartbeat_is_billed() -> None:
    tried = GUIDE.but(deliveries=3)
    assert calls(tried).per_step("DynamoDB") == 4  # three claims, one result
    assert calls(GUIDE.but(deliveries=3, writes=0)).per_step("DynamoDB") == 0
    assert calls(tried).per_step("SQS") == 1 + 3 + 1
    assert tried.in_flight == 3 * GUIDE.in_flight
    assert tried.conversation_seconds == 3 * GUIDE.conversation_seconds == 3 * 15 * 90
    beating = bill(GUIDE.but(heartbeat=30)).per_day["SQS"] - bill(GUIDE).per_day["SQS"]
    assert beating == pytest.approx(10.8 * 2 * 0.40)


def test_claim_checks_and_memory_have_a_price() -> None:
    assert bill(GUIDE.but(claim_checks=1)).per_day["S3"] == pytest.approx(10.8e3 * (0.005 + 0.0004))
    assert prices.memory_events(1_000) == pytest.approx(0.25)


def test_short_polling_costs_a_thousand_times_as_much() -> None:
    workers = 1_125
    assert idle_receives(workers, wait=0) / idle_receives(workers) == pytest.approx(1001)
    assert prices.sqs(idle_receives(workers)) == pytest.approx(1.94, abs=0.01)


@given(workloads)
def test_calls_are_counted_once_wherever_they_are_asked_for(w: Workload) -> None:
    found = calls(w)
    assert found.per_step() == pytest.approx(found.per_step(by="you") + found.per_step(by="AWS"))
    assert found.per_step() == pytest.approx(sum(found.per_step(s) for s in {line.service for line in found.lines}))
    assert found.per_day() == pytest.approx(found.per_conversation() * w.conversations_per_day)
    assert found.per_day() == pytest.approx(sum(row[-1] for row in found.rows()))


@given(workloads, st.floats(1.1, 10))
def test_the_bill_follows_steps_and_never_falls_with_retries(w: Workload, times: float) -> None:
    usd = bill(w).total
    assert bill(w.scaled(times)).total == pytest.approx(usd * times)
    assert bill(w.scaled(times)).per_conversation == pytest.approx(bill(w).per_conversation)
    assert bill(w.but(steps=w.steps * 2)).total == pytest.approx(usd * 2)
    assert bill(w.but(deliveries=w.deliveries + 1)).total > usd
    assert list(bill(w).per_day.values()) == sorted(bill(w).per_day.values(), reverse=True)


def test_nothing_costs_nothing() -> None:
    assert bill(Workload(conversations=0)).total == bill(Workload(conversations=0)).per_conversation == 0


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"steps": 0}, r"steps must be a whole number of at least 1; got 0"),
        ({"messages_per_call": 11}, r"messages_per_call must be from 1 to 10; got 11"),
        ({"deliveries": 0.5}, r"deliveries must be at least 1; got 0.5"),
        ({"conversations": -1}, r"conversations must be at least 0; got -1"),
        ({"step_seconds": 0}, r"step_seconds must be at least 0.001 s; got 0"),
    ],
)
def test_bad_input_is_named(wrong: dict[str, float], says: str) -> None:
    with pytest.raises(ModelError, match=says):
        Workload(**wrong)  # type: ignore[arg-type]


def test_an_unknown_model_and_a_fact_that_is_no_price_are_refused() -> None:
    with pytest.raises(ModelError, match="model must be one of haiku_4_5, sonnet_4_6; got 'opus'"):
        prices.tokens(1, 1, model="opus")
    with pytest.raises(ModelError, match="must be a price; it is 'no'"):
        prices.price("sfn.redrive.express")
