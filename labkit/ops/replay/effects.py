"""What a replay did to the world: side effects by trace id, before and after.

A replay that ends COMPLETED says that events were sent, not what came of them. What counts is the effects: charges at
the card processor, rows in a table, requests at a provider. Whoever can list them by trace id, one for each effect, is
a *source*: any function without arguments. Count it before, replay, wait for the consumers, count it again, verify.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from labkit.ops.replay.errors import ReplayError, asking

Source = Callable[[], Iterable[str]]


def count(source: Source) -> Counter[str]:
    """How many effects there are by trace id. Raises :class:`ReplayError` for what is no list of texts."""
    if not callable(source):
        raise ReplayError(f"a source is a function without arguments; got {source!r:.60}.")
    listed = _texts("a source lists trace ids, one for each effect", source())
    return Counter(listed)


def _texts(what: str, found: Iterable[str]) -> list[str]:
    """Nothing, one text, or a tally where a list is meant would be counted as something else."""
    if isinstance(found, str | bytes | Mapping) or not isinstance(found, Iterable):
        raise ReplayError(f"{what}; got {found!r:.60}.")
    listed = list(found)
    for one in listed:
        if not isinstance(one, str) or not one:
            raise ReplayError(f"{what}; got {one!r:.60}.")
    return listed


def rows(client: Any, table: str, key: str = "trace_id") -> Source:
    """A source: the items of a DynamoDB table, each one effect of the trace id in its attribute ``key``."""

    def read() -> Iterator[str]:
        with asking(f"table {table!r} could not be read"):
            for page in client.get_paginator("scan").paginate(TableName=table, ConsistentRead=True):
                for item in page["Items"]:
                    if "S" not in item.get(key, {}):
                        raise ReplayError(
                            f"an item of {table} has no text in {key}: it says nothing of whose effect it is."
                        )
                    yield item[key]["S"]

    return read


@dataclass(frozen=True)
class Verdict:
    """What changed, by trace id.

    ``duplicated``: how many effects are too many; ``lost``: who has none; ``recovered``: who had none and has one now.
    """

    duplicated: Mapping[str, int]
    lost: tuple[str, ...]
    recovered: tuple[str, ...]

    @property
    def clean(self) -> bool:
        return not self.duplicated and not self.lost

    def __str__(self) -> str:
        return f"recovered {len(self.recovered)}, lost {len(self.lost)}, duplicated {len(self.duplicated)}"


def verify(before: Mapping[str, int], after: Mapping[str, int], wanted: Iterable[str] = ()) -> Verdict:
    """Compare the effects before and after a replay. ``wanted``: trace ids that should have exactly one.

    Duplicated is an effect that the replay added where there was one, and a second one where there was none. Lost is a
    wanted trace id without effect, and one that had more effects before than after. Raises :class:`ReplayError` for
    what is no count and no list.
    """
    wanted = _texts("wanted lists trace ids", wanted)
    for what, tally in (("before", before), ("after", after)):
        if not isinstance(tally, Mapping):
            raise ReplayError(f"{what} is what count() returned; got {tally!r:.60}.")
    ids = [*dict.fromkeys([*wanted, *before, *after])]
    had = {trace_id: before.get(trace_id, 0) for trace_id in ids}
    has = {trace_id: after.get(trace_id, 0) for trace_id in ids}
    return Verdict(
        {one: has[one] - max(had[one], 1) for one in sorted(ids) if has[one] > max(had[one], 1)},
        tuple(sorted(one for one in ids if has[one] < had[one] or not has[one])),
        tuple(sorted(one for one in ids if not had[one] and has[one])),
    )
