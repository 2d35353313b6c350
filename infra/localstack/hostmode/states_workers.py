"""Executions: LocalStack's workers run them as :class:`parity.states_runs.Run` does.

**AWS**: see :mod:`parity.states_runs`.

**LocalStack** makes the environment of an execution in the execution's thread, so that an execution that has just been
started cannot be stopped, described or answered; its waits go on when it is stopped; what its program raises leaves it
RUNNING for ever; of an input it keeps the value and not the text.

**Here** a worker makes the environment when it is started. LocalStack's :class:`Execution` stays what its pages show;
its ``record`` has what those lack, and is what the rules of :mod:`parity` know it by.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from parity import states_clients
from parity.states_events import KIND, SOURCE, detail
from parity.states_records import KEEPERS, RUNS, Machine, new_record
from parity.states_redrive_history import execution_context
from parity.states_redrive_places import Scope
from parity.states_runs import Run

LOG = logging.getLogger(__name__)
CHILDREN: dict[str, dict[str, Any]] = {}  # the records of Map runs' child executions, by their ARNs

_here = threading.local()  # the text of the input of the execution that is started in this thread


@contextmanager
def given(text: str | None) -> Iterator[None]:
    """Executions that are made meanwhile have this input, to the letter."""
    _here.text = text
    try:
        yield
    finally:
        _here.text = None


def machine_for(execution: Any) -> Machine:
    """The state machine of one of LocalStack's executions, as it was when the execution began."""
    machine = execution.state_machine
    arn, kind = execution.state_machine_arn, str(execution.sm_type)
    return Machine(arn, machine.name, machine.definition, execution.role_arn, kind)


def record_for(execution: Any) -> dict[str, Any]:
    """The record of one of LocalStack's executions, which is about to run."""
    machine = machine_for(execution)
    text = getattr(_here, "text", None)
    text = json.dumps(execution.input_data, separators=(",", ":")) if text is None else text
    record = new_record(execution.exec_arn, execution.name, machine, text, execution.start_date)
    for name, value in (
        ("stateMachineVersionArn", execution.state_machine_version_arn),
        ("stateMachineAliasArn", execution.state_machine_alias_arn),
        ("traceHeader", execution.trace_header),
    ):
        if value:
            record[name] = value
    return record


class WorkerRun(Run):
    """One run of an execution by LocalStack's worker."""

    def __init__(self, execution: Any, scope: Scope | None = None) -> None:
        self._execution, self._worker = execution, execution.exec_worker
        record, value = execution.record, execution.input_data
        super().__init__(record, machine_for(execution), value, execution.account_id, execution.region_name, scope)
        self._worker.env, self._worker.run = self.env, self
        execution.exec_status = "RUNNING"  # also of one that had ended
        execution.stop_date = execution.output = execution.error = execution.cause = None

    def _environment(self) -> Any:
        env = self._worker._get_evaluation_environment()
        env.states.context_object.context_object_data["Execution"] = execution_context(
            self.record, self.value, self.machine.role
        )
        return env

    def _settle(self, state: Any) -> None:
        self._worker._execution_communication._reflect_execution_status()
        execution = self._execution
        execution.stop_date = datetime.fromisoformat(self.record["stopDate"])
        execution.error, execution.cause = self.record.get("error"), self.record.get("cause")
        self._worker.env = self._worker.run = None  # what it ran with is needed no more, and large

    def start(self) -> None:
        """Begin, in a thread of its own, which tells so first: whoever starts it waits for nothing."""

        def told() -> None:
            self.announce()
            self.work()

        threading.Thread(target=told, name="states-execution", daemon=True).start()

    def announce(self) -> None:
        if not self.standard:
            return
        entry = {
            "Source": SOURCE,
            "DetailType": KIND,
            "Detail": json.dumps(detail(self.record)),
            "Resources": [self.record["executionArn"]],
        }
        try:
            self._execution._get_events_client().put_events(Entries=[entry])
        except Exception as error:  # noqa: BLE001 - the execution goes on without
            LOG.warning("No event for %s: %s", self.record["executionArn"], type(error).__name__)


class Stored:
    """The records in LocalStack's store, and beside it those that it has no class for."""

    def put(self, record: dict[str, Any], scope: tuple[str, str]) -> None:
        CHILDREN[record["executionArn"]] = record

    def drop(self, arn: str, scope: tuple[str, str]) -> None:
        from localstack.services.stepfunctions.backend.store import sfn_stores

        CHILDREN.pop(arn, None)
        account, region = scope
        sfn_stores[account][region].executions.pop(arn, None)


def install() -> None:
    from localstack.aws.connect import connect_to
    from localstack.services.stepfunctions.backend.execution import Execution, SyncExecution
    from localstack.services.stepfunctions.backend.execution_worker import ExecutionWorker, SyncExecutionWorker
    from localstack.services.stepfunctions.backend.test_state.execution_worker import TestStateExecutionWorker

    KEEPERS.append(Stored())
    states_clients.MAKERS.append(
        lambda account, region, service: connect_to(aws_access_key_id=account, region_name=region).get_client(service)
    )
    _ = ExecutionWorker._execution_logic, SyncExecutionWorker.start, TestStateExecutionWorker.start
    made = Execution.__init__
    environment = TestStateExecutionWorker._get_evaluation_environment

    def init(self: Any, *arguments: Any, **more: Any) -> None:
        made(self, *arguments, **more)
        if type(self) in (Execution, SyncExecution):  # TestState has another kind
            self.record = record_for(self)

    def begun(worker: Any) -> WorkerRun:
        execution = worker._execution_communication.execution
        execution.exec_worker = worker
        run = WorkerRun(execution)
        RUNS.began(run)
        return run

    def start(self: Any) -> None:
        begun(self).start()

    def start_and_wait(self: Any) -> None:
        if isinstance(self, TestStateExecutionWorker):  # one state, without a history
            self._execution_logic()
            kept = self.env.variable_store
            variables = {**kept._outer_scope, **kept._inner_scope}
            if variables:  # also those that the state has assigned
                self.env.inspection_data["variables"] = json.dumps(variables)
        else:
            begun(self).work()

    def stop(self: Any, stop_date: datetime, error: str | None, cause: str | None) -> None:
        if self.run is not None:
            self.run.stop(error, cause)

    def with_scope(self: Any) -> Any:
        env = environment(self)
        env.scope = Scope()
        return env

    def published(self: Any) -> None:
        """The run tells: in its own thread, and of its record."""

    _ = Execution.publish_execution_status_change_event
    Execution.__init__ = init
    ExecutionWorker.start = start
    SyncExecutionWorker.start = start_and_wait
    ExecutionWorker.stop = stop
    TestStateExecutionWorker._get_evaluation_environment = with_scope
    Execution.publish_execution_status_change_event = published
