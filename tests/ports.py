"""Ports for the stand-ins of tests that come back to one."""

from __future__ import annotations

import random

from labkit.loopback import port_is_free

# Above those that stand-ins look through for a free one, below those that the system gives to outgoing connections.
_FROM, _TO = 12_000, 30_000


def out_of_the_way() -> int:
    """A free port that nobody takes by chance as soon as its stand-in has ended: another test's, which runs at the same
    time, begins at 4566 and takes the first one that is free."""
    chosen = random.SystemRandom()
    return next(port for port in iter(lambda: chosen.randrange(_FROM, _TO), None) if port_is_free(port))
