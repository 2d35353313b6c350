"""Opening and closing a lab: isolation, leftovers of an interrupted run, nothing left behind."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import psutil
import pytest

from labkit import Lab, LabError, servers, sweep, targets
from labkit import lab as lab_module
from labkit.embedded import SERVER
from labkit.sweep import Scope
from labkit.targets import account_for
from tests.ports import out_of_the_way


@pytest.fixture
def learner(monkeypatch: pytest.MonkeyPatch) -> str:
    name = uuid.uuid4().hex
    monkeypatch.setenv("LABKIT_LEARNER", name)
    return name


def test_the_account_is_the_same_each_time_and_anothers_is_another() -> None:
    accounts = {account_for(learner, "03-queues") for learner in map(str, range(300))}
    assert len(accounts) == 300
    assert all(len(account) == 12 and account.isdigit() and account[0] != "0" for account in accounts)
    assert account_for("learner", "03-queues") == account_for("learner", "03-queues")


def test_two_labs_do_not_see_each_other(learner: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Lab.open("one") as one, Lab.open("two") as two:
        one.client("sqs").create_queue(QueueName="work")
        assert "QueueUrls" not in two.client("sqs").list_queues() or not two.client("sqs").list_queues()["QueueUrls"]
        assert one.arn("sqs", "work") != two.arn("sqs", "work")
    assert capsys.readouterr().out.startswith("Lab one on ")


def test_closing_removes_everything_and_says_so(learner: str, capsys: pytest.CaptureFixture[str]) -> None:
    lab = Lab.open("close")
    queue = lab.client("sqs").create_queue(QueueName="work")["QueueUrl"]
    lab.client("sqs").send_message(QueueUrl=queue, MessageBody="x")
    events = lab.client("events")
    events.create_event_bus(Name="fleet")
    for bus in ("fleet", "default"):
        events.put_rule(Name="rule", EventBusName=bus, EventPattern='{"source": ["a"]}')
        target = {"Id": "work", "Arn": lab.arn("sqs", "work")}
        events.put_targets(Rule="rule", EventBusName=bus, Targets=[target])
    events.create_archive(ArchiveName="all", EventSourceArn=lab.arn("events", "event-bus/fleet"))
    bucket = lab.bucket_name("claims")
    lab.client("s3").create_bucket(Bucket=bucket)
    for index in range(3):
        lab.client("s3").put_object(Bucket=bucket, Key=f"{index}", Body=b"x")
    lab.client("dynamodb").create_table(
        TableName="steps",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    lab.client("cloudwatch").put_metric_alarm(
        AlarmName="deep",
        Namespace="AWS/SQS",
        MetricName="ApproximateNumberOfMessagesVisible",
        Statistic="Maximum",
        Period=60,
        EvaluationPeriods=1,
        Threshold=1,
        ComparisonOperator="GreaterThanThreshold",
    )
    lab.close()
    said = capsys.readouterr().out.splitlines()[-1]
    assert said == (
        "Lab close closed: removed 1 alarm, 1 archive, 1 bucket, 1 event bus, 1 queue, 2 rules, 1 table; "
        "0 resources, 0 threads left behind."
    )
    lab.close()  # harmless
    with pytest.raises(LabError, match="is closed"):
        lab.client("sqs")


def test_a_configuration_with_all_that_is_in_it_goes(learner: str, capsys: pytest.CaptureFixture[str]) -> None:
    lab = Lab.open("configured")
    appconfig = lab.client("appconfig")
    application = appconfig.create_application(Name="fleet")["Id"]
    appconfig.create_environment(ApplicationId=application, Name="course")
    profile = appconfig.create_configuration_profile(ApplicationId=application, Name="agents", LocationUri="hosted")
    appconfig.create_hosted_configuration_version(
        ApplicationId=application, ConfigurationProfileId=profile["Id"], Content=b"{}", ContentType="application/json"
    )
    appconfig.create_deployment_strategy(
        Name="at-once", DeploymentDurationInMinutes=0, GrowthFactor=100, ReplicateTo="NONE"
    )
    lab.close()
    assert "removed 1 configuration application, 1 deployment strategy; 0 resources" in capsys.readouterr().out


def test_opening_again_removes_what_an_interrupted_run_left(learner: str) -> None:
    script = (
        "import os; from labkit import Lab; lab = Lab.open('cut-off'); "
        "lab.client('sqs').create_queue(QueueName='left'); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, stdout=subprocess.DEVNULL).returncode == 9
    with Lab.open("cut-off") as lab:
        assert not lab.client("sqs").list_queues().get("QueueUrls")


def test_opening_twice_in_one_process_closes_the_first(learner: str) -> None:
    first = Lab.open("again")
    first.client("sqs").create_queue(QueueName="work")
    with Lab.open("again") as second:
        assert not second.client("sqs").list_queues().get("QueueUrls")
        with pytest.raises(LabError, match="is closed"):
            first.client("sqs")


def test_a_lab_that_is_open_in_another_process_is_refused(learner: str) -> None:
    script = "from labkit import Lab; Lab.open('shared')"
    with Lab.open("shared"):
        other = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert "is open in another kernel" in other.stderr


def test_a_lab_whose_stand_in_has_ended_can_be_opened_again(
    learner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    try:
        first = Lab.open("again")
        first.client("sqs").create_queue(QueueName="work")
        SERVER.stop()
        second = Lab.open("again")
        assert not second.client("sqs").list_queues().get("QueueUrls")
        SERVER.stop()
        second.close()
        assert "removed nothing, because what it ran on has ended" in capsys.readouterr().out
    finally:
        SERVER.stop()


def test_a_stand_in_that_is_busy_has_not_ended(
    learner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    try:
        lab = Lab.open("busy")
        lab.client("sqs").create_queue(QueueName="work")
        process = psutil.Process(SERVER.ensure().pid)
        process.suspend()
        threading.Timer(5, process.resume).start()
        lab.close()
        assert "removed 1 queue" in capsys.readouterr().out
    finally:
        SERVER.stop()


@pytest.mark.parametrize("what", ["killed", "record gone"])
def test_a_process_is_asked_and_not_its_record(
    learner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    try:
        lab = Lab.open("asked")
        lab.client("sqs").create_queue(QueueName="work")
        process = psutil.Process(SERVER.ensure().pid)
        if what == "killed":  # while it hangs, and is waited for
            process.suspend()
            threading.Timer(3, process.kill).start()
        else:
            (tmp_path / "embedded.json").unlink()
        lab.close()
        said = "removed nothing, because what it ran on has ended" if what == "killed" else "removed 1 queue"
        assert said in capsys.readouterr().out
    finally:
        SERVER.stop()


def test_a_lab_whose_stand_in_hangs_says_so(learner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    try:
        lab = Lab.open("hanging")
        lab.client("sqs").create_queue(QueueName="work")
        psutil.Process(SERVER.ensure().pid).suspend()
        monkeypatch.setattr(servers, "PATIENCE", 3.0)  # not before: one that is only slow must not be ended
        with pytest.raises(LabError, match="does not answer; what was made there is still there"):
            lab.close()
    finally:
        SERVER.stop()


def test_whatever_answers_at_a_former_address_is_left_alone(
    learner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Home A's stand-in ends, home B's takes its port, and the lab in A is closed: B's resources must stay."""
    port = out_of_the_way()
    try:
        monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "a"))
        SERVER.ensure(port)
        old = Lab.open("same")
        assert old.target.endpoint == f"http://127.0.0.1:{port}"
        SERVER.stop()
        monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "b"))
        sqs = targets.Target("embedded", SERVER.ensure(port).endpoint, "us-east-1", "").client("sqs", old.account)
        sqs.create_queue(QueueName="others")
        monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "a"))
        old.close()
        assert len(sqs.list_queues()["QueueUrls"]) == 1
    finally:
        for home in ("a", "b"):
            monkeypatch.setenv("LABKIT_HOME", str(tmp_path / home))
            SERVER.stop()


def test_a_thread_that_asks_for_a_client_is_not_held_up_by_the_close(learner: str) -> None:
    lab = Lab.open("test")
    asked = threading.Event()

    def asks() -> None:
        with contextlib.suppress(LabError):  # it is closed
            while True:
                lab.client("sqs")
                asked.set()

    def ends() -> None:
        thread.join(30)
        assert not thread.is_alive()

    thread = threading.Thread(target=asks, daemon=True)
    lab.on_close("the thread", ends)
    thread.start()
    assert asked.wait(30)
    lab.close()


def test_a_fork_does_not_close_its_parents_lab(learner: str) -> None:
    script = (
        "import os; from labkit import Lab; lab = Lab.open('forked'); sqs = lab.client('sqs');"
        "sqs.create_queue(QueueName='work'); child = os.fork();"
        "child or (lab.close(), os._exit(0)); os.waitpid(child, 0);"
        "print(len(sqs.list_queues()['QueueUrls'])); lab.close()"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[1:] == [
        "1",
        "Lab forked closed: removed 1 queue; 0 resources, 0 threads left behind.",
    ]


@pytest.mark.parametrize("name", [None, "", "Upper", "with space", "a" * 33, "../up", "-a", "a-"])
def test_a_bad_name_is_a_sentence(name: str) -> None:
    with pytest.raises(LabError, match="a lab is named with"):
        Lab.open(name)


def test_a_thread_that_is_left_behind_is_named(learner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_module, "_PATIENCE", 0.2)
    end = threading.Event()
    lab = Lab.open("threads")
    thread = threading.Thread(target=end.wait, name="labkit-left", daemon=True)
    thread.start()
    try:
        with pytest.raises(LabError, match="thread labkit-left"):
            lab.close()
    finally:
        end.set()
        thread.join()


def test_a_thread_that_takes_a_while_to_end_is_waited_for(learner: str) -> None:
    lab = Lab.open("slow-threads")
    slow = threading.Thread(target=time.sleep, args=[3.0], name="labkit-slow", daemon=True)  # as on a stalled machine
    slow.start()
    lab.close()
    assert not slow.is_alive()


def test_what_was_registered_ends_last_one_first_and_a_failing_one_does_not_keep_the_others(learner: str) -> None:
    order: list[str] = []

    def fails() -> None:
        raise OSError("cannot")

    lab = Lab.open("actions")
    lab.on_close("first", lambda: order.append("first"))
    lab.on_close("second", fails)
    lab.on_close("third", lambda: order.append("third"))
    with pytest.raises(LabError, match="second: cannot"):
        lab.close()
    assert order == ["third", "first"]


class SharedAccount:
    """The tags and deletes of an account that others use: what a sweep may and may not touch there."""

    def __init__(self, queues: dict[str, dict[str, str]]) -> None:
        self.queues = queues

    def can_paginate(self, operation: str) -> bool:
        return False

    def list_queues(self, QueueNamePrefix: str = "") -> dict[str, list[str]]:
        return {"QueueUrls": [f"https://sqs/1/{name}" for name in self.queues if name.startswith(QueueNamePrefix)]}

    def get_queue_url(self, QueueName: str) -> dict[str, str]:
        return {"QueueUrl": f"https://sqs/1/{QueueName}"}

    def list_queue_tags(self, QueueUrl: str) -> dict[str, dict[str, str]]:
        return {"Tags": self.queues[QueueUrl.rsplit("/", 1)[1]]}

    def delete_queue(self, QueueUrl: str) -> None:
        del self.queues[QueueUrl.rsplit("/", 1)[1]]


def test_in_a_shared_account_only_what_has_name_and_tag_is_deleted() -> None:
    account = SharedAccount(
        {
            "lab-me-03-work": {"lab": "03"},
            "lab-me-03-lookalike": {},
            "lab-me-03-other": {"lab": "04"},
            "prod": {"lab": "03"},
        }
    )
    assert sweep.delete("sqs", account, Scope("lab-me-03-", ("lab", "03"))) == {"queue": 1}
    assert set(account.queues) == {"lab-me-03-lookalike", "lab-me-03-other", "prod"}


def test_the_lab_on_aws_marks_every_name(monkeypatch: pytest.MonkeyPatch, learner: str) -> None:
    there = targets.Target("aws", None, "eu-west-1", "a test", account="123456789012")
    lab = Lab("03-queues", there, "123456789012", Scope(f"lab-{learner}-03-queues-", ("lab", "03-queues")))
    assert lab.resource_name("work") == f"lab-{learner}-03-queues-work"
    assert lab.bucket_name("claims").startswith("lab-")
    assert len(lab.bucket_name("claims")) <= 63
    assert lab.tags == {"lab": "03-queues"}
    assert os.environ.get("LABKIT_TARGET", "embedded") == "embedded"
