"""Session rules: what Amazon Bedrock AgentCore documents about a runtime session, as arithmetic.

A session is a name (``runtimeSessionId``) and, while it is in use, an *environment*: a microVM of its own with memory
and a disk. The name is yours for ever; the environment is not::

    invoke ─┬─ active ─── idle ── invoke ─ active ── idle ─────────────── 15 min ─╳ stopped      invoke ── active …
            │                                                             (idle)                (a new environment:
            └── at most 8 h, active or not ──────────────────────────────────────╳ stopped       empty memory and disk)

* **Idle** means: no request is at work, and the agent says ``Healthy``. One that has said ``HealthyBusy``, because it
  goes on after its answer, is not idle, however long it takes.
* **Lifetime** counts from the start of the environment, whatever it is doing then.
* **Resume** is not restore: the next request with the same id gets a new environment. What it finds there is what was
  written under the mount path of *session storage*, if that is configured, and nothing else.

Sources: botocore's models of bedrock-agentcore and bedrock-agentcore-control; AWS's pages runtime-sessions,
runtime-lifecycle-settings, runtime-long-run, runtime-stop-session, runtime-filesystem-configurations.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from labkit.errors import LabError
from labkit.facts import facts
from labkit.models._input import limit

__all__ = [
    "Lifecycle",
    "SessionError",
    "active_quota",
    "check_mount",
    "check_payload",
    "check_session_id",
    "fits_memory",
]

Compute = Literal["microvm", "instances"]
Why = Literal["idle", "lifetime", "stopped", "crashed"]  # how an environment ended

# The model's name of each refusal. When AWS answers which one is documented only in part: see Runtime.simulated.
INVALID = "ValidationException"
QUOTA = "ServiceQuotaExceededException"  # its sentence on AWS: "maxVms limit exceeded" (public reports)
CONFLICT = "RetryableConflictException"
MISSING = "ResourceNotFoundException"
FAILED = "RuntimeClientError"

_MOUNT = re.compile(r"/mnt/[a-zA-Z0-9._-]+/?")  # botocore: MountPath
_MEMORY_ID = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]*")  # botocore: SessionId, as Memory has it


class SessionError(LabError):
    """A request that AgentCore refuses, or that failed. ``code`` is AWS's name for it (``ValidationException`` …)."""

    def __init__(self, code: str, says: str) -> None:
        self.code = code
        super().__init__(says)


class Lifecycle:
    """How long an environment lives, in whole seconds: ``lifecycleConfiguration`` of CreateAgentRuntime.

    ``idle`` is 15 minutes unless set (or ``lifetime``, where that is shorter), ``lifetime`` 8 hours, on both kinds of
    compute. ``instances`` *may* have 14 days; nobody gets them without asking. Raises :class:`SessionError`.
    """

    def __init__(self, idle: int | None = None, lifetime: int | None = None, compute: Compute = "microvm") -> None:
        if compute not in ("microvm", "instances"):
            raise SessionError(INVALID, f"compute is microvm or instances; got {compute!r:.40}.")
        self.compute = compute
        self.lifetime = self._checked("maxLifetime", lifetime, limit(f"agentcore.{compute}.lifetime.default"))
        usual = min(limit("agentcore.idle.default"), self.lifetime)
        self.idle = self._checked("idleRuntimeSessionTimeout", idle, usual)
        if self.idle > self.lifetime:
            raise SessionError(
                INVALID,
                f"idleRuntimeSessionTimeout is at most maxLifetime; {self.idle} s is more than {self.lifetime} s.",
            )

    def _checked(self, field: str, value: int | None, usual: int) -> int:
        value = usual if value is None else value
        low, high = (limit(f"agentcore.{self.compute}.lifetime.{end}") for end in ("min", "max"))
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise SessionError(
                INVALID, f"{field} on {self.compute} is a whole number from {low} to {high} s; got {value!r:.40}."
            )
        return value

    def __repr__(self) -> str:
        return f"<Lifecycle on {self.compute}: {self.idle} s idle, {self.lifetime} s in all>"

    def due(self, started: float, idle_since: float | None) -> tuple[float, Why]:
        """When an environment ends, and why. ``idle_since`` is None while it is at work."""
        ends: list[tuple[float, Why]] = [(started + self.lifetime, "lifetime")]
        if idle_since is not None:
            ends.append((idle_since + self.idle, "idle"))
        return min(ends, key=lambda end: end[0])


@dataclass(frozen=True)
class Answer:
    """What a request came to. ``environment`` counts the session's environments; ``fresh``: this request started it."""

    body: Any
    session_id: str
    environment: int
    fresh: bool


@dataclass(frozen=True)
class Seen:
    """A session as it stands. ``ended`` says why its last environment ended; None while it has one."""

    status: Literal["active", "idle", "stopped"]
    environments: int
    ended: Why | None


def check_session_id(session_id: str) -> str:
    """A ``runtimeSessionId`` as it is. Raises :class:`SessionError`: a bare conversation id such as 8842 is too short.

    Pad it with what makes it unique anyway, such as ``f"conversation-8842-{uuid4()}"``. One id for Runtime and Memory
    has at most 100 characters, letters, digits, ``-`` and ``_``: see :func:`fits_memory`.
    """
    low, high = limit("agentcore.session_id.min_chars"), limit("agentcore.session_id.max_chars")
    if not isinstance(session_id, str) or not low <= len(session_id) <= high:
        size = f", {len(session_id)} characters" if isinstance(session_id, str) else ""
        raise SessionError(INVALID, f"runtimeSessionId has {low} to {high} characters; got {session_id!r:.60}{size}.")
    return session_id


def fits_memory(session_id: str) -> bool:
    """Whether AgentCore Memory takes the id as its ``sessionId``, too: its pattern and length are other ones."""
    return len(session_id) <= limit("agentcore.memory.session_id.max_chars") and bool(_MEMORY_ID.fullmatch(session_id))


def check_payload(payload: bytes) -> bytes:
    """A payload as it is. Raises :class:`SessionError` when it has more than 100 MB."""
    most = limit("agentcore.payload.max_bytes")
    if len(payload) > most:
        raise SessionError(INVALID, f"payload has at most {most:,} bytes; got {len(payload):,}.")
    return payload


def check_mount(path: str) -> str:
    """The name under ``/mnt`` of a mount path for session storage. Raises :class:`SessionError`."""
    if not isinstance(path, str) or not 6 <= len(path) <= 200 or not _MOUNT.fullmatch(path):
        raise SessionError(INVALID, f"mountPath is /mnt/ and one name, 200 characters at most; got {path!r:.60}.")
    name = path.rstrip("/").rpartition("/")[2]
    if name in (".", ".."):
        raise SessionError(INVALID, f"mountPath is /mnt/ and one name; got {path!r}.")  # AWS's pattern lets it pass
    return name


def active_quota(region: str) -> int:
    """How many environments an account may have in ``region`` at once, idle ones among them; AWS raises it."""
    top = str(facts("agentcore.sessions.top_regions")).split("|")
    return limit("agentcore.sessions.us_east_1" if region in top else "agentcore.sessions.other")
