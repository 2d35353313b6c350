"""The parity suite: every row runs on every target, and ``data/parity.csv`` says what is expected of each.

A row that is stored as «differs» must fail, and one that is stored as «as AWS» must pass: a change either way is a
failure here until the table says so too (``make parity``), so that it is seen in a diff and not taken for noise.
"""

from __future__ import annotations

import functools
import os
import re
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from labkit import targets
from labkit.parity import AS_AWS, DIFFERS, Row, markdown, read, write

HERE = Path(__file__).resolve().parent
REGION = "us-east-1"
RECORD = "--record-parity"
NEW = "--parity-new"
SEVERAL = "parity-row-of-several-tests"
WHOLE_MODULES = f"{RECORD} records whole modules: a row may consist of several tests, and all of them must be seen"
BLOCK = r"(<!-- parity: [^\n]*-->\n).*?(<!-- /parity -->)"


@dataclass
class Aws:
    """One AWS account of its own for one test."""

    endpoint: str
    account: str = field(default_factory=lambda: f"{uuid.uuid4().int % 10**12:012d}")
    region: str = REGION
    _clients: dict[str, Any] = field(default_factory=dict)

    def client(self, service: str) -> Any:
        if service not in self._clients:
            self._clients[service] = boto3.client(
                service,
                endpoint_url=beside(service) or self.endpoint,
                region_name=self.region,
                aws_access_key_id=self.account,
                aws_secret_access_key="test",
                config=Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=60),
            )
        return self._clients[service]

    def arn(self, service: str, resource: str) -> str:
        return f"arn:aws:{service}:{self.region}:{self.account}:{resource}"


GIVEN = os.environ.get("LABKIT_TEST_ENDPOINT")  # to try the suite against anything that listens somewhere
connect = functools.cache(targets.connect)


def beside(service: str) -> str | None:
    """Where a service answers that the target lacks and the stand-in beside it has."""
    return None if GIVEN or service not in connect().beside else connect().endpoint_of(service)


@pytest.fixture(scope="session")
def endpoint() -> str:
    return GIVEN or str(connect().endpoint)


@pytest.fixture
def aws(endpoint: str) -> Aws:
    return Aws(endpoint)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(RECORD, action="store_true", help="write what these modules show into data/parity.csv")
    parser.addoption(NEW, action="store_true", help="let rows that are not in data/parity.csv yet run, to write them")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "row(key, behaviour, source): one row of the parity table")
    config.addinivalue_line("markers", "ours(reason): a test of the stand-in that is no row of the table")
    config.stash[_RESULTS] = {}
    if not config.getoption(RECORD) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Better(), "parity-better")
    if config.getoption(RECORD) and any("::" in argument for argument in config.args):
        raise pytest.UsageError(WHOLE_MODULES)


_RESULTS = pytest.StashKey[dict[str, list[bool]]]()


def _row(item: pytest.Item) -> Row | None:
    mark = item.get_closest_marker("row")
    return Row(**mark.kwargs) if mark else None


def _parts(items: list[pytest.Item]) -> Counter[str]:
    """How many tests each row has."""
    return Counter(row.key for row in map(_row, items) if row)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    target = targets.chosen()
    stored = {row.key: row for row in read()}
    owners: dict[str, str] = {}
    parts = _parts(items)
    for item in items:
        if "tests/parity/" not in str(item.path).replace(os.sep, "/"):
            continue
        row = _row(item)
        if row is None and item.get_closest_marker("ours"):
            if target != "embedded":
                item.add_marker(pytest.mark.skip(reason="a test of the embedded stand-in, not of AWS's behaviour"))
            continue
        if row is None:
            raise pytest.UsageError(f"{item.nodeid} is in the parity suite and carries no row")
        function = item.nodeid.split("[")[0]
        if owners.setdefault(row.key, function) != function:
            raise pytest.UsageError(f"row {row.key} belongs to {owners[row.key]} and to {function}")
        if config.getoption(RECORD):
            continue
        known = stored.get(row.key)
        if known is None and config.getoption(NEW):
            continue
        if known is None or (known.behaviour, known.source) != (row.behaviour, row.source):
            reason = f"row {row.key} does not stand so in data/parity.csv; type `make parity`"
            item.stash[_REASON] = reason
        elif known.expected(target) == DIFFERS:
            # Where several tests make one row, some of them may pass although the row differs.
            item.add_marker(pytest.mark.xfail(strict=parts[row.key] == 1, reason="stored as differing from AWS"))
            if parts[row.key] > 1:
                item.user_properties.append((SEVERAL, (row.key, parts[row.key])))


_REASON = pytest.StashKey[str]()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if _REASON in item.stash:
        pytest.fail(item.stash[_REASON], pytrace=False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    row = _row(item)
    if row and (report.when == "call" or report.failed):
        item.config.stash[_RESULTS].setdefault(row.key, []).append(report.passed)


class Better:
    """Finds rows of several tests that are stored as differing and have passed every one of them.

    Some of them may pass on a target that differs, so none is expected to fail for itself.
    """

    def __init__(self) -> None:
        self.seen: dict[str, list[bool]] = {}
        self.parts: dict[str, int] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == SEVERAL and (report.when == "call" or report.failed):
                key, self.parts[key] = value
                self.seen.setdefault(key, []).append(report.passed)

    @property
    def rows(self) -> list[str]:
        return sorted(key for key, seen in self.seen.items() if len(seen) == self.parts[key] and all(seen))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.rows and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for key in self.rows:
            terminalreporter.line(f"FAILED row {key} is stored as differing from AWS and is as AWS now", red=True)


def pytest_deselected(items: list[pytest.Item]) -> None:
    if items and items[0].config.getoption(RECORD):
        raise pytest.UsageError(WHOLE_MODULES)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    broken = (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR)
    if exitstatus in broken or not session.config.getoption(RECORD):
        return
    results = session.config.stash[_RESULTS]
    rows = {row.key: row for row in map(_row, session.items) if row}
    parts = _parts(session.items)
    stored = {row.key: row for row in read()}
    target = targets.chosen()
    # What a run of some modules has not collected stays; what a run of all of them has not is no row any more.
    merged = [] if _all_modules(session.items) else [row for key, row in stored.items() if key not in rows]
    for key, row in rows.items():
        seen = {**(stored[key].seen if key in stored else {})}
        passed = results.get(key, [])
        if not all(passed):
            seen[target] = DIFFERS
        elif len(passed) == parts[key]:  # a run that was interrupted shows nothing of the rows that it did not finish
            seen[target] = AS_AWS
        merged.append(Row(row.key, row.behaviour, row.source, seen))
    write(merged)
    readme = HERE.parent.parent / "README.md"
    readme.write_text(re.sub(BLOCK, f"\\1{markdown()}\n\\2", readme.read_text(), flags=re.S))


def _all_modules(items: list[pytest.Item]) -> bool:
    return set(HERE.glob("test_*.py")) <= {item.path for item in items}
