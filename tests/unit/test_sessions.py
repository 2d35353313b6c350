"""Sessions: the documented rules on real processes, and no schedule in which a session keeps what it must lose."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from botocore.exceptions import ParamValidationError
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from labkit import Lab, facts
from labkit.state import sessions
from labkit.state.session_rules import FAILED, Lifecycle, SessionError, active_quota, check_session_id, fits_memory
from labkit.state.sessions import MOST_HERE, Runtime, Seen
from tests.clock import Clock

A, B = (f"conversation-{number}-{'0' * 20}" for number in (8842, 8843))
IDLE, LIFETIME = int(facts("agentcore.idle.default")), int(facts("agentcore.microvm.lifetime.default"))
STORAGE_IDLE = int(facts("agentcore.storage.idle"))

AGENT = """
import os, pathlib, subprocess, threading, time
seen = 0
def invoke(payload, context):
    global seen
    seen += 1
    todo = payload or {}
    if "raise" in todo: raise ValueError(todo["raise"])
    if "leave" in todo: os.system("sleep 600 &")
    if "exit" in todo: os._exit(todo["exit"])
    if "sleep" in todo: time.sleep(todo["sleep"])
    while "until" in todo and not os.path.exists(todo["until"]): time.sleep(0.01)
    if "start" in todo:
        ways = {}, {"start_new_session": True}, {"env": {}}
        return [subprocess.Popen(["sleep", "600"], **way).pid for way in ways]
    if "begin" in todo: return context.add_async_task("research")
    if "finish" in todo: return context.complete_async_task(todo["finish"])
    if "environ" in todo: return dict(os.environ)
    own = pathlib.Path("notes.txt")
    own.open("a").write("n")
    plan = ""
    if context.storage:
        kept = pathlib.Path(context.storage, "plan.txt")
        kept.open("a").write("p")
        plan = kept.read_text()
    return {"id": context.session_id, "pid": os.getpid(), "seen": seen, "notes": own.read_text(), "plan": plan,
            "there": sorted(each.name for each in pathlib.Path.cwd().iterdir())}
"""


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    if "lab" not in request.fixturenames:  # a lab has its stand-in at home
        monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def runtime(clock: Clock, home: Path) -> Iterator[Runtime]:
    with Runtime(AGENT, storage="/mnt/workspace", clock=clock) as runtime:
        yield runtime
    assert list((home / "sessions").iterdir()) == []


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# -- the rules ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session_id", ["8842", "x" * 32, "x" * 257, "", None])
def test_an_id_has_33_to_256_characters(session_id: Any) -> None:
    with pytest.raises(SessionError, match="runtimeSessionId has 33 to 256 characters") as refused:
        check_session_id(session_id)
    assert refused.value.code == "ValidationException"
    assert check_session_id("x" * 33)
    assert check_session_id("x" * 256)


def test_the_sdk_refuses_a_bare_conversation_id_too(lab: Lab) -> None:
    with pytest.raises(ParamValidationError, match="valid min length: 33"):
        lab.client("bedrock-agentcore").invoke_agent_runtime(
            agentRuntimeArn="arn", runtimeSessionId="8842", payload=b""
        )


def test_an_id_for_memory_as_well_is_shorter_and_plainer() -> None:
    assert fits_memory("x" * 100)
    assert not any(fits_memory(no) for no in ("x" * 101, "a.b" * 12, "-" * 40, "a:b" * 12, ""))


@pytest.mark.parametrize(
    ("given", "idle", "lifetime"),
    [
        ({}, 900, 28_800),  # AWS docs, runtime-lifecycle-settings: the table of defaults
        ({"lifetime": 600}, 600, 600),
        ({"lifetime": 3600}, 900, 3600),
        ({"idle": 60}, 60, 28_800),
        ({"compute": "instances"}, 900, 28_800),  # 14 days must be asked for
        ({"compute": "instances", "lifetime": 1_209_600, "idle": 1_209_600}, 1_209_600, 1_209_600),
    ],
)
def test_defaults(given: dict[str, Any], idle: int, lifetime: int) -> None:
    life = Lifecycle(**given)
    assert (life.idle, life.lifetime) == (idle, lifetime)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"lifetime": 28_801}, "maxLifetime on microvm is a whole number from 60 to 28800 s; got 28801"),
        ({"idle": 59}, "idleRuntimeSessionTimeout on microvm is a whole number from 60 to 28800 s; got 59"),
        ({"idle": 3600, "lifetime": 1800}, "at most maxLifetime; 3600 s is more than 1800 s"),
        ({"lifetime": 1_209_601, "compute": "instances"}, "from 60 to 1209600 s"),
        ({"lifetime": True}, "got True"),
        ({"lifetime": "600"}, "got '600'"),
        ({"compute": "lambda"}, "compute is microvm or instances"),
    ],
)
def test_settings_have_bounds(given: dict[str, Any], says: str) -> None:
    with pytest.raises(SessionError, match=says):
        Lifecycle(**given)


def test_the_quota_is_the_region_s_own() -> None:
    assert (active_quota("us-east-1"), active_quota("us-west-2"), active_quota("eu-west-1")) == (5000, 5000, 2500)


@pytest.mark.parametrize("path", ["/mnt", "/mnt/", "/mnt/a/b", "/data/x", "/mnt/..", "/mnt/./", "mnt/data", 5])
def test_a_mount_path_is_one_name_below_mnt(path: Any) -> None:
    with pytest.raises(SessionError, match="mountPath is /mnt/ and one name"):
        Runtime(AGENT, storage=path)


@pytest.mark.parametrize(
    ("agent", "says"), [("def invoke(:", "cannot be used"), (Path("/nowhere.py"), "No such file"), (7, "cannot be")]
)
def test_code_that_cannot_be_used_is_refused_before_anything_starts(agent: Any, says: str, home: Path) -> None:
    with pytest.raises(SessionError, match=says):
        Runtime(agent)
    assert not (home / "sessions").exists()


# -- one session -------------------------------------------------------------------------------------------------------


def test_a_session_has_its_own_memory_and_folder(runtime: Runtime) -> None:
    first, again, other = runtime.invoke(A), runtime.invoke(A), runtime.invoke(B)
    assert (first.fresh, again.fresh, other.fresh) == (True, False, True)
    assert [each.body["seen"] for each in (first, again, other)] == [1, 2, 1]
    assert again.body["notes"] == "nn"
    assert (other.body["id"], other.body["notes"], other.body["plan"]) == (B, "n", "p")
    assert first.body["pid"] == again.body["pid"] != other.body["pid"]


def test_an_agent_gets_none_of_the_readers_variables(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not for an agent")
    assert "AWS_SECRET_ACCESS_KEY" not in runtime.invoke(A, {"environ": 1}).body


@pytest.mark.parametrize("how", ["idle", "lifetime", "stopped", "crashed"])
def test_what_survives_the_end_of_an_environment(runtime: Runtime, clock: Clock, how: str) -> None:
    pid = runtime.invoke(A).body["pid"]
    if how == "idle":
        clock.now += IDLE
    elif how == "lifetime":
        for _ in range(LIFETIME // (IDLE - 1) + 1):
            clock.now += IDLE - 1
            runtime.look()
            if clock.now - 1_900_000_000.0 < LIFETIME:
                runtime.invoke(A, {"environ": 1})
    elif how == "stopped":
        runtime.stop(A)
    else:
        runtime.kill(A)
    assert runtime.look()[A] == Seen("stopped", 1, how)  # type: ignore[arg-type]
    assert not runs(pid)
    resumed = runtime.invoke(A)
    assert (resumed.environment, resumed.fresh) == (2, True)
    assert (resumed.body["seen"], resumed.body["notes"], resumed.body["plan"]) == (1, "n", "pp")
    assert resumed.body["there"] == ["mnt", "notes.txt"]


def test_without_session_storage_nothing_survives(clock: Clock) -> None:
    with Runtime(AGENT, clock=clock) as runtime:
        runtime.invoke(A)
        runtime.stop(A)
        body = runtime.invoke(A).body
    assert (body["seen"], body["notes"], body["plan"]) == (1, "n", "")


def test_session_storage_is_emptied_after_14_days_without_use(runtime: Runtime, clock: Clock) -> None:
    runtime.invoke(A)
    runtime.stop(A)
    clock.now += STORAGE_IDLE - 1
    assert runtime.invoke(A).body["plan"] == "pp"
    runtime.stop(A)
    clock.now += STORAGE_IDLE
    assert runtime.invoke(A).body["plan"] == "p"


def test_an_end_that_nobody_looked_at_was_when_it_was_due(runtime: Runtime, clock: Clock) -> None:
    runtime.invoke(A)
    clock.now += LIFETIME  # idle ever since: it did not live so long
    assert runtime.look()[A].ended == "idle"
    clock.now += STORAGE_IDLE + IDLE - LIFETIME
    assert runtime.invoke(A).body["plan"] == "p"  # the 14 days began when the 15 minutes were over


def test_a_moment_before_it_is_due_a_session_goes_on(runtime: Runtime, clock: Clock) -> None:
    runtime.invoke(A)
    clock.now += IDLE - 0.001
    assert runtime.invoke(A).body["seen"] == 2


def test_an_agent_that_says_it_is_busy_is_not_idle(runtime: Runtime, clock: Clock) -> None:
    task = runtime.invoke(A, {"begin": 1}).body
    for _ in range(3):
        clock.now += IDLE + 1
        assert runtime.look()[A].status == "active"
    assert runtime.invoke(A, {"finish": task}).body is True
    assert runtime.look()[A].status == "idle"
    clock.now += IDLE
    assert runtime.look()[A].ended == "idle"


def test_busy_or_not_the_lifetime_ends_it(runtime: Runtime, clock: Clock) -> None:
    runtime.invoke(A, {"begin": 1})
    clock.now += LIFETIME
    assert runtime.look()[A].ended == "lifetime"


# -- refusals and failures ---------------------------------------------------------------------------------------------


def refused(code: str, says: str | None = None) -> Any:
    @contextlib.contextmanager
    def check() -> Iterator[None]:
        with pytest.raises(SessionError, match=says) as found:
            yield
        assert found.value.code == code

    return check()


def test_stopping_what_does_not_run_is_not_found(runtime: Runtime) -> None:
    with refused("ResourceNotFoundException"):
        runtime.stop(A)
    runtime.invoke(A)
    runtime.stop(A)
    with refused("ResourceNotFoundException", "has ended already"):
        runtime.stop(A)
    with refused("ValidationException"):
        runtime.stop("8842")


def test_the_quota_counts_environments_and_idle_ones_too(clock: Clock) -> None:
    with Runtime(AGENT, most=1, clock=clock) as runtime:
        runtime.invoke(A)
        with refused("ServiceQuotaExceededException", "1 active sessions, and 1 is its quota"):
            runtime.invoke(B)
        assert runtime.active == 1
        assert runtime.invoke(A).body["seen"] == 2  # the one that is there goes on
        clock.now += IDLE
        assert runtime.invoke(B).fresh


def test_a_machine_has_a_bound_of_its_own(clock: Clock) -> None:
    def start(agent: Path, session_id: str, storage: tuple[str, Path] | None, below: Path) -> Paper:
        below.joinpath(session_id).mkdir()
        return Paper({}, ("", below / session_id))

    with Runtime(AGENT, clock=clock, start=start) as runtime:
        for number in range(MOST_HERE):
            runtime.invoke(f"{A}-{number}")
        with refused(FAILED, f"{MOST_HERE} sessions are as many processes"):
            runtime.invoke(A)


def test_a_payload_has_at_most_100_mb_and_is_json(runtime: Runtime) -> None:
    most = int(facts("agentcore.payload.max_bytes"))
    with refused("ValidationException", f"payload has at most {most:,} bytes; got {most + 1:,}"):
        runtime.invoke(A, "x" * (most - 1))  # and two quotation marks
    with refused("ValidationException", "what JSON can hold"):
        runtime.invoke(A, {1, 2})
    assert runtime.look() == {}


def test_a_large_payload_arrives(runtime: Runtime) -> None:
    with Runtime("def invoke(payload, context): return [len(payload), payload[:4_000_000]]") as large:
        assert large.invoke(A, "é" * 5_000_000).body == [5_000_000, "é" * 4_000_000]


def test_an_agent_s_code_is_read_as_a_file_of_its_own_would_be() -> None:
    agent = "class State:\n    seen: int\ndef invoke(payload, context): return State.__annotations__['seen'].__name__"
    with Runtime(agent) as runtime:
        assert runtime.invoke(A).body == "int"  # a text, where annotations are put off as in labkit's own modules


def test_an_agent_that_raises_keeps_its_environment(runtime: Runtime) -> None:
    with refused(FAILED, r"ValueError: no tea \(line 8\)"):
        runtime.invoke(A, {"raise": "no tea"})
    assert runtime.invoke(A).body["seen"] == 2


def test_an_agent_that_dies_is_replaced_at_the_next_request(runtime: Runtime) -> None:
    with refused(FAILED, "ended while the request was at work"):
        runtime.invoke(A, {"exit": 3, "leave": "a process that has all that a shell inherits"})
    assert runtime.look()[A] == Seen("stopped", 1, "crashed")
    pid = runtime.invoke(A).body["pid"]
    psutil.Process(pid).kill()  # between two requests
    psutil.Process(pid).wait(30)
    assert runtime.invoke(A).environment == 3


def test_an_environment_that_does_not_answer_its_ping_is_unhealthy_and_ends(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_PING", 0.5)
    pid = runtime.invoke(A).body["pid"]
    os.kill(pid, signal.SIGSTOP)
    assert runtime.look()[A] == Seen("stopped", 1, "crashed")
    assert not runs(pid)
    assert runtime.invoke(A).body["seen"] == 1


@pytest.mark.parametrize(
    ("agent", "says"),
    [
        ("x = 1", "has a function invoke"),
        ("import no_such_module", "ModuleNotFoundError"),
        ("raise SystemExit(1)", "SystemExit"),
        ("def invoke(payload, context): return {1}", "TypeError"),
        ("def invoke(payload): return 1", "TypeError"),
    ],
)
def test_code_that_is_no_agent_is_told_of_at_the_first_request(agent: str, says: str) -> None:
    with Runtime(agent) as runtime, refused(FAILED, says):
        runtime.invoke(A)


def test_one_request_at_a_time_in_a_session(runtime: Runtime, home: Path) -> None:
    runtime.invoke(A)
    over = home / "over"
    slow = threading.Thread(target=lambda: runtime.invoke(A, {"until": str(over)}))
    slow.start()
    while runtime.look()[A].status != "active":
        time.sleep(0.01)
    with refused("RetryableConflictException", "at work on another request"):
        runtime.invoke(A)
    assert runtime.invoke(B).body["seen"] == 1  # others are not held up
    over.touch()
    slow.join()
    assert runtime.invoke(A).body["seen"] == 3


def test_stopping_ends_a_request_that_is_at_work(runtime: Runtime) -> None:
    outcome: list[SessionError] = []

    def ask() -> None:
        try:
            runtime.invoke(A, {"sleep": 60})
        except SessionError as error:
            outcome.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    while A not in runtime.look():
        time.sleep(0.01)
    runtime.stop(A)
    asking.join(30)
    assert [error.code for error in outcome] == [FAILED]
    assert runtime.look()[A] == Seen("stopped", 1, "stopped")


def test_a_request_that_was_stopped_does_no_harm_to_the_environment_after_it(clock: Clock) -> None:
    held = threading.Event()

    class Held:
        alive, ended = True, False

        def ask(self, asked: dict[str, Any], patience: float) -> dict[str, Any]:
            if asked.get("payload") == "wait":
                held.wait(60)
                raise SessionError(FAILED, "ended")
            return {"status": "Healthy", "body": 1}

        def end(self) -> None:
            self.ended = True

    made: list[Held] = []
    with Runtime(AGENT, clock=clock, start=lambda *_: made.append(Held()) or made[-1]) as runtime:  # type: ignore[func-returns-value]

        def ask() -> None:
            with refused(FAILED, "ended"):
                runtime.invoke(A, "wait")

        asking = threading.Thread(target=ask)
        asking.start()
        while A not in runtime.look():
            time.sleep(0.01)
        runtime.stop(A)
        runtime.invoke(A)
        clock.now += 1
        held.set()
        asking.join(30)
        assert [one.ended for one in made] == [True, False]
        clock.now += IDLE - 1
        assert runtime.look()[A].ended == "idle"  # since its own request, not since the other one's end


def test_a_request_is_waited_for_no_longer_than_said() -> None:
    with Runtime(AGENT, patience=0.3) as runtime:
        with refused(FAILED, r"did not answer within 0\.3 s"):
            runtime.invoke(A, {"sleep": 60})
        assert runtime.look()[A].ended == "crashed"


# -- nothing is left ---------------------------------------------------------------------------------------------------


def test_everything_that_a_session_started_ends_with_it(runtime: Runtime) -> None:
    started = runtime.invoke(A, {"start": 1}).body
    assert all(runs(pid) for pid in started)
    runtime.stop(A)
    assert not any(runs(pid) for pid in started)


def test_a_closed_runtime_is_closed(clock: Clock) -> None:
    runtime = Runtime(AGENT, clock=clock)
    pid = runtime.invoke(A).body["pid"]
    runtime.close()
    runtime.close()
    assert not runs(pid)
    with pytest.raises(SessionError, match="this runtime is closed"):
        runtime.invoke(A)


def test_a_lab_closes_its_runtimes(lab: Lab) -> None:
    pid = Runtime.create(lab, AGENT).invoke(A).body["pid"]
    lab.close(quiet=True)
    assert not runs(pid)


@pytest.mark.parametrize("at_work", [False, True])
def test_environments_end_with_the_process_that_owns_them_and_leave_no_folder(home: Path, at_work: bool) -> None:
    script = f"""
import os, threading, time
from labkit.state.sessions import Runtime
runtime = Runtime({AGENT!r})
print(runtime.invoke({A!r}).body["pid"], *runtime.invoke({A!r}, {{"start": 1}}).body, flush=True)
if {at_work}:
    threading.Thread(target=runtime.invoke, args=({A!r}, {{"sleep": 60}}), daemon=True).start()
    time.sleep(0.1)
os._exit(1)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ})
    environment, inside, left, bare = map(int, done.stdout.split())
    end = time.monotonic() + 30
    while any(map(runs, (environment, inside, bare))) and time.monotonic() < end:
        time.sleep(0.02)
    assert not any(map(runs, (environment, inside, bare)))
    assert len(list((home / "sessions").iterdir())) == 1
    with Runtime(AGENT):
        assert [folder.name.partition("-")[0] for folder in (home / "sessions").iterdir()] == [str(os.getpid())]
        assert not runs(left)


def test_what_is_simulated_can_be_printed() -> None:
    assert all(sentence.endswith(".") for sentence in Runtime.simulated)


# -- every schedule ----------------------------------------------------------------------------------------------------


class Paper:
    """An environment on paper: what a process would keep is in ``self``, what storage keeps in ``kept``."""

    def __init__(self, kept: dict[Path, int], storage: tuple[str, Path] | None) -> None:
        assert storage is not None
        if not storage[1].joinpath("used").exists():  # the folder is new, or was emptied
            kept[storage[1]] = 0
            storage[1].joinpath("used").touch()
        self.kept, self.storage = kept, storage[1]
        self.seen, self.busy, self.alive, self.ended = 0, False, True, False

    def ask(self, asked: dict[str, Any], patience: float) -> dict[str, Any]:
        assert not self.ended, "an environment that had ended was asked"
        if not self.alive:
            raise SessionError(FAILED, "dead")
        status = "HealthyBusy" if self.busy else "Healthy"
        if "payload" not in asked:
            return {"status": status}
        self.busy = asked["payload"] == "begin" or (self.busy and asked["payload"] != "finish")
        self.seen += 1
        self.kept[self.storage] += 1
        return {"status": status, "body": [self.seen, self.kept[self.storage]]}

    def end(self) -> None:
        self.ended = True


@dataclass
class Expected:
    """What the documentation lets one expect of one session."""

    environments: int = 0
    lives: bool = False
    started: float = 0.0
    quiet_since: float = 0.0
    ended_at: float = 0.0
    busy: bool = False
    seen: int = 0
    kept: int = 0


SESSIONS = st.sampled_from([A, B, A.replace("8842", "8844")])
QUOTA = 2


class Schedules(RuleBasedStateMachine):
    """Requests, stops, deaths and time in any order, beside a model of the rules that shares no code with them."""

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.made = Clock(), []  # type: ignore[var-annotated]
        kept: dict[Path, int] = {}

        def start(agent: Path, session_id: str, storage: tuple[str, Path] | None, below: Path) -> Paper:
            self.made.append((session_id, Paper(kept, storage)))
            return self.made[-1][1]  # type: ignore[no-any-return]

        self.runtime = Runtime(AGENT, storage="/mnt/w", most=QUOTA, clock=self.clock, start=start)
        self.expected: dict[str, Expected] = {}

    def settle(self) -> None:
        """What has come due by now, in the model."""
        for each in self.expected.values():
            if not each.lives:
                continue
            idle = self.clock.now - each.quiet_since >= IDLE
            ends = [each.started + LIFETIME, *([] if each.busy else [each.quiet_since + IDLE])]
            if self.clock.now >= min(ends):
                each.lives, each.ended_at = False, min(ends)
            elif idle:
                each.quiet_since = self.clock.now

    @rule(session=SESSIONS, payload=st.sampled_from(["go", "go", "begin", "finish"]))
    def request(self, session: str, payload: str) -> None:
        self.settle()
        each = self.expected.get(session, Expected())
        if not each.lives:
            if sum(other.lives for other in self.expected.values()) == QUOTA:
                with refused("ServiceQuotaExceededException"):
                    self.runtime.invoke(session, payload)
                return
            if each.environments and self.clock.now - each.ended_at >= STORAGE_IDLE:
                each.kept = 0
            each.environments += 1
            each.lives, each.started, each.seen, each.busy = True, self.clock.now, 0, False
        each.seen, each.kept, each.quiet_since = each.seen + 1, each.kept + 1, self.clock.now
        each.busy = payload == "begin" or (each.busy and payload != "finish")
        self.expected[session] = each
        answer = self.runtime.invoke(session, payload)
        assert answer.body == [each.seen, each.kept]
        assert (answer.environment, answer.fresh) == (each.environments, each.seen == 1)

    @rule(session=SESSIONS)
    def stop(self, session: str) -> None:
        self.settle()
        each = self.expected.get(session)
        if each is None or not each.lives:
            with refused("ResourceNotFoundException"):
                self.runtime.stop(session)
            return
        self.runtime.stop(session)
        each.lives, each.ended_at = False, self.clock.now

    @precondition(lambda self: any(each.lives for each in self.expected.values()))
    @rule(data=st.data())
    def dies(self, data: st.DataObject) -> None:
        self.settle()
        living = sorted(session for session, each in self.expected.items() if each.lives)
        if living:
            session = data.draw(st.sampled_from(living))
            [paper for name, paper in self.made if name == session][-1].alive = False
            self.expected[session].lives, self.expected[session].ended_at = False, self.clock.now
            self.runtime.look()

    @precondition(lambda self: any(each.busy and each.lives for each in self.expected.values()))
    @rule()
    def goes_quiet_by_itself(self) -> None:
        self.settle()
        for session, each in self.expected.items():
            if each.lives and each.busy:
                each.busy = False
                [paper for name, paper in self.made if name == session][-1].busy = False

    @rule(seconds=st.sampled_from([1.0, IDLE / 2, IDLE - 1, IDLE, LIFETIME / 2, LIFETIME, STORAGE_IDLE]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds

    @invariant()
    def what_is_seen_is_what_is_expected(self) -> None:
        self.settle()
        seen = self.runtime.look()
        assert {session: one.environments for session, one in seen.items()} == {
            session: each.environments for session, each in self.expected.items()
        }
        for session, each in self.expected.items():
            status = ("active" if each.busy else "idle") if each.lives else "stopped"
            assert seen[session].status == status, session
        living = [paper for _, paper in self.made if not paper.ended]
        assert len(living) == sum(each.lives for each in self.expected.values()) <= QUOTA

    def teardown(self) -> None:
        self.runtime.close()
        assert all(paper.ended for _, paper in self.made)


def test_no_schedule_keeps_what_is_lost_or_loses_what_is_kept() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(Schedules, settings=settings(max_examples=150, stateful_step_count=30, deadline=None))
