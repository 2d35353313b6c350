"""infra/prometheus: promtool takes the rules, each alarm's tests can fail, and all of it is of what labkit exports."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastjsonschema
import psutil
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from infra.prometheus import watch, worker
from labkit import Lab
from labkit.control.envelope import Envelope
from labkit.loopback import DIRECT, HOST
from labkit.models.retry import Fixed
from labkit.ops.readings import WINDOW
from labkit.ops.scrape import MetricsError, MetricsPort
from labkit.ops.steps import StepMetrics
from labkit.ops.watch import FleetWatch
from labkit.state.idempotency import IdempotencyStore
from labkit.work.processes import Processes
from labkit.work.queues import Queue
from labkit.work.worker import Task, Worker
from tests.infra.grafana_schema import DASHBOARD
from tests.infra.test_keda import ENVIRONMENT

FOLDER = Path(__file__).resolve().parents[2] / "infra" / "prometheus"
RULES = yaml.safe_load((FOLDER / "rules.yaml").read_text(encoding="utf-8"))
[GROUP] = RULES["groups"]  # one: see the file
RECORDS, ALARMS = ([rule for rule in GROUP["rules"] if kind in rule] for kind in ("record", "alert"))
BOARD = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [rule["expr"] for rule in RECORDS + ALARMS] + [
    query["expr"] for panel in PANELS for query in panel["targets"]
]
TESTS = sorted((FOLDER / "tests").glob("[!g]*.yaml"))


def promtool(*arguments: str | Path, where: Path = FOLDER) -> subprocess.CompletedProcess[str]:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip(
            "NOT RUN: the alarms are untested, there is no promtool here (Debian, Ubuntu: apt install prometheus)"
        )
    return subprocess.run([tool, *map(str, arguments)], cwd=where, check=False, capture_output=True, text=True)


def ok(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr


# -- what promtool says ------------------------------------------------------------------------------------------------


def test_prometheus_takes_the_scrape_config_and_the_rules() -> None:
    ok(promtool("check", "config", "prometheus.yaml"))
    ok(promtool("check", "rules", "--lint=all", "--lint-fatal", "rules.yaml", "tests/guide_canary.yaml"))


def test_each_alarm_rings_when_it_should_and_only_then() -> None:
    ok(promtool("test", "rules", *TESTS))


def test_every_alarm_has_a_test_in_which_it_rings_and_one_in_which_it_is_silent() -> None:
    rings: set[str] = set()
    silent: set[str] = set()
    for path in TESTS:
        for test in yaml.safe_load(path.read_text(encoding="utf-8"))["tests"]:
            for case in test.get("alert_rule_test", []):
                (rings if case["exp_alerts"] else silent).add(case["alertname"])
    names = {alarm["alert"] for alarm in ALARMS}
    assert rings == silent == names | {"GuideCanary"}


@pytest.mark.parametrize("expr", ["vector(1) > 0", "vector(1) < 0"], ids=["always", "never"])
@pytest.mark.parametrize("name", [alarm["alert"] for alarm in ALARMS])
def test_the_test_of_an_alarm_fails_where_the_alarm_is_broken(name: str, expr: str, tmp_path: Path) -> None:
    broken = changed(name, lambda _: expr)
    of = [path for path in TESTS if f"alertname: {name}\n" in path.read_text(encoding="utf-8")]
    assert promtool("test", "rules", *copied(broken, tmp_path, of), where=tmp_path).returncode == 1


# Each part of the canary that mends the guide's, or keeps ours from ringing too early, left out.
PARTS = {
    "the unless": ("unless on (agent_class)", "and on (agent_class) 0 *"),
    "its class": ("unless on (agent_class) sum by (agent_class)", "unless on () sum"),
    "the window of the depth": ("min_over_time(queue:sqs_messages:max[15m]) > 0", "queue:sqs_messages:max > 0"),
    "that it was watched for long enough": (">= 12", ">= 0"),
    "a window longer than a step": ("agent_step_duration_seconds_count[15m]", "agent_step_duration_seconds_count[9m]"),
    "the counter resets": ("increase(", "delta("),
}


@pytest.mark.parametrize("part", PARTS)
def test_no_part_of_the_canary_is_there_for_nothing(part: str, tmp_path: Path) -> None:
    old, new = PARTS[part]

    def without(expr: str) -> str:
        assert old in expr
        return expr.replace(old, new)

    broken = changed("AgentStalled", without)
    paths = copied(broken, tmp_path, [FOLDER / "tests" / "stalled.yaml"])
    assert promtool("test", "rules", *paths, where=tmp_path).returncode == 1


def test_what_is_at_work_counts_as_there(tmp_path: Path) -> None:
    broken = changed("queue:sqs_messages:max", lambda expr: expr.replace(" + sqs_queue_in_flight", ""))
    paths = copied(broken, tmp_path, [FOLDER / "tests" / "stalled.yaml"])
    assert promtool("test", "rules", *paths, where=tmp_path).returncode == 1


def changed(name: str, change: Callable[[str], str]) -> Any:
    """The rules with one expression changed, on one line."""
    copied = json.loads(json.dumps(RULES))
    [rule] = [each for each in copied["groups"][0]["rules"] if name in (each.get("alert"), each.get("record"))]
    before = " ".join(rule["expr"].split())
    rule["expr"] = change(before)
    assert rule["expr"] != before
    return copied


def copied(rules: Any, where: Path, tests: list[Path]) -> list[Path]:
    """``rules`` and these tests of them, laid out as in the folder."""
    (where / "rules.yaml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    shutil.copytree(FOLDER / "tests", where / "tests")
    return [where / "tests" / path.name for path in tests]


def test_every_expression_of_the_dashboard_parses(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{panel['id']}:{query['refId']}", "expr": query["expr"]}
        for panel in PANELS
        for query in panel["targets"]
    ]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    ok(promtool("check", "rules", "panels.yaml", where=tmp_path))
    rules[0]["expr"] += ")"
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert promtool("check", "rules", "panels.yaml", where=tmp_path).returncode == 1


# -- what labkit exports -----------------------------------------------------------------------------------------------

WORDS = {"and", "or", "unless", "on", "ignoring", "by", "without", "group_left", "group_right", "bool", "offset"}


def names_in(expression: str) -> set[str]:
    """The metrics that an expression asks for."""
    text = re.sub(r'"[^"]*"', "", expression)
    text = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", text)
    text = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", text)
    found = re.findall(r"(?<![\w.])([a-zA-Z_:][\w:]*)\b(?!\s*\()", text)
    return set(found) - WORDS


def test_names_are_found_in_expressions() -> None:
    joined = 'sum by (le, x) (rate(a_bucket{m="n_o"}[5m])) / on (x) b:c:d unless count_over_time(e[15m:1m]) > 0.1'
    assert names_in(joined) == {"a_bucket", "b:c:d", "e"}
    assert names_in("time() - max by (w) (t_seconds) > 300 or absent(t_seconds)") == {"t_seconds"}


@pytest.fixture
def queue(lab: Lab) -> Queue:
    return Queue.create(lab, "agent-researcher", visibility=30, dlq=True, max_receives=2)


@pytest.fixture
def scraped(lab: Lab, queue: Queue) -> Iterator[tuple[MetricsPort, MetricsPort, FleetWatch, Worker]]:
    """Both ports of a small fleet: the worker's, and the watch's."""
    made = Worker(queue, step, threads=2, visibility=30, wait=0, grace=5, retry=Fixed(0))
    steps = StepMetrics(made, "researcher")
    with (
        FleetWatch({"researcher": queue}, clients=lab, rules=[("fleet", "on-request")]) as watched,
        MetricsPort(steps.registry) as one,
        MetricsPort(watched.registry) as other,
    ):
        yield one, other, watched, made


def step(task: Task) -> str:
    if task.body.payload["n"] == 3:
        raise ValueError("not this one")
    return "done"


def get(port: MetricsPort) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """What Prometheus would read: sample and labels → value."""
    with DIRECT.open(port.url, timeout=30) as answer:
        text = answer.read().decode()
    families = list(text_string_to_metric_families(text))
    assert all(family.documentation for family in families)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_a_scrape_shows_what_was_processed_and_what_is_left(
    queue: Queue, scraped: tuple[MetricsPort, MetricsPort, FleetWatch, Worker]
) -> None:
    one, other, watched, made = scraped
    for n in range(6):
        queue.send(Envelope.new(conversation_id="1", step=n, agent_class="researcher", payload={"n": n}).detail())
    researcher = ("agent_class", "researcher")
    labels = tuple(sorted([researcher, ("queue", queue.name)]))
    watched.poll()
    before = get(other)
    assert before["sqs_queue_depth", labels] == 6
    assert before["sqs_queue_oldest_age_seconds", labels] >= 0
    assert before["sqs_queue_visibility_timeout_seconds", labels] == 30
    assert get(one)["agent_step_duration_seconds_count", (researcher,)] == 0  # there before the first step

    counts = made.run(until_empty=True, seconds=60)
    assert counts == {"done": 5, "failed": 1, "dead": 1}
    after = get(one)
    for outcome in ("done", "failed", "dead", "replayed", "busy", "lost", "released", "undeleted"):
        assert after["agent_deliveries_total", (researcher, ("outcome", outcome))] == counts[outcome]
    assert after["agent_step_duration_seconds_count", (researcher,)] == 5
    assert after["agent_step_duration_seconds_bucket", (researcher, ("le", "30.0"))] == 5
    assert after["agent_redeliveries_total", (researcher,)] == 1
    assert after["agent_worker_threads", (researcher,)] == 2
    assert after["agent_visibility_timeout_seconds", (researcher,)] == 30
    watched._asked.clear()  # the next round is due
    watched.poll()
    left = get(other)
    assert left["sqs_queue_depth", labels] == left["sqs_queue_in_flight", labels] == 0
    assert queue.dlq is not None
    assert left["sqs_dlq_depth", (researcher, ("queue", queue.dlq.name))] == 1


def listened_on(pid: int) -> set[int]:
    """The ports of a process. Raises psutil's errors."""
    links = psutil.Process(pid).net_connections("tcp")
    return {link.laddr.port for link in links if link.status == psutil.CONN_LISTEN}


def shown_at(port: int) -> str:
    with DIRECT.open(f"http://{HOST}:{port}/metrics", timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def test_each_process_has_a_port_and_one_that_replaces_a_dead_one_finds_one_again(lab: Lab, queue: Queue) -> None:
    store = IdempotencyStore.create(lab, "steps")
    settings = {
        **lab.target.environment(lab.account),
        "QUEUE_URL": queue.url,
        "STEPS_TABLE": store.table,
        "STEP_SECONDS": "0",
    }

    def ports() -> dict[int, str]:
        """Process → what its port shows."""
        found = {}
        for pid in fleet.pids:
            with contextlib.suppress(psutil.Error, OSError):
                for port in listened_on(pid):
                    assert port in worker.PORTS
                    found[pid] = shown_at(port)
        return found

    def within(there: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not there():
            assert fleet.look()
            assert time.monotonic() < end
            time.sleep(0.1)

    with Processes("infra.prometheus.worker:make", 2, environment=settings, folder=FOLDER.parents[1]) as fleet:
        within(lambda: len(ports()) == 2)
        os.kill(fleet.pids[0], signal.SIGKILL)
        within(lambda: fleet.restarted == 1 and len(ports()) == 2)
        steps = [Envelope.new(conversation_id=str(n), step=1, agent_class="researcher", payload={}) for n in range(8)]
        queue.send_batch([each.detail() for each in steps])
        done = re.compile(r'agent_step_duration_seconds_count\{agent_class="researcher"\} (\d+)')
        within(lambda: sum(int(done.search(text)[1]) for text in ports().values()) == 8)  # type: ignore[index]
        last = list(ports())
    assert not any(map(psutil.pid_exists, last))


def test_rules_and_dashboard_ask_for_nothing_that_labkit_does_not_export(
    scraped: tuple[MetricsPort, MetricsPort, FleetWatch, Worker],
) -> None:
    one, other, watched, _ = scraped
    watched.poll()
    samples = {name for port in (one, other) for name, _ in get(port)}
    # A series of a model begins with its first call: until then there is its family only.
    exported = samples | {"agent_model_attempts_total"} | {rule["record"] for rule in RECORDS}
    assert [(name, text) for text in EXPRESSIONS for name in names_in(text) if name not in exported] == []
    used = {name for text in EXPRESSIONS for name in names_in(text)}
    assert {name for name in samples if not name.endswith(("_created", "_sum"))} - used == set()


# -- dashboard ---------------------------------------------------------------------------------------------------------


def test_the_dashboard_is_one() -> None:
    validate = fastjsonschema.compile(DASHBOARD)
    validate(BOARD)
    for broken in ({"schemaVersion": "36"}, {"panels": []}, {"titel": "x"}):
        with pytest.raises(fastjsonschema.JsonSchemaValueException):
            validate({**BOARD, **broken})


def test_it_has_a_panel_for_each_signal_and_for_each_alarm_with_its_threshold() -> None:
    titles = [panel["title"] for panel in PANELS]
    assert [title.partition(":")[0] for title in titles[:4]] == ["Traffic", "Latency", "Errors", "Saturation"]
    assert titles[4:] == [alarm["alert"] for alarm in ALARMS]
    for panel, alarm in zip(PANELS[4:], ALARMS, strict=True):
        asked = {name for query in panel["targets"] for name in names_in(query["expr"])}
        assert names_in(alarm["expr"]) <= asked, panel["title"]
        steps = panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [{}])
        if "value" in steps[-1] and panel["title"] != "AgentStepsOutliveVisibility":  # that one is a share
            assert f"> {steps[-1]['value']:g}" in alarm["expr"], panel["title"]


def test_no_panel_lies_on_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        mine = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not mine & taken
        taken |= mine
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


# -- that the files mean each other ------------------------------------------------------------------------------------


def test_every_port_that_a_worker_may_take_is_asked_and_nothing_but_loopback() -> None:
    config = yaml.safe_load((FOLDER / "prometheus.yaml").read_text(encoding="utf-8"))
    asked = {
        job["job_name"]: [target for each in job["static_configs"] for target in each["targets"]]
        for job in config["scrape_configs"]
    }
    assert asked == {
        "agent-workers": [f"127.0.0.1:{port}" for port in worker.PORTS],
        "agent-watch": [f"127.0.0.1:{watch.PORT}"],
    }


def minutes(text: str) -> int:
    return int(text.removesuffix("m"))


def test_windows_are_longer_than_what_they_wait_for() -> None:
    by_name = {alarm["alert"]: alarm for alarm in ALARMS}
    longest = int(ENVIRONMENT["STEP_LIMIT"])
    for window in re.findall(r"\[(\d+m)[]:]", by_name["AgentStalled"]["expr"]):
        assert minutes(window) * 60 > longest  # else a class at its longest step would stand still by this rule
    [age] = re.findall(r"_age_seconds\) > (\d+)", by_name["OldestMessageAges"]["expr"])
    assert int(age) >= longest  # what is at work has an age, too
    assert 2 * minutes(by_name["DeliveriesAreRetried"]["for"]) < WINDOW  # or one retry would not last until it rings


def test_the_watch_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for queues in ("", "researcher", "researcher=", "=https://sqs/x"):
        monkeypatch.setenv("QUEUES", queues)
        with pytest.raises(MetricsError, match="QUEUES is class=URL"):
            watch.make()
    monkeypatch.setenv("QUEUES", "researcher=https://sqs.us-east-1.amazonaws.com/111122223333/agent-researcher")
    monkeypatch.setenv("RULES", "on-request")
    with pytest.raises(MetricsError, match="RULES is bus/rule"):
        watch.make()


@pytest.mark.parametrize("answers", [True, False], ids=["AWS answers", "nobody answers"])
def test_the_watch_runs_and_ends_as_it_is_told_to(lab: Lab, queue: Queue, answers: bool) -> None:
    queue.send("x")
    aws = {**os.environ, **lab.target.environment(lab.account)}
    nobody = {} if answers else {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    settings = {**aws, **nobody, "QUEUES": f"researcher={queue.url}", "RULES": "fleet/on-request", "PORT": "0"}
    program = [sys.executable, "-m", "infra.prometheus.watch"]
    asked = f'watch_last_success_timestamp_seconds{{watched="sqs:{queue.name}"}}'
    refused = re.compile(r'watch_failures_total\{watched="sqs:[^"]*"\} [1-9]')
    with subprocess.Popen(program, cwd=FOLDER.parents[1], env=settings) as running:
        try:
            end, text = time.monotonic() + 60, ""
            while ("sqs_queue_depth{" not in text) if answers else not refused.search(text):
                assert running.poll() is None
                assert time.monotonic() < end
                time.sleep(0.1)
                with contextlib.suppress(psutil.Error, OSError):
                    for port in listened_on(running.pid):
                        text = shown_at(port)
            assert (f"{asked} 0.0" in text) is not answers
            running.terminate()
            assert running.wait(60) == 0
        finally:
            running.kill()
    for wrong, says in (("9309x", "ports lie between"), ("70000", "ports lie between")):
        done = subprocess.run(
            program, cwd=FOLDER.parents[1], env={**settings, "PORT": wrong}, check=False, capture_output=True, text=True
        )
        assert (done.returncode, says in done.stderr) == (1, True)
