"""Sessions: an agent's context between two requests, after the documented rules of AgentCore Runtime.

Step Functions remembers where a workflow stands, a session what an agent had in mind: variables, an open file, a
half-finished plan. That makes the next request cheap, and it is no record of anything::

    request, session A ──→ environment 1: a process, a folder      {"seen": 2}, notes.txt, mnt/workspace/plan.txt
    request, session B ──→ environment 1 of its own                nothing of A's
       (A idle for 15 minutes, or 8 hours old, or stopped, or dead)
    request, session A ──→ environment 2                           {}, and mnt/workspace/plan.txt if storage is on

So whatever must survive is written somewhere else *before* the answer: position to the state machine, facts to
:class:`labkit.state.memory.Memory`, files under the mount path. The rules are in :mod:`labkit.state.session_rules`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.closing import Closing
from labkit.models._input import limit, number, whole
from labkit.state import session_rules as rules
from labkit.state.session_rules import Answer, Lifecycle, Seen, SessionError, Why
from labkit.state.session_vm import Environment, Process, agent_source, own_folder

if TYPE_CHECKING:
    from labkit.lab import Lab

__all__ = ["Answer", "Lifecycle", "Runtime", "Seen", "SessionError"]

MOST_HERE = 64  # environments are processes of this machine
_PING = 5.0  # seconds: a machine may stand still for a while, and who does not answer is ended

Start = Callable[[Path, str, "tuple[str, Path] | None", Path], Environment]


class _Session:
    def __init__(self) -> None:
        self.environment: Environment | None = None
        self.environments = 0
        self.started = self.ended_at = 0.0
        self.idle_since: float | None = None  # None while a request is at work
        self.ended: Why | None = None


class Runtime(Closing):
    """One agent and its sessions. ``agent`` is the text of its code, or the path of a file: ``invoke(payload,
    context)``, with :class:`labkit.state.session_host.Context`.

    ``storage`` is the mount path of session storage (``/mnt/workspace``); in the simulation it lies below the session's
    own folder, as ``context.storage``. ``most``: how many environments may live at once, by default the account's quota
    in ``region``. ``patience``: seconds of real time for one request. ``clock`` gives the seconds that idle and
    lifetime are counted in. What is due by it ends when anybody next asks: no thread watches.

    A context manager that ends everything; :meth:`create` lets a lab do that. Raises :class:`SessionError`.
    """

    simulated: tuple[str, ...] = (
        "All of it: no AWS API is called. Ids, limits, defaults and error names are those of AWS's model.",
        "A microVM is a process with a folder; 2 vCPU and 8 GB are not enforced, and a process is no wall.",
        "What is due ends when somebody next asks. AWS watches by itself, and an end can take 15 s.",
        "HealthyBusy is asked for when a session would be idle; idle then counts from that question.",
        "A second request while one is at work is refused: AWS's model has RetryableConflictException for that.",
        "Whether AWS enforces it by now is not verified; until then two requests can meet in one session.",
        "A request beyond `patience` ends the environment. What AWS does with it after 15 minutes is not verified.",
        "Session storage has no limit, and survives a crash whole. AWS copies it as it goes: the last can be missing.",
    )

    def __init__(
        self,
        agent: str | Path,
        *,
        lifecycle: Lifecycle | None = None,
        storage: str | None = None,
        region: str = "us-east-1",
        most: int | None = None,
        patience: float = 20.0,
        clock: Callable[[], float] = time.time,
        start: Start = Process,
    ) -> None:
        self.lifecycle = lifecycle or Lifecycle()
        self.most = rules.active_quota(region) if most is None else whole("most", most)
        self.patience = number("patience", patience, low=0.05, high=limit("agentcore.sync.timeout"), unit="s")
        self.clock = clock
        self._mount = None if storage is None else rules.check_mount(storage)
        self._start = start
        self._guard = threading.RLock()
        self._sessions: dict[str, _Session] = {}
        source = agent_source(agent)
        self._folder = own_folder()
        self._agent = self._folder / "agent.py"
        self._agent.write_text(source, encoding="utf-8")
        self._closed = False

    @classmethod
    def create(cls, lab: Lab, agent: str | Path, **options: Any) -> Runtime:
        """A runtime in the lab's Region, which ends with the lab."""
        runtime = cls(agent, **{"region": lab.region, **options})
        lab.on_close("sessions", runtime.close)
        return runtime

    def invoke(self, session_id: str, payload: Any = None) -> Answer:
        """InvokeAgentRuntime: give the session's agent a payload that JSON can hold, and wait for what it says.

        Starts an environment where the session has none. Raises :class:`SessionError` with AWS's code:
        ``ValidationException`` (id, payload), ``ServiceQuotaExceededException`` (no room for another environment),
        ``RetryableConflictException`` (a request is at work), ``RuntimeClientError`` (the agent failed, or died).
        """
        rules.check_session_id(session_id)
        rules.check_payload(_as_json(payload))
        with self._guard:
            self._sweep()
            session = self._sessions.get(session_id) or _Session()
            if session.environment is not None and session.idle_since is None:
                raise SessionError(rules.CONFLICT, f"session {session_id:.40} is at work on another request.")
            fresh = session.environment is None
            if fresh:
                self._provision(session_id, session)
            environment = session.environment
            assert environment is not None
            session.idle_since = None
            count = session.environments
        answer: dict[str, Any] = {"over": True}
        try:
            answer = environment.ask({"payload": payload}, self.patience)
        finally:
            with self._guard:
                if session.environment is environment:  # else it was ended meanwhile
                    session.idle_since = self.clock()
                    if answer.get("over"):
                        self._end(session, "crashed")
        if "error" in answer:
            raise SessionError(rules.FAILED, f"the agent failed: {answer['error']}")
        return Answer(answer["body"], session_id, count, fresh)

    def stop(self, session_id: str) -> None:
        """StopRuntimeSession: end the environment now, and a request that is at work in it. The id stays good.

        Raises :class:`SessionError` (``ResourceNotFoundException``) for a session that has none.
        """
        self._finish(session_id, "stopped")

    def kill(self, session_id: str) -> None:
        """What no API does, and no promise excludes: the environment dies. Raises as :meth:`stop` does."""
        self._finish(session_id, "crashed")

    def look(self) -> dict[str, Seen]:
        """Every session that was ever asked for, as it stands now; what is due has ended."""
        with self._guard:
            self._sweep()
            return {session_id: self._seen(session) for session_id, session in self._sessions.items()}

    @property
    def active(self) -> int:
        """How many environments live: what the quota counts."""
        return sum(seen.status != "stopped" for seen in self.look().values())

    def close(self) -> None:
        """End every environment and remove every file, session storage among them. Closing twice is harmless."""
        with self._guard:
            self._closed = True
            for session in self._sessions.values():
                self._end(session, "stopped")
            shutil.rmtree(self._folder, ignore_errors=True)

    def _sweep(self) -> None:
        """End what is due, and what has died. Under the guard, as all below."""
        if self._closed:
            raise SessionError(rules.MISSING, "this runtime is closed.")
        now = self.clock()
        for session in self._sessions.values():
            if session.environment is None:
                continue
            when, due = self.lifecycle.due(session.started, session.idle_since)
            if session.idle_since is not None and not session.environment.alive:
                when, due = now, "crashed"
            elif due == "idle" and when <= now and self._busy(session):
                session.idle_since = now
                when, due = self.lifecycle.due(session.started, None)
            if when <= now:
                self._end(session, due, when)

    def _busy(self, session: _Session) -> bool:
        """Whether an agent between two requests says that it goes on: ``GET /ping``. One that says nothing is ended."""
        try:
            return session.environment is not None and session.environment.ask({}, _PING)["status"] == "HealthyBusy"
        except SessionError:
            self._end(session, "crashed")
            return False

    def _provision(self, session_id: str, session: _Session) -> None:
        living = sum(other.environment is not None for other in self._sessions.values())
        if living >= self.most:
            raise SessionError(rules.QUOTA, f"the account has {living} active sessions, and {self.most} is its quota.")
        if living >= MOST_HERE:
            raise SessionError(rules.FAILED, f"{living} sessions are as many processes, and {MOST_HERE} the most here.")
        now = self.clock()
        storage = None
        if self._mount is not None:
            folder = self._folder / "storage" / hashlib.sha256(session_id.encode(errors="replace")).hexdigest()[:32]
            if session.environments and now - session.ended_at >= limit("agentcore.storage.idle"):
                shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True, exist_ok=True)
            storage = (self._mount, folder)
        session.environment = self._start(self._agent, session_id, storage, self._folder)
        session.environments += 1
        session.started, session.ended = now, None
        self._sessions[session_id] = session

    def _finish(self, session_id: str, why: Why) -> None:
        rules.check_session_id(session_id)
        with self._guard:
            self._sweep()
            session = self._sessions.get(session_id)
            if session is None or session.environment is None:
                raise SessionError(rules.MISSING, f"session {session_id:.40} was not found, or has ended already.")
            self._end(session, why)

    def _end(self, session: _Session, why: Why, when: float | None = None) -> None:
        environment, session.environment = session.environment, None
        if environment is not None:
            session.ended, session.idle_since, session.ended_at = why, None, self.clock() if when is None else when
            environment.end()

    def _seen(self, session: _Session) -> Seen:
        at_work = session.environment is not None and (session.idle_since is None or self._busy(session))
        if session.environment is None:
            return Seen("stopped", session.environments, session.ended)
        return Seen("active" if at_work else "idle", session.environments, None)


def _as_json(payload: Any) -> bytes:
    try:
        return json.dumps(payload, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise SessionError(rules.INVALID, f"a payload is what JSON can hold; this one is not: {error}.") from error
