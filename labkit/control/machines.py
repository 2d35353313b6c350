"""Machines: deploy a state machine from ``infra/machines``, start it, and hold on to its executions.

Creating says what is to be: the definition is filled with its values, checked by Step Functions before anything is made
of it, and the state machine is created or updated. An update is for executions that start later, on AWS a few seconds
later at most; those that run keep the definition that they began with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from labkit import kinds, sweep
from labkit.control import payloads
from labkit.control.definitions import Definition, MachineError, check, fill, load, refused
from labkit.control.executions import Execution, Outcome, wait_all
from labkit.facts import facts

if TYPE_CHECKING:
    from labkit.lab import Lab

__all__ = ["Execution", "Machine", "MachineError", "Outcome", "wait_all"]

Kind = Literal["STANDARD", "EXPRESS"]


class Machine:
    """One state machine, by client and ARN. :meth:`create` makes one in a lab; the constructor takes one that exists.

    Attributes: ``name``, ``arn``, ``kind``, ``definition`` (parsed, with its values in it), ``client``.
    """

    def __init__(self, client: Any, arn: str) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            found = client.describe_state_machine(stateMachineArn=arn)
        except (BotoCoreError, ClientError) as error:
            raise refused(f"state machine {arn} cannot be described", error) from error
        self.client, self.arn = client, arn
        self.name, self.kind = str(found["name"]), str(found["type"])
        self.definition: Definition = json.loads(found["definition"])

    @classmethod
    def create(
        cls,
        lab: Lab,
        name: str,
        source: str | Path | Mapping[str, Any],
        *,
        values: Mapping[str, Any] | None = None,
        kind: Kind = "STANDARD",
        role: str | None = None,
    ) -> Machine:
        """Create or update a state machine in ``lab``.

        ``source`` is the name of a definition in ``infra/machines`` ("agent-step"), a path, or a mapping; ``values``
        fill its ``${placeholders}`` (:func:`labkit.control.definitions.fill`). ``kind`` cannot be changed later.
        ``role`` is an ARN: needed on AWS; emulators take any.

        Raises :class:`MachineError`: a definition that is not there, a value that is missing or not used, whatever
        Step Functions finds wrong with the definition, with its place, and what it refuses.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        client, full = lab.client("stepfunctions"), lab.resource_name(name)
        most = int(facts("sfn.name.max_chars"))
        if not re.fullmatch(r"[A-Za-z0-9_-]+", full) or len(full) > most:
            raise MachineError(
                f"a state machine is named with letters, digits, hyphens, underscores, {most} at most; {full!r} is not."
            )
        text = check(client, fill(load(source), values or {}), kind)
        try:
            arn = _bring_to(client, full, text, kind, _role(lab, role), lab)
        except (BotoCoreError, ClientError) as error:
            raise refused(f"state machine {name} was not made", error) from error
        return cls(client, arn)

    def start(self, input: Any = None, *, name: str | None = None) -> Execution:
        """Start an execution. ``input`` is JSON of 256 KiB at most; None is an empty object.

        With a ``name`` a start is idempotent: the same name and input again, while it runs, is the same execution.
        Raises :class:`~labkit.control.payloads.PayloadError` and :class:`MachineError`, also when the name is in use
        with another input, or was in the last 90 days.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        text = payloads.as_json("the input of an execution", {} if input is None else input)
        named = {} if name is None else {"name": name}
        try:
            answer = self.client.start_execution(stateMachineArn=self.arn, input=text, **named)
        except (BotoCoreError, ClientError) as error:
            raise refused(f"{self.name} was not started", error) from error
        return Execution(self.client, str(answer["executionArn"]))

    def execution(self, name: str) -> Execution:
        """The execution of this name, which was started before."""
        return Execution(self.client, f"{self.arn.replace(':stateMachine:', ':execution:')}:{name}")

    def delete(self) -> None:
        """Stop what runs, delete the state machine, and wait until it is gone. Deleting twice is harmless."""
        kinds.delete_machine(self.client, self.arn)

    def __repr__(self) -> str:
        return f"<Machine {self.name}>"


def _role(lab: Lab, role: str | None) -> str:
    if role is not None:
        return role
    if lab.target.name == "aws":
        raise MachineError(
            "on AWS a state machine needs a role: give role the ARN of one that Step Functions can assume and that may "
            "call what the definition calls."
        )
    return f"arn:aws:iam::{lab.account}:role/lab-machine"


def _bring_to(client: Any, name: str, text: str, kind: str, role: str, lab: Lab) -> str:
    """Make the state machine be as wanted, whatever it is now, with no call that is not needed; returns its ARN."""
    arn = lab.arn("states", f"stateMachine:{name}")
    try:
        now = client.describe_state_machine(stateMachineArn=arn)
        if now.get("status") == "DELETING":
            kinds.delete_machine(client, arn)  # waits until it is gone
            now = None
    except client.exceptions.StateMachineDoesNotExist:
        now = None
    if now is None:
        tags = [{"key": key, "value": value} for key, value in lab.tags.items()]
        create = {"name": name, "definition": text, "roleArn": role, "type": kind, "tags": tags}
        try:
            made = sweep.patiently(lambda: client.create_state_machine(**create), "StateMachineDeleting")
            return str(made["stateMachineArn"])
        except client.exceptions.StateMachineAlreadyExists:  # somebody else was faster, with another definition
            now = client.describe_state_machine(stateMachineArn=arn)
    return _changed(client, now, name, text, kind, role, lab)


def _changed(client: Any, now: Any, name: str, text: str, kind: str, role: str, lab: Lab) -> str:
    arn, tag = str(now["stateMachineArn"]), lab.scope.tag
    if tag is not None and kinds.machine_tags(client, arn).get(tag[0]) != tag[1]:
        raise MachineError(f"state machine {name} exists and is not this lab's; nothing was changed.")
    if now["type"] != kind:
        raise MachineError(f"state machine {name} is {now['type']} and cannot become {kind}: delete it first.")
    if json.loads(now["definition"]) != json.loads(text) or now["roleArn"] != role:
        client.update_state_machine(stateMachineArn=arn, definition=text, roleArn=role)
    return arn
