"""Faults between a client and AWS: throttled, failing, slow, cut off before the service heard, or after.

What a fleet does when a service stumbles is decided in its clients, and a stumble cannot be ordered from AWS. But
botocore says ``before-send`` for each attempt, its own retries among them, and takes a handler's answer for the
service's (`client.meta.events`, "Extensibility guide"). So nothing here is patched: a handler is registered for the
time of a block, on one client, and everything above it (retries, waiters, labkit) is what it always is::

    with inject(sqs, Throttled(), "SendMessage", times=2) as fault:
        queue.send("work")                  # throttled, throttled, sent: if the client tries three times
    fault.made, fault.seen                  # (2, 3)

Whatever ends the block, an error included, the handler is gone after it.
"""

from __future__ import annotations

import io
import json
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from xml.sax.saxutils import escape

from labkit.errors import LabError
from labkit.models._input import ModelError, number, whole

__all__ = ["Cut", "Failing", "Fault", "FaultError", "Slow", "Throttled", "Unanswered", "inject"]

_LONGEST = 600.0  # seconds that a call may be held up
_MET = "_labkit_met"  # on a request that a fault has answered: of several faults, one is enough


class FaultError(LabError):
    """A fault cannot be made so; the sentence says why."""


class Fault:
    """Base of the faults: :meth:`meet` returns an answer in the service's place, raises, or lets the attempt pass."""

    def meet(self, request: Any, client: Any, over: threading.Event) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class Throttled(Fault):
    """Refused, as AWS refuses what comes too fast: the client's retries take it for a throttle.

    ``code``: each service has its own besides this one (``RequestThrottled``, ``TooManyRequestsException``, …).
    """

    code: str = "ThrottlingException"
    status: int = 400
    message: str = "Rate exceeded"

    def __post_init__(self) -> None:
        _check(self.code, self.message)
        if self.status not in range(400, 600):
            raise FaultError(f"a service that refuses answers 400 to 599; status is {self.status!r}.")

    def meet(self, request: Any, client: Any, over: threading.Event) -> Any:
        return _answer(request, client, self.status, self.code, self.message)


@dataclass(frozen=True)
class Failing(Fault):
    """A fault of the service's own: 500, or another 5xx."""

    status: int = 500
    code: str = "InternalFailure"
    message: str = "The service failed."

    def __post_init__(self) -> None:
        _check(self.code, self.message)
        if self.status not in range(500, 600):
            raise FaultError(f"a service that fails answers 500 to 599; status is {self.status!r}.")

    def meet(self, request: Any, client: Any, over: threading.Event) -> Any:
        return _answer(request, client, self.status, self.code, self.message)


@dataclass(frozen=True)
class Slow(Fault):
    """Each attempt waits for so many ``seconds``, then goes on its way. The end of the block ends the wait."""

    seconds: float

    def __post_init__(self) -> None:
        try:
            number("seconds", self.seconds, high=_LONGEST, unit="s")
        except ModelError as error:
            raise FaultError(f"a call cannot be held up so: {error}") from error

    def meet(self, request: Any, client: Any, over: threading.Event) -> Any:
        over.wait(self.seconds)


@dataclass(frozen=True)
class Cut(Fault):
    """The connection fails before anything is sent: the service has not heard of the call."""

    def meet(self, request: Any, client: Any, over: threading.Event) -> Any:
        from botocore.exceptions import EndpointConnectionError

        raise EndpointConnectionError(endpoint_url=request.url, error="cut by labkit.ops.faults")


@dataclass(frozen=True)
class Unanswered(Fault):
    """The service has heard and acted, and its answer is lost. To a client that looks like a time-out."""

    def meet(self, request: Any, client: Any, over: threading.Event) -> Any:
        from botocore.exceptions import ReadTimeoutError

        _ = client._endpoint.http_session.send(request).content  # botocore has no public name for its connection
        raise ReadTimeoutError(endpoint_url=request.url, error="cut by labkit.ops.faults")


class inject:
    """Put ``fault`` in front of ``operations`` of ``client`` for the time of a ``with`` block.

    ``operations`` as AWS or as boto3 spells them (``SendMessage``, ``send_message``); none: all of the client's. Of the
    attempts at them every ``every``-th meets the fault, or each with a probability of ``chance`` (by ``seed``, in the
    order in which they come), for ``times`` attempts or until the block ends. ``seen`` counts attempts, ``made`` those
    that met the fault. Blocks may be nested: the outer fault comes first. Threads may share the client.

    Raises :class:`FaultError` for what cannot be.
    """

    def __init__(
        self,
        client: Any,
        fault: Fault,
        *operations: str,
        every: int = 1,
        chance: float = 1.0,
        times: int | None = None,
        seed: int = 0,
    ) -> None:
        if not isinstance(fault, Fault):
            raise FaultError(f"fault must be one of labkit.ops.faults, such as Throttled(); got {fault!r:.80}.")
        try:
            self.every = whole("every", every)
            self.chance = number("chance", chance, high=1)
            self.times = None if times is None else whole("times", times)
            whole("seed", seed, low=0)
        except ModelError as error:
            raise FaultError(f"a fault cannot be made so: {error}") from error
        self._client, self.fault = client, fault
        self.seen = self.made = 0
        self._events = [f"before-send.{name}" for name in _names(client, operations)]
        self._random = random.Random(seed)
        self._guard = threading.Lock()
        self._over = threading.Event()
        self._on = False

    def __enter__(self) -> inject:
        if self._on or self._over.is_set():
            raise FaultError("a fault is switched on once; make a new one.")
        self._on = True
        try:
            for event in self._events:
                self._client.meta.events.register(event, self._meet)
        except BaseException:  # Ctrl-C comes anywhere, and there is no block yet whose end would tidy up
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._on = False
        self._over.set()
        for event in self._events:
            self._client.meta.events.unregister(event, self._meet)

    def _meet(self, request: Any, **_: Any) -> Any:
        if getattr(request, _MET, False) or not self._due():
            return None
        try:
            answer = self.fault.meet(request, self._client, self._over)
        except BaseException:
            setattr(request, _MET, True)
            raise
        if answer is not None:
            setattr(request, _MET, True)
        return answer

    def _due(self) -> bool:
        """Whether this attempt meets the fault."""
        with self._guard:
            if not self._on:  # the block ended while the attempt was on its way
                return False
            self.seen += 1
            if self.seen % self.every or self._random.random() >= self.chance or self.made == self.times:
                return False
            self.made += 1
            return True


def _names(client: Any, operations: tuple[str, ...]) -> list[str]:
    """The services and operations as botocore's events name them."""
    if not hasattr(getattr(client, "meta", None), "method_to_api_mapping"):
        raise FaultError(f"a fault stands in front of a client of boto3; got {client!r:.80}.")
    service, spelt = client.meta.service_model.service_id.hyphenize(), client.meta.method_to_api_mapping
    found = []
    for operation in operations:
        name = spelt.get(operation, operation) if isinstance(operation, str) else ""
        if name not in client.meta.service_model.operation_names:
            raise FaultError(f"{client.meta.service_model.service_name} has no operation {operation!r:.60}.")
        found.append(f"{service}.{name}")
    return list(dict.fromkeys(found)) or [service]


def _check(*texts: str) -> None:
    if wrong := [text for text in texts if not isinstance(text, str)]:
        raise FaultError(f"an error has a code and a message, both of them texts; got {wrong[0]!r:.60}.")


def _answer(request: Any, client: Any, status: int, code: str, message: str) -> Any:
    """An error of the service, in the protocol that the client speaks with it."""
    from botocore.awsrequest import AWSResponse

    protocol = client.meta.service_model.resolved_protocol
    said = escape(code), escape(message)
    headers = {"content-type": "application/json", "x-amzn-errortype": code, "x-amzn-requestid": "labkit-fault"}
    if protocol == "query":
        headers["content-type"] = "text/xml"
        error = f"<Error><Code>{said[0]}</Code><Message>{said[1]}</Message></Error>"
        body = f"<ErrorResponse>{error}</ErrorResponse>".encode()
    elif protocol == "rest-xml":
        headers["content-type"] = "application/xml"
        body = f"<Error><Code>{said[0]}</Code><Message>{said[1]}</Message></Error>".encode()
    elif protocol == "smithy-rpc-v2-cbor":
        headers |= {"content-type": "application/cbor", "smithy-protocol": "rpc-v2-cbor"}
        body = b"\xa2" + b"".join(_cbor(text) for text in ("__type", code, "message", message))  # a map of two pairs
    else:
        body = json.dumps({"__type": code, "message": message}).encode()
    return AWSResponse(request.url, status, headers, _Body(body))


def _cbor(text: str) -> bytes:
    """A text of less than 256 bytes (RFC 8949, major type 3)."""
    raw = text.encode()[:255].decode(errors="ignore").encode()  # not cut in the middle of a letter
    return (bytes([0x60 + len(raw)]) if len(raw) < 24 else bytes([0x78, len(raw)])) + raw


class _Body(io.BytesIO):
    """What botocore reads an answer from."""

    def stream(self, **_: Any) -> Iterator[bytes]:
        while piece := self.read():
            yield piece
