"""Where the events of a replay would go: the rules of the archive's bus and their targets, as they stand now."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labkit.control.bus import REQUESTED, SOURCE
from labkit.control.envelope import Envelope
from labkit.facts import facts
from labkit.ops.replay.errors import ReplayError, asking
from labkit.sweep import pages

if TYPE_CHECKING:
    from labkit.ops.replay.archive import Archive

SAFE: Mapping[str, str] = {"replay": "safe"}  # the tag of a rule whose targets all bear a second delivery

FIELD = str(facts("events.replay.field"))
_SCALARS = ("source", "detail-type", "account", "region")  # fields of an event that are one text, never a list


@dataclass(frozen=True)
class Target:
    """One target of a rule. ``idempotent`` when somebody said so; ``why`` is who, or that nobody did."""

    id: str
    arn: str
    idempotent: bool
    why: str

    @property
    def name(self) -> str:
        """The ARN without its head and the kind of resource: a queue's name, a function's (and its alias)."""
        resource = self.arn.split(":", 5)[-1]
        return re.split("[:/]", resource, maxsplit=1)[-1] or resource


@dataclass(frozen=True)
class Route:
    """One rule of the bus. ``reached`` when a replay would set it off; ``why`` says how that is known."""

    rule: str
    arn: str
    reached: bool
    why: str
    targets: tuple[Target, ...] = ()

    def called(self, names: Collection[str], target: Target) -> bool:
        return self.rule in names or target.arn in names


def survey(
    archive: Archive,
    name: str,
    archived: Mapping[str, Any],
    samples: Sequence[Mapping[str, Any]],
    idempotent: Mapping[str, bool],
    only: Collection[str] | None = None,
) -> list[Route]:
    """The rules of the archive's bus, as they stand now; ``only`` those with these ARNs, if given.

    Raises :class:`ReplayError` when they cannot be read, or a sample cannot be tested.
    """
    with asking(f"the rules of bus {archive.bus} could not be read"):
        return _survey(archive, name, archived, samples, idempotent, only)


def _survey(
    archive: Archive,
    name: str,
    archived: Mapping[str, Any],
    samples: Sequence[Mapping[str, Any]],
    idempotent: Mapping[str, bool],
    only: Collection[str] | None,
) -> list[Route]:
    client, found = archive.client, []
    rules = pages(client, "list_rules", "Rules", EventBusName=archive.bus)
    for rule in sorted(rules, key=lambda rule: str(rule["Name"])):
        if rule.get("ManagedBy") or not rule.get("EventPattern") or (only is not None and rule["Arn"] not in only):
            continue
        targets = list(pages(client, "list_targets_by_rule", "Targets", Rule=rule["Name"], EventBusName=archive.bus))
        if targets and all(":archive/" in target["Arn"] for target in targets):
            continue  # an archive's own rule, where it is not marked as one
        reached, why = _reached(client, rule, name, archived, samples)
        tags = client.list_tags_for_resource(ResourceARN=rule["Arn"])["Tags"] if reached else []
        safe = SAFE.items() <= {tag["Key"]: tag["Value"] for tag in tags}.items()
        found.append(
            Route(
                rule["Name"],
                rule["Arn"],
                reached,
                why,
                tuple(
                    _target(rule["Name"], target, safe, idempotent)
                    for target in sorted(targets, key=lambda target: str(target["Id"]))  # AWS promises no order
                ),
            )
        )
    return found


def _reached(
    client: Any, rule: Mapping[str, Any], name: str, archived: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]
) -> tuple[bool, str]:
    """Whether a replayed event can match the rule, and how that is known."""
    pattern = json.loads(rule["EventPattern"])
    if rule.get("State") == "DISABLED":
        return False, "the rule is disabled"
    wanted = pattern.get(FIELD)
    if wanted == [{"exists": False}]:
        return False, f"its pattern takes live events only ({FIELD} exists: false)"
    if _literal(wanted) and name not in wanted:
        return False, f"its pattern wants another {FIELD}"
    for field in _SCALARS:
        ours, theirs = pattern.get(field, []), archived.get(field, [])
        if _literal(ours) and _literal(theirs) and not set(ours) & set(theirs):
            return False, f"its {field} is none of the archive's"
    if not samples:
        return True, "its pattern may match"
    hits = sum(matches(client, pattern, sample) for sample in samples)
    return bool(hits), f"its pattern matches {hits} of {len(samples)} samples"


def _target(rule: str, target: Mapping[str, Any], safe: bool, idempotent: Mapping[str, bool]) -> Target:
    said = [idempotent[key] for key in (rule, target["Arn"]) if key in idempotent]
    if said:
        why = "declared idempotent" if all(said) else "declared not idempotent"
        return Target(target["Id"], target["Arn"], all(said), why)
    if safe:
        return Target(target["Id"], target["Arn"], True, "the rule's tag replay=safe")
    bus = ":event-bus/" in target["Arn"]
    return Target(target["Id"], target["Arn"], False, "another bus, with rules of its own" if bus else "nobody said so")


def _literal(values: Any) -> bool:
    """Whether a field of a pattern lists plain texts and nothing else."""
    return isinstance(values, list) and bool(values) and all(isinstance(value, str) for value in values)


def matches(client: Any, pattern: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    with asking("a sample could not be tested"):
        answer = client.test_event_pattern(EventPattern=json.dumps(pattern), Event=json.dumps(event))
    return bool(answer["Result"])


def whole_event(sample: Mapping[str, Any] | Envelope, archive: Archive, name: str) -> dict[str, Any]:
    """A sample as a whole, replayed event."""
    if isinstance(sample, Envelope):
        sample = {"source": SOURCE, "detail-type": REQUESTED, "detail": json.loads(sample.detail())}
    if not isinstance(sample, Mapping) or not {"source", "detail-type", "detail"} <= set(sample):
        raise ReplayError(
            f"a sample is an envelope, or an event with source, detail-type and detail; got {sample!r:.80}."
        )
    _, _, _, region, account, _ = archive.bus_arn.split(":", 5)
    made = {
        "version": "0",
        "id": str(uuid.uuid4()),
        "account": account,
        "time": "2026-01-01T00:00:00Z",
        "region": region,
        "resources": [],
    }
    made |= {**sample, FIELD: name}
    try:
        json.dumps(made, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ReplayError(f"a sample is no JSON: {error}.") from error
    return made


def live(event: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in event.items() if key != FIELD}
