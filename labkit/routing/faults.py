"""Faults: the ways in which a model fails. Each is a small class; a switch puts it in front of models.

A call meets the faults of its model in this order: latency, dropped or broken connection, throttle, quota, concurrency,
context, outage. The first refusal is the answer. What refuses at the door (429, and a conversation that is too long)
answers at once; an outage or a dropped connection comes after the latency, as the work was begun.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from labkit.models._input import ModelError, number, whole
from labkit.routing.conversation import Conversation
from labkit.routing.refusals import KINDS, Refusal

__all__ = ["Break", "Call", "Concurrency", "ContextLength", "Down", "Drop", "Fault", "Latency", "Quota", "Throttle"]

_LONGEST = 600.0  # seconds that a call may be held up
_WINDOW = 86_400.0  # seconds of the longest quota window
_BY_REQUEST = {"context", "invalid", "unscripted"}  # kinds that say something about the request itself


@dataclass(slots=True)
class Call:
    """A call on its way to the model, and what the faults make of it."""

    asked: Conversation
    now: float  # seconds on the provider's clock
    running: int  # calls that the model is at work on
    wait: float = 0.0  # seconds before the answer begins
    between: float = 0.0  # seconds before each further piece of a stream
    cut: int | None = None  # the pieces of a stream after which the connection ends; 0: no byte at all
    fails: Refusal | None = None  # after the wait, or where the stream is cut


class Fault:
    """Base of the faults: :meth:`meet` lets a call pass, changes how it goes, or raises a Refusal."""

    order = 0

    def meet(self, call: Call) -> None:
        raise NotImplementedError


class Latency(Fault):
    """The answer begins after ``seconds``, and ``between`` lie before each further piece of a stream.

    With a ``spread`` the seconds are the median of a log-normal distribution with that sigma, as measured latencies
    look: 0.5 puts 95 % of the calls below 2.3 times the median. The n-th call waits the same in every run, by ``seed``.
    """

    order = 0

    def __init__(self, seconds: float, *, spread: float = 0.0, between: float = 0.0, seed: int = 0) -> None:
        self.seconds = number("seconds", seconds, high=_LONGEST, unit="s")
        self.spread = number("spread", spread, high=5)
        self.between = number("between", between, high=_LONGEST, unit="s")
        self._random = random.Random(seed)

    def meet(self, call: Call) -> None:
        call.between += self.between
        call.wait += min(_LONGEST, self.seconds * math.exp(self._random.gauss(0.0, self.spread)))


class Drop(Fault):
    """The connection ends without an answer; or in the middle of one, with ``after`` pieces of a stream sent.

    A piece is a word, or a part of a tool call; a stream that has fewer ends before its last event. An answer that is
    not streamed is cut in half where ``after`` is more than 0: beware, boto3 takes that for an answer without output.
    """

    order = 1

    def __init__(self, after: int = 0) -> None:
        self.after = whole("after", after, low=0)

    def meet(self, call: Call) -> None:
        call.cut = self.after


class Break(Fault):
    """The stream ends with an error ``kind`` after some pieces: HTTP said 200 long ago. Else an ordinary refusal."""

    order = 1

    def __init__(self, after: int = 1, kind: str = "error") -> None:
        self.after, self.kind = whole("after", after), _kind(kind)

    def meet(self, call: Call) -> None:
        call.cut, call.fails = self.after, Refusal(self.kind)


class Throttle(Fault):
    """429 at once, with ``retry_after`` seconds in the header (OpenAI's dialect), or without."""

    order = 2

    def __init__(self, retry_after: float | None = None) -> None:
        self.retry_after = None if retry_after is None else number("retry_after", retry_after, unit="s")

    def meet(self, call: Call) -> None:
        raise Refusal("throttled", retry_after=self.retry_after)


class Quota(Fault):
    """``requests`` in each ``window`` of seconds, then 429 until the window is over; the header says how long.

    A window is fixed and begins with the first request after the one before. Switched on for several models, it is one
    quota that they share, as those of an account are.
    """

    order = 3

    def __init__(self, requests: int, window: float = 60.0) -> None:
        self.requests = whole("requests", requests, low=0)
        self.window = number("window", window, low=0.001, high=_WINDOW, unit="s")
        self._ends, self._used = -math.inf, 0

    def meet(self, call: Call) -> None:
        if call.now >= self._ends:
            self._ends, self._used = call.now + self.window, 0
        if self._used >= self.requests:
            raise Refusal("quota", retry_after=min(self.window, self._ends - call.now))  # a sum of floats can be more
        self._used += 1


class Concurrency(Fault):
    """``most`` calls at once, of each model; the next one gets 429."""

    order = 4

    def __init__(self, most: int) -> None:
        self.most = whole("most", most, low=0)

    def meet(self, call: Call) -> None:
        if call.running >= self.most:
            raise Refusal("concurrency")


class ContextLength(Fault):
    """Conversations of more than ``tokens`` are refused, as the lab estimates tokens: trying again cannot help."""

    order = 5

    def __init__(self, tokens: int) -> None:
        self.tokens = whole("tokens", tokens)

    def meet(self, call: Call) -> None:
        if (have := call.asked.input_tokens) > self.tokens:
            raise Refusal("context", tokens=have, limit=self.tokens)


class Down(Fault):
    """Every call fails: 500, or another ``kind`` (overloaded, not_ready, timeout, missing, denied …), after a while."""

    order = 6

    def __init__(self, kind: str = "error", *, after: float = 0.0) -> None:
        self.kind, self.after = _kind(kind), number("after", after, high=_LONGEST, unit="s")

    def meet(self, call: Call) -> None:
        call.wait += self.after
        if call.cut is None:
            call.fails = Refusal(self.kind)


def _kind(kind: str) -> str:
    usable = [name for name in KINDS if name not in _BY_REQUEST]
    if kind not in usable:
        raise ModelError(f"kind must be one of {', '.join(usable)}; got {kind!r:.40}.")
    return kind
