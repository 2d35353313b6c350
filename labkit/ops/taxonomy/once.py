"""Once: what an object makes at the first ask and keeps, made for one object at a time.

``functools.cached_property`` of Python 3.11 has one lock for all objects of a class (python/cpython#87634): fleets that
deploy a function each would wait for one another, and from 3.12 on it has none, so two threads make two.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

__all__ = ["once"]

T = TypeVar("T")


class once(Generic[T]):
    """A property that calls ``make`` at the first ask. Other objects, and the object's other properties, do not wait.

    The value stands in the object's ``__dict__`` under the property's name, and is found there from then on. What
    ``make`` raises comes through, and the next ask tries again.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, of: None, owner: type) -> once[T]: ...
    @overload
    def __get__(self, of: object, owner: type) -> T: ...
    def __get__(self, of: object | None, owner: type) -> once[T] | T:
        if of is None:
            return self
        kept = of.__dict__
        with kept.setdefault(f"_{self._name}_lock", threading.RLock()):
            if self._name not in kept:
                kept[self._name] = self._make(of)
        found: T = kept[self._name]
        return found
