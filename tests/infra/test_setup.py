"""What the set-up is made of: locks, the conda environment, the bootstrap."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def pins(lock: Path) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9._-]+)==([^\s;\\]+)", lock.read_text(), re.M | re.I))


def named(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=!~\[ ;]", requirement)[0].lower() for requirement in requirements}


def test_there_is_a_lock_for_each_environment() -> None:
    assert [lock.stem for lock in LOCKS] == ["course", "emulator", "localstack", "tools"]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_every_pin_has_a_hash_and_no_line_names_an_index(lock: Path) -> None:
    text = lock.read_text()
    blocks = re.split(r"(?m)^(?=[A-Za-z0-9])", text)
    assert all("--hash=sha256:" in block for block in blocks if "==" in block)
    assert not re.search(r"^\s*(-i\b|--(extra-)?index-url|--find-links)|https?://", text, re.M)


def test_what_the_project_asks_for_is_locked() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = named(PROJECT["project"]["dependencies"]) | named(extras["course"]) | named(extras["dev"])
    assert wanted <= set(pins(ROOT / "requirements" / "course.lock"))


def test_the_stand_in_is_pinned_to_the_digit_in_all_three_places() -> None:
    from parity import PINNED, states_engine

    own = tomllib.loads((ROOT / "infra" / "emulator" / "pyproject.toml").read_text())
    locked = pins(ROOT / "requirements" / "emulator.lock")
    assert own["project"]["dependencies"] == [
        f"ministack=={PINNED}",
        f"boto3=={locked['boto3']}",
        f"moto[stepfunctions]=={states_engine.PINNED}",
    ]
    assert locked["ministack"] == PINNED
    assert locked["boto3"] == locked["botocore"]  # the release for handlers goes with the one that MiniStack pins
    assert "ministack" not in pins(ROOT / "requirements" / "course.lock")


def test_the_conda_environment_is_kept_equal_to_the_project() -> None:
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())
    python, pip, installed = conda["dependencies"]
    low, high = re.findall(r"3\.(\d+)", PROJECT["project"]["requires-python"])
    assert int(low) <= int(python.removeprefix("python=3.")) < int(high)
    assert pip == "pip"
    # pip installs the project itself with its extras: what it needs is written once, in pyproject.toml.
    [editable] = installed["pip"]
    extras = set(re.search(r"\[(.*)\]", editable).group(1).split(","))  # type: ignore[union-attr]
    assert editable.startswith("-e .")
    assert extras <= set(PROJECT["project"]["optional-dependencies"])
    assert "course" in extras


@pytest.fixture
def bootstrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The bootstrap, with a folder of this test's own for everything that it makes."""
    spec = importlib.util.spec_from_file_location("bootstrap", ROOT / "infra" / "bootstrap.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bootstrap", module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "argv", ["bootstrap.py"])
    for name, path in {
        "LAB": tmp_path,
        "LOG": tmp_path / "setup.log",
        "COURSE": tmp_path / "course",
        "EMULATOR": tmp_path / "emulator",
        "LOCALSTACK": tmp_path / "localstack",
        "TOOLS": tmp_path / "tools",
    }.items():
        monkeypatch.setattr(module, name, path)
    return module


@pytest.fixture
def plan(bootstrap: ModuleType) -> Any:
    return bootstrap.plan_of(True)


def whole(plan: Any) -> dict[str, str]:
    """What the stamp of a finished set-up says."""
    return {**plan.wanted(), "contents": plan.contents()}


def finished(environment: Path, *names: str) -> None:
    (environment / "bin").mkdir(parents=True)
    for name in names:
        (environment / "bin" / name).touch()


def test_a_finished_set_up_costs_nothing(bootstrap: ModuleType, plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    finished(bootstrap.COURSE, "python", "labkit")
    finished(bootstrap.EMULATOR, "python")
    plan.stamp.write_text(json.dumps(whole(plan)))
    monkeypatch.setattr(bootstrap, "run", lambda *command: pytest.fail(f"ran {command}"))
    assert bootstrap.main() == 0


def test_a_package_that_was_lost_is_noticed(bootstrap: ModuleType, plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    finished(bootstrap.COURSE, "python", "labkit")
    finished(bootstrap.EMULATOR, "python")
    package = bootstrap.EMULATOR / "lib" / "python3.12" / "site-packages" / "hypercorn"
    package.mkdir(parents=True)
    plan.stamp.write_text(json.dumps(whole(plan)))
    package.rmdir()
    ran: list[object] = []
    monkeypatch.setattr(bootstrap, "run", lambda *command: ran.append(command))
    assert bootstrap.main() == 0
    assert ran


@pytest.mark.parametrize("stamp", [None, "{cut off", {"inputs": "older"}])
def test_anything_else_is_made_and_stamped_last(
    bootstrap: ModuleType, plan: Any, monkeypatch: pytest.MonkeyPatch, stamp: object
) -> None:
    if stamp is not None:
        plan.stamp.write_text(stamp if isinstance(stamp, str) else json.dumps({**plan.wanted(), **stamp}))
    ran: list[str] = []

    def run(*command: object) -> None:
        assert not plan.stamp.exists()  # an interruption from here on must not look like success
        ran.append(" ".join(map(str, command)))

    monkeypatch.setattr(bootstrap, "run", run)
    monkeypatch.setattr(bootstrap, "find_uv", lambda: Path("uv"))
    assert bootstrap.main() == 0
    assert json.loads(plan.stamp.read_text()) == whole(plan)
    assert sum("--require-hashes" in command for command in ran) == 2


def test_a_failing_step_is_a_sentence_and_leaves_no_stamp(
    bootstrap: ModuleType, plan: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bootstrap, "find_uv", lambda: Path("/no/such/uv"))
    monkeypatch.setattr(
        bootstrap, "make", lambda *_: bootstrap.run(sys.executable, "-c", "raise SystemExit('no room')")
    )
    assert bootstrap.main() == 1
    assert "no room" in capsys.readouterr().err
    assert not plan.stamp.exists()


def test_without_uv_pip_does_it(bootstrap: ModuleType, plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    monkeypatch.setattr(bootstrap, "run", lambda *command: ran.append(" ".join(map(str, command))))
    monkeypatch.setattr(bootstrap, "find_uv", lambda: None)
    assert bootstrap.main() == 0
    assert any("-m venv" in command for command in ran)
    assert sum("pip install --require-hashes" in command for command in ran) == 2


def test_localstack_gets_an_environment_of_its_own_on_cpython_3_13(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    monkeypatch.setattr(sys, "argv", ["bootstrap.py", "--localstack"])
    monkeypatch.setattr(bootstrap, "run", lambda *command: ran.append(" ".join(map(str, command))))
    monkeypatch.setattr(bootstrap, "find_uv", lambda: Path("uv"))
    monkeypatch.setattr(bootstrap, "_is_3_13", lambda python: python == "/opt/python3.13")
    monkeypatch.setenv("PYTHON313", "/opt/python3.13")
    assert bootstrap.main() == 0
    assert any("--python /opt/python3.13" in command for command in ran)
    assert sum("requirements/localstack.lock" in command for command in ran) == 1
    assert not any("course.lock" in command or "emulator.lock" in command for command in ran)
    assert json.loads((bootstrap.LAB / "setup-localstack.json").read_text()) == whole(bootstrap.plan_of(False))


@pytest.mark.parametrize("named", ["", "/nowhere/python3.13"])
def test_without_cpython_3_13_a_sentence_says_what_to_install(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], named: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["bootstrap.py", "--localstack"])
    monkeypatch.setattr(bootstrap, "find_uv", lambda: None)
    monkeypatch.setattr(bootstrap, "run", lambda *command: pytest.fail(f"ran {command}"))
    monkeypatch.setattr(bootstrap, "_is_3_13", lambda python: False)
    monkeypatch.setenv("PYTHON313", named)
    assert bootstrap.main() == bootstrap.NO_PYTHON
    said = capsys.readouterr().err
    assert "LocalStack 4.14.0 runs on CPython 3.13 alone" in said
    assert "PYTHON313=/path/to/python3.13" in said
    assert (f"{named} is none" if named else "none was found") in said


def test_a_name_that_runs_nothing_is_no_python(bootstrap: ModuleType, tmp_path: Path) -> None:
    shim = tmp_path / "python3.13"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    assert not bootstrap._is_3_13(str(shim))
    assert bootstrap._is_3_13(sys.executable) == (sys.version_info[:2] == (3, 13))


def test_localstack_is_pinned_to_the_digit() -> None:
    own = tomllib.loads((ROOT / "infra" / "localstack" / "pyproject.toml").read_text())
    release = pins(ROOT / "requirements" / "localstack.lock")["localstack-core"]
    assert f"localstack-core[runtime]=={release}" in own["project"]["dependencies"]
    compose = yaml.safe_load((ROOT / "infra" / "localstack" / "compose.yaml").read_text())
    assert compose["services"]["localstack"]["image"].endswith(f":-localstack/localstack:{release}}}")
    source = (ROOT / "infra" / "localstack" / "hostmode" / "__init__.py").read_text()
    assert f'PINNED = "{release}"' in source


def test_the_container_listens_on_loopback_only() -> None:
    compose = yaml.safe_load((ROOT / "infra" / "localstack" / "compose.yaml").read_text())
    assert all(port.startswith("127.0.0.1:") for port in compose["services"]["localstack"]["ports"])


def test_the_python_that_was_named_once_is_taken_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make lab PYTHON=/path/to/python3.13`, then `make test`: the same environment, and not another one."""
    monkeypatch.delenv("PYTHON", raising=False)  # of who runs the tests
    (tmp_path / "infra").mkdir()
    shutil.copy(ROOT / "infra" / "setup.sh", tmp_path / "infra")
    (tmp_path / "infra" / "bootstrap.py").write_text("import sys; print(sys.argv)")
    release = f"{sys.version_info.major}.{sys.version_info.minor}"
    named = tmp_path / "named" / f"python{release}"
    named.parent.mkdir()
    named.write_text(f'#!/bin/sh\necho named\nexec "{sys.executable}" "$@"\n')
    named.chmod(0o755)
    (tmp_path / ".venv").mkdir()
    for version in (f"version = {release}.9", f"version_info = {release}.9"):  # venv's word, and uv's
        (tmp_path / ".venv" / "pyvenv.cfg").write_text(f"home = {named.parent}\n{version}\n")
        command = ["sh", str(tmp_path / "infra" / "setup.sh"), "--again"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        assert "named" in done.stdout
        assert "--again" in done.stdout
    named.unlink()  # it was uninstalled
    done = subprocess.run(["sh", str(tmp_path / "infra" / "setup.sh")], check=True, capture_output=True, text=True)
    assert "named" not in done.stdout


def test_where_no_python_fits_the_set_up_says_what_to_install(tmp_path: Path) -> None:
    fake = tmp_path / "python3"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    (tmp_path / "infra").mkdir()
    shutil.copy(ROOT / "infra" / "setup.sh", tmp_path / "infra")
    for name in ("sh", "dirname"):
        (tmp_path / name).symlink_to(Path("/bin") / name if (Path("/bin") / name).exists() else Path("/usr/bin") / name)
    environment = {"PATH": str(tmp_path), "HOME": os.environ.get("HOME", "/")}
    done = subprocess.run(
        [str(tmp_path / "sh"), str(tmp_path / "infra" / "setup.sh")],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "No Python 3.11, 3.12 or 3.13 was found" in done.stderr
