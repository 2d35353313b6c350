"""Trace files: spans as lines of OTLP's JSON, one file for each process, and no collector needed.

A file has one writer, so nothing has to be locked, and what a process that was killed left half written stands at the
end of its own file, where a reader skips it. A file that has grown to ``most`` bytes is followed by another one, and
the oldest are deleted when the folder holds more than ``keep`` such files do: it cannot fill a disk, and a fleet of a
hundred processes with a little each loses none. Only what has a trace file's name is ever deleted. Where a line cannot
be written (the disk is full all the same), its spans are lost, and the fleet does not notice.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from labkit import places
from labkit.ops.spans import record, sdk
from labkit.ops.spans.record import Record

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

__all__ = ["FileExporter", "folder", "read"]

MOST, KEEP = 8 * 1024 * 1024, 32  # bytes of a file, full files of a folder
_MANY = 1_000  # files of a folder, however small: each is read by `labkit trace`
_SUFFIX = ".jsonl"  # what the file exporter's specification prefers
_OURS = re.compile(rf"[A-Za-z0-9_-]+-\d+-\d{{16,20}}{re.escape(_SUFFIX)}")


def folder() -> Path:
    """Where a lab's processes write: ``traces`` in the lab's home."""
    return places.home() / "traces"


class FileExporter:
    """Appends to a file of its own in ``where``. Used from one thread, that of its queue.

    ``files`` are those that it has begun.
    """

    def __init__(
        self, where: Path | None = None, service: str = "fleet", *, most: int = MOST, keep: int = KEEP
    ) -> None:
        self.where = folder() if where is None else Path(where)
        self.files: list[Path] = []
        self._service = re.sub(r"[^A-Za-z0-9_-]+", "-", service)[:40] or "fleet"
        self._most, self._keep = most, keep
        self._handle: int | None = None
        self._size = 0

    def export(self, spans: Sequence[ReadableSpan]) -> None:
        """One line, in one write. Raises OSError where it cannot be written."""
        data = (sdk.line(spans) + "\n").encode(errors="replace")
        if self._handle is None or (self._size and self._size + len(data) > self._most) or self._deleted():
            self._next()
        assert self._handle is not None
        written = os.write(self._handle, data)
        self._size += written
        if written < len(data):  # the disk is full: what follows must not continue this line
            self.shutdown()
            raise OSError(errno.ENOSPC, f"{written} of {len(data)} bytes were written")

    def shutdown(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _deleted(self) -> bool:
        """Whether somebody has tidied up meanwhile: what is written into a deleted file, nobody reads."""
        return self._handle is not None and os.fstat(self._handle).st_nlink == 0

    def _next(self) -> None:
        self.shutdown()
        self.where.mkdir(parents=True, exist_ok=True)
        # Process ids come again; moments do not.
        path = self.where / f"{self._service}-{os.getpid()}-{time.time_ns()}{_SUFFIX}"
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.files.append(path)
        self._size = 0
        self._tidy()

    def _tidy(self) -> None:
        count = size = 0
        for path in reversed(_files(self.where)):
            if not _OURS.fullmatch(path.name):
                continue  # somebody's own, in a folder that was named
            with contextlib.suppress(OSError):  # another process was faster
                count, size = count + 1, size + path.stat().st_size
                if (count > _MANY or size > self._keep * self._most) and path != self.files[-1]:
                    path.unlink()


def read(where: Path | None = None) -> Iterator[Record]:
    """The spans in a file, or in all the files of a folder; none where there is none. Bad lines are skipped."""
    place = folder() if where is None else Path(where)
    if place.is_dir():
        for path in _files(place):
            with contextlib.suppress(OSError):  # deleted meanwhile, a folder, or not ours to read
                yield from _read(path)
    elif place.is_file():
        yield from _read(place)


def _read(path: Path) -> Iterator[Record]:
    with path.open(encoding="utf-8", errors="replace") as lines:
        for text in lines:
            yield from record.read_line(text)


def _files(where: Path) -> list[Path]:
    """The oldest first."""
    found = []
    for path in where.glob(f"*{_SUFFIX}"):
        with contextlib.suppress(OSError):
            found.append((path.stat().st_mtime_ns, path))
    return [path for _, path in sorted(found)]
