"""Executions started, stopped, redriven and answered.

**AWS**: see :mod:`parity.states_executions`, :mod:`parity.states_redrive` and :mod:`parity.states_callbacks`.

**LocalStack** takes inputs and outputs of any size, answers a token that is used or late with InvalidToken, lets an
output that is no JSON fail the task, cannot stop a task that waits, and has no RedriveExecution.

**Here** each call is checked by AWS's rules, and is LocalStack's own afterwards.
"""

from __future__ import annotations

import functools
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from parity.states_activities import LONGEST_POLL, LOOK
from parity.states_callbacks import beat, fail, succeed
from parity.states_executions import NO_INPUT, billed, parsed_input
from parity.states_map_live import LIVE
from parity.states_records import RUNS, Ended, iso
from parity.states_redrive import redriven
from parity.states_requests import check_arn, check_name
from parity.states_tokens import TOKENS, Refused

from hostmode.states_workers import CHILDREN, WorkerRun, given


def refusable(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Answer a :class:`Refused` as the service does."""
    from localstack.aws.api import CommonServiceException

    @functools.wraps(operation)
    def answered(*arguments: Any, **more: Any) -> Any:
        try:
            return operation(*arguments, **more)
        except Refused as error:
            raise CommonServiceException(error.code, error.message) from None

    return answered


def execution_of(provider: Any, context: Any, arn: str) -> Any:
    """One of LocalStack's executions, or :class:`Refused`."""
    found = provider.get_store(context).executions.get(arn)
    if found is None:
        check_arn(arn, "execution")
        raise Refused("ExecutionDoesNotExist", f"Execution Does Not Exist: '{arn}'")
    return found


def child(context: Any, arn: str) -> dict[str, Any] | None:
    """The record of a Map run's child execution, if this is one."""
    own = str(arn).split(":")[3:5] == [context.region, context.account_id]
    return CHILDREN.get(arn) if own else None


def record_in(provider: Any, context: Any, arn: str) -> dict[str, Any]:
    """The record of any execution, or :class:`Refused`."""
    found = child(context, arn)
    if found is None:
        execution = execution_of(provider, context, arn)
        check_arn(arn, "execution")  # what is known of an Express one is not told
        found = execution.record
    return found


def install() -> None:
    from localstack.services.stepfunctions.provider import StepFunctionsProvider as Provider

    starting = threading.Lock()
    start, start_sync = Provider.start_execution, Provider.start_sync_execution

    def checked(name: Any, text: Any) -> tuple[str, str]:
        text = NO_INPUT if text is None else text
        parsed_input(text)
        name = name or str(uuid.uuid4())
        check_name(name)
        if RUNS.full():
            raise Refused("ExecutionLimitExceeded", "The emulator runs no more executions at the same time.")
        return name, text

    @refusable
    def start_execution(
        self: Any, context: Any, state_machine_arn: str, name: Any = None, input: Any = None, **more: Any
    ) -> Any:
        name, text = checked(name, input)
        check_arn(state_machine_arn, "stateMachine")
        with starting, given(text):  # of two calls with one name, one starts it
            return start(self, context, state_machine_arn, name, text, **more)

    @refusable
    def start_sync_execution(
        self: Any, context: Any, state_machine_arn: str, name: Any = None, input: Any = None, **more: Any
    ) -> Any:
        name, text = checked(name, input)
        check_arn(state_machine_arn, "stateMachine")
        with given(text):
            answer = start_sync(self, context, state_machine_arn, name, text, **more)
        record = self.get_store(context).executions[answer["executionArn"]].record
        return {**answer, "billingDetails": billed(record)}

    @refusable
    def stop_execution(
        self: Any, context: Any, execution_arn: str, error: Any = None, cause: Any = None, **more: Any
    ) -> Any:
        check_arn(execution_arn, "execution")
        record = record_in(self, context, execution_arn)
        run = RUNS.get(execution_arn) or LIVE.get(execution_arn)
        if run is not None:
            run.stop(error, cause)
        return {"stopDate": record["stopDate"] or iso(datetime.now(UTC))}

    @refusable
    def redrive_execution(self: Any, context: Any, execution_arn: str, client_token: Any = None, **more: Any) -> Any:
        store = self.get_store(context)
        record = record_in(self, context, execution_arn)

        def again(record: dict[str, Any], stood: Ended) -> WorkerRun:
            return WorkerRun(store.executions[record["executionArn"]], stood.scope)

        gone = record["stateMachineArn"] not in store.state_machines
        return {"redriveDate": redriven(record, client_token, again, gone)}

    @refusable
    def send_task_success(self: Any, context: Any, task_token: str, output: str, **more: Any) -> Any:
        succeed({"taskToken": task_token, "output": output})
        return {}

    @refusable
    def send_task_failure(
        self: Any, context: Any, task_token: str, error: Any = None, cause: Any = None, **more: Any
    ) -> Any:
        fail({"taskToken": task_token, "error": error, "cause": cause})
        return {}

    @refusable
    def send_task_heartbeat(self: Any, context: Any, task_token: str, **more: Any) -> Any:
        beat({"taskToken": task_token})
        return {}

    def activity_task_started(self: Any, context: Any, task_token: str, worker_name: Any) -> None:
        TOKENS.look(task_token).notify_activity_task_start(worker_name=worker_name)

    def next_task(activity: Any) -> Any:
        deadline = time.monotonic() + LONGEST_POLL
        while time.monotonic() < deadline:
            try:
                task = activity.get_task()
                TOKENS.look(task.task_token)
            except IndexError:
                time.sleep(LOOK)
            except Refused:  # its attempt has ended while it lay there
                continue
            else:
                return task
        return None

    def on_before_stop(self: Any) -> None:
        for run in RUNS.all():
            run.halt()

    _ = Provider.stop_execution, Provider.redrive_execution, Provider.on_before_stop
    _ = Provider._send_activity_task_started, Provider._pull_activity_task
    _ = Provider.send_task_success, Provider.send_task_failure, Provider.send_task_heartbeat
    Provider.start_execution = start_execution
    Provider.start_sync_execution = start_sync_execution
    Provider.stop_execution = stop_execution
    Provider.redrive_execution = redrive_execution
    Provider.send_task_success = send_task_success
    Provider.send_task_failure = send_task_failure
    Provider.send_task_heartbeat = send_task_heartbeat
    Provider._send_activity_task_started = refusable(activity_task_started)
    Provider._pull_activity_task = staticmethod(next_task)
    Provider.on_before_stop = on_before_stop  # a Map run's workers would keep the process
