"""What a replay would reach: the plan that is made before one is started.

A replay is history, run again. Every rule that matches gets the events a second time, and so do the targets for which
once was enough: the card is charged twice, the e-mail goes out twice. EventBridge asks no question about that; the plan
does. It looks at each rule of the archive's bus and each of its targets, and knows a target as *idempotent* only when
somebody said so:

* the rule carries the tag ``replay`` = ``safe`` (:data:`SAFE`): each of its targets bears a second delivery; or
* ``idempotent={"rule or target ARN": True}``. False there wins over the tag.

A plan that reaches any other target is refused, unless ``allow`` names it, or the plan is narrowed
(:meth:`Plan.only_safe`, :meth:`Plan.only`). What is started names its rules one by one (``Destination.FilterArns``), so
that a rule that the plan has not looked at, or that was made afterwards, gets nothing.

Samples may leave rules out: without any, whatever cannot be excluded from the patterns alone counts as reached.
What nothing here can prevent: a target that somebody adds to a named rule while the replay runs gets the rest of it.
"""

from __future__ import annotations

import functools
import math
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from labkit.control.envelope import DEFAULT_TTL, Envelope
from labkit.facts import facts
from labkit.models.windows import Window
from labkit.ops.replay import input as given
from labkit.ops.replay.archive import Archive
from labkit.ops.replay.errors import ReplayError
from labkit.ops.replay.routes import Route, Target, live, matches, survey, whole_event

if TYPE_CHECKING:
    from labkit.ops.replay.archive import ArchiveState


@dataclass(frozen=True)
class Plan:
    """A replay that has not been started. Made by :func:`plan`; nothing in it changes anything on the bus.

    ``since`` and ``until`` are those of StartReplay. ``warnings`` are sentences to read before; :attr:`refusals` are
    those for which :func:`labkit.ops.replay.start` raises. ``forgotten_at``: when the idempotency records of the oldest
    events end; every replayed event must be worked off by then.
    """

    archive: Archive
    name: str
    since: datetime
    until: datetime
    routes: tuple[Route, ...]
    allow: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()
    forgotten_at: datetime | None = None
    stands: float = math.inf  # seconds for which the records stand
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC), repr=False, compare=False)
    look: Callable[..., list[Route]] = field(default=lambda **_: [], repr=False, compare=False)  # survey once more
    token: str = field(default_factory=lambda: uuid.uuid4().hex, repr=False)  # which replay of that name is this plan's

    @property
    def reached(self) -> tuple[Route, ...]:
        """The rules that the replay will name."""
        return tuple(route for route in self.routes if route.reached)

    @property
    def unsafe(self) -> tuple[tuple[Route, Target], ...]:
        """What the replay would reach, nobody has called idempotent, and ``allow`` does not name."""
        return tuple(
            (route, target)
            for route in self.reached
            for target in route.targets
            if not target.idempotent and not route.called(self.allow, target)
        )

    @property
    def refusals(self) -> tuple[str, ...]:
        """Why this plan cannot be started: empty when it can."""
        found = [
            f"{target.name}, a target of rule {route.rule}, is not known to be idempotent ({target.why}): "
            "it would run a second time"
            for route, target in self.unsafe
        ]
        relies = any(target.idempotent for route in self.reached for target in route.targets)
        if relies and self.forgotten_at is not None and self.now() > self.forgotten_at:  # by the time of the start
            found.append(
                f"records stand for {self.stands:g} s and the oldest events are older: the store has forgotten them, "
                "and would let their work run again; take a later since, or window=math.inf where no store is needed"
            )
        if not self.reached:
            found.append("no rule of the bus would get anything")
        return tuple(found)

    def check(self) -> None:
        """Raise :class:`ReplayError` with everything that speaks against this plan."""
        if self.refusals:
            advice = (
                "Narrow the plan (only_safe, only), tag a rule that bears it with replay=safe, or name it in allow."
            )
            raise ReplayError(f"{'; '.join(self.refusals)}.{f' {advice}' if self.unsafe else ''}")

    def only(self, *rules: str) -> Plan:
        """This plan for ``rules`` alone. Raises :class:`ReplayError` for one that would get nothing."""
        known = {route.rule: route for route in self.routes}
        for name in rules:
            if name not in known:
                raise ReplayError(f"there is no rule {name!r} on this bus that events could set off.")
            if not known[name].reached:
                raise ReplayError(f"rule {name} would get nothing: {known[name].why}.")
        return self._narrowed(lambda route: route.rule in rules)

    def only_safe(self) -> Plan:
        """This plan for the rules whose targets are all idempotent, or allowed."""
        unsafe = {route.rule for route, _ in self.unsafe}
        return self._narrowed(lambda route: route.rule not in unsafe)

    def _narrowed(self, keep: Callable[[Route], bool]) -> Plan:
        return replace(
            self,
            routes=tuple(
                route if keep(route) or not route.reached else replace(route, reached=False, why="left out")
                for route in self.routes
            ),
        )

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Rule, target, what happens there, and how that is known: by rule, for a table."""
        found = []
        for route in sorted(self.routes, key=lambda route: route.rule):
            if not route.reached or not route.targets:
                found.append((route.rule, "", "nothing" if not route.reached else "matched, no target", route.why))
            for target in route.targets if route.reached else ():
                verdict = "again" if target.idempotent else "ALLOWED" if route.called(self.allow, target) else "REFUSED"
                found.append((route.rule, target.name, verdict, target.why))
        return found


def plan(
    archive: Archive,
    since: datetime,
    until: datetime,
    *,
    rules: Collection[str] | None = None,
    samples: Iterable[Mapping[str, Any] | Envelope] = (),
    idempotent: Mapping[str, bool] | None = None,
    allow: Collection[str] = (),
    window: float | None = None,
    ttl: float = DEFAULT_TTL,
    lag: float | None = None,
    name: str = "",
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Plan:
    """Look at what a replay of the events from ``since`` to ``until`` would reach, and start nothing.

    ``rules``: their names, if not all are meant. ``samples``: whole events, or envelopes as
    :meth:`labkit.control.bus.Bus.publish` sends them; a rule that matches none of them is left out. ``idempotent``
    and ``allow``: rule names or target ARNs. ``window``: seconds for which idempotency records stand, by default what
    a store has; ``math.inf`` for targets that need none. ``ttl``: seconds of the envelopes. ``lag``: seconds by which
    ``until`` must lie in the past, 10 minutes by default, because events reach an archive late (EventBridge User Guide,
    "Archiving and replaying events"). ``name``: of the replay, else a new one. ``now`` is the clock.

    Raises :class:`ReplayError` for what can be no replay. What is only unwise is in the plan.
    """
    if not isinstance(archive, Archive):
        raise ReplayError(f"archive is a labkit.ops.replay.Archive; got {archive!r:.60}.")
    given.lists(rules, samples, idempotent, allow)
    age = given.seconds("lag", float(facts("events.replay.wait")) if lag is None else lag)
    stands = given.seconds("window", Window().needed if window is None else window)
    given.seconds("ttl", ttl)
    called = given.name_of("replay", f"{archive.name}-{uuid.uuid4().hex[:8]}" if name == "" else name)
    moment, since, until = now(), given.time_of("since", since), given.time_of("until", until)
    if (moment - until).total_seconds() < age:
        raise ReplayError(
            f"until lies less than {age:g} s in the past: events reach the archive late, and the last ones would be "
            "missed. Wait, or take an earlier until."
        )
    start, end = given.window(since, until)
    whole = [whole_event(sample, archive, called) for sample in samples]
    described = archive.describe()
    for index, event in enumerate(whole, 1):
        if described.pattern and not matches(archive.client, described.pattern, live(event)):
            raise ReplayError(f"sample {index} is not in the archive: the archive's pattern does not match it.")
    look = functools.partial(survey, archive, called, described.pattern, whole, dict(idempotent or {}))
    found = look()
    _known("idempotent", idempotent or {}, found)
    _known("allow", allow, found)
    made = Plan(
        archive,
        called,
        start,
        end,
        tuple(found),
        frozenset(allow),
        tuple(_warnings(described, start, moment, ttl)),
        _later(start, stands),
        stands,
        now,
        look,
    )
    return made if rules is None else made.only(*rules)


def _later(start: datetime, seconds: float) -> datetime | None:
    """``seconds`` after ``start``; None where no calendar reaches."""
    try:
        return start + timedelta(seconds=seconds)
    except OverflowError:
        return None


def _known(what: str, names: Collection[str], routes: Sequence[Route]) -> None:
    there = {route.rule for route in routes} | {target.arn for route in routes for target in route.targets}
    for name in names:
        if name not in there:
            raise ReplayError(f"{what} names {name!r}, which is no rule of the bus and no ARN of a target.")


def _warnings(described: ArchiveState, start: datetime, moment: datetime, ttl: float) -> Iterable[str]:
    age = (moment - start).total_seconds()
    if described.state != "ENABLED":
        yield f"the archive is {described.state}"
    if start < described.created.replace(microsecond=0):
        yield "the archive is younger than since: what came before it is not in it"
    if described.retention_days and age > described.retention_days * 86_400:
        yield f"the archive keeps {described.retention_days} days and since lies further back"
    if age > ttl:
        yield f"envelopes older than their ttl of {ttl:g} s are refused by Envelope.fresh: their work is not done again"
