"""The states of a mapping: what it is on its way to.

**On AWS** (service model, EventSourceMappingConfiguration.State; recorded) a new mapping is ``Creating`` and becomes
``Enabled``; one that is made with ``Enabled=False`` is ``Disabled`` at once. An update answers ``Updating``,
``Enabling`` or ``Disabling``, a deletion ``Deleting``, and the mapping can be read until it is gone. In between,
updating or deleting it is ResourceInUseException (service model; both texts quoted from AWS in public). On AWS each of
these takes some seconds.

**MiniStack** changes states at once and never refuses.

**Here** each takes :data:`LAG`: long enough that code which does not wait for ``Enabled`` meets the refusal. A mapping
receives messages from ``Enabled`` on, and while ``Updating``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LAG = 0.2  # seconds
TRANSITION = "Transition"  # member of a mapping's record, not of answers

Mapped = Mapping[str, Any]


def enabled(mapping: Mapped) -> bool:
    value = mapping.get("Enabled", True)
    return value.lower() != "false" if isinstance(value, str) else bool(value)


def state(mapping: Mapped, now: float) -> str:
    """The state that AWS would show at the moment ``now`` (epoch seconds)."""
    passing = mapping.get(TRANSITION)
    if passing and now < passing["Until"]:
        return str(passing["State"])
    return "Enabled" if enabled(mapping) else "Disabled"


def settled(mapping: Mapped, now: float) -> bool:
    return state(mapping, now) in ("Enabled", "Disabled") and not deleted(mapping, now)


def deleted(mapping: Mapped, now: float) -> bool:
    """Whether a deletion is done, so that nothing is left to be read."""
    passing = mapping.get(TRANSITION) or {}
    return passing.get("State") == "Deleting" and bool(now >= passing["Until"])


def receives(mapping: Mapped, now: float) -> bool:
    """Whether the mapping receives messages."""
    return enabled(mapping) and not deleted(mapping, now) and state(mapping, now) in ("Enabled", "Updating")


def transition(name: str, now: float) -> dict[str, Any]:
    """The member of a record that says that a mapping is on its way from now on."""
    return {"State": name, "Until": now + LAG}


def after_update(before: Mapped, after: Mapped) -> str:
    """The state that an update leads through."""
    if enabled(before) == enabled(after):
        return "Updating"
    return "Enabling" if enabled(after) else "Disabling"
