"""Kills: end a process at any of its calls, inside of a notebook, and let the next life go on.

``kill -9`` cannot be aimed: one kills often and hopes. A *life* can: it counts the calls of the services that its
clients make, and ends at one of them, before the service has heard it or after. Nothing that stands after it runs::

    life = Life(dies_at=3, after=True)              # the third call arrives, and its answer reaches nobody
    broker = Broker(…, life.client(sqs))
    with life:
        broker.dispatch(event)                      # ends here, or comes to its end
    life.over                                       # True when it was killed
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from labkit.models._input import whole

__all__ = ["Killed", "Life"]

_NO_CALLS = {"meta", "exceptions", "get_paginator", "get_waiter", "can_paginate", "close"}


class Killed(BaseException):
    """The process ends here: no ``except Exception`` catches it, as nothing catches signal 9."""


class Life:
    """One life of a process, that all of its clients share. As a context manager it ends a killed one quietly.

    ``dies_at``: the number of the call at which it ends, from 1; 0: never. ``after``: the service has heard that call.
    A dead process calls nothing: whatever is tried after it raises :class:`Killed`, too, and is not sent. Raises
    :class:`~labkit.models._input.ModelError` for a number that cannot be.
    """

    def __init__(self, dies_at: int = 0, *, after: bool = False) -> None:
        self.dies_at, self.after = whole("dies_at", dies_at, low=0), after
        self.calls = 0
        self.over = False

    def client(self, real: Any) -> Any:
        """A boto3 client whose calls count. Paginators and waiters are passed on uncounted."""
        return _Counted(self, real)

    def call(self, operation: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Make a call, if this life still makes it."""
        self.calls += 1
        due = 0 < self.dies_at <= self.calls
        if self.over or (due and not self.after):
            self.over = True
            raise Killed
        if not due:
            return operation(**arguments)
        self.over = True
        operation(**arguments)
        raise Killed

    def __enter__(self) -> Life:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        return isinstance(error, Killed)

    def __repr__(self) -> str:
        return f"<Life of {self.calls} calls{', killed' if self.over else ''}>"


class _Counted:
    def __init__(self, life: Life, real: Any) -> None:
        self._life, self._real = life, real

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if name in _NO_CALLS or name.startswith("_"):
            return found
        return lambda **arguments: self._life.call(found, arguments)
