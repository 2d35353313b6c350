"""Fair queues: on a standard queue, a quiet tenant overtakes a noisy one.

**On AWS** (Amazon SQS Developer Guide, "How Amazon SQS fair queues work"): messages of a standard queue that carry the
same ``MessageGroupId`` belong to one tenant; a message without one is a tenant by itself. A tenant becomes noisy when
it has more than 10 % of the queue's messages in flight and at least 30 of its own in flight. Messages of quiet tenants
are then delivered first; when only noisy tenants have messages, the one with the fewest in flight is next. A tenant
stops being noisy when its backlog is empty, when it has sent nothing for five minutes, or, as the page puts it
elsewhere, when its share falls back to that of the quiet ones: read here as 10 % or less of the messages in flight.

Not modelled: the second measure of the page (more than 10 % of recent processing time). AWS calls all thresholds
approximate; here they are exact.

**MiniStack** delivers in the order of sending, whatever the tenant.

**Here** messages of noisy tenants wait in a heap of their own and are looked at only when no quiet message is left. A
queue without groups pays for none of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

NOISY_SHARE = 0.10
NOISY_IN_FLIGHT = 30
QUIET_AFTER = 300.0  # seconds without a send


class Tenants:
    """Who is noisy in one queue. The queue reports what happens; :meth:`judge` is asked before each receive."""

    def __init__(self) -> None:
        self.in_flight: Counter[str] = Counter()
        self.backlog: Counter[str] = Counter()  # stored and not in flight
        self.last_send: dict[str, float] = {}
        self.noisy: set[str] = set()
        self._busy: set[str] = set()  # those with enough in flight to become noisy: few, so that judging is cheap

    def sent(self, tenant: str, now: float) -> None:
        self.last_send[tenant] = now

    def moved(self, tenant: str, *, in_flight: int, backlog: int) -> None:
        """Add to the two numbers of a tenant."""
        self.in_flight[tenant] += in_flight
        self.backlog[tenant] += backlog
        if self.in_flight[tenant] >= NOISY_IN_FLIGHT:
            self._busy.add(tenant)
        else:
            self._busy.discard(tenant)
        if self.in_flight[tenant] == self.backlog[tenant] == 0:
            del self.in_flight[tenant], self.backlog[tenant]
            self.last_send.pop(tenant, None)

    def recount(self, in_flight: Counter[str], backlog: Counter[str]) -> None:
        """Take over the two numbers of all tenants from a queue that does not report each move."""
        self.in_flight, self.backlog = in_flight, backlog
        self._busy = {tenant for tenant, number in in_flight.items() if number >= NOISY_IN_FLIGHT}
        for tenant in set(self.last_send) - set(in_flight) - set(backlog):
            del self.last_send[tenant]

    def judge(self, total_in_flight: int, now: float) -> list[str]:
        """Mark who has become noisy; return those who have become quiet."""
        for tenant in self._busy:
            if self._loud(tenant, total_in_flight) and not self._silent(tenant, now):
                self.noisy.add(tenant)
        quiet = [
            t for t in self.noisy if self._silent(t, now) or (total_in_flight and not self._share(t, total_in_flight))
        ]
        self.noisy.difference_update(quiet)
        return quiet

    def next_noisy(self, waiting: Iterable[str], taken: Counter[str]) -> str | None:
        """Of the noisy tenants with messages ``waiting``, the one with the fewest in flight (``taken`` included)."""
        return min(waiting, key=lambda tenant: (self.in_flight[tenant] + taken[tenant], tenant), default=None)

    def _share(self, tenant: str, total: int) -> bool:
        return self.in_flight[tenant] > NOISY_SHARE * total

    def _loud(self, tenant: str, total: int) -> bool:
        return self.in_flight[tenant] >= NOISY_IN_FLIGHT and self._share(tenant, total)

    def _silent(self, tenant: str, now: float) -> bool:
        return not self.backlog[tenant] or now - self.last_send.get(tenant, now) >= QUIET_AFTER
