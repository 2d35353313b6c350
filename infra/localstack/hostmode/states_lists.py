"""Executions and Map runs described and listed.

**AWS**: see :mod:`parity.states_descriptions` and :mod:`parity.states_map_runs`.

**LocalStack** shows nothing of redrives, has no child executions, and finds no Map run whose execution it does not look
through.

**Here** its descriptions have what they lack, and child executions are described and listed from their records.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from parity.states_descriptions import check_list, description, listed
from parity.states_map_runs import description as run_description
from parity.states_map_runs import listed as listed_runs
from parity.states_map_runs import run_in
from parity.states_map_updates import update
from parity.states_redrive_rules import REDRIVABLE
from parity.states_requests import check_arn, page
from parity.states_tokens import Refused

from hostmode.states_calls import record_in, refusable
from hostmode.states_workers import CHILDREN


def install() -> None:
    from localstack.services.stepfunctions.provider import StepFunctionsProvider as Provider

    @refusable
    def describe_execution(self: Any, context: Any, execution_arn: str, **more: Any) -> Any:
        record = record_in(self, context, execution_arn)
        return description(record, datetime.now(UTC), execution_arn in REDRIVABLE)

    @refusable
    def get_execution_history(
        self: Any,
        context: Any,
        execution_arn: str,
        max_results: Any = None,
        reverse_order: Any = None,
        next_token: Any = None,
        **more: Any,
    ) -> Any:
        events = list(record_in(self, context, execution_arn)["events"])
        rows = [(f"{event['id']:06d}", str(event["id"]), event) for event in events]
        asked = {"maxResults": max_results, "nextToken": next_token}
        if reverse_order:
            return page(asked, "events", rows[::-1], newest_first=True)
        return page(asked, "events", rows, newest_first=False)

    @refusable
    def list_executions(
        self: Any,
        context: Any,
        state_machine_arn: Any = None,
        status_filter: Any = None,
        max_results: Any = None,
        next_token: Any = None,
        map_run_arn: Any = None,
        redrive_filter: Any = None,
        **more: Any,
    ) -> Any:
        data = {
            "stateMachineArn": state_machine_arn,
            "statusFilter": status_filter,
            "maxResults": max_results,
            "nextToken": next_token,
            "mapRunArn": map_run_arn,
            "redriveFilter": redrive_filter,
        }
        store = self.get_store(context)

        def kind_of(arn: str) -> str:
            check_arn(arn, "stateMachine")
            alias = store.aliases.get(arn)
            machine = store.state_machines.get(alias.sample() if alias is not None else arn)
            if machine is None:
                raise Refused("StateMachineDoesNotExist", f"State Machine Does Not Exist: '{arn}'")
            return str(machine.sm_type)

        check_list(data, kind_of, lambda arn: run_in(arn, context.account_id, context.region))
        own = [one.record for one in list(store.executions.values()) if hasattr(one, "record")]
        return listed(data, list(CHILDREN.values()) if map_run_arn else own)

    @refusable
    def list_map_runs(
        self: Any, context: Any, execution_arn: str, max_results: Any = None, next_token: Any = None, **more: Any
    ) -> Any:
        record = record_in(self, context, execution_arn)
        return listed_runs({"maxResults": max_results, "nextToken": next_token}, record["executionArn"])

    @refusable
    def describe_map_run(self: Any, context: Any, map_run_arn: str, **more: Any) -> Any:
        return run_description(run_in(map_run_arn, context.account_id, context.region))

    @refusable
    def update_map_run(
        self: Any,
        context: Any,
        map_run_arn: str,
        max_concurrency: Any = None,
        tolerated_failure_percentage: Any = None,
        tolerated_failure_count: Any = None,
        **more: Any,
    ) -> Any:
        run = run_in(map_run_arn, context.account_id, context.region)
        members = ("maxConcurrency", "toleratedFailureCount", "toleratedFailurePercentage")
        values = (max_concurrency, tolerated_failure_count, tolerated_failure_percentage)
        update(run, dict(zip(members, values, strict=True)))
        return {}

    _ = Provider.describe_execution, Provider.get_execution_history, Provider.list_executions
    _ = Provider.list_map_runs, Provider.describe_map_run, Provider.update_map_run
    Provider.describe_execution = describe_execution
    Provider.get_execution_history = get_execution_history
    Provider.list_executions = list_executions
    Provider.list_map_runs = list_map_runs
    Provider.describe_map_run = describe_map_run
    Provider.update_map_run = update_map_run
