"""Archives: what a bus received, kept for a replay."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from labkit.control.bus import Bus
from labkit.facts import facts
from labkit.ops.replay_routes import ReplayError

if TYPE_CHECKING:
    from labkit.lab import Lab


@dataclass(frozen=True)
class ArchiveState:
    """What DescribeArchive says. On AWS ``events`` and ``size`` (bytes) may lag by 24 hours; 0 days is for ever."""

    state: str
    events: int
    size: int
    retention_days: int
    pattern: Mapping[str, Any]
    created: datetime


class Archive:
    """One archive, by client and name. :meth:`create` makes one in a lab.

    An archive cannot be tagged, and cannot be filled afterwards: it holds what the bus received since it was made.
    Keep them narrow, one for each kind of event that anybody would want back, with a retention: 0 days is for ever.
    """

    def __init__(self, client: Any, name: str) -> None:
        self.client = client
        self.name = name
        answer = self._described()
        self.arn = str(answer["ArchiveArn"])
        self.bus_arn = str(answer["EventSourceArn"])

    @classmethod
    def create(
        cls, lab: Lab, bus: Bus, name: str, *, pattern: Mapping[str, Any] | None = None, retention_days: int = 0
    ) -> Archive:
        """Archive the events of ``bus`` that match ``pattern`` (all, without one) for ``retention_days`` (0: for ever).

        Replayed events never get in. Raises :class:`ReplayError`.
        """
        from botocore.exceptions import ClientError, ParamValidationError

        full, most = lab.resource_name(name), int(facts("events.archive_name.max_chars"))
        if len(full) > most:
            raise ReplayError(f"archive {full!r} has {len(full)} characters; a name has at most {most}.")
        more = {"EventPattern": json.dumps(pattern)} if pattern is not None else {}
        try:
            bus.client.create_archive(ArchiveName=full, EventSourceArn=bus.arn, RetentionDays=retention_days, **more)
        except (ClientError, ParamValidationError) as error:
            raise ReplayError(f"archive {name!r} was not made: {error}") from error
        return cls(bus.client, full)

    @property
    def bus(self) -> str:
        """The name of the bus."""
        return self.bus_arn.rsplit("event-bus/", 1)[-1]

    def describe(self) -> ArchiveState:
        """State and counts. Raises :class:`ReplayError` when the archive is not there."""
        answer = self._described()
        return ArchiveState(
            answer["State"],
            int(answer.get("EventCount", 0)),
            int(answer.get("SizeBytes", 0)),
            int(answer.get("RetentionDays", 0)),
            json.loads(answer.get("EventPattern") or "{}"),
            answer["CreationTime"],
        )

    def _described(self) -> Mapping[str, Any]:
        from botocore.exceptions import ClientError, ParamValidationError

        try:
            answer: Mapping[str, Any] = self.client.describe_archive(ArchiveName=self.name)
        except (ClientError, ParamValidationError) as error:
            raise ReplayError(f"there is no archive {self.name!r}: {error}") from error
        return answer

    def __repr__(self) -> str:
        return f"<Archive {self.name} of bus {self.bus}>"
