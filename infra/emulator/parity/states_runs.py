"""One execution, from its start to its end.

**On AWS** a Standard execution has a history of events that can be read while it runs and for 90 days afterwards; its
input is as it was given, its output is compact JSON. ``TimeoutSeconds`` of the definition ends it as TIMED_OUT. An
Express execution lasts five minutes at most (Step Functions Developer Guide, "Quotas", "Choosing workflow type").

**MiniStack** has a thread for each execution, which begins 150 ms after the start.

**Here** too an execution is one thread, which begins at once; MiniStack's record of it, with the interpreter's events
in it, is what the API shows. A redrive is another :class:`Run` of the same record. How many run and are remembered is
in :mod:`parity.states_records`. Nothing survives the stand-in's end.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

from . import states_engine, states_waits
from .states_callbacks import Activities
from .states_records import KEEPERS, RUNS, Ended, Machine, Runs, iso, new_record, time_limit
from .states_redrive_history import begin_history, end_history, execution_context
from .states_redrive_places import Scope, frozen, silence
from .states_redrive_rules import REDRIVABLE, UNSUCCESSFUL

__all__ = ["RUNS", "Machine", "Run", "Runs", "iso", "new_record", "time_limit"]


class Run:
    """An execution in progress. ``record`` says how it stands, all the time.

    ``scope`` is where it goes on when it is redriven.
    """

    def __init__(
        self,
        record: dict[str, Any],
        machine: Machine,
        value: Any,
        account: str,
        region: str,
        scope: Scope | None = None,
    ) -> None:
        self.record = record
        self.machine = machine
        self.value = value
        self.scope = account, region
        self.over = threading.Event()
        self.settled = threading.Event()
        self.standard = machine.kind == "STANDARD"
        self._program = states_engine.program(machine.definition)
        self.env = self._environment()
        begin_history(self.env, self.record, self.machine.role)
        self.env.scope = scope or Scope()
        place = self.env.scope.place
        # It runs from here on, so it can be stopped.
        self.env.next_state_name = place.name if place else self._program.start_at.start_at_name

    def _environment(self) -> Any:
        from moto.stepfunctions.parser.asl.eval.environment import Environment
        from moto.stepfunctions.parser.asl.eval.evaluation_details import AWSExecutionDetails
        from moto.stepfunctions.parser.asl.eval.event.event_manager import EventHistoryContext

        account, region = self.scope
        execution = execution_context(self.record, self.value, self.machine.role)
        return Environment(
            aws_execution_details=AWSExecutionDetails(account=account, region=region, role_arn=self.machine.role),
            execution_type=self.machine.kind,
            context={
                "Execution": execution,
                "StateMachine": {"Id": self.machine.arn, "Name": self.machine.name},
            },
            event_history_context=EventHistoryContext.of_program_start(),
            cloud_watch_logging_session=None,
            activity_store=Activities(account, region),
        )

    def start(self) -> None:
        """Begin, in a thread of its own."""
        self.announce()
        threading.Thread(target=self.work, name="states-execution", daemon=True).start()

    def work(self) -> None:
        """Run to the end, in this thread."""
        stated = self._program.timeout_seconds
        limit = time_limit(stated.timeout_seconds if stated else None, self.machine.kind)
        clock = threading.Timer(limit, self._late) if limit is not None else None
        if clock is not None:
            clock.daemon = True
            clock.start()
        try:
            self._program.eval(self.env)
        except BaseException as error:  # noqa: BLE001 - the name alone: a message may hold what it works on
            self.env.set_error({"error": "States.Runtime", "cause": type(error).__name__})
        finally:
            if clock is not None:
                clock.cancel()
            self._finish()

    def stop(self, error: str | None, cause: str | None) -> None:
        """End it as ABORTED, unless it has ended, and wait a moment until its history says so."""
        self.halt(error, cause)
        self.over.wait(5.0)

    def halt(self, error: str | None = None, cause: str | None = None) -> None:
        """The same, without a wait."""
        self.env.set_stop(stop_date=datetime.now(UTC), error=error, cause=cause)
        silence(self.env)
        states_waits.wake(self.env)

    def _late(self) -> None:
        with self.env._state_mutex:
            if self.env.is_running():
                self.env.set_timed_out()
        silence(self.env)
        states_waits.wake(self.env)

    def _finish(self) -> None:
        from moto.stepfunctions.parser.asl.eval import program_state as states
        from moto.stepfunctions.parser.asl.utils.encoding import to_json_str

        state = self.env.program_state()
        found: dict[str, Any] = {"stopDate": iso(datetime.now(UTC))}
        if isinstance(state, states.ProgramEnded):
            found["output"] = to_json_str(self.env.states.get_input(), separators=(",", ":"))
            status = "SUCCEEDED"
        elif isinstance(state, states.ProgramStopped):
            found |= {"error": state.error, "cause": state.cause}
            status = "ABORTED"
        elif isinstance(state, states.ProgramTimedOut):
            status = "TIMED_OUT"
        else:
            failure = getattr(state, "error", None) or {}
            found |= {"error": failure.get("error"), "cause": failure.get("cause")}
            status = "FAILED"
        end_history(self.env.event_manager, status, found)
        states_waits.wake(self.env)  # what nobody waits for any more
        self.record.update(found)
        if self.standard and status in UNSUCCESSFUL:
            stood = frozen(self.env.scope, found.get("error"))
            REDRIVABLE.put(self.record["executionArn"], Ended(self.machine, self.value, stood, self.settled))
        self._settle(state)
        self.record["status"] = status  # last: whoever reads it finds the rest
        RUNS.ended(self)
        self.over.set()
        self.announce()
        self.settled.set()

    def _settle(self, state: Any) -> None:
        """Write the end down where else it has to be known; ``state`` is the program's last."""

    def announce(self) -> None:
        """Tell the default event bus how the execution stands."""
        from ministack.core.responses import request_scope
        from ministack.services import stepfunctions

        if self.standard:
            with request_scope(*self.scope):
                stepfunctions._emit_execution_status_event(self.record)


class Stored:
    """The records in MiniStack's store."""

    def put(self, record: dict[str, Any], scope: tuple[str, str]) -> None:
        from ministack.core.responses import request_scope
        from ministack.services import stepfunctions

        with request_scope(*scope):
            stepfunctions._executions[record["executionArn"]] = record

    def drop(self, arn: str, scope: tuple[str, str]) -> None:
        from ministack.core.responses import request_scope
        from ministack.services import stepfunctions

        with request_scope(*scope):
            stepfunctions._executions.pop(arn, None)


def install() -> None:
    from ministack.core.responses import request_scope
    from ministack.services import stepfunctions

    _ = request_scope, stepfunctions._executions, stepfunctions._emit_execution_status_event
    KEEPERS.append(Stored())
    forget_all = stepfunctions.reset

    def reset() -> None:
        for run in RUNS.all():
            run.stop(None, None)
        forget_all()
        RUNS.clear()
        REDRIVABLE.clear()

    stepfunctions.reset = reset
