"""Closing: what has a ``close`` and may be used in a ``with`` block."""

from __future__ import annotations

from typing import Self


class Closing:
    """A context manager that closes when the block ends, however it ends. ``close`` may be called twice."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
