"""Draining: nothing visible is left, and nobody asks all servers while another thread may have all that is wanted."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.ops.triage.draining import Batch, Drain
from labkit.work.queues import Message


class Source:
    """A queue of ``count`` messages. ``blind``: whether the n-th short poll asks servers that have none of them."""

    def __init__(self, count: int, *, threads: int = 8, blind: Callable[[int], bool] = lambda asked: False) -> None:
        self.threads = threads
        self.left = [Message(str(n), "{}", "r", 1, 0.0) for n in range(count)]
        self.kept: list[Message] = []
        self.short = self.sure = self.most = 0
        self.all_asked = threading.Event()  # each thread, once
        self._blind, self._guard = blind, threading.Lock()

    def receive(self, limit: int, *, sure: bool) -> Batch:
        with self._guard:
            self.sure, self.short = self.sure + sure, self.short + (not sure)
            self.most = max(self.most, limit)
            if self.short >= self.threads:
                self.all_asked.set()
            if not sure and self._blind(self.short):
                return Batch()
            batch, self.left = Batch(self.left[:limit]), self.left[limit:]
            return batch

    def keep(self, batch: Batch) -> None:
        with self._guard:
            self.kept += batch


def drain(
    source: Source,
    decide: Callable[[Batch], object] = lambda batch: None,
    *,
    at_most: int | None = None,
    together: bool = True,
    enough: Callable[[], bool] = lambda: False,
) -> None:
    Drain(source, decide, at_most=at_most, together=together, enough=enough).run()


def test_where_others_have_all_that_is_wanted_nobody_asks_all_servers() -> None:
    """Eight threads, four batches: half of them find nothing while the others decide."""
    source, done, guard = Source(37), [0], threading.Lock()

    def decide(batch: Batch) -> None:
        assert source.all_asked.wait(30)
        with guard:
            done[0] += len(batch)

    drain(source, decide, enough=lambda: done[0] >= 37)
    assert (done[0], source.sure) == (37, 0)


@given(count=st.integers(0, 95), threads=st.integers(1, 8), blind=st.sets(st.integers(1, 40)), takes=st.booleans())
@settings(max_examples=60)
def test_what_short_polls_do_not_show_is_found(count: int, threads: int, blind: set[int], takes: bool) -> None:
    source = Source(count, threads=threads, blind=lambda asked: asked in blind)
    seen: list[str] = []

    def decide(batch: Batch) -> None:
        seen.extend(message.id for message in batch)
        if takes:
            batch.clear()  # what is decided is no sign that nothing was there

    drain(source, decide, together=False)
    assert sorted(map(int, seen)) == list(range(count))
    assert len(source.kept) == (0 if takes else count)
    assert source.sure >= 1  # the end is known from all servers


@given(count=st.integers(0, 60), at_most=st.integers(1, 60), threads=st.integers(1, 8))
@settings(max_examples=60)
def test_no_more_are_taken_than_asked(count: int, at_most: int, threads: int) -> None:
    source = Source(count, threads=threads)
    drain(source, at_most=at_most)
    assert len(source.kept) == min(count, at_most)
    assert source.most <= 10


@pytest.mark.parametrize("together", [True, False])
def test_an_error_ends_all_threads_and_its_batch_is_kept(together: bool) -> None:
    source = Source(10_000)

    def decide(batch: Batch) -> None:
        raise KeyError("the reader's")

    with pytest.raises(KeyError, match="the reader's"):
        drain(source, decide, together=together)
    assert len(source.kept) + len(source.left) == 10_000
    assert 10 <= len(source.kept) <= 80
