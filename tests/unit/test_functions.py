"""Functions: packages that are the same everywhere, deployments that change only what differs, logs, mappings."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from labkit import Lab, LabError, facts, kinds, sweep, targets
from labkit.sweep import Scope
from labkit.work import functions, libraries, packages
from labkit.work.functions import Function, FunctionError, InvocationFailed
from labkit.work.logs import Log, is_platform
from labkit.work.mappings import QueueMapping, visibility_for
from labkit.work.packages import PackageError, Settings
from labkit.work.queues import Queue

FUNCTIONS = Path(__file__).resolve().parents[2] / "infra" / "functions"
HELLO = "def handler(event, context):\n    return {'hello': event}\n"
PATIENT = 15  # seconds of a function that is really called: a machine may stand still for some


def entries(package: packages.Package) -> dict[str, zipfile.ZipInfo]:
    with zipfile.ZipFile(io.BytesIO(package.content)) as archive:
        return {entry.filename: entry for entry in archive.infolist()}


def run_alone(package: packages.Package, event: Any, folder: Path) -> Any:
    """Run a packaged handler in a Python that sees the package and the standard library, as in the cloud."""
    code = folder / "package.zip"
    code.write_bytes(package.content)
    unpacked = folder / "unpacked"
    with zipfile.ZipFile(code) as archive:
        archive.extractall(unpacked)
    module, _, name = package.settings.handler.rpartition(".")
    script = (
        f"import sys, json; sys.path.insert(0, {str(unpacked)!r}); from {module} import {name} as handler;"
        "print('ANSWER ' + json.dumps(handler(json.load(sys.stdin), None)))"
    )
    # -I -S: neither this environment's libraries nor the labkit of this checkout.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script], input=json.dumps(event), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    [answer] = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    return json.loads(answer.removeprefix("ANSWER "))


def event(*records: tuple[str, dict[str, Any]], fifo: bool = False) -> dict[str, Any]:
    return {
        "Records": [
            {
                "messageId": name,
                "body": json.dumps({"trace_id": f"trace-{name}", "payload": payload}),
                "attributes": {"ApproximateReceiveCount": "1", "MessageGroupId": name[0]},
                "eventSourceARN": f"arn:aws:sqs:us-east-1:123456789012:work{'.fifo' if fifo else ''}",
            }
            for name, payload in records
        ]
    }


def failed(answer: Any) -> list[str]:
    return [item["itemIdentifier"] for item in answer["batchItemFailures"]]


# --- packages ---------------------------------------------------------------------------------------------------------


def test_the_same_contents_are_the_same_bytes(tmp_path: Path) -> None:
    """Copied to another place, at another time, with other permissions, and with what tools leave lying about."""
    one = shutil.copytree(FUNCTIONS / "agent_step", tmp_path / "one")
    two = tmp_path / "elsewhere" / "two"
    before = os.umask(0o077)
    try:
        two.mkdir(parents=True)
        for file in sorted(one.iterdir(), reverse=True):
            if file.is_file():
                (two / file.name).write_bytes(file.read_bytes())
                os.utime(two / file.name, (1_000_000_000, 1_000_000_000))
        (two / "handler.py").chmod(0o700)
    finally:
        os.umask(before)
    for left in ("__pycache__/handler.cpython-312.pyc", "old.pyc", ".ipynb_checkpoints/handler.py", ".DS_Store"):
        (two / left).parent.mkdir(exist_ok=True)
        (two / left).write_text("left behind")
    first, second = packages.from_folder(one), packages.from_folder(two)
    assert first.sha256 == second.sha256
    assert first.sha256 == base64.b64encode(hashlib.sha256(first.content).digest()).decode()
    assert [name for name in first.files if not name.startswith("labkit/")] == ["handler.py", "step.py"]


def test_another_process_packages_the_same_bytes() -> None:
    script = (
        "import os, pathlib, sys; os.umask(0o077); os.chdir('/');"
        "from labkit.work import packages;"
        "print(packages.from_folder(pathlib.Path(sys.argv[1])).sha256)"
    )
    sums = {
        subprocess.run(
            [sys.executable, "-c", script, str(FUNCTIONS / "agent_step_powertools")],
            env={**os.environ, "PYTHONHASHSEED": seed, "TZ": zone},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo"))
    }
    assert len(sums) == 1


def test_a_package_holds_no_trace_of_when_and_where_it_was_made() -> None:
    package = packages.from_source(HELLO, Settings(labkit=("work/batch",), libraries=("jmespath",)))
    found = entries(package)
    assert list(found) == sorted(found) == list(package.files)
    assert {entry.date_time for entry in found.values()} == {(1980, 1, 1, 0, 0, 0)}
    assert {entry.external_attr >> 16 for entry in found.values()} == {0o100644}
    assert {entry.compress_type for entry in found.values()} == {zipfile.ZIP_STORED}
    assert not [name for name in found if "__pycache__" in name or name.endswith((".pyc", "RECORD", "INSTALLER"))]


def test_another_content_is_another_sum() -> None:
    assert packages.from_source(HELLO, Settings()).sha256 != packages.from_source(f"{HELLO}# v2\n", Settings()).sha256


@pytest.mark.parametrize("name", sorted(folder.name for folder in FUNCTIONS.iterdir() if folder.is_dir()))
def test_every_function_of_the_course_can_be_packaged(name: str) -> None:
    assert "handler.py" in packages.from_folder(FUNCTIONS / name).files


@pytest.mark.parametrize("name", ["agent_step", "agent_step_powertools"])
def test_a_package_runs_without_anything_around_it(name: str, tmp_path: Path) -> None:
    package = packages.from_folder(FUNCTIONS / name)
    lane = event(("a1", {"n": 1}), ("a2", {"fail": "ValueError"}), ("b1", {"n": 2}), ("a3", {"n": 3}), fifo=True)
    assert failed(run_alone(package, lane, tmp_path)) == ["a2", "a3"]


def test_the_facts_travel_with_the_module_that_reads_them(tmp_path: Path) -> None:
    source = "from labkit import facts\ndef handler(event, context):\n    return facts(event)\n"
    package = packages.from_source(source, Settings(labkit=("facts",)))
    assert run_alone(package, "sqs.batch.entries", tmp_path) == 10


def test_a_source_may_be_indented_as_in_a_cell(tmp_path: Path) -> None:
    package = packages.from_source(
        """
        def handler(event, context):
            return event["n"] + 1
        """,
        Settings(),
    )
    assert run_alone(package, {"n": 1}, tmp_path) == 2


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (Settings(labkit=("work/bach",)), 'labkit has no module "work/bach"; a module is named as in work/batch'),
        (Settings(labkit=("work",)), 'labkit has no module "work"'),
        (Settings(labkit=("../tests/run",)), r'labkit has no module "\.\./tests/run"'),
        (Settings(labkit=("work/queues",)), r'labkit/work/queues\.py imports labkit\.models\.\w+: name "models/\w+"'),
        (Settings(labkit=("control/envelope",)), r"labkit/control/envelope\.py imports pydantic: name its library"),
        (
            Settings(handler="main.handler"),
            r"the handler is 'main\.handler', module\.function, and there is no main\.py",
        ),
        (Settings(handler="handler.main"), r"handler\.py defines no main"),
        (Settings(libraries=("no-such-library",)), "library no-such-library is not installed here"),
        (Settings(libraries=("jmespath==0.1",)), r"library jmespath is [\d.]+ here; ==0\.1 was asked for"),
        (Settings(libraries=("a b",)), "'a b' names no library"),
        (Settings(libraries=("numpy",)), "library numpy is compiled"),
        (Settings(libraries=("labkit",)), r"works through _labkit\.pth"),
    ],
)
def test_what_cannot_be_packaged_is_a_sentence(settings: Settings, says: str) -> None:
    with pytest.raises(PackageError, match=says):
        packages.from_source(HELLO, settings)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def handler(event, context)\n", r"handler\.py is not Python: .*line 1"),
        ("from labkit.work import batch\ndef handler(e, c): ...", 'imports labkit.work.batch: name "work/batch"'),
        (
            "try:\n    import labkit.work.batch as b\nexcept ImportError:\n    b = None\nhandler = b",
            'name "work/batch"',
        ),
        ("class A:\n    from labkit.work.batch import process\nhandler = A", 'name "work/batch"'),
    ],
)
def test_a_source_that_could_not_be_imported_is_found_before_it_is_deployed(source: str, says: str) -> None:
    with pytest.raises(PackageError, match=says):
        packages.from_source(source, Settings())


def test_what_is_imported_later_or_by_type_checkers_alone_need_not_be_there(tmp_path: Path) -> None:
    source = (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from labkit.lab import Lab\n"
        "def handler(event, context):\n"
        "    if event:\n        from labkit.lab import Lab\n"
        "    return 'ran'\n"
    )
    assert run_alone(packages.from_source(source, Settings()), None, tmp_path) == "ran"


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ("timeout = ", "cannot be read"),
        ("timout = 3", "there is no setting 'timout'; there are handler, timeout"),
        ('timeout = "3"', "timeout is '3'; it is of type int"),
        ("timeout = true", "timeout is True"),
        ('labkit = "work/batch"', "labkit is 'work/batch'; it is a list of texts"),
        ("libraries = [1]", "it is a list of texts"),
    ],
)
def test_a_function_toml_with_a_mistake_is_a_sentence(tmp_path: Path, toml: str, says: str) -> None:
    (tmp_path / "function.toml").write_text(toml)
    with pytest.raises(PackageError, match=says):
        Settings.read(tmp_path / "function.toml")


def test_a_folder_that_is_not_there_or_holds_a_name_twice_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="there is no folder"):
        packages.from_folder(tmp_path / "nowhere")
    (tmp_path / "handler.py").write_text(HELLO)
    (tmp_path / "labkit").mkdir()
    (tmp_path / "labkit" / "errors.py").write_text("")
    with pytest.raises(PackageError, match=r"labkit/errors\.py would be in the package twice"):
        packages.from_folder(tmp_path)


@pytest.mark.parametrize("kind", ["zipped", "unzipped"])
def test_a_package_that_lambda_would_not_take_is_refused(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    small = {f"lambda.package.{kind}_bytes": 1000}
    monkeypatch.setattr(packages, "facts", lambda key: small.get(key) or facts(key))
    with pytest.raises(PackageError, match=rf"bytes {kind}; Lambda takes less than 1,000"):
        packages.from_source(HELLO, Settings())


# --- libraries --------------------------------------------------------------------------------------------------------


class Site:
    """A folder of installed libraries, made by hand."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def install(
        self, name: str, files: dict[str, bytes], *, requires: tuple[str, ...] = (), version: str = "1.0"
    ) -> None:
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        needs = "".join(f"Requires-Dist: {line}\n" for line in requires)
        files = {
            **files,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}".encode(),
        }
        rows = []
        for file, content in files.items():
            (self.path / file).parent.mkdir(parents=True, exist_ok=True)
            (self.path / file).write_bytes(content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
            rows.append(f"{file},sha256={digest},{len(content)}")
        for file in ("INSTALLER", "RECORD"):
            (self.path / info / file).write_text(f"{name}, installed today")
            rows.append(f"{info}/{file},,")
        (self.path / info / "RECORD").write_text("\n".join([*rows, "../../../bin/tool,,"]) + "\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return Site(folder)


def test_a_library_comes_with_what_it_requires_and_without_its_extras(site: Site) -> None:
    site.install("in-need", {"in_need.py": b"1"}, requires=("the-needed>=1", "extra-one; extra == 'all'"))
    site.install("the-needed", {"the_needed/__init__.py": b"2"}, requires=("never; python_version < '3'",))
    files, versions = libraries.collect(["In_Need==1.0"])
    assert versions == {"in-need": "1.0", "the-needed": "1.0"}
    assert sorted(files) == [
        "in_need-1.0.dist-info/METADATA",
        "in_need.py",
        "the_needed-1.0.dist-info/METADATA",
        "the_needed/__init__.py",
    ]


def test_a_requirement_that_is_not_met_is_named(site: Site) -> None:
    site.install("in-need", {"in_need.py": b"1"}, requires=("the-needed>=2",))
    with pytest.raises(PackageError, match="library the-needed is not installed"):
        libraries.collect(["in-need"])
    site.install("the-needed", {"the_needed.py": b"2"})
    with pytest.raises(PackageError, match=r"library the-needed is 1\.0 here; >=2 was asked for"):
        libraries.collect(["in-need"])


def test_a_file_that_was_changed_or_lost_since_it_was_installed_is_named(site: Site) -> None:
    site.install("edited", {"edited.py": b"one"})
    (site.path / "edited.py").write_bytes(b"two")
    with pytest.raises(PackageError, match=r"library edited: edited\.py was changed since it was installed"):
        libraries.collect(["edited"])
    (site.path / "edited.py").unlink()
    with pytest.raises(PackageError, match=r"library edited has lost edited\.py"):
        libraries.collect(["edited"])


@pytest.mark.parametrize("suffix", [".so", ".pyd", ".dll", ".dylib"])
def test_a_compiled_library_is_taken_along_only_if_told(site: Site, suffix: str) -> None:
    site.install("fast", {f"fast/core{suffix}": b"machine code"})
    with pytest.raises(PackageError, match="would run on this machine's platform only"):
        libraries.collect(["fast"])
    files, _ = libraries.collect(["fast"], compiled=True)
    assert f"fast/core{suffix}" in files


def test_a_library_that_is_not_the_locked_one_is_refused(site: Site) -> None:
    site.install("jmespath", {"jmespath.py": b""}, version="99.0")
    with pytest.raises(PackageError, match=r"library jmespath is 99\.0 here and [\d.]+ in the lock; type `make setup`"):
        libraries.collect(["jmespath"])


# --- deploying --------------------------------------------------------------------------------------------------------


def configuration(function: Function) -> Any:
    return function.client.get_function_configuration(FunctionName=function.name)


def test_what_is_deployed_can_be_called_at_once(lab: Lab) -> None:
    function = Function.deploy(lab, "hello", source=HELLO, env={"MODE": "test"}, timeout=7, memory=256)
    now = configuration(function)
    assert (now["State"], now["LastUpdateStatus"]) == ("Active", "Successful")
    assert (now["Timeout"], now["MemorySize"], now["Environment"]) == (7, 256, {"Variables": {"MODE": "test"}})
    assert function.invoke({"n": [1]}).payload == {"hello": {"n": [1]}}
    assert function.client.list_tags(Resource=function.arn)["Tags"] == lab.tags
    assert Function(function.client, lab.client("logs"), "hello").timeout == 7  # one that exists


def test_deploying_the_same_again_changes_nothing(lab: Lab) -> None:
    first = configuration(Function.deploy(lab, "hello", source=HELLO, env={"MODE": "1"}, concurrency=3))
    again = configuration(Function.deploy(lab, "hello", source=HELLO, env={"MODE": "1"}))
    assert (first["RevisionId"], first["LastModified"]) == (again["RevisionId"], again["LastModified"])
    reserved = lab.client("lambda").get_function_concurrency(FunctionName="hello")
    assert reserved["ReservedConcurrentExecutions"] == 3


def test_only_what_differs_is_changed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    changes: list[str] = []
    change = functions._change
    monkeypatch.setattr(functions, "_change", lambda *args, **kw: (changes.append(args[2]), change(*args, **kw)))

    def deploy(**wanted: Any) -> Function:
        return Function.deploy(lab, "hello", timeout=PATIENT, **wanted)

    deploy(source=HELLO, env={"MODE": "1"})
    assert changes == []
    function = deploy(source=HELLO.replace("hello", "goodbye"), env={"MODE": "1"})
    assert changes == ["update_function_code"]
    assert function.invoke(1).payload == {"goodbye": 1}
    function = deploy(source=HELLO.replace("hello", "goodbye"))
    assert changes[1:] == ["update_function_configuration"]
    assert "MODE" not in configuration(function).get("Environment", {}).get("Variables", {})


def refusal(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "an update is in progress"}}, "UpdateFunctionCode")


def test_a_call_that_is_refused_while_another_change_is_under_way_is_made_again_for_so_long() -> None:
    answers: list[Any] = [refusal("ResourceConflictException"), refusal("ResourceConflictException"), "done"]
    now = [0.0]

    def call() -> Any:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def tried(*codes: str) -> Any:
        return sweep.patiently(call, *codes, within=5, clock=lambda: now[0], sleep=sleep)

    assert tried("ResourceConflictException") == "done"
    assert 0 < now[0] < 1
    answers[:] = [refusal("ResourceConflictException")]
    with pytest.raises(ClientError, match="an update is in progress"):
        tried("ResourceConflictException")
    assert 5 <= now[0] < 10
    before = now[0]
    with pytest.raises(ClientError):
        tried("SomethingElse")
    assert now[0] == before


def test_a_refused_deployment_is_a_sentence_and_leaves_nothing(lab: Lab) -> None:
    with pytest.raises(FunctionError, match="function hello was not deployed"):
        Function.deploy(lab, "hello", source=HELLO, timeout=0)
    with pytest.raises(PackageError):
        Function.deploy(lab, "hello", source=HELLO, labkit=["nothing"])
    with pytest.raises(FunctionError, match="has a folder and a source"):
        Function.deploy(lab, "hello", "agent_step", source=HELLO)
    with pytest.raises(FunctionError, match=r"its function\.toml says what it takes along"):
        Function.deploy(lab, "agent-step", libraries=["jmespath"])
    assert lab.client("lambda").list_functions()["Functions"] == []
    assert lab.client("logs").describe_log_groups()["logGroups"] == []


def shared_lab() -> Lab:
    there = targets.Target("aws", None, "eu-west-1", "a test", account="123456789012")
    return Lab("05-lambda", there, "123456789012", Scope("lab-me-05-lambda-", ("lab", "05-lambda")))


def test_on_aws_a_role_must_be_given() -> None:
    with pytest.raises(FunctionError, match="on AWS a function needs a role"):
        functions._role(shared_lab(), None)
    assert functions._role(shared_lab(), "arn:aws:iam::123456789012:role/mine") == "arn:aws:iam::123456789012:role/mine"


def test_a_function_of_somebody_else_is_left_alone() -> None:
    class Account:
        class exceptions:
            class ResourceNotFoundException(Exception): ...

        def get_function(self, FunctionName: str) -> Any:
            return {"Configuration": {"CodeSha256": "other"}, "Tags": {"lab": "06"}}

    package = packages.from_source(HELLO, Settings())
    with pytest.raises(FunctionError, match="exists and is not this lab's; nothing was changed"):
        functions._bring_to(Account(), "lab-me-05-lambda-hello", package, {}, shared_lab())


# --- calling ----------------------------------------------------------------------------------------------------------

CALLS = """
import logging

def handler(event, context):
    print("called with", event)
    if event == "fail":
        raise ValueError("told to")
    logging.getLogger().warning("warned")
    return event
"""


def test_what_a_call_came_to(lab: Lab) -> None:
    function = Function.deploy(lab, "calls", source=CALLS, timeout=PATIENT)
    good = function.invoke("well")
    assert (good.payload, good.error, good.message) == ("well", None, None)
    assert good.log[0] == "called with well"
    assert good.log[1].endswith("warned")
    bad = function.invoke("fail")
    assert (bad.error, bad.message) == ("ValueError", "told to")
    assert not any(is_platform(line) for line in (*good.log, *bad.log))
    with pytest.raises(InvocationFailed, match="function calls failed: ValueError: told to") as caught:
        function.invoke("fail", check=True)
    assert caught.value.result.payload["errorMessage"] == "told to"
    assert caught.value.code == "ValueError"


class Answers:
    """Lambda with one answer ready."""

    def __init__(self, payload: Any, **answer: Any) -> None:
        self.answer = {"Payload": io.BytesIO(json.dumps(payload).encode()), **answer}
        self.meta = SimpleNamespace(config=SimpleNamespace(read_timeout=25))

    def get_function_configuration(self, FunctionName: str) -> Any:
        return {"FunctionArn": f"arn:aws:lambda:us-east-1:1:function:{FunctionName}", "Timeout": 3}

    def invoke(self, **arguments: Any) -> Any:
        return self.answer


def test_the_log_of_a_call_is_the_functions_and_its_price_is_read_from_lambdas_line() -> None:
    tail = (
        "START RequestId: 7 Version: $LATEST\nhello\n[WARNING]\t2026-01-01T00:00:00.000Z\t7\twarned\n"
        "END RequestId: 7\nREPORT RequestId: 7\tDuration: 11.20 ms\tBilled Duration: 12 ms\tMemory Size: 128 MB\t\n"
    )
    client = Answers(None, LogResult=base64.b64encode(tail.encode()).decode())
    result = Function(client, None, "hello").invoke()
    assert result.log == ("hello", "[WARNING]\t2026-01-01T00:00:00.000Z\t7\twarned")
    assert (result.billed_ms, result.payload) == (12, None)


def test_an_error_of_the_runtime_itself_has_a_type_as_well() -> None:
    timed_out = {
        "errorType": "Sandbox.Timedout",
        "errorMessage": "RequestId: 7 Error: Task timed out after 3.00 seconds",
    }
    result = Function(Answers(timed_out, FunctionError="Unhandled"), None, "hello").invoke()
    assert (result.error, result.message) == ("Sandbox.Timedout", timed_out["errorMessage"])
    assert Function(Answers("no object", FunctionError="Unhandled"), None, "hello").invoke().error == "Unhandled"


def test_a_call_that_broke_off_leaves_a_doubt_and_says_so() -> None:
    def invoke(**arguments: Any) -> Any:
        raise ReadTimeoutError(endpoint_url="http://127.0.0.1:9")

    client = Answers(None)
    client.invoke = invoke  # type: ignore[method-assign]
    with pytest.raises(FunctionError, match="broke off, and nobody knows whether it ran"):
        Function(client, None, "hello").invoke()


@pytest.mark.parametrize("payload", [{1, 2}, float("nan"), object(), b"bytes"])
def test_a_payload_that_cannot_travel_is_a_sentence(lab: Lab, payload: Any) -> None:
    function = Function.deploy(lab, "hello", source=HELLO)
    for call in (function.invoke, function.invoke_async):
        with pytest.raises(FunctionError, match="a payload is what JSON can hold"):
            call(payload)


def test_a_call_that_the_client_would_make_twice_is_not_made(lab: Lab) -> None:
    function = Function.deploy(lab, "slow", source=HELLO, timeout=60)
    with pytest.raises(FunctionError, match="may take 60 s and the client waits 25 s, then calls it again"):
        function.invoke()
    assert function.logs(platform=True) == []


def test_a_throttled_call_is_an_error_with_aws_s_code(lab: Lab) -> None:
    function = Function.deploy(lab, "hello", source=HELLO, concurrency=0, timeout=PATIENT)
    with pytest.raises(FunctionError, match="function hello was not called") as caught:
        function.invoke()
    assert caught.value.code == "TooManyRequestsException"
    function.set_concurrency(None)
    assert function.invoke(1).payload == {"hello": 1}


def test_an_asynchronous_call_shows_in_the_log(lab: Lab) -> None:
    function = Function.deploy(lab, "calls", source=CALLS, timeout=PATIENT)
    start = time.time()
    assert function.invoke_async("later")
    assert next(function.follow(60, since=start)) == "called with later"


# --- logs -------------------------------------------------------------------------------------------------------------


class Streams:
    """CloudWatch Logs with lines that appear as a clock goes on."""

    class exceptions:
        class ResourceNotFoundException(Exception): ...

    def __init__(self, *lines: tuple[float, str, int, str]) -> None:
        self.lines, self.now = lines, 0.0  # when it can be read, stream, time stamp (ms), text

    def get_paginator(self, operation: str) -> Streams:
        return self

    def paginate(self, logGroupName: str, startTime: int = 0) -> Iterator[Any]:
        if logGroupName == "nothing":
            raise self.exceptions.ResourceNotFoundException
        for stream in ("one", "two"):  # page by page, and not in the order of time
            yield {
                "events": [
                    {"logStreamName": name, "timestamp": stamp, "message": f"{text}\n"}
                    for appears, name, stamp, text in self.lines
                    if name == stream and appears <= self.now and stamp >= startTime
                ]
            }

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_lines_of_all_streams_are_in_order_without_lambdas_own() -> None:
    client = Streams(
        (0, "one", 1000, "START RequestId: 1 Version: $LATEST"),
        (0, "one", 1000, "first"),
        (0, "one", 3000, "third"),
        (0, "one", 3000, "END RequestId: 1"),
        (0, "one", 3000, "REPORT RequestId: 1\tDuration: 3 ms"),
        (0, "two", 500, "INIT_START Runtime Version: python:3.12"),
        (0, "two", 2000, "second"),
        (0, "two", 2500, "REPORTED twice"),
    )
    log = Log(client, "/aws/lambda/work")
    assert log.lines() == ["first", "second", "REPORTED twice", "third"]
    assert log.lines(limit=2) == ["REPORTED twice", "third"]
    assert log.lines(since=2.5) == ["REPORTED twice", "third"]
    assert len(log.lines(platform=True)) == 8
    assert Log(client, "nothing").lines() == []


def test_following_yields_each_line_once_also_one_that_comes_late_and_ends_in_time() -> None:
    client = Streams(
        (0, "one", 0, "at once"),
        (0, "one", 0, "at once"),  # two lines that nothing tells apart are two
        (1.0, "one", 900, "soon"),
        (2.0, "two", 400, "late"),
        (9.0, "one", 2500, "too late"),
    )
    log = Log(client, "/aws/lambda/work")
    lines = list(log.follow(3, every=0.5, clock=lambda: client.now, sleep=client.sleep))
    assert lines == ["at once", "at once", "soon", "late"]
    assert client.now == 3


# --- mappings ---------------------------------------------------------------------------------------------------------

COLLECT = """
def handler(event, context):
    print("batch", len(event["Records"]))
"""


def listed(lab: Lab) -> list[Any]:
    found: list[Any] = lab.client("lambda").list_event_source_mappings()["EventSourceMappings"]
    return found


def test_a_queue_that_hides_for_less_than_the_function_takes_is_refused_before_the_call(lab: Lab) -> None:
    function = Function.deploy(lab, "collect", source=COLLECT, timeout=20)
    queue = Queue.create(lab, "work", visibility=19)
    with pytest.raises(FunctionError, match=r"hides a message for 19 s .* may take 20 s.*visibility of 125 s"):
        function.map_queue(queue, window=5)
    assert listed(lab) == []
    assert visibility_for(20, 5) == 125


def test_a_mapping_polls_when_it_is_made_and_making_it_again_changes_it(lab: Lab) -> None:
    function = Function.deploy(lab, "collect", source=COLLECT)
    queue = Queue.create(lab, "work", visibility=18)
    first = function.map_queue(queue, batch_size=5, concurrency=2, filters=[{"body": {"kind": ["step"]}}])
    assert first.state == "Enabled"
    [made] = listed(lab)
    assert (made["BatchSize"], made["FunctionResponseTypes"]) == (5, ["ReportBatchItemFailures"])
    assert made["ScalingConfig"] == {"MaximumConcurrency": 2}
    assert json.loads(made["FilterCriteria"]["Filters"][0]["Pattern"]) == {"body": {"kind": ["step"]}}
    again = function.map_queue(queue, partial=False)
    assert again.uuid == first.uuid
    [changed] = listed(lab)
    assert (changed["BatchSize"], changed.get("FunctionResponseTypes", [])) == (10, [])
    assert not changed.get("FilterCriteria", {}).get("Filters")
    assert not changed.get("ScalingConfig", {}).get("MaximumConcurrency")


def test_a_mapping_can_be_stopped_started_and_deleted(lab: Lab) -> None:
    function = Function.deploy(lab, "collect", source=COLLECT, timeout=PATIENT)
    queue = Queue.create(lab, "work", visibility=90)
    mapping = function.map_queue(queue)
    mapping.disable()
    queue.send("waits")
    time.sleep(0.5)
    assert queue.depth().visible == 1
    mapping.enable()
    end = time.monotonic() + 60
    while not function.logs() and time.monotonic() < end:
        time.sleep(0.1)
    assert function.logs() == ["batch 1"]
    mapping.delete()
    assert listed(lab) == []
    mapping.delete()  # harmless


def test_what_lambda_does_not_allow_is_a_sentence(lab: Lab) -> None:
    function = Function.deploy(lab, "collect", source=COLLECT)
    lane = Queue.create(lab, "lane.fifo", visibility=18)
    with pytest.raises(FunctionError, match=r"lane\.fifo is a FIFO queue: it has no batching window"):
        function.map_queue(lane, window=1)
    with pytest.raises(FunctionError, match=r"mapping lane\.fifo → collect was not made"):
        function.map_queue(lane, batch_size=-1)
    assert listed(lab) == []


def test_waiting_for_a_state_ends() -> None:
    class Stuck:
        def get_event_source_mapping(self, UUID: str) -> dict[str, str]:
            return {"State": "Creating"}

    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    mapping = QueueMapping(Stuck(), "uuid", "work → collect")
    with pytest.raises(FunctionError, match="mapping work → collect is Creating, not Enabled, after 9 s"):
        mapping.wait("Enabled", within=9, clock=lambda: now[0], sleep=sleep)
    assert 9 <= now[0] < 12


def test_a_batch_from_a_queue_is_answered_message_by_message(lab: Lab) -> None:
    """The course's own function: what fails comes back, what is done does not, and the third delivery succeeds."""
    function = Function.deploy(lab, "agent-step", timeout=4)
    queue = Queue.create(lab, "work", visibility=4)
    payloads = [{"n": 0}, {"n": 1, "fail": "ValueError", "until": 3}, {"n": 2}]
    queue.send_batch([{"trace_id": f"step-{index}", "payload": payload} for index, payload in enumerate(payloads)])
    start = time.time()  # before the mapping: it reads from the moment it is made
    function.map_queue(queue)
    done: dict[str, int] = {}
    for line in function.follow(60, since=start):
        said = json.loads(line[line.index("{") :])
        if "step" in said:
            done[said["trace_id"]] = said["receives"]
            if len(done) == 3:
                break
    assert done == {"step-0": 1, "step-1": 3, "step-2": 1}


def test_deleting_a_function_takes_its_mappings_and_leaves_its_log(lab: Lab) -> None:
    function = Function.deploy(lab, "collect", source=COLLECT)
    function.map_queue(Queue.create(lab, "work", visibility=18))
    function.delete()
    function.delete()  # harmless
    assert listed(lab) == []
    assert lab.client("lambda").list_functions()["Functions"] == []
    assert [group["logGroupName"] for group in lab.client("logs").describe_log_groups()["logGroups"]] == [
        "/aws/lambda/collect"
    ]


# --- nothing left behind ----------------------------------------------------------------------------------------------


def test_a_lab_takes_functions_mappings_and_logs_with_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LABKIT_LEARNER", uuid.uuid4().hex)
    opened = Lab.open("sweep")
    function = Function.deploy(opened, "collect", source=COLLECT)
    function.map_queue(Queue.create(opened, "work", visibility=18))
    opened.close()
    assert capsys.readouterr().out.splitlines()[-1] == (
        "Lab sweep closed: removed 1 event source mapping, 1 function, 1 log group, 1 queue; "
        "0 resources, 0 threads left behind."
    )


def test_mappings_go_before_functions_and_both_before_logs_and_queues() -> None:
    nouns = [kind.noun for kind in kinds.KINDS]
    order = ["rule", "event source mapping", "function", "log group", "queue"]
    assert [noun for noun in nouns if noun in order] == order
    services = sweep.in_order(["sqs", "logs", "lambda", "events", "s3"])
    assert services.index("lambda") < services.index("logs") < services.index("sqs")


class SharedLambda:
    """Lambda in an account that others use as well."""

    class exceptions:
        class ResourceNotFoundException(Exception): ...

    def __init__(self) -> None:
        self.functions = {
            "lab-me-05-step": {"lab": "05"},
            "lab-me-05-lookalike": {},
            "prod": {"lab": "05"},
        }
        self.mappings = dict(self.functions)  # one mapping each, named and tagged as its function

    def can_paginate(self, operation: str) -> bool:
        return False

    def arn(self, name: str) -> str:
        return f"arn:aws:lambda:eu-west-1:123456789012:{name}"

    def list_functions(self) -> Any:
        return {"Functions": [{"FunctionName": name} for name in self.functions]}

    def list_event_source_mappings(self) -> Any:
        listed = [{"UUID": name, "FunctionArn": self.arn(f"function:{name}")} for name in self.mappings]
        return {"EventSourceMappings": listed}

    def get_event_source_mapping(self, UUID: str) -> Any:
        if UUID not in self.mappings:
            raise self.exceptions.ResourceNotFoundException
        return {"EventSourceMappingArn": self.arn(f"event-source-mapping:{UUID}")}

    def get_function_configuration(self, FunctionName: str) -> Any:
        return {"FunctionArn": self.arn(f"function:{FunctionName}")}

    def list_tags(self, Resource: str) -> Any:
        *_, kind, name = Resource.split(":")
        return {"Tags": {"function": self.functions, "event-source-mapping": self.mappings}[kind][name]}

    def delete_function(self, FunctionName: str) -> None:
        del self.functions[FunctionName]

    def delete_event_source_mapping(self, UUID: str) -> None:
        if UUID not in self.mappings:
            raise self.exceptions.ResourceNotFoundException
        del self.mappings[UUID]


def test_in_a_shared_account_only_what_has_name_and_tag_is_deleted() -> None:
    account = SharedLambda()
    gone = sweep.delete("lambda", account, Scope("lab-me-05-", ("lab", "05")))
    assert gone == {"event source mapping": 1, "function": 1}
    assert set(account.functions) == set(account.mappings) == {"lab-me-05-lookalike", "prod"}


def test_in_a_shared_account_only_the_labs_log_groups_are_deleted() -> None:
    tags = {"lab-me-05-step": {"lab": "05"}, "lab-me-05-step-too": {"lab": "06"}, "lab-me-05-lookalike": {}}
    groups = {f"/aws/lambda/{name}": value for name, value in tags.items()}

    class Logs:
        def can_paginate(self, operation: str) -> bool:
            return False

        def describe_log_groups(self, logGroupNamePrefix: str) -> Any:
            names = [name for name in groups if name.startswith(logGroupNamePrefix)]
            return {"logGroups": [{"logGroupName": name, "arn": f"arn:aws:logs:{name}:*"} for name in names]}

        def list_tags_for_resource(self, resourceArn: str) -> Any:
            return {"tags": groups[resourceArn.removeprefix("arn:aws:logs:")]}

        def delete_log_group(self, logGroupName: str) -> None:
            del groups[logGroupName]

    assert sweep.delete("logs", Logs(), Scope("lab-me-05-", ("lab", "05"))) == {"log group": 1}
    assert set(groups) == {"/aws/lambda/lab-me-05-step-too", "/aws/lambda/lab-me-05-lookalike"}


def test_a_mapping_that_does_not_go_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    account = SharedLambda()
    monkeypatch.setattr(account, "delete_event_source_mapping", lambda UUID: None)
    with pytest.raises(LabError, match="event source mapping prod is still there 0 s after it was deleted"):
        kinds.delete_mapping(account, "prod", within=0.3)
