"""What is made once: by one thread for each object, and no object waits for another one's."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from labkit.ops.taxonomy.once import once

BOUND = 30.0  # seconds


class Part:
    def __init__(self, meet: threading.Barrier | None = None) -> None:
        self.meet, self.made, self.fails = meet, 0, False

    @once
    def whole(self) -> int:
        """Takes long."""
        if self.meet:
            self.meet.wait(BOUND)
        self.made += 1
        if self.fails:
            raise ValueError("not yet")
        return self.made

    @once
    def half(self) -> float:
        return self.whole / 2


def test_two_objects_are_made_at_the_same_time() -> None:
    """With one lock for all of them, as functools.cached_property has in Python 3.11, they would not meet."""
    meet = threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda part: part.whole, [Part(meet), Part(meet)])) == [1, 1]


def test_of_many_threads_one_makes_it_and_all_get_it() -> None:
    part, all_there = Part(), threading.Barrier(8)

    def ask(_: int) -> int:
        all_there.wait(BOUND)
        return part.whole

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8))) == [1] * 8
    assert part.made == 1


def test_what_it_raises_comes_through_and_the_next_ask_tries_again() -> None:
    part = Part()
    part.fails = True
    with pytest.raises(ValueError, match="not yet"):
        _ = part.half
    assert "whole" not in part.__dict__
    part.fails = False
    assert (part.half, part.whole, part.made, part.__dict__["whole"]) == (1.0, 2, 2, 2)


def test_the_class_shows_the_property_with_its_words() -> None:
    assert isinstance(Part.whole, once)
    assert Part.whole.__doc__ == "Takes long."
