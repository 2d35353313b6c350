"""Export: to files that survive a kill, to a collector where there is one, and never in the way of a step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from labkit.ops.spans import export as tracing_export
from labkit.ops.spans import files as tracing_files
from labkit.ops.spans.export import Queued, otlp
from labkit.ops.spans.files import FileExporter
from labkit.ops.tracing import TraceError, Tracing


def until(true: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


class Collector:
    """A collector on loopback. ``answer`` may hang."""

    def __init__(self, answer: Callable[[], int] = lambda: 200) -> None:
        self.spans: list[tuple[str, str]] = []  # service, name
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.asked.append(self.path)
                status = answer()
                if status == 200:
                    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                        service = {each.key: each.value.string_value for each in resource.resource.attributes}
                        for scope in resource.scope_spans:
                            outer.spans += [(service["service.name"], span.name) for span in scope.spans]
                self.send_response(status)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


class Sink:
    """An exporter that does as it is told."""

    def __init__(self, does: Callable[[], object] = lambda: None) -> None:
        self.names: list[str] = []
        self.closed = 0
        self._does = does

    def export(self, spans: Sequence[Any], /) -> Any:
        found = self._does()
        self.names += [span.name for span in spans]
        return found

    def shutdown(self) -> None:
        self.closed += 1


# -- the queue -------------------------------------------------------------------------------------------------------


def test_everything_arrives_in_order_and_the_thread_ends() -> None:
    sink, before = Sink(), set(threading.enumerate())
    with Tracing("test", to=[sink]) as tracing:
        for n in range(1_000):
            with tracing.span(f"s{n}"):
                pass
        assert tracing.flush(30)
        assert sink.names == [f"s{n}" for n in range(1_000)]
    assert sink.closed == 1
    assert set(threading.enumerate()) <= before


def test_an_exporter_that_hangs_delays_nobody_and_loses_only_what_is_its() -> None:
    free = threading.Event()
    stuck, well = Sink(lambda: free.wait(60)), Sink()
    tracing = Tracing("test", to=[stuck, well])
    hung, healthy = tracing.queues
    for n in range(tracing_export.QUEUE + 2 * tracing_export.BATCH):
        with tracing.span(f"s{n}"):
            pass
    assert hung.dropped > 0  # the queue has an end, and it is told
    until(lambda: len(well.names) == tracing_export.QUEUE + 2 * tracing_export.BATCH - healthy.dropped)
    assert not hung.flush(0.05)
    assert not hung.close(0.05)
    free.set()
    tracing.close()
    until(lambda: not hung._thread.is_alive())
    assert len(stuck.names) + hung.dropped == tracing_export.QUEUE + 2 * tracing_export.BATCH


def test_closed_twice_it_waits_once_for_what_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    tracing = Tracing("test", to=[Sink()])
    close = tracing.queues[0].close

    def counted(seconds: float) -> bool:
        asked.append(seconds)
        return close(seconds)

    monkeypatch.setattr(tracing.queues[0], "close", counted)
    with tracing:
        tracing.close()
    assert len(asked) == 1


def test_an_exporter_that_fails_is_told_of_once_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    fails = iter([True, True, False])

    def does() -> None:
        if next(fails, False):
            raise OSError("the disk is full")

    sink = Sink(does)
    with Tracing("test", to=[sink]) as tracing:
        (queue,) = tracing.queues
        for name in ("one", "two", "three"):
            with tracing.span(name):
                pass
            assert tracing.flush(30)
        assert (queue.failed, queue.sent, sink.names) == (2, 1, ["three"])
    assert [record.message for record in caplog.records if "not exported" in record.message] == [
        "spans were not exported, work goes on without them: the disk is full"
    ]


def test_what_an_exporter_refuses_is_counted() -> None:
    from opentelemetry.sdk.trace.export import SpanExportResult

    with Tracing(
        "test", to=[Sink(lambda: SpanExportResult.FAILURE), Sink(lambda: SpanExportResult.SUCCESS)]
    ) as tracing:
        with tracing.span("one"):
            pass
        assert tracing.flush(30)
        assert [(each.sent, each.failed) for each in tracing.queues] == [(0, 1), (1, 0)]


def test_after_a_fork_spans_are_dropped_and_not_kept_for_a_thread_that_is_not_there() -> None:
    queue = Queued(Sink())
    queue._pid = -1
    with Tracing("test") as tracing:
        tracing.provider.add_span_processor(queue)
        with tracing.span("child"):
            pass
    assert (queue.dropped, len(queue._queue)) == (1, 0)
    queue.close(10)


# -- files -----------------------------------------------------------------------------------------------------------


def write(folder: Path, *names: str, **options: Any) -> FileExporter:
    exporter = FileExporter(folder, "test", **options)
    with Tracing("test", to=[exporter]) as tracing:
        for name in names:
            with tracing.span(name):
                pass
            assert tracing.flush(30)
    return exporter


def test_a_file_for_each_process_and_all_of_them_are_read(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from labkit.ops.tracing import Tracing\n"
        "with Tracing.open('other', folder=Path(sys.argv[1]), environ={}) as tracing:\n"
        "    for n in range(300):\n"
        "        with tracing.span(f'other-{n}'): pass\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    running = [subprocess.Popen(command) for _ in range(2)]
    write(tmp_path, "here")
    assert [each.wait(60) for each in running] == [0, 0]
    names = [each.name for each in tracing_files.read(tmp_path)]
    assert sorted(names) == sorted(["here", *(f"other-{n}" for n in range(300)), *(f"other-{n}" for n in range(300))])
    assert len(list(tmp_path.iterdir())) == 3


def test_a_half_line_at_the_end_is_skipped(tmp_path: Path) -> None:
    (file,) = write(tmp_path, "one", "two").files
    whole = file.read_bytes()
    for cut in range(len(whole) - 1, len(whole) // 2, -7):
        file.write_bytes(whole[:cut])
        assert [each.name for each in tracing_files.read(file)] in (["one"], ["one", "two"])
    file.write_bytes(whole[:-10] + b"\xff\xfe\n" + whole)
    assert [each.name for each in tracing_files.read(tmp_path)] == ["one", "one", "two"]


def test_files_are_bounded_and_the_oldest_go(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text("x" * 9_000 + "\n")  # somebody's own, in a folder that was named
    os.utime(tmp_path / "mine.jsonl", (1, 1))
    exporter = write(tmp_path, *(f"s{n:02d}" for n in range(30)), most=1_500, keep=3)
    assert len(exporter.files) > 5
    (tmp_path / "mine.jsonl").unlink()
    left = sorted(tmp_path.iterdir())
    assert left == sorted(exporter.files[-len(left) :])
    assert sum(each.stat().st_size for each in left) <= 1_500 * (3 + 1)
    assert all(each.stat().st_size <= 1_500 for each in left)
    assert [each.name for each in tracing_files.read(tmp_path)][-1] == "s29"
    assert all(each.stat().st_mode & 0o077 == 0 for each in left)  # nobody else's to read


def test_a_line_larger_than_a_file_may_be_is_written_all_the_same(tmp_path: Path) -> None:
    exporter = write(tmp_path, "x" * 3_000, "y", most=1_000)
    assert [len(each.name) for each in tracing_files.read(tmp_path)] == [3_000, 1]
    assert len(exporter.files) == 2


def test_a_hundred_processes_with_a_little_each_lose_nothing(tmp_path: Path) -> None:
    for n in range(100):
        write(tmp_path, f"s{n}")
    assert len(list(tracing_files.read(tmp_path))) == 100


def test_small_files_do_not_become_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing_files, "_MANY", 5)
    for n in range(8):
        write(tmp_path, f"s{n}")
    assert [each.name for each in tracing_files.read(tmp_path)] == [f"s{n}" for n in range(3, 8)]


def test_a_full_disk_costs_the_spans_and_they_are_counted(tmp_path: Path) -> None:
    script = (
        "import resource, sys; from pathlib import Path; from labkit.ops.tracing import Tracing\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))\n"
        "tracing = Tracing.open('full', folder=Path(sys.argv[1]), environ={})\n"
        "for n in range(4):\n"
        "    with tracing.span(f's{n}'): pass\n"
        "    assert tracing.flush(30)\n"
        "tracing.close(); tracing.close()\n"
        "print(tracing.queues[0].sent, tracing.queues[0].failed)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, capture_output=True, text=True)
    sent, failed = map(int, done.stdout.split())
    assert failed > 0
    assert sent + failed == 4
    assert len(list(tracing_files.read(tmp_path))) == sent


def test_what_else_is_in_a_folder_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path, "one")
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "nowhere.jsonl").symlink_to(tmp_path / "none")
    (tmp_path / "junk.jsonl").write_bytes(bytes(range(256)) * 100)
    assert [each.name for each in tracing_files.read(tmp_path)] == ["one"]


def test_a_name_that_no_utf8_can_hold_costs_no_batch() -> None:
    with Collector() as collector:
        exporter = otlp({"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url})
        assert exporter is not None
        tracing = Tracing("test", to=[exporter])
        for n in range(3):
            with tracing.span("\ud800" if n == 1 else f"s{n}"):  # which is no UTF-8
                pass
        assert tracing.flush(30)
        tracing.close()
    assert (tracing.queues[0].sent, tracing.queues[0].failed) == (3, 0)
    assert [name for _, name in collector.spans] == ["s0", "?", "s2"]


def test_a_file_that_somebody_has_deleted_is_begun_anew(tmp_path: Path) -> None:
    exporter = FileExporter(tmp_path, "test")
    with Tracing("test", to=[exporter]) as tracing:
        for name in ("one", "two"):
            with tracing.span(name):
                pass
            assert tracing.flush(30)
            if name == "one":
                exporter.files[0].unlink()
    assert [each.name for each in tracing_files.read(tmp_path)] == ["two"]


def test_a_folder_that_cannot_be_had_costs_the_spans_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with Tracing("test", to=[FileExporter(tmp_path / "file" / "traces")]) as tracing:
        with tracing.span("one"):
            pass
        assert tracing.flush(30)
        assert tracing.queues[0].failed == 1


def test_nothing_there_is_nothing_read(tmp_path: Path) -> None:
    assert list(tracing_files.read(tmp_path / "none")) == []
    assert list(tracing_files.read(tmp_path)) == []


def test_odd_services_make_good_names_of_files(tmp_path: Path) -> None:
    exporter = FileExporter(tmp_path, "../a b/é\n" + "x" * 99)
    with Tracing("test", to=[exporter]) as tracing, tracing.span("one"):
        pass
    assert exporter.files[0].parent == tmp_path
    assert exporter.files[0].name.startswith("-a-b-")


def test_kill_9_loses_the_last_second_and_what_had_not_ended(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from labkit.ops.tracing import Tracing\n"
        "tracing = Tracing.open('killed', folder=Path(sys.argv[1]), environ={})\n"
        "with tracing.span('ended'): pass\n"
        "tracing.flush(30)\n"
        "with tracing.span('at work'):\n"
        "    with tracing.span('just ended'): pass\n"
        "    print('now', flush=True); time.sleep(60)\n"
    )
    # Exported once a second: where the machine stands still between the two lines, "just ended" is written as well.
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"now\n"
        os.kill(running.pid, signal.SIGKILL)
    names = [each.name for each in tracing_files.read(tmp_path)]
    assert names[0] == "ended"
    assert "at work" not in names


# -- a collector -----------------------------------------------------------------------------------------------------


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("clean")
def test_a_collector_gets_the_same_spans_as_the_file(tmp_path: Path) -> None:
    with Collector() as collector:
        with Tracing.open("agent", folder=tmp_path, environ={"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}) as tracing:
            with tracing.span("outer"), tracing.span("inner"):
                pass
            assert tracing.flush(30)
        assert collector.spans == [("agent", "inner"), ("agent", "outer")]
        assert collector.asked == ["/v1/traces"]
    assert [each.name for each in tracing_files.read(tmp_path)] == ["inner", "outer"]


@pytest.mark.usefixtures("clean")
def test_a_collector_that_hangs_delays_no_step_and_ends_soon(tmp_path: Path) -> None:
    free = threading.Event()

    def hang() -> int:
        free.wait(60)
        return 503

    before = set(threading.enumerate())
    with Collector(hang) as collector:
        ours = set(threading.enumerate())
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
        tracing = Tracing.open("agent", folder=tmp_path, environ=environ)
        for n in range(2_000):
            with tracing.span(f"step {n}"):
                pass
        until(lambda: bool(collector.asked))
        assert tracing.queues[0].flush(30)  # the file is not held up by it
        tracing.close()
        until(lambda: not {each for each in set(threading.enumerate()) - ours if each.name == "labkit-traces"})
        free.set()
    assert len(list(tracing_files.read(tmp_path))) == 2_000
    until(lambda: set(threading.enumerate()) <= before)


@pytest.mark.usefixtures("clean")
def test_a_collector_that_is_not_there_costs_its_spans_alone(tmp_path: Path, free_port: int) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port}", "OTEL_EXPORTER_OTLP_TIMEOUT": "0.5"}
    with Tracing.open("agent", folder=tmp_path, environ=environ) as tracing:
        with tracing.span("one"):
            pass
        until(lambda: tracing.queues[1].failed == 1)
    assert [each.name for each in tracing_files.read(tmp_path)] == ["one"]


@pytest.fixture
def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
    ],
)
def test_nobody_is_called_unless_the_user_says_so(environ: dict[str, str]) -> None:
    assert otlp(environ) is None


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "127.0.0.1:4318"}, "http://… or https://…; got '127.0.0.1:4318'"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "is 'grpc'; here it can be",
        ),
    ],
)
def test_settings_that_cannot_be_are_named(environ: dict[str, str], says: str) -> None:
    with pytest.raises(TraceError, match=says):
        otlp(environ)


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize(
    ("said", "seconds"),
    [("", 3.0), ("x", 3.0), ("-1", 3.0), ("5", 5.0), ("2500", 2.5), ("10000", 10.0), ("60000", 10.0), ("nan", 3.0)],
)
def test_a_timeout_in_milliseconds_or_seconds_is_bounded(said: str, seconds: float) -> None:
    assert tracing_export._patience({"OTEL_EXPORTER_OTLP_TIMEOUT": said}) == seconds
    assert tracing_export._patience({"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": said, "OTEL_EXPORTER_OTLP_TIMEOUT": "7"}) == (
        seconds if said else 7.0
    )
