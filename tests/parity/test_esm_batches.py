"""How messages become batches, and how many run at once."""

from __future__ import annotations

import time
from collections import Counter, defaultdict

from .conftest import Aws
from .esm_kit import GUIDE, MODEL, RECORDED, Work, mapped, overlap, prepared
from .lambda_kit import until
from .rows import ours, row

BATCHING = f"{GUIDE}, Batching behavior"
SCALING = f"{GUIDE}, Configuring scaling behavior for SQS event source mappings"


@row(
    "lambda.esm.batch.size",
    "A batch has no more than BatchSize messages; without a window the function is invoked with what is there.",
    source=f"{BATCHING}; {MODEL}",
)
def test_a_batch_has_no_more_than_its_size(aws: Aws) -> None:
    work = prepared(aws)
    work.send(*map(str, range(8)))
    work.map(BatchSize=3)
    calls = work.messages(8)
    assert max(call.count for call in calls) == 3
    assert sorted(body for call in calls for body in call.bodies) == list("01234567")
    work.drained()


@row(
    "lambda.esm.batch.window",
    "MaximumBatchingWindowInSeconds gathers what comes within the window into one batch.",
    source=f"{BATCHING}; {RECORDED} test_sqs_event_source_mapping_batch_size",
)
def test_a_window_gathers_a_batch(aws: Aws) -> None:
    work = mapped(aws, BatchSize=100, MaximumBatchingWindowInSeconds=6)
    began = time.time()
    for number in range(15):
        work.send(str(number))
    (call,) = work.messages(15)
    assert call.began - began > 5.5
    assert call.count == 15
    work.drained()


@row(
    "lambda.esm.batch.window.full",
    "A batch that is full is invoked before its window ends.",
    source=BATCHING,
)
def test_a_full_batch_does_not_wait(aws: Aws) -> None:
    work = prepared(aws, visibility=120)
    work.send(*map(str, range(20)))
    began = time.time()
    work.map(BatchSize=20, MaximumBatchingWindowInSeconds=60)
    calls = work.messages(20, within=90)
    assert calls[0].began - began < 40
    work.drained()


@row(
    "lambda.esm.batch.large",
    "A standard queue gives batches of more than the ten messages of one receive: hundreds, up to 10,000.",
    source=f"{BATCHING}; {RECORDED} test_sqs_event_source_mapping_batch_size",
)
def test_a_large_batch(aws: Aws) -> None:
    work = prepared(aws)
    work.send(*map(str, range(300)))
    work.map(BatchSize=10_000, MaximumBatchingWindowInSeconds=2)
    calls = work.messages(300)
    assert sum(call.count for call in calls) == 300
    assert max(call.count for call in calls) > 10
    work.drained()


@row(
    "lambda.esm.batch.payload",
    "An event has at most 6 MB: a larger batch is invoked in several parts, and none of its messages is lost.",
    source=f"{MODEL}, CreateEventSourceMapping BatchSize",
)
def test_a_payload_has_six_megabytes(aws: Aws) -> None:
    work = prepared(aws, env={"BRIEF": "1"}, timeout=30, visibility=120)
    for number in range(8):
        work.aws.client("sqs").send_message(QueueUrl=work.url, MessageBody=f"{number}" + "x" * 1_000_000)
    work.map()
    calls = work.messages(8)
    assert sum(call.count for call in calls) == 8
    assert max(call.count for call in calls) <= 6
    assert {receives for call in calls for receives in call.receives} == {1}
    work.drained()


@row(
    "lambda.esm.parallel",
    "Batches of a standard queue run beside each other, five at first.",
    source=SCALING,
)
def test_five_batches_run_at_once(aws: Aws) -> None:
    work = prepared(aws, timeout=20)
    work.send(*[f"sleep 4 {number}" for number in range(5)])  # longer than it takes to start five processes
    work.map(BatchSize=1)
    calls = work.calls(5)
    assert overlap(calls) >= 3
    assert overlap(calls) <= 5


@row(
    "lambda.esm.concurrency",
    "MaximumConcurrency is kept: what exceeds it waits in the queue, visible and without a receive.",
    source=SCALING,
)
def test_maximum_concurrency(aws: Aws) -> None:
    work = prepared(aws, visibility=60)
    work.send(*[f"sleep 2 {number}" for number in range(6)])
    work.map(BatchSize=1, ScalingConfig={"MaximumConcurrency": 2})
    until(lambda: (depth := work.depth())[1] == 2 and depth[0] >= 2)
    calls = work.calls(6)
    assert overlap(calls) == 2
    assert {receives for call in calls for receives in call.receives} == {1}
    work.drained()


@ours("a stand-in that polls once a second would make every example of the course wait")
def test_a_message_to_an_idle_queue_is_delivered_at_once(aws: Aws) -> None:
    work = mapped(aws)
    work.send("warm")
    work.calls(1)
    waits = []
    for number in range(5):  # each is sent when the one before it has come: just after a poll, if there are polls
        before = time.time()
        work.send(str(number))
        waits.append(work.calls(number + 2)[-1].began - before)
    assert min(waits) < 0.5


@ours("AWS promises this by being many machines; here one process serves all mappings")
def test_a_slow_function_does_not_hold_up_another_mapping(aws: Aws) -> None:
    slow, quick = mapped(aws, name="slow", timeout=60, visibility=60), mapped(aws, name="quick")
    slow.send(*[f"sleep 15 {number}" for number in range(3)])
    until(lambda: slow.depth()[1] == 3)
    quick.send("now")
    quick.drained()
    assert slow.depth()[1] == 3


# -- FIFO ----------------------------------------------------------------------------------------------------------


def fifo(aws: Aws, **options: object) -> Work:
    return prepared(aws, fifo=True, **options)  # type: ignore[arg-type]


@row(
    "lambda.esm.fifo.order",
    "Messages of a group are delivered in order, and never two batches of a group at once.",
    source=f"{RECORDED} test_fifo_message_group_parallelism",
)
def test_a_group_is_delivered_in_order_one_batch_at_a_time(aws: Aws) -> None:
    work = fifo(aws)
    bodies = [f"sleep 0.1 {number}" for number in range(6)]
    work.send(*bodies, group="one")
    work.map(BatchSize=2)
    calls = work.messages(6)
    assert [body for call in calls for body in call.bodies] == bodies
    assert overlap(calls) == 1
    work.drained()


@row(
    "lambda.esm.fifo.groups",
    "Groups are delivered beside each other, each in its order.",
    source=f"{SCALING}; Amazon SQS Developer Guide, FIFO queue and Lambda concurrency behavior",
)
def test_groups_run_beside_each_other(aws: Aws) -> None:
    work = fifo(aws, timeout=20)
    for group in "abc":
        work.send(*[f"sleep 2 {group}{number}" for number in range(2)], group=group)
    work.map(BatchSize=1)
    calls = work.messages(6)
    assert overlap(calls) >= 2
    seen = defaultdict(list)
    for call in calls:
        seen[call.records[0]["attributes"]["MessageGroupId"]] += call.bodies
    assert seen == {group: [f"sleep 2 {group}{number}" for number in range(2)] for group in "abc"}


@row(
    "lambda.esm.fifo.blocked",
    "A batch that failed holds back its group until its visibility timeout ends, and no other group; then the group "
    "goes on in its order.",
    source=f"{SCALING}",
)
def test_a_failed_batch_holds_back_its_group_alone(aws: Aws) -> None:
    work = fifo(aws, visibility=7, timeout=5, max_receives=2)
    work.send("fail", "after", group="one")
    work.map(BatchSize=1)
    work.calls(1)
    work.send("other", group="two")
    calls = work.messages(4)
    assert [call.bodies for call in calls] == [["fail"], ["other"], ["fail"], ["after"]]
    assert calls[2].began - calls[0].began > 1.5
    assert [message["Body"] for message in work.dead_letters()] == ["fail"]


@row(
    "lambda.esm.fifo.batch",
    "A batch of a FIFO queue may have messages of several groups, each in its order.",
    source=SCALING,
)
def test_a_batch_of_several_groups(aws: Aws) -> None:
    work = fifo(aws)
    for number in range(2):
        for group in "ab":
            work.send(f"{group}{number}", group=group)
    work.map(BatchSize=10)
    calls = work.messages(4)
    order = [body for call in calls for body in call.bodies]
    assert Counter(order) == Counter(["a0", "a1", "b0", "b1"])
    assert order.index("a0") < order.index("a1")
    assert order.index("b0") < order.index("b1")
