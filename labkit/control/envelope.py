"""The envelope: the contract between agents, carried in the ``detail`` of an event.

EventBridge's own ``version`` field is always "0" and says nothing about the contract, so the envelope carries a
``schema_version`` of its own. Trace state stands in the envelope because everything else changes: the event id with
every PutEvents retry, the message id with every redrive. What names the *work* is ``trace_id``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FieldSerializationInfo,
    SecretStr,
    ValidationError,
    field_serializer,
    field_validator,
    model_validator,
)

from labkit.control import trace_context
from labkit.errors import LabError
from labkit.facts import facts

SCHEMA_VERSION = "1.0"
DEFAULT_TTL = 86_400  # seconds; a day: our choice, not a limit of AWS's

_ON_ITS_WAY = {"task_token": "shown"}  # the context in which an envelope is written out for a queue or a bus


class EnvelopeError(LabError):
    """An envelope is not as the contract says; the sentence names the field and the value."""


class EnvelopeExpired(EnvelopeError):
    """The envelope is older than its ``ttl_seconds``: the work is no longer wanted."""


class PayloadRef(BaseModel):
    """Where a payload lies that is too large to travel: the claim check. ``size`` in bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["s3"] = "s3"
    bucket: str = Field(min_length=3, max_length=63)
    key: str = Field(min_length=1, max_length=1024)
    size: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Envelope(BaseModel):
    """One step of one conversation.

    ``issued_at`` and ``ttl_seconds`` say until when the work is wanted; ``payload`` travels inside, or lies where
    ``payload_ref`` points, never both. A reader accepts every ``schema_version`` with the major number it knows, and
    ignores fields that a newer minor version added.

    ``task_token`` is there when a state machine waits for this step. Whoever has it can end the step, so it shows in
    :meth:`detail` alone: printed, logged or dumped, the envelope has asterisks in its place, and no error quotes it. It
    belongs to one attempt at the step: a retry of the same work has another one, the next step has none.

    ``traceparent`` and ``tracestate`` are W3C's. What does not parse is left out, as the recommendation asks: no work
    fails because its trace was broken on the way.
    """

    # Errors without their input: what is wrong with an envelope may be said of one that holds a token.
    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    schema_version: str = Field(default=SCHEMA_VERSION, pattern=r"^\d+\.\d+$")
    trace_id: str = Field(min_length=1, max_length=128, pattern=r"^[\w.:-]+$")
    conversation_id: str = Field(min_length=1, max_length=64, pattern=r"^[\w.:-]+$")
    step: int = Field(ge=0, strict=True)
    agent_class: str = Field(min_length=1, max_length=64, pattern=r"^[a-z][a-z0-9-]*$")
    model_policy: str = Field(default="default", min_length=1, max_length=64)
    issued_at: datetime
    ttl_seconds: int = Field(default=DEFAULT_TTL, gt=0, strict=True)
    payload: dict[str, Any] | None = None
    payload_ref: PayloadRef | None = None
    task_token: SecretStr | None = Field(default=None, min_length=1, max_length=int(facts("sfn.token.max_chars")))
    traceparent: str | None = None
    tracestate: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _trace(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or not ("traceparent" in data or "tracestate" in data):
            return data
        found = trace_context.parse(data.get("traceparent"), data.get("tracestate"))
        rest = {key: value for key, value in data.items() if key not in ("traceparent", "tracestate")}
        return {**rest, **(found.headers() if found else {})}

    @field_serializer("task_token", when_used="json-unless-none")
    def _shown(self, token: SecretStr, info: FieldSerializationInfo) -> str:
        return token.get_secret_value() if info.context == _ON_ITS_WAY else str(token)

    @field_validator("schema_version")
    @classmethod
    def _known_major(cls, value: str) -> str:
        if value.split(".")[0] != SCHEMA_VERSION.split(".")[0]:
            raise ValueError(f"this reader knows major version {SCHEMA_VERSION.split('.')[0]}")
        return value

    @field_validator("issued_at")
    @classmethod
    def _has_zone(cls, value: datetime) -> datetime:
        if value.tzinfo is None:
            raise ValueError("must say its time zone")
        if not 1970 <= value.year < 9999:
            raise ValueError("is no year that work is issued in")
        return value.astimezone(UTC)

    @model_validator(mode="after")
    def _one_payload(self) -> Envelope:
        if (self.payload is None) == (self.payload_ref is None):
            raise ValueError("needs either payload or payload_ref, and not both")
        return self

    @classmethod
    def new(
        cls,
        *,
        conversation_id: str,
        step: int,
        agent_class: str,
        payload: Mapping[str, Any],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        **fields: Any,
    ) -> Envelope:
        """A new envelope, issued ``now``. ``trace_id`` is derived from conversation and step, so that the same work has
        the same name however often it is published. Raises :class:`EnvelopeError`."""
        unknown = sorted(set(fields) - set(cls.model_fields))
        if unknown:  # a reader ignores what it does not know; a writer that does so has a typing mistake
            raise EnvelopeError(f"envelope field {unknown[0]} does not exist; there are {', '.join(cls.model_fields)}.")
        fields.setdefault("trace_id", f"conv-{conversation_id}-step-{step}")
        try:
            json.dumps(payload, allow_nan=False, ensure_ascii=False).encode()
            held = dict(payload)
        except (TypeError, ValueError, RecursionError) as error:
            raise EnvelopeError(f"envelope field payload is not what JSON can hold: {error}.") from error
        return cls.parse(
            {
                "conversation_id": conversation_id,
                "step": step,
                "agent_class": agent_class,
                "payload": held,
                "issued_at": now(),
                **fields,
            }
        )

    @classmethod
    def parse(cls, detail: Any) -> Envelope:
        """An envelope from an event's ``detail`` (a dictionary, or JSON text). Raises :class:`EnvelopeError`."""
        if isinstance(detail, str | bytes):
            try:
                detail = json.loads(detail)
            except (ValueError, RecursionError) as error:
                raise EnvelopeError(f"an envelope is a JSON object; this is no JSON: {error}.") from error
        if not isinstance(detail, Mapping):
            raise EnvelopeError(f"an envelope is a JSON object; this is {type(detail).__name__}.")
        try:
            return cls.model_validate(detail)
        except ValidationError as error:
            raise EnvelopeError(_sentence(error)) from error

    @classmethod
    def from_event(cls, event: Any) -> Envelope:
        """An envelope from a whole event, as EventBridge delivers it to a queue or a function.

        ``event`` is a dictionary or JSON text (a message body). Raises :class:`EnvelopeError`.
        """
        if isinstance(event, str | bytes):
            try:
                event = json.loads(event)
            except (ValueError, RecursionError) as error:
                raise EnvelopeError(f"an event is a JSON object; this is no JSON: {error}.") from error
        if not isinstance(event, Mapping) or "detail" not in event:
            raise EnvelopeError("an event has a field 'detail' that holds the envelope; this has none.")
        return cls.parse(event["detail"])

    def detail(self) -> str:
        """The envelope as the ``Detail`` of a PutEvents entry: compact JSON, with the task token if there is one."""
        return self.model_dump_json(exclude_none=True, context=_ON_ITS_WAY)

    def size(self) -> int:
        """UTF-8 bytes of :meth:`detail`."""
        return len(self.detail().encode())

    def expires_at(self) -> float:
        """Epoch seconds after which the work is no longer wanted."""
        return self.issued_at.timestamp() + self.ttl_seconds

    def fresh(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Envelope:
        """This envelope if its work is still wanted; raises :class:`EnvelopeExpired` if not.

        A replayed event keeps its first ``issued_at``: a replay of last week's work is refused here.
        """
        late = now().timestamp() - self.expires_at()
        if late >= 0:
            raise EnvelopeExpired(f"{self.trace_id} expired {late:.0f} s ago: ttl_seconds is {self.ttl_seconds}.")
        return self

    def next(self, *, agent_class: str | None = None, payload: Mapping[str, Any], **fields: Any) -> Envelope:
        """The envelope of the following step of the same conversation. A task token stays behind: it is this step's.

        It is caused by what is going on now: the current span, or, where nobody traces, whatever caused this step.
        """
        here = trace_context.current()
        traced = here.headers() if here else {"traceparent": self.traceparent, "tracestate": self.tracestate}
        return Envelope.new(
            conversation_id=self.conversation_id,
            step=self.step + 1,
            agent_class=agent_class or self.agent_class,
            payload=payload,
            **{"model_policy": self.model_policy, "ttl_seconds": self.ttl_seconds, **traced, **fields},
        )


def _sentence(error: ValidationError) -> str:
    """The first fault as a sentence that names the field, the value and what it should be."""
    faults = error.errors(include_url=False)
    first = faults[0]
    where = ".".join(str(part) for part in first["loc"]) or "envelope"
    hidden = first["type"] == "missing" or not first["loc"] or first["loc"][0] == "task_token"
    value = "" if hidden else f" is {first['input']!r:.80}"
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    says = first["msg"].removeprefix("Value error, ")
    return f"envelope field {where}{value}: {says[0].lower()}{says[1:]}{more}."
