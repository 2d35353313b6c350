"""Faults in front of a client: what botocore makes of them, and that nothing stays."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError

from labkit import Lab
from labkit.ops.faults import Cut, Failing, Fault, FaultError, Slow, Throttled, Unanswered, inject
from labkit.work.queues import Queue

OFFLINE = "http://127.0.0.1:9"  # nobody listens there: what reaches the network fails


def client(service: str, attempts: int = 1, **config: Any) -> Any:
    import boto3

    return boto3.client(
        service,
        region_name="us-east-1",
        endpoint_url=OFFLINE,
        aws_access_key_id="x",
        aws_secret_access_key="y",
        config=Config(retries={"mode": "standard", "total_max_attempts": attempts}, **config),
    )


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda seconds: None)


CALLS: list[tuple[str, str, dict[str, Any]]] = [
    ("sqs", "send_message", {"QueueUrl": f"{OFFLINE}/q", "MessageBody": "x"}),  # json
    ("events", "put_events", {"Entries": [{"Source": "s", "DetailType": "t", "Detail": "{}"}]}),
    ("stepfunctions", "send_task_success", {"taskToken": "t", "output": "{}"}),
    ("dynamodb", "get_item", {"TableName": "t", "Key": {"pk": {"S": "x"}}}),
    ("lambda", "invoke", {"FunctionName": "f"}),  # rest-json
    ("s3", "get_object", {"Bucket": "bucket", "Key": "k"}),  # rest-xml
    ("sns", "publish", {"TopicArn": "arn:aws:sns:us-east-1:000000000000:t", "Message": "m"}),  # query
    ("cloudwatch", "list_metrics", {}),  # smithy-rpc-v2-cbor
]


@pytest.mark.parametrize(("service", "method", "arguments"), CALLS, ids=[name for name, *_ in CALLS])
@pytest.mark.parametrize(
    ("fault", "status"), [(Throttled(), 400), (Throttled("TooManyRequestsException", 429), 429), (Failing(503), 503)]
)
def test_each_protocol_reads_the_error_as_the_services(
    service: str, method: str, arguments: dict[str, Any], fault: Any, status: int
) -> None:
    made = client(service)
    with inject(made, fault, method) as injected, pytest.raises(ClientError) as caught:
        getattr(made, method)(**arguments)
    said = caught.value.response
    assert said["Error"]["Code"] == fault.code
    assert said["Error"]["Message"] == fault.message
    assert said["ResponseMetadata"]["HTTPStatusCode"] == status
    assert (injected.made, injected.seen) == (1, 1)


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize(
    ("fault", "error"),
    [(Throttled(), ClientError), (Failing(), ClientError), (Cut(), EndpointConnectionError)],
)
def test_each_attempt_of_the_clients_own_retries_meets_it(fault: Fault, error: type[Exception]) -> None:
    made = client("sqs", attempts=3)
    with inject(made, fault, "SendMessage") as injected, pytest.raises(error):
        made.send_message(QueueUrl=f"{OFFLINE}/q", MessageBody="x")
    assert injected.made == injected.seen == 3


def test_a_fault_of_the_request_is_not_retried() -> None:
    made = client("sqs", attempts=3)
    refusal = Throttled("InvalidMessageContents", 400, "no")
    with inject(made, refusal) as injected, pytest.raises(ClientError):
        made.send_message(QueueUrl=f"{OFFLINE}/q", MessageBody="x")
    assert injected.made == 1


def handlers(made: Any) -> list[Any]:
    """Whoever is asked before an attempt is sent."""
    found = made.meta.events._emitter._handlers
    return list(found.prefix_search("before-send.sqs.SendMessage"))


def test_the_client_is_left_as_it_was_also_after_an_error() -> None:
    made = client("sqs")
    before = handlers(made)

    def block() -> None:
        with inject(made, Cut(), "SendMessage"), inject(made, Slow(1), "send_message"):
            assert len(handlers(made)) == len(before) + 2
            raise KeyError("what a block raises")

    with pytest.raises(KeyError):
        block()
    assert handlers(made) == before
    with pytest.raises(EndpointConnectionError) as real:
        made.send_message(QueueUrl=f"{OFFLINE}/q", MessageBody="x")
    assert "labkit" not in str(real.value)


def test_only_the_operation_and_only_the_client() -> None:
    made, other = client("sqs"), client("sqs")
    with inject(made, Throttled(), "SendMessage") as injected:
        for asked, call in ((made, "list_queues"), (other, "list_queues")):
            with pytest.raises(EndpointConnectionError):
                getattr(asked, call)()
    assert injected.seen == 0
    with inject(made, Throttled()) as everything, pytest.raises(ClientError):
        made.list_queues()
    assert everything.made == 1


def attempts(made: Any, count: int) -> str:
    """What ``count`` calls met: t for the fault, . for what came through (to nobody)."""
    met = ""
    for _ in range(count):
        with pytest.raises((ClientError, EndpointConnectionError)) as caught:
            made.list_queues()
        met += "t" if isinstance(caught.value, ClientError) else "."
    return met


def test_every_times_and_chance() -> None:
    made = client("sqs")
    with inject(made, Throttled(), "ListQueues", every=3) as injected:
        assert attempts(made, 7) == "..t..t."
    assert (injected.made, injected.seen) == (2, 7)
    with inject(made, Throttled(), "ListQueues", every=2, times=1):
        assert attempts(made, 6) == ".t...."
    with inject(made, Throttled(), "ListQueues", chance=0.5, seed=1):
        first = attempts(made, 12)
    with inject(made, Throttled(), "ListQueues", chance=0.5, seed=1):
        assert attempts(made, 12) == first
    assert 0 < first.count("t") < 12
    with inject(made, Throttled(), chance=0.0):
        assert attempts(made, 3) == "..."


def test_of_nested_faults_the_outer_one_answers() -> None:
    made = client("sqs")
    with inject(made, Throttled()) as outer, inject(made, Unanswered()) as inner, pytest.raises(ClientError):
        made.list_queues()
    assert (outer.made, inner.seen) == (1, 0)
    with inject(made, Slow(0.001)) as slow, inject(made, Throttled()) as after, pytest.raises(ClientError):
        made.list_queues()
    assert (slow.made, after.made) == (1, 1)


def test_the_end_of_the_block_ends_a_wait() -> None:
    made = client("sqs")
    ended = threading.Event()

    def call() -> None:
        with pytest.raises(EndpointConnectionError):
            made.list_queues()
        ended.set()

    caller = threading.Thread(target=call)
    with inject(made, Slow(500)) as slow:
        caller.start()
        while not slow.made:
            pass
        assert not ended.is_set()
    assert ended.wait(60)
    caller.join(60)


def test_threads_share_the_count() -> None:
    made = client("sqs", max_pool_connections=8)
    with inject(made, Throttled(), every=2) as injected:
        threads = [threading.Thread(target=attempts, args=(made, 25)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert (injected.seen, injected.made) == (100, 50)


def test_what_cannot_be_is_refused_in_one_sentence() -> None:
    made = client("sqs")
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: inject(made, "down"), "fault must be one of"),  # type: ignore[arg-type]
        (lambda: inject(made, Throttled(), "SendMesage"), "sqs has no operation 'SendMesage'"),
        (lambda: inject(made, Throttled(), every=0), "every"),
        (lambda: inject(made, Throttled(), chance=1.5), "chance"),
        (lambda: inject(made, Throttled(), times=-1), "times"),
        (lambda: Slow(-1), "seconds"),
        (lambda: Failing(404), "500 to 599"),
        (lambda: Throttled(status=200), "400 to 599"),  # to a client that is a success
        (lambda: Throttled(code=None), "both of them texts"),  # type: ignore[arg-type]
        (lambda: inject(None, Throttled()), "a client of boto3; got None"),
        (lambda: inject(made, Throttled(), ["SendMessage"]), "no operation"),  # type: ignore[arg-type]
        (lambda: inject(made, Throttled(), seed=[1]), "seed"),  # type: ignore[arg-type]
    ]
    for wrong, says in refused:
        with pytest.raises(FaultError, match=says):
            wrong()
    once = inject(made, Throttled())
    with once, pytest.raises(FaultError, match="once"), once:
        pass
    assert attempts(made, 1) == "."


def test_before_and_after_the_service_has_heard(lab: Lab) -> None:
    """Cut: nothing has happened. Unanswered: it has, and a client that tries again does it twice."""
    queue = Queue.create(lab, "work")
    attempts_of_lab = 2  # labkit.targets: one retry
    with inject(queue.client, Cut(), "SendMessage") as cut, pytest.raises(EndpointConnectionError):
        queue.send("never")
    assert (cut.made, queue.depth().visible) == (attempts_of_lab, 0)
    with inject(queue.client, Unanswered(), "SendMessage") as lost, pytest.raises(ReadTimeoutError):
        queue.send("heard")
    assert (lost.made, queue.depth().visible) == (attempts_of_lab, attempts_of_lab)
    with inject(queue.client, Unanswered(), "SendMessage", times=1):
        queue.send("and again")  # the client's own retry: the caller never learns that there are two
    assert queue.depth().visible == 2 * attempts_of_lab


@pytest.mark.parametrize(("service", "method", "arguments"), CALLS, ids=[name for name, *_ in CALLS])
def test_a_message_with_signs_of_its_own_comes_through(service: str, method: str, arguments: dict[str, Any]) -> None:
    made = client(service)
    message = "a < b & \u201cc\u201d"
    with inject(made, Throttled(message=message), method), pytest.raises(ClientError) as caught:
        getattr(made, method)(**arguments)
    assert caught.value.response["Error"]["Message"] == message


def test_an_interrupt_while_it_is_switched_on_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made = client("sqs")
    before, register = handlers(made), made.meta.events.register

    def interrupted(event: str, handler: Any) -> None:
        register(event, handler)
        raise KeyboardInterrupt

    monkeypatch.setattr(made.meta.events, "register", interrupted)
    with pytest.raises(KeyboardInterrupt), inject(made, Cut(), "SendMessage"):
        pass
    assert handlers(made) == before
