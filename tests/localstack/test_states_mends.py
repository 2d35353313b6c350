"""The parts of Step Functions' mends that need no LocalStack: names, records, what a request lists."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from parity import states_descriptions, states_executions, states_records
from parity.states_tokens import Refused

HOSTMODE = Path(__file__).parents[2] / "infra" / "localstack"
SCOPE = ("111122223333", "us-east-1")


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """``hostmode.states_names``: it is installed beside LocalStack, not here."""
    monkeypatch.syspath_prepend(str(HOSTMODE))
    return importlib.import_module("hostmode.states_names")


# -- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("asl.eval.environment", "localstack.services.stepfunctions.asl.eval.environment"),
        ("asl.component.state.state", "localstack.services.stepfunctions.asl.component.state.state"),
        ("asl.component.state.exec", "localstack.services.stepfunctions.asl.component.state.state_execution"),
        (
            "asl.component.state.choice.state_choice",
            "localstack.services.stepfunctions.asl.component.state.state_choice.state_choice",
        ),
        ("api", "localstack.aws.api.stepfunctions"),
        ("utils", "localstack.utils.strings"),
    ],
)
def test_what_localstack_calls_a_module(names: Any, name: str, found: str) -> None:
    assert names.original(f"moto.stepfunctions.parser.{name}") == found


@pytest.mark.parametrize("name", ["moto.stepfunctions.parser", "moto.stepfunctions.models", "json"])
def test_other_modules_keep_their_names(names: Any, name: str) -> None:
    assert names.original(name) is None


def test_a_module_answers_to_the_other_name_as_itself(names: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    port, module = ModuleType("ported"), ModuleType("original_here")
    port.__path__ = []
    monkeypatch.setitem(sys.modules, "ported", port)
    monkeypatch.setitem(sys.modules, "original_here", module)
    monkeypatch.setattr(names, "PORT", "ported")
    monkeypatch.setattr(names, "ELSEWHERE", {"api": "original_here"})
    monkeypatch.setattr(sys, "meta_path", [names.Alias(), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "ported.api", raising=False)
    try:
        assert importlib.import_module("ported.api") is module
        assert module.__name__ == "original_here"
    finally:
        sys.modules.pop("ported.api", None)


# -- records -------------------------------------------------------------------------------------------------------


class Kept(dict[str, Any]):
    """Records by their ARNs."""

    def put(self, record: dict[str, Any], scope: tuple[str, str]) -> None:
        self[record["executionArn"]] = record

    def drop(self, arn: str, scope: tuple[str, str]) -> None:
        self.pop(arn, None)


def test_the_last_children_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, runs = Kept(), states_records.Runs()
    monkeypatch.setattr(states_records, "KEEPERS", [kept])
    monkeypatch.setattr(states_records, "MAX_CHILDREN", 2)
    for name in "abc":
        runs.child({"executionArn": name}, SCOPE)
    assert list(kept) == ["b", "c"]


def test_whose_history_it_is() -> None:
    class Going:
        standard, record, scope = True, {"executionArn": "a", "events": []}, SCOPE

    runs = states_records.Runs()
    runs.began(Going)
    assert runs.with_history(Going.record["events"]) is Going
    assert runs.with_history([]) is None


def test_what_is_billed() -> None:
    record = {"startDate": "2026-01-01T00:00:00.000Z", "stopDate": "2026-01-01T00:00:00.150Z"}
    assert states_executions.billed(record) == {"billedMemoryUsedInMB": 64, "billedDurationInMilliseconds": 200}


# -- lists ---------------------------------------------------------------------------------------------------------


def test_executions_of_a_machine_and_of_a_map_run() -> None:
    def record(name: str, second: int, **more: Any) -> dict[str, Any]:
        start = f"2026-01-01T00:00:0{second}.000Z"
        return {"executionArn": name, "stateMachineArn": "m", "status": "RUNNING", "startDate": start, **more}

    records = [record("a", 1), record("b", 2), record("c", 3, mapRunArn="r")]

    def arns(**data: Any) -> list[str]:
        return [item["executionArn"] for item in states_descriptions.listed(data, records)["executions"]]

    assert arns(stateMachineArn="m") == ["b", "a"]
    assert arns(mapRunArn="r") == ["c"]
    assert arns(stateMachineArn="m", statusFilter="FAILED") == []


def test_a_list_is_of_a_standard_machine_or_of_a_map_run() -> None:
    looked: list[str] = []

    def check(**data: Any) -> None:
        states_descriptions.check_list(data, lambda arn: arn, looked.append)

    check(stateMachineArn="STANDARD")
    check(mapRunArn="r")
    assert looked == ["r"]
    for data in ({}, {"stateMachineArn": "EXPRESS"}, {"stateMachineArn": "STANDARD", "redriveFilter": "REDRIVEN"}):
        with pytest.raises(Refused):
            check(**data)
