"""Receipts: the handles of messages that are held, in a file, and the batch call that hides or shows them."""

from __future__ import annotations

import itertools
import os
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from labkit.work.entries import checked
from labkit.work.queues import Message, Queue

T = TypeVar("T")
_BLOCK = 65_536  # bytes read from the file at once


class Receipts:
    """Receipt handles in a temporary file without a name: added by many threads, read from the beginning."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by close()
        self._guard = threading.Lock()
        self.count = 0
        self.size = 0  # bytes

    def add(self, messages: Iterable[Message]) -> None:
        handles = [message.receipt for message in messages]
        data = "".join(f"{handle}\n" for handle in handles).encode()
        with self._guard:
            os.pwrite(self._file.fileno(), data, self.size)
            self.size += len(data)
            self.count += len(handles)

    def __iter__(self) -> Iterator[str]:
        """Every handle that is there when the reading begins."""
        with self._guard:
            end = self.size
        rest = b""
        for start in range(0, end, _BLOCK):
            lines = (rest + os.pread(self._file.fileno(), min(_BLOCK, end - start), start)).split(b"\n")
            rest = lines.pop()
            for line in lines:
                yield line.decode()

    def close(self) -> None:
        self._file.close()


def change(queue: Queue, handles: Sequence[str], seconds: int) -> dict[int, tuple[str, str]]:
    """Set the visibility of up to ten messages; returns code and message of each that it could not be set for."""

    def call(indices: Sequence[int]) -> Any:
        entries = [{"Id": str(i), "ReceiptHandle": handles[i], "VisibilityTimeout": seconds} for i in indices]
        return queue.client.change_message_visibility_batch(QueueUrl=queue.url, Entries=entries)

    return checked(call, range(len(handles)))[1]


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """``items`` in lists of ``size``, read as they are asked for."""
    source = iter(items)
    while part := list(itertools.islice(source, size)):
        yield part
