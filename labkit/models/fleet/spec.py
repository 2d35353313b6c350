"""What a simulated fleet is made of: the knobs, their units, and what is left out.

One queue, one class of agents. A *conversation* is a chain of steps; each step is one message, and the next step's
message comes ``hop`` seconds after the step is done (a bus and a rule lie between). A *pod* runs up to ``slots`` steps
at a time and takes a message as soon as it has a free slot. The messages' rules are SQS's:

* a received message is hidden (*in flight*) until its step is done, or its visibility timeout is over. With a
  heartbeat the timeout is renewed while the worker lives, at half of it; without, a step that outlives it is received
  a second time. The results of a step whose message was received again are refused (a fenced idempotency store), so
  nothing is recorded twice; what was run in vain is counted.
* a step that fails is hidden for the retry's wait, then received again. A message that was received ``max_receives``
  times already goes to the dead-letter queue at the next receive, and its conversation ends there.
* no more than ``cap`` messages may be in flight.

The model behind the steps takes ``quota`` of them at a time. One more is *throttled*: it costs its slot a moment, and
the message a receive, and comes back after the retry's wait, unless the fleet is *gated*: then it receives no more
than the model takes.

Pods that are added take ``start`` seconds until they work. Pods that are removed receive nothing more and have
``grace`` seconds to finish; what still runs then is killed, and its messages come back when their timeout is over.
The newest pods go first, those that are still starting before all others. Pods that crash are any.

What comes back or is sent on does so up to half a second earlier or later than it says here, at random: otherwise
two messages that were turned away together would come back together, in the same order, again and again.

Left out: that SQS's counts are approximate and lag, that its order is, empty receives, retention, batches, and the
time that sending and receiving take (milliseconds beside a model call).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from labkit.models._input import ModelError, a, flag, limit, number, whole
from labkit.models.fleet.load import Arrivals, StepTime
from labkit.models.keda import ScaledObject
from labkit.models.little import in_flight
from labkit.models.retry import Fixed, Wait

__all__ = ["Fleet"]

_PODS = 10_000_000
_MESSAGES = 10**12


@dataclass(frozen=True)
class Fleet:
    """A fleet to simulate. Times in seconds. Raises :class:`~labkit.models._input.ModelError`.

    ``scaler`` None leaves the fleet at ``replicas`` pods; with one, ``replicas`` is what it begins with. ``fails`` is
    the probability that a run of a step fails, ``crashes`` how often a pod dies a day; a pod that died is started
    again. ``retry`` is asked once for each failure's number: a :class:`~labkit.models.retry.Jitter` needs a seed, and
    gives all messages the same wait.
    """

    arrivals: Arrivals
    step_time: StepTime
    steps: int = 15
    slots: int = 10
    replicas: int | None = None
    scaler: ScaledObject | None = None
    start: int = 60
    grace: int = 600
    visibility: int = 120
    heartbeat: bool = True
    fails: float = 0.0
    crashes: float = 0.0
    retry: Wait = field(default_factory=lambda: Fixed(30))
    max_receives: int = 5
    quota: int | None = None
    gated: bool = False
    throttle: int = 1
    hop: int = 1
    cap: int = limit("sqs.inflight.cap")

    def __post_init__(self) -> None:
        a("arrivals", self.arrivals, Arrivals, "Arrivals.poisson(2.5)")
        a("step_time", self.step_time, StepTime, "StepTime.lognormal(90)")
        a("retry", self.retry, Wait, "Fixed(30)")
        if self.scaler is not None:
            a("scaler", self.scaler, ScaledObject, "ScaledObject(queue_length=8)")
            whole("the scaler's maximum", self.scaler.maximum, high=_PODS)
        flag("heartbeat", self.heartbeat)
        flag("gated", self.gated)
        whole("steps", self.steps, high=1000)
        whole("slots", self.slots, high=1000)
        whole("start", self.start, low=0, high=3600)
        whole("grace", self.grace, low=0, high=86_400)
        whole("visibility", self.visibility, high=limit("sqs.visibility.max"))
        number("fails", self.fails, high=1.0)
        number("crashes", self.crashes, high=100.0, unit="a day")
        whole("max_receives", self.max_receives, high=50)
        whole("throttle", self.throttle, high=60)
        whole("hop", self.hop, high=60)
        whole("cap", self.cap, high=_MESSAGES)
        if self.quota is not None:
            whole("quota", self.quota, high=_MESSAGES)
        if self.gated and self.quota is None:
            raise ModelError("gated must come with a quota: there is nothing to keep to.")
        if self.replicas is None and self.scaler is None:
            raise ModelError("replicas must be given where there is no scaler.")
        if self.replicas is not None:
            whole("replicas", self.replicas, low=0, high=_PODS)
        waits = self._waits()
        for wait in waits:
            number("retry", wait, high=limit("sqs.visibility.max"), unit="s")
        if waits != self._waits():
            raise ModelError("retry must answer the same each time: give its Jitter a seed.")

    @property
    def waits(self) -> list[int]:
        """How long a message is hidden after its first, second, … failure; whole seconds."""
        return [round(wait) for wait in self._waits()]

    def _waits(self) -> list[float]:
        return [self.retry(failure) for failure in range(1, self.max_receives + 1)]

    @property
    def in_flight(self) -> float:
        """Steps that run at once when nothing waits and nothing fails, by Little's law."""
        return in_flight(self.arrivals.mean * self.steps, self.step_time.mean)
