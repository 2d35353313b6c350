"""Checkpoints: a graph's state after every step, in a database, so that another process can go on with it.

LangGraph runs a graph in *steps*: all nodes that are due run, side by side, and when the last of them is done, what
they wrote is put together into the next state. A checkpointer stores two things under the *thread id* of a run:

* a **checkpoint** after each step: the state, and with it which nodes are due next;
* the **pending writes** of a step that is under way: what each node of it that has finished wrote.

So a process that dies loses only what had no end: nodes that were running. Whoever resumes the thread finds the newest
checkpoint, takes over the writes that are pending there, and runs what is left of that step::

    step 1  plan            ── checkpoint: due are left, right
    step 2  left            ── its writes are kept
            right ──╳ kill -9
    resume  right           from its first line; left does not run again       ── checkpoint: due is merge
    step 3  merge

The unit is the node: no line within it is remembered. A node that was cut off runs again from its beginning, and so
does one that ``interrupt()``-ed, when its answer comes. What stands in it before that point happens twice, unless a key
of its own guards it: :class:`labkit.state.idempotency.IdempotencyStore`, with a name made of thread and node.

``durability`` says when a checkpoint is written. ``"sync"``: before the next step begins. ``"async"``, the default:
while the next step runs; a process that is killed may lose it, and a step more runs again. ``"exit"``: when the run
ends, fails or is interrupted; one that is killed has lost everything since it began. Pending writes are stored in the
background in both of the first two: a node that ended a moment before the kill may run again even with ``"sync"``. An
answer to ``interrupt()`` is such a write: whoever brought it keeps it until the run has ended, and brings it again.

Nothing here says *who* may go on with a thread. Two processes that resume the same one both run what is left of it;
input that is given again, instead of None, begins the graph anew on the state that is there. A claim in the idempotency
store keeps the first from happening, and looking at :meth:`Checkpoints.history` the second.

Sources, beside the tests, which run all of it: https://docs.langchain.com/oss/python/langgraph/persistence (threads,
checkpoints, pending writes), https://docs.langchain.com/oss/python/langgraph/interrupts (a node begins anew),
https://reference.langchain.com/python/langgraph/types/Durability. Of the writes in the background and of two processes
nothing is said there; that is read in langgraph 1.2 and run.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from labkit.closing import Closing
from labkit.errors import LabError
from labkit.state.checkpoint_steps import Step
from labkit.state.postgres import Postgres, last_words

if TYPE_CHECKING:
    from langgraph.checkpoint.postgres import PostgresSaver

    from labkit.lab import Lab

__all__ = ["CheckpointError", "Checkpoints", "Step"]

_PATIENCE = 15.0  # seconds that a connection is tried: a PostgreSQL that died replays its log meanwhile
_OPENING = threading.Lock()
_OPEN: weakref.WeakKeyDictionary[Lab, Checkpoints] = weakref.WeakKeyDictionary()


class CheckpointError(LabError):
    """Checkpoints cannot be used so, or their database does not answer; the sentence says why."""


class Checkpoints(Closing):
    """A database for the checkpoints of one lab, on the lab home's PostgreSQL. Made with :meth:`open`.

    ``url`` is where it is, for any process of this user's: a child that is killed and its successor both use
    ``PostgresSaver.from_conn_string(checkpoints.url)``. The tables are there already.
    """

    def __init__(self, lab: Lab, server: Postgres, database: str) -> None:
        self._lab, self._server, self._database = lab, server, database
        self._pid, self._closed = os.getpid(), False
        self.url = server.url(database)

    @classmethod
    def open(cls, lab: Lab) -> Checkpoints:
        """The checkpoints of ``lab``: an empty database, or the one that this lab has open already.

        The first one starts PostgreSQL, which takes one or two seconds. They are closed with the lab at the latest.
        Raises :class:`CheckpointError` when the lab is closed, :class:`~labkit.errors.SetupError` when the extra
        ``agents`` is not installed, :class:`~labkit.state.postgres.PostgresError` when PostgreSQL does not start.
        """
        if lab._closed:
            raise CheckpointError(f"lab {lab.name} is closed; run its Lab.open cell again.")
        with _OPENING:  # of two threads one opens; the other must not drop what the first one writes into
            opened = _OPEN.get(lab)
            if opened is not None and not opened._closed and opened._pid == os.getpid():
                return opened
            return cls._opened(lab)

    @classmethod
    def _opened(cls, lab: Lab) -> Checkpoints:
        # A graph tells a service on the internet of its runs where the environment says so. Nothing of a lab leaves.
        os.environ.update(LANGSMITH_TRACING="false", LANGCHAIN_TRACING_V2="false")
        server = Postgres.join()
        try:
            checkpoints = cls(lab, server, lab.bucket_name("checkpoints"))
            checkpoints._drop(anew=True)  # what a notebook left that was killed
            with checkpoints.saver() as saver:
                saver.setup()
        except BaseException:
            server.close()
            raise
        _OPEN[lab] = checkpoints
        lab.on_close("checkpoints", checkpoints.close)
        return checkpoints

    @contextlib.contextmanager
    def saver(self) -> Iterator[PostgresSaver]:
        """A checkpointer, for ``graph.compile(checkpointer=saver)``; its connection ends with the block.

        Raises :class:`CheckpointError` when the database does not answer within 15 s. One whose connection breaks
        later, because PostgreSQL died, stays broken (``psycopg.OperationalError``): ask for another one.
        """
        from langgraph.checkpoint.postgres import PostgresSaver
        from psycopg.rows import dict_row

        self._usable()
        with self._connection(self.url, prepare_threshold=0, row_factory=dict_row) as connection:
            yield PostgresSaver(connection)

    def history(self, thread_id: str) -> list[Step]:
        """The checkpoints of a thread, the oldest first; none for a thread that nobody has run.

        It reads what is stored and needs no graph. Those of subgraphs are not among them.
        """
        done: defaultdict[str, dict[str, str]] = defaultdict(dict)
        with self.saver() as saver:
            rows = saver.conn.execute(  # type: ignore[union-attr]
                "SELECT checkpoint_id, task_id, max(task_path) AS path FROM checkpoint_writes "
                "WHERE thread_id = %s AND checkpoint_ns = '' AND idx >= 0 GROUP BY 1, 2",  # below 0: errors, interrupts
                (str(thread_id),),
            )
            for row in rows:
                done[row["checkpoint_id"]][row["task_id"]] = row["path"]
            found = list(saver.list({"configurable": {"thread_id": str(thread_id), "checkpoint_ns": ""}}))
        return [Step.read(each, done[each.checkpoint["id"]]) for each in reversed(found)]

    def threads(self) -> list[str]:
        """The ids of the threads that have checkpoints, in order."""
        with self.saver() as saver:
            rows = saver.conn.execute("SELECT DISTINCT thread_id AS id FROM checkpoints ORDER BY 1")  # type: ignore[union-attr]
            return [row["id"] for row in rows]

    def close(self) -> None:
        """Drop the database, whoever is connected; with the last lab that uses it, PostgreSQL ends. Twice is harmless.

        Raises :class:`~labkit.state.postgres.PostgresError` when PostgreSQL does not end.
        """
        if self._closed or os.getpid() != self._pid:
            return  # a fork's copy: the database is its parent's
        self._closed = True
        try:
            self._drop()
        except CheckpointError:
            pass  # it has died for good, and its data go with its folder
        finally:
            self._server.close()

    def __repr__(self) -> str:
        return f"<Checkpoints of {self._lab.name}, {'closed' if self._closed else 'open'}>"

    # -- the database ----------------------------------------------------------------------------------------------

    def _usable(self) -> None:
        if self._closed:
            raise CheckpointError(f"the checkpoints of lab {self._lab.name} are closed; open them again.")

    def _drop(self, *, anew: bool = False) -> None:
        from psycopg import sql

        name = sql.Identifier(self._database)
        with self._connection(self._server.url()) as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))
            if anew:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(name))

    @contextlib.contextmanager
    def _connection(self, url: str, **options: Any) -> Iterator[Any]:
        """A connection that commits each statement. A refused one is tried again: PostgreSQL may be recovering."""
        import psycopg

        ends, wait = time.monotonic() + _PATIENCE, 0.02
        while True:
            try:
                connection = psycopg.connect(url, autocommit=True, connect_timeout=5, **options)
                break
            except psycopg.OperationalError as error:
                if time.monotonic() > ends or not self._server.kept or "does not exist" in str(error):
                    says = " ".join(str(error).split())
                    raise CheckpointError(f"PostgreSQL refuses: {says} Its log ends: {last_words()}") from error
            time.sleep(wait)
            wait = min(0.5, wait * 1.5)
        with connection:
            yield connection
