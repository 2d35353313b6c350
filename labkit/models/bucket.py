"""Token bucket: how AWS's quotas of API calls work, and how a client keeps below one.

A bucket holds ``size`` tokens and gets ``rate`` new ones each second, until it is full. A call takes one token. So a
burst of ``size`` calls passes at once, and then ``rate`` calls a second do::

    size ─╮
          │╲ burst                      ╱ a pause fills it again
       0 ─┴─╲____ rate calls a second _╱

A service refuses the call that finds no token; a client that counts along waits for it instead. Whoever comes first is
served first: each call takes its token at once, also one that is still to come, and then waits for its moment.
Standard library only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from labkit.models._input import ModelError, number


class Bucket:
    """``size`` tokens, ``rate`` a second. ``clock`` gives seconds, ``sleep`` waits for some; threads may share one.

    >>> bucket = Bucket(3, 2, clock=lambda: 0.0, sleep=lambda seconds: None)
    >>> [bucket.take() for _ in range(5)]
    [0.0, 0.0, 0.0, 0.5, 1.0]
    """

    def __init__(
        self,
        size: float,
        rate: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.size = number("size", size, low=1, unit="tokens")
        self.rate = number("rate", rate, unit="tokens/s")
        if not rate:
            raise ModelError("rate must be more than 0 tokens/s; got 0.")
        self._clock, self._sleep = clock, sleep
        self._full = self._last = clock()  # when it will be full, if nobody takes a token meanwhile
        self._guard = threading.Lock()

    @property
    def tokens(self) -> float:
        """Tokens in the bucket now; negative while calls wait for theirs."""
        with self._guard:
            now = self._now()  # first: it may change when the bucket is full
            return self.size - max(0.0, self._full - now) * self.rate

    def take(self, count: float = 1, *, within: float | None = None) -> float:
        """Take ``count`` tokens, and wait until they are there; returns for how many seconds it waited.

        Where that would be longer than ``within`` seconds, nothing is taken and nothing waited for: the error says how
        long it would have been. Raises :class:`~labkit.models._input.ModelError`, also for more tokens
        than the bucket holds.
        """
        number("count", count, high=self.size, unit="tokens")
        if within is not None:
            number("within", within, unit="s")
        with self._guard:
            now = self._now()
            full = max(self._full, now) + count / self.rate
            wait = max(0.0, full - now - self.size / self.rate)
            if within is not None and wait > within:
                raise ModelError(f"within is {within:g} s, and {count:g} tokens are there in {wait:.3g} s.")
            self._full = full
        if wait:
            self._sleep(wait)
        return wait

    def _now(self) -> float:
        """The clock. Where it was set back, nobody waits until it is as late again: it goes on from the last look."""
        now = self._clock()
        if now < self._last:
            self._full -= self._last - now
        self._last = now
        return now

    def again(self) -> Bucket:
        """A full bucket of the same size and rate, with the same clock: for another API with the same quota."""
        return Bucket(self.size, self.rate, clock=self._clock, sleep=self._sleep)

    def __repr__(self) -> str:
        return f"<Bucket of {self.size:g}, {self.rate:g} a second>"
