"""Records: what one row of the idempotency table says about one piece of work.

====================  =========================================================================================
attribute             meaning
====================  =========================================================================================
``pk``, ``sk``        trace id and consumer: the work
``step_state``        ``running`` or ``done``
``claimed_by``        token of the newest claim; a new one for each
``attempt``           how many claims there have been: grows with every takeover
``lease_until``       epoch seconds; 0 when its claim was let go
``payload_hash``      SHA-256 of what the work was asked to do
``step_result``       JSON; or ``result_ref``, where it lies in S3
``failure``           why the last claim let go
``expires_at``        epoch seconds; the table's TTL
====================  =========================================================================================

No name here is one of DynamoDB's reserved words (``state``, ``owner`` and ``result`` are), so no expression needs an
alias, and none can fail for want of one after the work is done.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from labkit.errors import LabError
from labkit.facts import facts
from labkit.state.objects import Objects

RUNNING, DONE = "running", "done"
Placed = tuple[str, dict[str, str], Any]  # a result ready to be recorded: attribute, its value, as JSON gives it back
# A result beside keys (3 KB at most), failure and the rest, in an item of the largest size.
MOST_INLINE = int(facts("dynamodb.item.max_bytes")) - 8_192
_PLAIN = re.compile(r"[\w:-][\w.:-]{0,254}", re.ASCII)  # may stand in an S3 key as it is


class IdempotencyError(LabError):
    """Base of what the idempotency store refuses; the sentence names the work."""


def said(error: BaseException, most: int = 1_000) -> str:
    """What an error says, fit to be stored: ``most`` characters of valid UTF-8, whatever its ``__str__`` does."""
    try:
        text = str(error)[:most]
    except Exception:  # noqa: BLE001 - an error that cannot be printed is an error all the same
        text = "(its text could not be had)"
    return text.encode(errors="replace").decode()


@dataclass(frozen=True)
class Work:
    """What is to be done, by whom: the key, with the digest of what was asked.

    Made with :meth:`of` from an envelope, or with :meth:`named`.
    """

    trace_id: str
    consumer: str
    digest: str

    def __post_init__(self) -> None:
        for name, value, most in (("trace_id", self.trace_id, 2048), ("consumer", self.consumer, 1024)):
            # "replace" gives one byte for what no UTF-8 can hold: then the texts differ.
            good = isinstance(value, str) and value.encode(errors="replace").decode() == value
            if not good or not 1 <= len(value.encode()) <= most:
                raise IdempotencyError(f"work needs a {name} of 1 to {most} bytes of text; got {value!r:.80}.")

    @classmethod
    def of(cls, envelope: Any, consumer: str) -> Work:
        """The work of an envelope, an :class:`~labkit.control.envelope.Envelope` or its dictionary.

        A payload that travels as a claim check counts as what the ticket's hash says: the same work either way.
        Raises :class:`IdempotencyError` for what is no envelope.
        """
        fields = _fields(envelope, "an envelope")
        if "trace_id" not in fields:
            raise IdempotencyError("an envelope has a trace_id; this has none.")
        ref = fields.get("payload_ref")
        if not ref:
            return cls.named(fields["trace_id"], consumer, fields.get("payload"))
        sha256 = _fields(ref, "a payload_ref").get("sha256")
        if not isinstance(sha256, str) or not re.fullmatch("[0-9a-f]{64}", sha256):
            raise IdempotencyError(f"a payload_ref has a sha256 of 64 hex digits; this has {sha256!r:.80}.")
        return cls(fields["trace_id"], consumer, sha256)

    @classmethod
    def named(cls, trace_id: str, consumer: str, payload: Any) -> Work:
        """The work with this name. ``payload`` is what was asked, as JSON can hold it."""
        import hashlib

        try:
            text = json.dumps(payload, separators=(",", ":"), sort_keys=True, ensure_ascii=False, allow_nan=False)
            digest = hashlib.sha256(text.encode()).hexdigest()
        except (TypeError, ValueError, RecursionError) as error:
            says = f"the payload of {trace_id!r:.80} is not what JSON can hold: {said(error)}."
            raise IdempotencyError(says) from error
        return cls(trace_id, consumer, digest)

    @property
    def key(self) -> dict[str, dict[str, str]]:
        return {"pk": {"S": self.trace_id}, "sk": {"S": self.consumer}}

    def __str__(self) -> str:
        return f"{self.trace_id} for {self.consumer}"


def _fields(found: Any, what: str) -> Mapping[str, Any]:
    try:
        return found if isinstance(found, Mapping) else dict(found)
    except (TypeError, ValueError) as error:
        raise IdempotencyError(f"{what} has fields; this is {type(found).__name__}: {found!r:.80}.") from error


@dataclass(frozen=True)
class Record:
    """One row, read. Empty strings and zeros where the row has nothing."""

    state: str = ""
    owner: str = ""
    attempt: int = 0
    lease_until: float = 0.0
    expires_at: int = 0
    digest: str = ""
    failure: str = ""
    result: str | None = None
    result_ref: str | None = None

    @property
    def running(self) -> bool:
        return self.state == RUNNING

    @property
    def done(self) -> bool:
        return self.state == DONE

    def claimable(self, work: Work, now: float) -> bool:
        """Whether it is worth trying to take this over: the table itself decides."""
        abandoned = self.running and self.digest == work.digest
        return self.lease_until < now and (abandoned or 0 < self.expires_at < now)

    @classmethod
    def of(cls, item: Mapping[str, Mapping[str, str]]) -> Record:
        def text(name: str) -> str:
            return item.get(name, {}).get("S", "")

        def number(name: str) -> float:
            return float(item.get(name, {}).get("N", 0))

        return cls(
            text("step_state"),
            text("claimed_by"),
            int(number("attempt")),
            number("lease_until"),
            int(number("expires_at")),
            text("payload_hash"),
            text("failure"),
            item.get("step_result", {}).get("S"),
            item.get("result_ref", {}).get("S"),
        )

    def value(self, objects: Objects | None, work: Work) -> Any:
        """The recorded result. Raises :class:`IdempotencyError` when it lies in S3 and nobody said where."""
        if self.result_ref is None:
            return json.loads(self.result) if self.result is not None else None
        if objects is None:
            raise IdempotencyError(f"the result of {work} lies in S3, and this store was given no objects=.")
        key, _, sha256 = self.result_ref.rpartition("#")
        return json.loads(objects.get(key, sha256, what=f"the result of {work}"))

    @staticmethod
    def stored(result: Any, work: Work, objects: Objects | None, inline: int) -> Placed:
        """Where a result goes: attribute name and value, and the result as JSON will give it back.

        A large one is written to S3 first: a record never points at what is not there.
        """
        try:
            text = json.dumps(result, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
            body, again = text.encode(), json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise IdempotencyError(f"the result of {work} is not what JSON can hold: {said(error)}.") from error
        if objects is not None and len(body) > inline:
            placed = objects.put(f"results/{_plain(work.consumer)}/{_plain(work.trace_id)}", body)
            return "result_ref", {"S": f"{placed.key}#{placed.sha256}"}, again
        if len(body) > MOST_INLINE:
            raise IdempotencyError(
                f"the result of {work} has {len(body):,} bytes; the table holds {MOST_INLINE:,}: "
                "give the store objects=."
            )
        return "step_result", {"S": text}, again


def _plain(name: str) -> str:
    """A name as part of an S3 key, which has 1,024 bytes and takes not every character: else the name's hash."""
    import hashlib

    return name if _PLAIN.fullmatch(name) else hashlib.sha256(name.encode()).hexdigest()
