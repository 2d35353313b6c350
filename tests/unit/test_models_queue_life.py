"""A message's life. Golden values: the three classic cases with a 12-minute timeout, which expires at second 720 in
case B and in case C alike (erratum 60); the SQS API reference for everything else."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from labkit.facts import facts
from labkit.models._input import ModelError
from labkit.models.queue_life import Heartbeat, Life, Message, live

MINUTES_12 = 720


def outcomes(life: Life) -> list[str]:
    return [d.outcome for d in life.deliveries]


def test_case_a_clean() -> None:
    life = live(visibility=MINUTES_12, step=300)
    (only,) = life.deliveries
    assert (only.received_at, only.finished_at, only.visible_again_at, only.outcome) == (0, 300, None, "deleted")
    assert (life.ended, life.ended_at, life.executions, life.completions) == ("deleted", 300, 1, 1)


def test_case_b_worker_dies() -> None:
    life = live(visibility=MINUTES_12, step=300, crash={1: 120}, polling_delay=5)
    first, second = life.deliveries
    assert (first.crashed_at, first.finished_at, first.visible_again_at, first.outcome) == (120, None, 720, "crashed")
    assert (second.received_at, second.worker, second.outcome) == (725, 2, "deleted")
    assert (life.executions, life.completions) == (2, 1)
    assert not first.overran


def test_case_c_worker_is_slow_and_expires_when_case_b_does() -> None:
    life = live(visibility=MINUTES_12, step=[900, 600], polling_delay=1)
    first, second = life.deliveries
    assert (first.visible_again_at, first.finished_at, first.outcome) == (720, 900, "late delete")
    assert first.overran
    assert (second.received_at, second.finished_at, second.outcome) == (721, 1321, "deleted")
    assert (life.executions, life.completions, life.ended_at) == (2, 2, 1321)


def test_a_step_longer_than_the_timeout_is_never_deleted() -> None:
    life = live(visibility=MINUTES_12, step=900, max_receive_count=4)
    assert outcomes(life) == ["late delete"] * 3 + ["gone"]
    assert (life.ended, life.ended_at, life.completions) == ("dead-lettered", 2880, 4)
    assert [d.worker for d in life.deliveries] == [1, 2, 1, 2]  # who is free takes the next


def test_the_newest_handle_deletes_even_after_the_timeout() -> None:
    life = live(visibility=60, step=90, polling_delay=100)
    assert outcomes(life) == ["deleted"]
    assert life.deliveries[0].visible_again_at == 60
    assert life.deliveries[0].overran


def test_a_poison_message_without_a_redrive_policy_runs_until_retention() -> None:
    life = live(visibility=30, step=10, crash=5)
    assert (life.ended, life.ended_at) == ("expired", facts("sqs.retention.default"))
    assert life.executions == int(facts("sqs.retention.default")) // 30
    assert life.completions == 0


def test_retention_counts_from_the_send() -> None:
    life = live(visibility=MINUTES_12, step=300, retention=3600, waited=3500)
    assert (life.ended, life.ended_at, outcomes(life)) == ("expired", 100, ["gone"])
    with pytest.raises(ModelError, match="under the retention"):
        live(visibility=30, step=1, retention=3600, waited=3600)


def test_a_heartbeat_holds_the_message() -> None:
    life = live(visibility=60, step=900, heartbeat=Heartbeat(interval=20, extension=60))
    (only,) = life.deliveries
    assert (only.outcome, only.heartbeats, only.refused) == ("deleted", 44, 0)  # at 20, 40, … 880
    assert only.visible_again_at is None


def test_a_dead_worker_stops_its_heartbeat() -> None:
    life = live(visibility=60, step=900, heartbeat=Heartbeat(20, 60), crash={1: 130}, polling_delay=1)
    assert life.deliveries[0].visible_again_at == 120 + 60  # counted from its last call
    assert life.deliveries[1].received_at == 181


def test_a_heartbeat_slower_than_the_timeout_is_refused() -> None:
    life = live(visibility=60, step=100, heartbeat=Heartbeat(70, 60), max_receive_count=3)
    assert [d.refused for d in life.deliveries] == [1, 1, 1]
    assert life.executions == 3


def test_no_extension_reaches_past_12_hours_from_the_receive() -> None:
    most = int(facts("sqs.visibility.total_max"))
    life = live(visibility=most, step=most + 3600, heartbeat=Heartbeat(3600, 7200), max_receive_count=1)
    first = life.deliveries[0]
    # The beat at hour 10 takes it to hour 12; the one at hour 11 asks for hour 13, fails, and changes nothing.
    assert first.visible_again_at == most
    assert first.refused > 0
    assert first.outcome == "gone"


def test_the_next_receive_forgets_an_extension() -> None:
    message = Message(visibility=30, max_receive_count=None, expires_at=10_000)
    handle = message.receive(0)
    assert handle == 1
    assert message.extend(10, handle, 300)
    assert message.receive(309) is None
    assert message.receive(310) == 2
    assert message.hidden_until == 340


def test_an_old_handle_deletes_nothing_and_yet_extends() -> None:
    # Recorded on AWS: LocalStack, tests/aws/services/sqs, change_message_visibility with an older receipt handle.
    message = Message(visibility=30, max_receive_count=2, expires_at=10_000)
    assert message.receive(0) == 1
    assert message.receive(30) == 2
    assert message.extend(31, 1, 300)
    assert message.hidden_until == 331
    assert not message.delete(32, 1)
    assert message.delete(33, 2)
    assert message.receive(100) is None


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"visibility": 43_201}, "visibility must be from 0 to 43200"),
        ({"visibility": 30, "retention": 59}, "retention must be from 60"),
        ({"visibility": 30, "max_receive_count": 0}, "max_receive_count must be a whole number from 1"),
        ({"visibility": 30, "crash": {1: -3}}, "crash must be at least 0 s; got -3"),
        ({"visibility": 0}, "more than 100000 deliveries"),
        ({"visibility": 30, "step": []}, "step needs a time"),
    ],
)
def test_bad_input_is_named(bad: dict[str, object], says: str) -> None:
    with pytest.raises(ModelError, match=says):
        live(**{"step": 10, **bad})  # type: ignore[arg-type]


times = st.floats(0.5, 2000, allow_nan=False)
lives = st.fixed_dictionaries(
    {
        "visibility": times,
        "step": st.lists(times, min_size=1, max_size=4),
        "crash": st.dictionaries(st.integers(1, 6), times, max_size=4),
        "heartbeat": st.none() | st.builds(Heartbeat, times.filter(lambda t: t > 5), times),
        "max_receive_count": st.integers(1, 6),
        "polling_delay": st.sampled_from([0, 0.5, 30, 1000]),
        "retention": st.integers(600, 50_000),
    }
)


@given(lives)
def test_what_holds_for_every_life(given_: dict[str, object]) -> None:
    life = live(**given_)  # type: ignore[arg-type]
    assert 1 <= life.executions <= given_["max_receive_count"]  # type: ignore[operator]
    assert life.completions <= life.executions
    assert life.ended_at <= given_["retention"]  # type: ignore[operator]
    deleted = [d for d in life.deliveries if d.outcome == "deleted"]
    assert len(deleted) == (life.ended == "deleted")
    if deleted:  # never while a newer receive holds it
        assert deleted[0] == life.deliveries[-1]
        assert life.ended_at == deleted[0].finished_at
    for one, two in itertools.pairwise(life.deliveries):
        assert one.visible_again_at is not None
        assert one.visible_again_at <= two.received_at  # nobody gets a hidden message
        assert one.outcome in ("crashed", "late delete", "gone")
    for d in life.deliveries:
        assert (d.crashed_at is None) != (d.finished_at is None)
        assert (d.outcome == "crashed") == (d.crashed_at is not None)
    assert len({(d.worker, d.received_at) for d in life.deliveries}) == life.executions
    by_worker: dict[int, float] = {}
    for d in life.deliveries:  # a worker does one thing at a time
        assert by_worker.get(d.worker, 0) <= d.received_at
        by_worker[d.worker] = d.finished_at if d.finished_at is not None else float("inf")


@given(st.floats(1, 40_000), st.floats(5, 600), st.floats(1.05, 3))
def test_a_heartbeat_shorter_than_the_timeout_means_one_execution(step: float, interval: float, margin: float) -> None:
    visibility = interval * margin
    assume(step + visibility < int(facts("sqs.visibility.total_max")))
    life = live(visibility=visibility, step=step, heartbeat=Heartbeat(interval, visibility))
    assert (life.executions, life.ended, life.ended_at) == (1, "deleted", step)
