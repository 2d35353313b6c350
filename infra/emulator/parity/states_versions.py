"""Versions and aliases of a state machine.

**On AWS** a version is published once for each revision of a state machine; its number is never used again. An alias
leads to one version or two, with weights that make 100 together; making the same alias again is no error; a version
that an alias leads to cannot be removed (Step Functions API Reference, "PublishStateMachineVersion",
"CreateStateMachineAlias"; answers recorded on AWS).

**MiniStack** publishes a version for each call, refuses an alias that exists, and has texts of its own.

**Here** they are as recorded. An execution that is started by an alias takes the version of the larger weight, where
AWS chooses by the weights. Not verified: the text for a version that does not exist.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .states_callbacks import Response, refusable
from .states_machines import changing, json_answer, stored_machine
from .states_requests import Row, check_arn, constraint, page
from .states_tokens import Refused

MOST_ROUTES, WHOLE = 2, 100
LONGEST_ALIAS = 80
ALIAS = r"^(?=.*[a-zA-Z_\-\.])[a-zA-Z0-9_\-\.]+$"
NO_SUCH_RESOURCE = "Request references a resource that does not exist."
OTHER_ALIAS = "Failed to create alias because an alias with the same name and a different routing configuration "
OTHER_ALIAS += "already exists."


def publish(machine: dict[str, Any], description: str | None) -> tuple[str, str]:
    """The version of a state machine's current revision, published now unless it was: its ARN and its date."""
    from ministack.core.responses import now_iso
    from ministack.services import stepfunctions as sfn

    arn, revision = machine["stateMachineArn"], machine.get("revisionId")
    for version_arn, version in sfn._state_machine_versions.items():
        if version["stateMachineArn"] == arn and version.get("stateMachineRevisionId") == revision:
            return version_arn, version["creationDate"]
    machine["lastVersionNumber"] = machine.get("lastVersionNumber", 0) + 1
    version_arn, moment = f"{arn}:{machine['lastVersionNumber']}", now_iso()
    kept = ("definition", "roleArn", "type", "loggingConfiguration", "encryptionConfiguration")
    sfn._state_machine_versions[version_arn] = {
        "stateMachineVersionArn": version_arn,
        "stateMachineArn": arn,
        "stateMachineRevisionId": revision,
        "description": description or "",
        "creationDate": moment,
        **{key: copy.deepcopy(machine[key]) for key in kept if key in machine},
    }
    return version_arn, moment


def check_name(name: str) -> None:
    """Raise :class:`Refused` unless an alias can be called so."""
    if len(name) > LONGEST_ALIAS:
        raise constraint("name", name, f"Member must have length less than or equal to {LONGEST_ALIAS}")
    if not re.search(ALIAS, name):
        raise constraint("name", name, f"Member must satisfy regular expression pattern: {ALIAS}")


def check_routes(routes: Sequence[Mapping[str, Any]]) -> None:
    """Raise :class:`Refused` unless an alias can lead so."""
    arns = [route.get("stateMachineVersionArn", "") for route in routes]
    weights = [route.get("weight", 0) for route in routes]
    if not routes:
        raise constraint("routingConfiguration", "[]", "Member must have length greater than or equal to 1")
    for number, weight in enumerate(weights, 1):
        if weight > WHOLE:
            member = f"routingConfiguration.{number}.member.weight"
            raise constraint(member, weight, f"Member must have value less than or equal to {WHOLE}")
    if len(routes) > MOST_ROUTES:
        items = (
            f"RoutingConfigurationListItem(stateMachineVersionArn={arn}, weight={weight})"
            for arn, weight in zip(arns, weights, strict=True)
        )
        told = f"Member must have length less than or equal to {MOST_ROUTES}"
        raise constraint("routingConfiguration", f"[{', '.join(items)}]", told)
    received = f"Received: [{', '.join(arns)}]"
    if not all(len(arn.split(":")) == 8 and arn.split(":")[7].isdigit() for arn in arns):
        text = f"Routing configuration must contain state machine version ARNs. {received}"
        raise Refused("ValidationException", text)
    if len({*arns}) < len(arns):
        text = f"Routing configuration must contain distinct state machine version ARNs. {received}"
        raise Refused("ValidationException", text)
    if sum(weights) != WHOLE:
        text = f"Sum of routing configuration weights must equal {WHOLE}. Received: {weights}"
        raise Refused("ValidationException", text)


def check_versions(routes: Sequence[Mapping[str, Any]]) -> str:
    """The state machine whose versions these are, or :class:`Refused`."""
    from ministack.services import stepfunctions as sfn

    bases = {route["stateMachineVersionArn"].rpartition(":")[0] for route in routes}
    if len(bases) > 1:
        raise Refused("ValidationException", "Routing configuration must contain versions of one state machine.")
    for route in routes:
        if route["stateMachineVersionArn"] not in sfn._state_machine_versions:
            raise Refused("ResourceNotFound", NO_SUCH_RESOURCE)
    return str(bases.pop())


def install() -> None:
    from ministack.services import stepfunctions as sfn

    create, update = sfn._create_state_machine_alias, sfn._update_state_machine_alias
    describe = sfn._describe_state_machine_alias
    delete_alias, delete_version = sfn._delete_state_machine_alias, sfn._delete_state_machine_version

    @refusable
    def publish_state_machine_version(data: dict[str, Any]) -> Response:
        with changing:
            machine = stored_machine(data.get("stateMachineArn"))
            current, asked = machine.get("revisionId") or "INITIAL", data.get("revisionId")
            if asked is not None and asked != current:
                raise Refused(
                    "ConflictException",
                    f"Failed to publish the State Machine version for revision {asked}. "
                    f"The current State Machine revision is {current}.",
                )
            arn, moment = publish(machine, data.get("description"))
        return json_answer({"stateMachineVersionArn": arn, "creationDate": moment})

    @refusable
    def delete_state_machine_version(data: dict[str, Any]) -> Response:
        arn = data.get("stateMachineVersionArn")
        check_arn(arn, "stateMachine")
        with changing:
            users = [
                alias["name"]
                for alias in sfn._state_machine_aliases.values()
                if arn in {route["stateMachineVersionArn"] for route in alias["routingConfiguration"]}
            ]
            if users:
                raise Refused(
                    "ConflictException",
                    "Version to be deleted must not be referenced by an alias. "
                    f"Current list of aliases referencing this version: [{', '.join(users)}]",
                )
            answer: Response = delete_version(data)
        return answer

    @refusable
    def list_state_machine_versions(data: dict[str, Any]) -> Response:
        arn = stored_machine(data.get("stateMachineArn"))["stateMachineArn"]
        rows: list[Row] = [
            (version["creationDate"], name, {"stateMachineVersionArn": name, "creationDate": version["creationDate"]})
            for name, version in sfn._state_machine_versions.items()
            if version["stateMachineArn"] == arn
        ]
        rows.sort(key=lambda row: int(row[1].rpartition(":")[2]), reverse=True)
        return json_answer(page(data, "stateMachineVersions", rows, newest_first=True))

    @refusable
    def create_state_machine_alias(data: dict[str, Any]) -> Response:
        name, routes = data.get("name", ""), data.get("routingConfiguration") or []
        check_name(name)
        check_routes(routes)
        with changing:
            arn = f"{check_versions(routes)}:{name}"
            made = sfn._state_machine_aliases.get(arn)
            if made is None:
                answer: Response = create(data)
                return answer
            if (made["routingConfiguration"], made["description"]) != (routes, data.get("description", "")):
                raise Refused("ConflictException", OTHER_ALIAS)
        return json_answer({"stateMachineAliasArn": arn, "creationDate": made["creationDate"]})

    @refusable
    def update_state_machine_alias(data: dict[str, Any]) -> Response:
        with changing:
            known_alias(data)
            if data.get("routingConfiguration") is not None:
                check_routes(data["routingConfiguration"])
                check_versions(data["routingConfiguration"])
            answer: Response = update(data)
        return answer

    def known_alias(data: Mapping[str, Any]) -> None:
        arn = data.get("stateMachineAliasArn")
        check_arn(arn, "stateMachine")
        if arn not in sfn._state_machine_aliases:
            raise Refused("ResourceNotFound", NO_SUCH_RESOURCE)

    @refusable
    def describe_state_machine_alias(data: dict[str, Any]) -> Response:
        known_alias(data)
        answer: Response = describe(data)
        return answer

    @refusable
    def delete_state_machine_alias(data: dict[str, Any]) -> Response:
        check_arn(data.get("stateMachineAliasArn"), "stateMachine")
        answer: Response = delete_alias(data)
        return answer

    @refusable
    def list_state_machine_aliases(data: dict[str, Any]) -> Response:
        arn = stored_machine(data.get("stateMachineArn"))["stateMachineArn"]
        rows: list[Row] = [
            (alias["creationDate"], name, {"stateMachineAliasArn": name, "creationDate": alias["creationDate"]})
            for name, alias in sfn._state_machine_aliases.items()
            if name.rpartition(":")[0] == arn
        ]
        return json_answer(page(data, "stateMachineAliases", rows, newest_first=False))

    _ = sfn._publish_state_machine_version, sfn._list_state_machine_versions, sfn._list_state_machine_aliases
    sfn._publish_state_machine_version = publish_state_machine_version
    sfn._delete_state_machine_version = delete_state_machine_version
    sfn._list_state_machine_versions = list_state_machine_versions
    sfn._create_state_machine_alias = create_state_machine_alias
    sfn._update_state_machine_alias = update_state_machine_alias
    sfn._describe_state_machine_alias = describe_state_machine_alias
    sfn._delete_state_machine_alias = delete_state_machine_alias
    sfn._list_state_machine_aliases = list_state_machine_aliases
