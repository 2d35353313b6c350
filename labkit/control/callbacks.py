"""Callbacks: whoever has the task token ends the task, or says that it is still at work.

A token stands for one attempt at one state. Once that attempt has ended, in whatever way, the token is dead, and who
calls with it gets ``TaskTimedOut``. That is no fault: the workflow went on without this worker, and another attempt,
with a token of its own, has the work. So it has an exception of its own, :class:`StaleToken`, and the right answer is
to stop::

    state    park T1 ───── heartbeat missed ─ retry, park T2 ──────────────── done
    worker A    beat T1 … stops                                wakes: T1 → StaleToken, drops its message
    worker B                                   beat T2 … succeed T2 ──────────╯

A call whose answer is lost is made again, and the second one finds the token used: StaleToken may also mean that this
very worker was heard. Either way there is nothing left to say.

Whoever has a token can end somebody else's task. It is never logged here, and no exception holds it. Only
``labkit.errors``, ``facts``, ``models.bucket``, ``control.payloads`` and a boto3 client are needed: this module travels
into Lambda functions.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from labkit.control.payloads import PayloadError, as_json, cause, error_name, of_exception
from labkit.errors import LabError
from labkit.facts import facts
from labkit.models.bucket import Bucket

__all__ = ["CallbackError", "Callbacks", "NoAnswer", "StaleToken", "UnknownToken", "quota"]

_TRIES = 5
_BASE, _CAP = 0.2, 3.0  # seconds between the tries: doubled each time, and half of it by chance
_PASSES = re.compile("Throttl|TooManyRequests|RequestLimitExceeded|ServiceUnavailable|InternalFailure|InternalError")
_STALE, _UNKNOWN = {"TaskTimedOut", "TaskDoesNotExist"}, {"InvalidToken"}


class CallbackError(LabError):
    """A callback was refused; the sentence says why. ``code`` is AWS's, where it was AWS."""

    def __init__(self, says: str, code: str = "") -> None:
        self.code = code
        super().__init__(says)


class StaleToken(CallbackError):
    """The attempt that the token stands for has ended: by time, by another callback, or with its execution."""


class UnknownToken(CallbackError):
    """There has never been such a token: it was cut, altered or made up, or belongs to another account or Region."""


class NoAnswer(CallbackError, OSError):
    """Step Functions did not answer, or was too busy, also after some tries. The token is as good as before."""


def quota(region: str, **clocks: Any) -> Bucket:
    """The bucket that AWS has for each of the three callback APIs in an account and ``region``."""
    where = "sfn.callback." if region in str(facts("sfn.callback.top_regions")).split("|") else "sfn.callback.other."
    return Bucket(float(facts(f"{where}bucket")), float(facts(f"{where}refill")), **clocks)


class Callbacks:
    """SendTaskSuccess, SendTaskFailure and SendTaskHeartbeat, checked before the call and below the quota.

    ``client``: a boto3 client for Step Functions, or a lab. ``bucket``: the quota of each of the three APIs, by default
    the one of the client's Region; it is the account's, so give a process one of these objects and each process its
    share. A call that finds the bucket empty waits its turn; one that is throttled or unanswered is made again, five
    times in all. ``counts`` says how many calls came to what. Threads may share one.
    """

    def __init__(
        self, client: Any, *, bucket: Bucket | None = None, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self.client = client.client("stepfunctions") if hasattr(client, "resource_name") else client
        each = bucket or quota(str(self.client.meta.region_name))
        self._buckets = {name: each.again() for name in ("success", "failure", "heartbeat")}
        self._sleep = sleep
        self._counts: Counter[str] = Counter()
        self._guard = threading.Lock()

    @property
    def counts(self) -> Counter[str]:
        """Calls by what they came to: ``success``, ``failure``, ``heartbeat``; ``stale``, ``unknown``, ``unanswered``,
        ``refused``."""
        with self._guard:
            return Counter(self._counts)

    def succeed(self, token: Any, output: Any = None) -> None:
        """End the task with ``output``, which becomes the state's result: JSON of 256 KiB at most.

        Raises :class:`StaleToken`, :class:`UnknownToken`, :class:`~labkit.control.payloads.PayloadError` for an output
        that cannot be sent (the task still waits then: :meth:`fail` it), :class:`NoAnswer`, or :class:`CallbackError`.
        """
        self._send("success", token, output=as_json("the output of a callback", output))

    def fail(self, token: Any, error: str | BaseException, why: str | None = None) -> None:
        """Fail the task. ``error`` is the name that the state's Retry and Catch match, 256 characters at most; ``why``
        is its cause, and is cut where it is too long.

        An exception stands for the name of its class and for what it says. Raises as :meth:`succeed` does.
        """
        if isinstance(error, BaseException):
            error, says = of_exception(error)
            why = says if why is None else why
        self._send("failure", token, error=error_name(error), cause=cause(why or ""))

    def heartbeat(self, token: Any) -> None:
        """Say that the task is being worked on: its HeartbeatSeconds begin anew. Its TimeoutSeconds do not.

        A state that declares no HeartbeatSeconds takes heartbeats and forgets them. Raises as :meth:`succeed` does.
        """
        self._send("heartbeat", token)

    # -- hooks of a labkit.work.worker.Worker: a task whose envelope has no token is left alone ---------------------

    def keep_alive(self, task: Any) -> tuple[Callable[[], object], ...]:
        """The heartbeat of the task's token, for ``Worker(keep_alive=…)``.

        A stale token ends the worker's heartbeat, and the step is told by ``task.check()``; no answer does not.
        """
        token = token_of(task.body)
        return () if token is None else (lambda: self.heartbeat(token),)

    def fresh(self, task: Any) -> None:
        """Raise :class:`StaleToken` when nobody waits for this task any more: ask before paying for the work."""
        if (token := token_of(task.body)) is not None:
            self.heartbeat(token)

    def then(self, task: Any, result: Any) -> None:
        """Succeed with the recorded result, for ``Worker(then=…)``.

        That the token is stale is counted and no failure: the result stands in the store, and the attempt that has the
        work now answers with it at once. A result that cannot be sent fails the task: trying again would not help.
        """
        if (token := token_of(task.body)) is None:
            return
        try:
            try:
                self.succeed(token, result)
            except PayloadError as error:
                self.fail(token, error)
        except StaleToken:
            pass  # counted where it was raised

    def give_up(self, task: Any, error: BaseException) -> bool:
        """Fail the task of a message that will not come again; False where nobody waits for it. Then the state's Retry
        and Catch decide, by the name of the exception's class."""
        if (token := token_of(task.body)) is None:
            return False
        try:
            self.fail(token, error)
        except (StaleToken, UnknownToken):
            return False
        return True

    # ---------------------------------------------------------------------------------------------------------------

    def _send(self, kind: str, token: Any, **arguments: str) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        plain, call = checked(token), getattr(self.client, f"send_task_{kind}")
        for left in reversed(range(_TRIES)):
            self._buckets[kind].take()
            try:
                call(taskToken=plain, **arguments)
            except ClientError as error:
                says = _Refusal(error, plain)
            except BotoCoreError as error:
                says = _Refusal(error, plain)
            else:
                self._count(kind)
                return
            if not says.passes or not left:
                break
            tries = _TRIES - left
            self._sleep(min(_CAP, _BASE * 2.0 ** (tries - 1)) * random.uniform(0.5, 1.0))
        # Outside of the handler: the service's own error holds the request, and with it perhaps the token.
        self._count(says.counts)
        raise says.error

    def _count(self, what: str) -> None:
        with self._guard:
            self._counts[what] += 1


class _Refusal:
    """What the service said, without the token."""

    def __init__(self, error: Any, token: str) -> None:
        response = getattr(error, "response", {})
        about = response.get("Error", {})
        self.code = str(about.get("Code", type(error).__name__))
        status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        says = str(about.get("Message") or error).replace(token, "«token»")
        self.passes = not response or status >= 500 or _PASSES.search(self.code) is not None
        self.error: CallbackError
        if self.code in _STALE:
            self.counts = "stale"
            self.error = StaleToken(f"the task does not wait any more: {says}.", self.code)
        elif self.code in _UNKNOWN:
            self.counts = "unknown"
            self.error = UnknownToken(f"there is no such task: {says}.", self.code)
        elif self.passes:
            self.counts = "unanswered"
            self.error = NoAnswer(f"Step Functions does not answer: {self.code}: {says}.", self.code)
        else:
            self.counts = "refused"
            self.error = CallbackError(f"the callback was refused: {self.code}: {says}.", self.code)


def token_of(body: Any) -> Any:
    """The task token in an envelope, or in its dictionary; None where there is none."""
    return body.get("task_token") if isinstance(body, dict) else getattr(body, "task_token", None)


def checked(token: Any) -> str:
    """A token as text, from a text or pydantic's SecretStr. Raises :class:`UnknownToken`, which does not hold it."""
    plain = token.get_secret_value() if hasattr(token, "get_secret_value") else token
    most = int(facts("sfn.token.max_chars"))
    if not isinstance(plain, str):
        raise UnknownToken(f"a task token is a text; got {type(plain).__name__}.")
    if plain.encode(errors="replace").decode() != plain:
        raise UnknownToken("a task token is text in UTF-8; this one has half a character.")
    if not 1 <= len(plain) <= most:
        raise UnknownToken(f"a task token has 1 to {most:,} characters; this one has {len(plain):,}.")
    return plain
