"""State machines: what is refused, and what a description shows.

**AWS**: see :mod:`parity.states_validation`, :mod:`parity.states_machines` and :mod:`parity.states_requests`.

**LocalStack** finds in a definition what its parser does not understand (a Next to nowhere is taken), takes any name,
words what it refuses of an ARN in its own way, and knows pages of some lists; a token that it has not given leads to
the first. The executions of a deleted state machine go on, and are those of the next one of its name.

**Here** definitions, names, ARNs and pages are looked at with the rules of :mod:`parity`, which ask LocalStack's parser
as well.
"""

from __future__ import annotations

from typing import Any

from parity.states_machines import shown, unknown_machine, variable_references
from parity.states_records import RUNS
from parity.states_requests import Row, check_arn, check_name, page
from parity.states_testing import chosen
from parity.states_validation import asked, check_definition

from hostmode.states_calls import refusable


def install() -> None:
    _arns()
    _definitions()
    _lists()


def _arns() -> None:
    from localstack.services.stepfunctions.provider import StepFunctionsProvider as Provider

    for name, kinds in (
        ("_validate_state_machine_arn", ("stateMachine",)),
        ("_validate_state_machine_alias_arn", ("stateMachine",)),
        ("_validate_state_machine_execution_arn", ("execution", "express")),
        ("_validate_activity_arn", ("activity",)),
    ):
        _ = getattr(Provider, name)
        setattr(Provider, name, staticmethod(refusable(lambda arn, kinds=kinds: check_arn(arn, *kinds))))


def _definitions() -> None:
    from localstack.services.stepfunctions.asl.static_analyser.express_static_analyser import ExpressStaticAnalyser
    from localstack.services.stepfunctions.asl.static_analyser.static_analyser import StaticAnalyser
    from localstack.services.stepfunctions.asl.static_analyser.test_state.test_state_analyser import (
        TestStateStaticAnalyser,
    )
    from localstack.services.stepfunctions.provider import StepFunctionsProvider as Provider

    validate, create, update, delete = (
        Provider._validate_definition,
        Provider.create_state_machine,
        Provider.update_state_machine,
        Provider.delete_state_machine,
    )
    kinds = {StaticAnalyser: "STANDARD", ExpressStaticAnalyser: "EXPRESS"}

    @refusable
    def checked(definition: str, static_analysers: list[Any]) -> None:
        for analyser in static_analysers:
            if type(analyser) in kinds:
                check_definition(definition, kinds[type(analyser)])
                continue
            if isinstance(analyser, TestStateStaticAnalyser):
                chosen(definition, analyser.state_name)
            validate(definition, [analyser])

    @refusable
    def create_state_machine(self: Any, context: Any, request: Any, **more: Any) -> Any:
        check_name(request.get("name"))
        return create(self, context, request, **more)

    @refusable
    def update_state_machine(
        self: Any, context: Any, state_machine_arn: str, definition: Any = None, **more: Any
    ) -> Any:
        stored = self.get_store(context).state_machines.get(state_machine_arn)
        if definition is not None and stored is not None:
            check_definition(definition, str(stored.sm_type))  # LocalStack takes each for a Standard one
        return update(self, context, state_machine_arn, definition, **more)

    def delete_state_machine(self: Any, context: Any, state_machine_arn: str, **more: Any) -> Any:
        answer = delete(self, context, state_machine_arn, **more)
        for run in RUNS.all():
            if run.machine.arn == state_machine_arn:
                run.stop(None, None)
        executions = self.get_store(context).executions
        for arn, execution in list(executions.items()):
            if execution.state_machine_arn == state_machine_arn:
                executions.pop(arn, None)
        return answer

    @refusable
    def validate_state_machine_definition(self: Any, context: Any, request: Any, **more: Any) -> Any:
        return asked(request)

    _ = Provider.validate_state_machine_definition
    Provider._validate_definition = staticmethod(checked)
    Provider.create_state_machine = create_state_machine
    Provider.update_state_machine = update_state_machine
    Provider.delete_state_machine = delete_state_machine
    Provider.validate_state_machine_definition = validate_state_machine_definition


def _lists() -> None:
    from localstack.services.stepfunctions.backend.state_machine import StateMachineRevision
    from localstack.services.stepfunctions.provider import StepFunctionsProvider as Provider

    describe, versions, aliases = (
        Provider.describe_state_machine,
        Provider.list_state_machine_versions,
        Provider.list_state_machine_aliases,
    )

    @refusable
    def describe_state_machine(
        self: Any, context: Any, state_machine_arn: str, included_data: Any = None, **more: Any
    ) -> Any:
        found = dict(describe(self, context, state_machine_arn, included_data, **more))
        found["variableReferences"] = variable_references(found["definition"])
        return shown(found, {"includedData": included_data})

    @refusable
    def list_state_machines(
        self: Any, context: Any, max_results: Any = None, next_token: Any = None, **more: Any
    ) -> Any:
        machines = self.get_store(context).state_machines.values()
        rows: list[Row] = [(made.name, made.arn, made.itemise()) for made in list(machines) if _is_machine(made)]
        asked_for = {"maxResults": max_results, "nextToken": next_token}
        return page(asked_for, "stateMachines", sorted(rows, key=lambda row: row[0]), newest_first=False)

    def _is_machine(made: Any) -> bool:
        return isinstance(made, StateMachineRevision)

    def of_known(operation: Any) -> Any:
        @refusable
        def listed(self: Any, context: Any, state_machine_arn: str, *arguments: Any, **more: Any) -> Any:
            check_arn(state_machine_arn, "stateMachine")
            if not _is_machine(self.get_store(context).state_machines.get(state_machine_arn)):
                raise unknown_machine(state_machine_arn)
            return operation(self, context, state_machine_arn, *arguments, **more)

        return listed

    _ = Provider.list_state_machines
    Provider.describe_state_machine = describe_state_machine
    Provider.list_state_machines = list_state_machines
    Provider.list_state_machine_versions = of_known(versions)
    Provider.list_state_machine_aliases = of_known(aliases)
