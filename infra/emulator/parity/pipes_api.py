"""The calls that make, show, change, start, stop and delete a pipe whose source is a queue.

**On AWS** (recorded) CreatePipe, UpdatePipe, StartPipe, StopPipe and DeletePipe answer with the pipe's name, ARN,
states and times. The source cannot be changed. Not verified: that starting what runs, and stopping what is stopped, is
accepted.

**MiniStack** keeps names, ARNs and states, and drops all parameters.

**Here** the calls are replaced for queues; those for streams are MiniStack's. See :mod:`parity.pipes_checks` for what
is refused, :mod:`parity.pipes_shapes` for what is shown, :mod:`parity.pipes_states` for the states,
:mod:`parity.pipes_run` for what a pipe does."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from parity import pipes_checks as checks
from parity import pipes_pollers
from parity import pipes_states as states
from parity.pipes_pollers import is_ours
from parity.pipes_services import Unreached
from parity.pipes_shapes import Pipe, brief, changed, shown, summary

LONGEST_PAGE = 100

Response = tuple[int, dict[str, str], bytes]


class Calls:
    """The calls, on the pipes of MiniStack's ``pipes`` module."""

    def __init__(self, pipes: Any, eventbridge: Any, pollers: pipes_pollers.PipePollers) -> None:
        self.pipes = pipes
        self.pollers = pollers
        self._refuses = lambda pattern: eventbridge._parse_pattern_text(pattern)[1] is not None

    def create(self, name: str, request: Mapping[str, Any]) -> Pipe:
        now = time.time()
        checks.check_types(request)
        self.purge()
        if name in self.pipes._pipes:
            raise checks.taken(name)
        asked = {"Source": request.get("Source"), "DesiredState": "RUNNING", "Tags": dict(request.get("Tags") or {})}
        wanted = changed(asked, request)
        self._check(name, wanted)
        refusal = self._refusal(wanted)
        # Stopped until all is in it: the pollers may look at any moment.
        pipe: Pipe = self.pipes.register_pipe(
            name=name, source=wanted["Source"], target=wanted["Target"], desired_state="STOPPED"
        )
        reason = states.SETTLED if wanted["DesiredState"] == "STOPPED" else states.POLLER
        pipe.update({**wanted, "CreationTime": now, "StateReason": None})
        to = "CREATE_FAILED" if refusal else wanted["DesiredState"]
        states.move(pipe, "CREATING", to, refusal or reason, now)
        return self._after(pipe, now)

    def update(self, pipe: Pipe, request: Mapping[str, Any]) -> Pipe:
        checks.check_types(request)
        now = self._free(pipe)
        after = changed(pipe, request)
        self._check(pipe["Name"], after)
        refusal = self._refusal(after)
        if refusal is None:
            pipe.update(after)
            if "Enrichment" not in after:
                pipe.pop("Enrichment", None)
            desired = pipe["DesiredState"] if request.get("DesiredState") else _standing(pipe)
            reason = pipe.get("StateReason") if desired == "STOPPED" else states.POLLER
            states.move(pipe, "UPDATING", desired, reason or states.SETTLED, now)
        else:
            states.move(pipe, "UPDATING", "UPDATE_FAILED", refusal, now)
        return self._after(pipe, now)

    def turn(self, pipe: Pipe, desired: str) -> Pipe:
        now = self._free(pipe)
        pipe["DesiredState"] = desired
        refusal = self._refusal(pipe) if desired == "RUNNING" else None
        if refusal:
            states.move(pipe, "STARTING", "START_FAILED", refusal, now)
        else:
            through = "STARTING" if desired == "RUNNING" else "STOPPING"
            states.move(pipe, through, desired, states.POLLER, now)
        return self._after(pipe, now)

    def delete(self, pipe: Pipe) -> Pipe:
        now = self._free(pipe)
        pipe["DesiredState"] = "DELETED"
        states.move(pipe, "DELETING", "DELETING", pipe.get("StateReason") or states.SETTLED, now)
        return self._after(pipe, now)

    def known(self, name: str) -> Pipe:
        self.purge()
        pipe: Pipe | None = self.pipes._pipes.get(name)
        if pipe is None:
            raise checks.not_found(name)
        return pipe

    def purge(self) -> None:
        """Drop the pipes of this account whose deletion is done."""
        now = time.time()
        for pipe in list(self.pipes._pipes.values()):
            if states.deleted(pipe, now):
                self.pipes._pipes.pop(pipe["Name"], None)

    def page(self, query: Mapping[str, Any]) -> Pipe:
        self.purge()
        now = time.time()
        asked = {name: value[0] if isinstance(value, list) else value for name, value in query.items()}
        try:
            limit = int(asked.get("Limit") or LONGEST_PAGE)
        except ValueError:
            limit = 0
        if not 1 <= limit <= LONGEST_PAGE:
            raise checks.constraint("limit", asked["Limit"], f"have value between 1 and {LONGEST_PAGE}")
        pipes = sorted(self.pipes._pipes.values(), key=lambda pipe: str(pipe["Name"]))
        found = [summary(pipe, now) for pipe in pipes if self._listed(pipe, asked, now)]
        rest = found[limit:]
        return {"Pipes": found[:limit], **({"NextToken": rest[0]["Name"]} if rest else {})}

    @staticmethod
    def _listed(pipe: Pipe, asked: Mapping[str, str], now: float) -> bool:
        prefixes = (("NamePrefix", "Name"), ("SourcePrefix", "Source"), ("TargetPrefix", "Target"))
        return (
            all(str(pipe[member]).startswith(asked.get(prefix) or "") for prefix, member in prefixes)
            and asked.get("DesiredState") in (None, pipe["DesiredState"])
            and asked.get("CurrentState") in (None, states.state(pipe, now))
            and str(pipe["Name"]) >= (asked.get("NextToken") or "")
        )

    def _check(self, name: str, pipe: Mapping[str, Any]) -> None:
        checks.check_request(name, pipe, self._refuses)
        try:
            self.pipes.check_same_region(*(pipe[member] for member in ("Source", "Target") if pipe.get(member)))
        except ValueError as error:
            raise checks.Refused("ValidationException", str(error)) from error

    def _refusal(self, pipe: Mapping[str, Any]) -> str | None:
        return checks.poller_refusal(pipe, self.pollers.services.queue(pipe["Source"]))

    def _free(self, pipe: Pipe) -> float:
        now = time.time()
        if not states.settled(pipe, now):
            raise checks.busy(pipe["Name"], states.state(pipe, now))
        return now

    def _after(self, pipe: Pipe, now: float) -> Pipe:
        self.pollers.changed()
        return brief(pipe, now)


def _standing(pipe: Mapping[str, Any]) -> str:
    """Where an update that does not say leaves the pipe."""
    return "RUNNING" if pipe["DesiredState"] == "RUNNING" and pipe["CurrentState"] != "STOPPED" else "STOPPED"


def install() -> None:
    from ministack.services import eventbridge, pipes

    _ = eventbridge._parse_pattern_text, pipes.register_pipe, pipes.check_same_region, pipes._pipes
    calls = Calls(pipes, eventbridge, pipes_pollers.pollers())
    create, describe, update, delete, set_state = (
        getattr(pipes, name)
        for name in ("_create_pipe", "_describe_pipe", "_update_pipe", "_delete_pipe_op", "_set_state")
    )

    def answer(status: int, body: Mapping[str, Any], **headers: str) -> Response:
        return status, {"Content-Type": "application/json", **headers}, json.dumps(body).encode()

    def answering(call: Callable[..., Any]) -> Callable[..., Any]:
        def answered(*arguments: Any) -> Any:
            try:
                made = call(*arguments)
            except checks.Refused as refused:
                body = {"__type": refused.code, "message": refused.message, **refused.members}
                return answer(refused.status, body, **{"x-amzn-errortype": refused.code})
            except Unreached as error:
                return answer(500, {"message": str(error)}, **{"x-amzn-errortype": "InternalException"})
            return answer(200, made) if isinstance(made, dict) else made

        return answered

    def create_pipe(name: str, request: Mapping[str, Any]) -> Any:
        stream = checks.ARN.fullmatch(str(request.get("Source") or "")) and not is_ours(request)
        return create(name, request) if stream else calls.create(name, request)

    def describe_pipe(name: str) -> Any:
        pipe = calls.known(name)
        return shown(pipe, time.time()) if is_ours(pipe) else describe(name)

    def update_pipe(name: str, request: Mapping[str, Any]) -> Any:
        pipe = calls.known(name)
        return calls.update(pipe, request) if is_ours(pipe) else update(name, request)

    def delete_pipe(name: str) -> Any:
        pipe = calls.known(name)
        return calls.delete(pipe) if is_ours(pipe) else delete(name)

    def turn(name: str, desired: str) -> Any:
        pipe = calls.known(name)
        return calls.turn(pipe, desired) if is_ours(pipe) else set_state(name, desired)

    pipes._create_pipe = answering(create_pipe)
    pipes._describe_pipe = answering(describe_pipe)
    pipes._update_pipe = answering(update_pipe)
    pipes._delete_pipe_op = answering(delete_pipe)
    pipes._set_state = answering(turn)
    pipes._list_pipes = answering(calls.page)
