"""What AWS bills, which is not always what is called: chunks, units, and tokens, at list prices of us-east-1.

==============  =================================================================  ==========================
service         billed                                                             does batching help?
==============  =================================================================  ==========================
SQS             a request, and one more for each further 64 KB in it               yes: ten messages, one bill
EventBridge     an event, and one more for each further 64 KB of *it*              no: each entry is an event
DynamoDB        a write unit for each KB of an item (on demand)                    no: each item is a write
Lambda          an invocation, and its time times its memory                       yes, if the work is short
S3              a request                                                          no
Fargate         the size of a pod times its time, busy or not                      yes: a pod waits for many steps
models          tokens, in and out                                                 no
==============  =================================================================  ==========================

Step Functions has a module of its own (:mod:`labkit.models.workflows`). List prices, without free allowances, volume
discounts or taxes; each is a fact with its source, and some could not be verified on a page of AWS: a fact's
``verdict`` says which. Storage, data transfer, logs, traces and metrics are not here. Standard library only.
"""

from __future__ import annotations

import math

from labkit.facts import facts
from labkit.models._input import ModelError, flag, limit, number, one_of, whole

__all__ = [
    "MODELS",
    "chunks",
    "events",
    "invocations",
    "memory_events",
    "objects",
    "pods",
    "price",
    "sqs",
    "tokens",
    "writes",
]

KB = 1024
_MILLION = 1e6
_THOUSAND = 1e3
MODELS = ("haiku_4_5", "sonnet_4_6")  # of which the tokens have a price among the facts


def price(key: str) -> float:
    """A price in USD from the facts, as ``price("sqs.price.standard_per_million")``."""
    value = facts(key)
    if isinstance(value, str):
        raise ModelError(f"fact {key} must be a price; it is {value!r}.")
    return float(value)


def chunks(kb: float, of_bytes: int) -> int:
    """Billed chunks of a payload of ``kb`` KB: begun ones count, and nothing at all counts as one."""
    whole("of_bytes", of_bytes)
    # Rounded first: 64 KB must stay 64 KB, whatever it was divided and multiplied by on its way here.
    return max(1, math.ceil(round(number("kb", kb, unit="KB", finite=True) * KB / of_bytes, 9)))


def sqs(messages: float, *, kb: float = 0.0, per_call: float = 1.0, fifo: bool = False) -> float:
    """USD for ``messages`` in requests of ``per_call``, each of ``kb`` KB; 0 KB for a delete, which carries none.

    >>> round(sqs(10_000_000, kb=1), 2), round(sqs(10_000_000, kb=1, per_call=10), 2)
    (4.0, 0.4)
    """
    number("messages", messages, finite=True)
    number("kb", kb, unit="KB", finite=True)
    flag("fifo", fifo)
    number("per_call", per_call, low=1.0, high=limit("sqs.batch.entries"))
    requests = messages / per_call * chunks(kb * per_call, limit("sqs.billing.chunk_bytes"))
    return requests * price(f"sqs.price.{'fifo' if fifo else 'standard'}_per_million") / _MILLION


def events(count: float, *, kb: float = 1.0) -> float:
    """USD for ``count`` custom events of ``kb`` KB each, in whatever requests they are sent.

    >>> round(events(10_800_000), 2), round(events(1_000_000, kb=65), 2)
    (10.8, 2.0)
    """
    billed = number("count", count, finite=True) * chunks(kb, limit("events.billing.chunk_bytes"))
    return billed * price("events.price.custom_per_million") / _MILLION


def writes(count: float, *, kb: float = 1.0, transactional: bool = False) -> float:
    """USD for ``count`` writes of items of ``kb`` KB, on demand. A transaction takes each unit twice."""
    twice = 2 if flag("transactional", transactional) else 1
    units = number("count", count, finite=True) * chunks(kb, limit("dynamodb.write_unit.bytes")) * twice
    return units * price("dynamodb.price.write_per_million") / _MILLION


def objects(puts: float, gets: float) -> float:
    """USD for so many writes to and reads of S3 Standard."""
    put, get = price("s3.price.put_per_1000"), price("s3.price.get_per_1000")
    return (number("puts", puts, finite=True) * put + number("gets", gets, finite=True) * get) / _THOUSAND


def invocations(count: float, *, seconds: float, mb: float) -> float:
    """USD for ``count`` invocations of a function of ``mb`` MB that takes ``seconds``: also those that it waits."""
    number("mb", mb, low=limit("lambda.memory.default"), unit="MB", finite=True)
    number("seconds", seconds, unit="s", finite=True)
    gb_seconds = number("count", count, finite=True) * seconds * mb / KB
    return gb_seconds * price("lambda.price.gb_s") + count * price("lambda.price.per_million") / _MILLION


def pods(count: float, *, hours: float, vcpu: float, gb: float) -> float:
    """USD for ``count`` pods of ``vcpu`` vCPU and ``gb`` GB that run for ``hours`` on Fargate, busy or not.

    >>> round(pods(1, hours=24, vcpu=1, gb=2), 2)
    1.18
    """
    number("vcpu", vcpu, finite=True)
    number("gb", gb, finite=True)
    hour = vcpu * price("fargate.price.vcpu_h") + gb * price("fargate.price.gb_h")
    return number("count", count, finite=True) * number("hours", hours, finite=True) * hour


def tokens(inputs: float, outputs: float, *, model: str = "haiku_4_5") -> float:
    """USD for so many tokens of one of :data:`MODELS`, without a cache."""
    one_of("model", model, MODELS)
    each_in, each_out = (price(f"bedrock.price.{model}.{way}_per_million") for way in ("input", "output"))
    number("inputs", inputs, finite=True)
    return (inputs * each_in + number("outputs", outputs, finite=True) * each_out) / _MILLION


def memory_events(count: float) -> float:
    """USD for ``count`` new events of AgentCore Memory."""
    return number("count", count, finite=True) * price("agentcore.memory.price.events_per_1000") / _THOUSAND
