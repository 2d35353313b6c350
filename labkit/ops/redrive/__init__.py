"""Redrive: dead letters back to where they were going, planned first, a few first, and never to what still fails.

:func:`plan` looks and changes nothing: which letters would go where, how, and which are refused and why.
:meth:`Plan.run` acts. Each destination is a lane of its own (:mod:`labkit.ops.redrive.lanes`), one after the other; the
first that stops keeps the others from starting.

>>> todo = plan(queue, clients=lab, only="throttled")      # doctest: +SKIP
>>> todo.rows(), todo.refused
>>> todo.run(canary=3, within=60).says
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from labkit.errors import LabError
from labkit.ops.metrics import Clients
from labkit.ops.redrive import moves
from labkit.ops.redrive.care import Care
from labkit.ops.redrive.destinations import destination
from labkit.ops.redrive.lanes import Lane, Step
from labkit.ops.redrive.post import Destination
from labkit.ops.redrive.routes import Refusal, Route, Routes
from labkit.ops.triage import Progress, survey
from labkit.ops.triage.holding import HOLD
from labkit.ops.triage.letters import Failure, Letter, TriageError, Writer, counted
from labkit.ops.triage.surveys import Survey, name_of
from labkit.work.queues import Queue

__all__ = ["Care", "Outcome", "Plan", "Step", "plan"]

MOVE, SEND = "move task", "send, then delete"
_REFUSALS, _MANY = 1_000, "Refused as well, for more reasons than are kept: look at one."  # kinds kept apart
_HOW = {"queue": SEND, "function": "invoke, then delete", "state machine": "start, then delete"}

Only = Collection[str] | str | None


@dataclass(frozen=True)
class Refused:
    """Letters of one class that stay where they are, and why."""

    failure: Failure
    source: str
    letters: int
    says: str


@dataclass
class Outcome:
    """How a redrive ended. ``sent``: letters that are where they should be. ``left``: letters of the plan that are not.

    ``doubles``: ids of letters that may be in both queues now, because no answer came between send and delete.
    """

    lanes: list[Lane]

    @property
    def step(self) -> Step:
        steps = [lane.step for lane in self.lanes]
        return next((step for step in steps if step is not Step.DONE), Step.DONE)

    @property
    def sent(self) -> int:
        return sum(lane.sent for lane in self.lanes)

    @property
    def left(self) -> int:
        return sum(max(0, lane.letters - lane.sent) for lane in self.lanes)

    @property
    def doubles(self) -> list[str]:
        return sorted(id for lane in self.lanes for id in lane.doubles)

    @property
    def says(self) -> str:
        """One sentence: why it stopped, or what was sent."""
        stopped = [lane for lane in self.lanes if lane.step is not Step.DONE]
        if not stopped:
            return "; ".join(lane.says for lane in self.lanes) or "there was nothing to send"
        more, at_most = (" or more", "at most ") if any(lane.uncounted for lane in self.lanes) else ("", "")
        left = f"{at_most}{self.left:,} stay in {stopped[0].queue.name}"
        return f"stopped: {stopped[0].says}; sent: {counted(self.sent)}{more}, {left}"


@dataclass
class Plan:
    """What a redrive of ``queue`` would do. ``survey``: what there is. ``refused``: what would stay, and why."""

    queue: Queue
    survey: Survey
    routes: dict[Route, Counter[Failure]]
    refused: list[Refused]
    by_move: bool
    chosen: Callable[[Letter], bool]
    where: Callable[[Letter], Route | Refusal]
    destinations: dict[Route, Destination] = field(repr=False)
    outcome: Outcome | None = field(default=None, repr=False)  # of the run under way, or the last one

    @property
    def letters(self) -> int:
        """How many would be sent."""
        return sum(counts.total() for counts in self.routes.values())

    def how(self, route: Route) -> str:
        return MOVE if self.by_move else _HOW[route.kind]

    def rows(self) -> list[tuple[str, str, int, str]]:
        """Destination, class, letters and how, sorted."""
        return sorted(
            (name_of(route.arn), str(failure), count, self.how(route))
            for route, counts in self.routes.items()
            for failure, count in counts.items()
        )

    def run(self, care: Care | None = None, **options: Any) -> Outcome:
        """Redrive. ``options`` are those of :class:`Care`: ``canary``, ``within``, ``settle``, ``during``, ….

        Returns how it ended, also when it stopped. A plan runs once: look again for a second one. Ctrl-C ends it
        between two calls, everything in hand is given back, and :attr:`outcome` says how far it came.
        """
        if self.outcome is not None:
            raise TriageError(f"this redrive of {self.queue.name} has run; look again and make a new plan.")
        care = care or Care(**options)
        self.outcome = Outcome([])
        lanes = [(route, counts.total()) for route, counts in sorted(self.routes.items(), key=lambda one: one[0].arn)]
        self.outcome.lanes += [self._lane(route, count) for route, count in lanes]
        for lane in self.outcome.lanes:
            _run(lane, care)
            if lane.step is not Step.DONE:
                break
        return self.outcome

    def _lane(self, route: Route, letters: int) -> Lane:
        def mine(letter: Letter) -> bool:
            return self.chosen(letter) and self.where(letter) == route

        unseen = self.survey.unseen if self.queue.fifo else 0
        newest = max((group.newest for group in self.survey.groups()), default=math.inf)
        return Lane(
            self.queue, self.destinations[route], mine, letters, unseen=unseen, newest=newest, by_move=self.by_move
        )


def plan(
    queue: Queue,
    *,
    clients: Clients | None = None,
    only: Only = None,
    to: Queue | str | None = None,
    hold: int = HOLD,
    threads: int = 8,
    progress: Progress | None = None,
    examples: int = 1,
) -> Plan:
    """Look at ``queue`` and say what a redrive would do. Changes nothing.

    ``only``: classes of failure, or reasons, to be sent; all if None. ``to``: a queue, or the ARN of a queue, a
    function or a state machine, instead of where each letter was going. ``clients`` (a lab, or a session of boto3) is
    needed for what is no queue, and for letters of rules. Raises :class:`TriageError`.
    """
    wanted = _wanted(only)
    routes = Routes(clients, to)
    found: dict[Route, Counter[Failure]] = {}
    refusals: Counter[tuple[Failure, str, str]] = Counter()
    writers: set[Writer] = set()

    def chosen(letter: Letter) -> bool:
        return wanted is None or letter.failure in wanted or letter.reason in wanted

    def note(letter: Letter) -> None:
        writers.add(letter.writer)
        if not chosen(letter):
            return
        route = routes.of(letter)
        if isinstance(route, Route):
            found.setdefault(route, Counter())[letter.failure] += 1
        else:
            key = (letter.failure, name_of(letter.source), route.says)
            refusals[key if key in refusals or len(refusals) < _REFUSALS else (letter.failure, "", _MANY)] += 1

    seen = survey(queue, hold=hold, threads=threads, progress=progress, each=note, examples=examples)
    if wanted is not None and not found and not refusals and seen.total:
        raise TriageError(
            f"{queue.name} holds no letters of {', '.join(sorted(wanted))}; there are {', '.join(seen.names())}."
        )
    there: dict[Route, Destination] = {}
    for route in list(found):
        made = destination(route, queue, clients)
        if isinstance(made, Refusal):
            refusals.update({(failure, name_of(route.arn), made.says): n for failure, n in found.pop(route).items()})
        else:
            there[route] = made
    by_move = wanted is None and moves.possible(
        1 if to else _sources(queue),
        only_sqs=writers == {Writer.SQS},
        lanes=len(found),
        complete=seen.complete and not refusals,
    )
    refused = [Refused(*key[:2], count, key[2]) for key, count in sorted(refusals.items())]
    return Plan(queue, seen, found, refused, by_move and _is_queue(found), chosen, routes.of, there)


def _is_queue(routes: Iterable[Route]) -> bool:
    return all(route.kind == "queue" for route in routes)


def _sources(queue: Queue) -> int:
    """How many queues have ``queue`` as their dead-letter queue, as far as the first page says."""
    return len(queue.client.list_dead_letter_source_queues(QueueUrl=queue.url).get("queueUrls", []))


def _wanted(only: Only) -> frozenset[str] | None:
    if only is None:
        return None
    wanted = frozenset([only] if isinstance(only, str) else only)
    if not wanted or not all(isinstance(each, str) and each for each in wanted):
        raise TriageError(f"a redrive is of one class of failure, or of several, by name; got {only!r}.")
    return wanted


def _run(lane: Lane, care: Care) -> None:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        lane.run(care)
    except (LabError, BotoCoreError, ClientError) as error:
        lane.fail(str(error))
    except BaseException as error:  # Ctrl-C, or what the caller's own functions raise
        lane.fail("interrupted" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__}: {error}")
        raise
