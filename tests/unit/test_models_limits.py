"""Walls. Golden values: the worked example (F182 to F192) against AWS's default quotas; erratum 6 for the window."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.facts import facts
from labkit.models._input import ModelError
from labkit.models.limits import Room, Wall, first, walls
from labkit.models.windows import Window
from labkit.models.workload import Workload

GUIDE = Workload()


def by_name(workload: Workload = GUIDE, **room: object) -> dict[str, Wall]:
    return {wall.name: wall for wall in walls(workload, Room(**room))}  # type: ignore[arg-type]


def test_the_guide_counts_callbacks_and_meets_its_pods_first() -> None:
    """Errata 35 and 45: 600 slots for 11,250 steps, long before any quota of AWS."""
    found = by_name()
    assert first(GUIDE).name == "pods x slots"
    assert (found["pods x slots"].usage, found["pods x slots"].limit) == (11_250, facts("guide.keda.capacity"))
    assert found["pods x slots"].room == pytest.approx(600 / 11_250)
    assert found["SendTaskSuccess"].room == 4
    assert found["messages in flight"].percent == pytest.approx(9.375)
    assert found["open executions"].usage == pytest.approx(11_250)
    assert found["PutEvents requests"].usage == pytest.approx(12.5)


def test_on_lambda_the_account_is_full_at_a_tenth() -> None:
    found = by_name(workers="lambda")
    assert first(GUIDE, Room(workers="lambda")).name == "Lambda concurrency"
    assert found["Lambda concurrency"].room == pytest.approx(1_000 / 11_250)
    assert found["concurrency of one mapping"].limit == facts("lambda.esm.standard.cap")
    assert found["Lambda timeout"].room is None
    assert by_name(workers="lambda", slow=1_000)["Lambda timeout"].percent > 100


def test_in_sessions_each_open_conversation_is_one() -> None:
    assert by_name(workers="sessions")["active sessions"].percent == pytest.approx(225)
    assert by_name(workers="sessions", region="eu-west-1")["active sessions"].limit == 2_500  # erratum 47


def test_heartbeats_are_nearer_to_their_bucket_than_answers() -> None:
    found = by_name(GUIDE.but(heartbeat=10))
    assert found["SendTaskHeartbeat"].usage == 8 * 125
    assert found["SendTaskHeartbeat"].percent == 200
    assert found["SendTaskSuccess"].percent == 25


def test_what_is_per_queue_is_shared_out_and_what_is_per_account_is_not() -> None:
    half = by_name(busiest=0.5)
    assert half["messages in flight"].usage == 5_625
    assert half["messages in flight"].per == "queue"
    assert half["SendTaskSuccess"].usage == by_name()["SendTaskSuccess"].usage == 125
    assert half["SendTaskSuccess"].per == "account and Region"


def test_other_regions_have_nearer_walls() -> None:
    far, near = by_name(), by_name(region="ap-southeast-3")
    names = ("PutEvents requests", "deliveries of the bus", "SendTaskSuccess", "StartExecution", "state transitions")
    for name in names:
        assert near[name].percent > far[name].percent, name
    assert near["SendTaskSuccess"].limit == facts("sfn.callback.other.refill")


def test_an_express_chain_is_judged_by_its_length_and_takes_no_tokens() -> None:
    chain = GUIDE.but(steps=12, step_seconds=30, callbacks=0)
    wall = by_name(chain, express=True)["Express duration"]
    assert (wall.usage, wall.limit, wall.room, wall.per) == (360, 300, None, "execution")
    assert by_name(chain, express=True, slow=60)["Express duration"].usage == 720
    assert by_name(chain.scaled(100), express=True)["Express duration"].usage == 360
    assert "open executions" not in by_name(chain, express=True)
    with pytest.raises(ModelError, match="callbacks must be 0 in an Express workflow"):
        walls(GUIDE, Room(express=True))


def test_a_map_run_for_each_conversation() -> None:
    assert by_name(map_seconds=300)["open Map Runs"].usage == pytest.approx(2_500)
    assert by_name(map_seconds=300)["open Map Runs"].adjustable is False
    assert by_name(map_seconds=120)["open Map Runs"].percent == pytest.approx(100)


def test_memory_gate_model_and_v2() -> None:
    busy = GUIDE.but(memory_tokens=2_000)
    found = by_name(busy, gate=2, model_tokens=1e7, v2_buses=4, filter_changes=30)
    assert found["memory extraction"].usage == 1_000_000
    assert found["memory extraction"].percent == pytest.approx(100 * 1_000_000 / 150_000)
    assert (found["the gate's one item"].usage, found["the gate's one item"].limit) == (250, 1_000)
    assert found["model tokens"].usage == 7_500 * 2_500
    assert found["V2 buses"].percent == 80
    assert found["filter changes a day"].percent == 125


def test_retries_and_transitions_bring_walls_nearer() -> None:
    tried, more = by_name(GUIDE.but(deliveries=2), gate=2), by_name(GUIDE.but(transitions=4))
    assert tried["the gate's one item"].usage == 500
    assert tried["open executions"].usage == 2 * 11_250
    assert more["history of one execution"].usage == 15 * 4 * 6 + 2
    assert more["state transitions"].usage == 500


def test_a_record_of_a_day_is_a_quarter_of_what_is_needed() -> None:
    """Erratum 6: 86,400 s for a window of 349,200 s."""
    guide = Window(event_age=3_600)
    wall = by_name(record=float(facts("guide.idempotency.window")), window=guide)["idempotency window"]
    assert wall.usage == facts("idempotency.window.needed") == 349_200
    assert wall.percent == pytest.approx(404.17, abs=0.01)
    assert by_name(record=7 * 86_400.0)["idempotency window"].percent < 100


def test_every_wall_says_whose_it_is_and_where_it_stands() -> None:
    found = walls(GUIDE.but(heartbeat=30, memory_tokens=10),
                  Room(workers="lambda", gate=2, map_seconds=9, record=1e6, v2_buses=1, filter_changes=1))  # fmt: skip
    assert len(found) >= 15
    for wall in found:
        assert wall.source
        assert wall.unit
        assert wall.per
        if wall.source[0] in "FN":
            assert wall.source.split(":")[0][1:4].isdigit()


@given(st.floats(0.01, 100), st.floats(1.01, 20))
def test_growth_is_proportional_and_the_order_is_by_share(conversations: float, times: float) -> None:
    small = GUIDE.but(conversations=conversations, heartbeat=30.0)
    before, after = by_name(small, gate=2), by_name(small.scaled(times), gate=2)
    for name, wall in before.items():
        grown = wall.usage * times if wall.grows else wall.usage
        assert after[name].usage == pytest.approx(grown), name
        if wall.room is not None:
            assert by_name(small.scaled(wall.room), gate=2)[name].percent == pytest.approx(100)
    shares = [wall.percent for wall in walls(small)]
    assert shares == sorted(shares, reverse=True)


def test_nothing_under_way_meets_no_wall() -> None:
    idle = Wall("idle", 0, 10, "calls", "queue", True, "test")
    assert idle.room == math.inf
    assert all(not wall.grows for wall in walls(Workload(conversations=0)))


def test_bad_input_is_named() -> None:
    with pytest.raises(ModelError, match="busiest must be from 0 to 1; got 2"):
        Room(busiest=2)
    with pytest.raises(ModelError, match="pods must be a whole number of at least 1; got 0"):
        Room(pods=0)
    with pytest.raises(ModelError, match="workers must be one of pods, lambda, sessions; got 'fargate'"):
        Room(workers="fargate")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="conversations must be more than 0 to meet a wall; got 0"):
        first(Workload(conversations=0))
