"""The engines' compiler: numba, with a sentence where it is missing, and a way on where its cache has no place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from labkit.errors import SetupError

try:
    from numba import njit
except ImportError as error:
    raise SetupError(
        f"simulated fleets need the extra `course` (numpy and numba), and {error.name or 'numba'} cannot be imported; "
        "type `make setup` in the repository, or `pip install 'labkit[course]'`."
    ) from error

__all__ = ["compiled"]

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """``function``, compiled at its first call. The result is kept for the next process: beside the module, or in the
    user's own cache where that cannot be written. Where neither can be, numba refuses to keep it before anything is
    compiled at all; then each process compiles for itself."""
    try:
        made: Any = njit(cache=True)(function)
    except RuntimeError:
        made = njit(function)
    return cast(Function, made)
