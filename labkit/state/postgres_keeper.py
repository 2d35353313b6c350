"""Keeper: one PostgreSQL for one folder, for as long as somebody holds on to it. Run by :mod:`labkit.state.postgres`.

A server that several notebooks share has to end with the last of them, also when that one is killed. A list of process
numbers in a file cannot tell: who is killed never takes its number off. A connection can: the system closes it,
whatever its process died of. So whoever uses the server keeps a connection to the keeper open, and says nothing on it::

    notebook A ──────────────────────────── close ─┐
    notebook B ─────────╳ kill -9                  │      (the system closes the connection)
    keeper     initdb, postgres ───────────────────┴ nobody left: stop postgres, remove the folder, end

Where PostgreSQL itself dies, the keeper starts it again on the same data: it replays its log, and what had been
committed is there. The keeper writes nothing but its log: it knows no SQL.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import selectors
import shutil
import signal
import socket
import stat
import time
from pathlib import Path

from filelock import FileLock, Timeout

from labkit import places
from labkit.state.postgres_server import Gone, Server, end_orphan

MARK = ".labkit"  # the file that says that a folder is ours to remove
DOOR = "keeper"  # the keeper's socket, beside PostgreSQL's
HERE = b"+"  # what the keeper says to who comes: you are counted
OTHERS = b"-"  # and to who leaves while others stay; who leaves last hears nothing until all is gone

_LOOK = 0.1  # seconds between two looks at PostgreSQL
_RESTARTS = 5
_PATIENCE = 30.0  # seconds for a former keeper to clear away


class Keeper:
    """Keeps a server in ``folder``. ``first`` is the connection of who started it: there from the beginning."""

    def __init__(self, folder: Path, programs: Path, user: str | None, first: socket.socket) -> None:
        self._folder, self._first = folder, first
        self._told = False
        self._server = Server(folder, programs, user, lambda: self._told)

    def keep(self) -> None:
        """From ``initdb`` to an empty place. Raises :class:`Gone`."""
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, self._end)
        self._claim()
        last: list[socket.socket] = []
        try:
            self._server.make()
            self._server.start()
            with socket.socket(socket.AF_UNIX) as door:
                door.bind(str(self._server.sockets / DOOR))
                door.listen(64)
                door.setblocking(False)
                last = self._serve(door)
            # Who comes from here on finds no door, and starts another keeper, which waits for this one's end.
        finally:
            self._server.stop()
            remove(self._folder)
            for holder in last:
                holder.close()  # now who left last knows that nothing is left

    def _serve(self, door: socket.socket) -> list[socket.socket]:
        """Count who is there until nobody is. Returns the connections whose owners may wait for the end."""
        holders: set[socket.socket] = set()
        restarts = 0
        with selectors.DefaultSelector() as ready:

            def count(holder: socket.socket) -> None:
                holder.setblocking(False)
                holders.add(holder)
                ready.register(holder, selectors.EVENT_READ)
                with contextlib.suppress(OSError):  # it has left already, and is found to have
                    holder.send(HERE)

            ready.register(door, selectors.EVENT_READ)
            count(self._first)
            while not self._told:
                # The door comes first: who comes while the last one leaves is still served.
                for key, _ in sorted(ready.select(_LOOK), key=lambda found: found[0].fileobj is not door):
                    if key.fileobj is door:
                        try:
                            count(door.accept()[0])
                        except OSError:  # no descriptor is left: who knocks is not let in, and who is here stays
                            time.sleep(_LOOK)
                        continue
                    [holder] = [each for each in holders if each is key.fileobj]
                    if _has_left(holder):
                        ready.unregister(holder)
                        holders.discard(holder)
                        if not holders:
                            return [holder]
                        with contextlib.suppress(OSError):
                            holder.send(OTHERS)
                        holder.close()
                if self._server.died:
                    restarts += 1
                    if restarts > _RESTARTS:
                        raise Gone(f"PostgreSQL died {restarts} times.")
                    self._server.start(again=True)
        return list(holders)

    def _claim(self) -> None:
        """Make the folder, or empty one whose keeper was killed; one without the mark is somebody's."""
        mark = self._folder / MARK
        if self._folder.exists() and any(self._folder.iterdir()) and not mark.exists():
            raise Gone(f"{self._folder} holds files that are not labkit's; move them, or set LABKIT_HOME elsewhere.")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = self._folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise Gone(f"{self._folder} is not a folder of this user's; remove it.")
        mark.write_text("Here labkit's PostgreSQL writes. It removes this folder when nobody uses it any more.\n")
        self._server.clear()

    def _end(self, number: int, frame: object) -> None:
        self._told = True


def clear(folder: Path, *, within: float) -> bool:
    """Where the keeper has been killed, end the server that it left, and remove its folder. True if there was one.

    ``within``: seconds to wait for a keeper that is on its way out; where one stays, it is its affair.
    """
    with contextlib.suppress(Timeout), FileLock(places.home() / "postgres.keeper.lock").acquire(timeout=within):
        if (folder / MARK).exists():
            end_orphan(folder / "data")
            remove(folder)
            return True
    return False


def remove(folder: Path) -> None:
    """Remove a folder that is ours, its mark last: who is killed before that leaves one that the next keeper knows."""
    with contextlib.suppress(OSError):
        for each in folder.iterdir():
            if each.name != MARK:
                shutil.rmtree(each, ignore_errors=True)
        if [each.name for each in folder.iterdir()] == [MARK]:
            shutil.rmtree(folder, ignore_errors=True)


def _has_left(holder: socket.socket) -> bool:
    try:
        return not holder.recv(64)
    except BlockingIOError:
        return False
    except OSError:
        return True


def main() -> None:
    parser = argparse.ArgumentParser(prog="labkit.state.postgres_keeper", description="Keep one PostgreSQL.")
    parser.add_argument("--programs", type=Path, required=True)
    parser.add_argument("--user")
    parser.add_argument("--lock", type=Path, required=True)
    parser.add_argument("--first", type=int, required=True, help="a descriptor: who started it")
    parser.add_argument("--folder", type=Path, required=True)
    chosen = parser.parse_args()
    if os.fork():
        os._exit(0)  # it is nobody's child: who started it may end before it, and has nobody to bury
    try:
        with FileLock(chosen.lock).acquire(timeout=_PATIENCE):  # a former keeper may still be clearing away
            Keeper(chosen.folder, chosen.programs, chosen.user, socket.socket(fileno=chosen.first)).keep()
            os._exit(0)  # the lock ends with the process, and not before it
    except Timeout:
        parser.error(f"another keeper holds {chosen.lock}.")
    except Gone as gone:
        parser.exit(1, f"{gone}\n")


if __name__ == "__main__":
    main()
