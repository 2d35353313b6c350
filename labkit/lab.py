"""Lab: what a notebook opens. One target, one account, clients, names, and a clean end.

A lab owns an account of its own (derived from learner and notebook), so that notebooks run beside each other and thirty
learners share one endpoint. Opening it removes what an interrupted run left; closing it removes everything again and
proves that no resource, thread or process is left behind.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from filelock import FileLock, Timeout

from labkit import places, sweep, targets
from labkit.errors import EndpointDown, LabError
from labkit.sweep import Scope
from labkit.targets import Target, account_for, connect

TAG = "lab"  # the tag that every resource of a lab carries
_PATIENCE = 10.0  # seconds for threads that end: a machine that stands still for a while does not leave one behind
_OPEN: dict[str, Lab] = {}


class Lab:
    """An open lab. Made with :meth:`open`; also a context manager, which closes it.

    Attributes: ``name`` (``03-queues``), ``target``, ``account`` (12 digits), ``region``.
    """

    def __init__(self, name: str, target: Target, account: str, scope: Scope, lock: FileLock | None = None) -> None:
        self.name = name
        self.target = target
        self.account = account
        self.region = target.region
        self.scope = scope
        self._lock = lock
        self._clients: dict[str, Any] = {}
        self._guard = threading.RLock()
        self._on_close: list[tuple[str, Callable[[], object]]] = []
        self._threads_before = set(threading.enumerate())
        self._closed = False
        self._pid = os.getpid()

    @classmethod
    def open(cls, name: str) -> Lab:
        """Open the lab ``name`` (a notebook's: ``03-queues``) on the chosen target and say in one line who answers.

        Opening a lab again in the same process, as a cell that is run twice does, closes the first one. Raises
        :class:`LabError` for a bad name or when another process has the lab open, and what
        :func:`labkit.targets.connect` raises when the target cannot be used.
        """
        if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) or len(name) > 32:
            raise LabError(f"a lab is named with lower-case letters, digits and hyphens, 32 at most; {name!r} is not.")
        if name in _OPEN:
            _OPEN[name].close(quiet=True)
        learner = targets.learner()
        target = connect()
        account = target.account or account_for(learner, name)
        scope = Scope()
        if target.shared:
            scope = Scope(re.sub(r"[^a-z0-9]+", "-", f"lab-{learner}-{name}-".lower()), (TAG, name))
        lab = cls(name, target, account, scope, _claim(target, account, name, learner))
        try:
            # What acts by itself goes first: an execution that an interrupted run left would send into the new queue of
            # the same name, a mapping would poll it.
            for service in ("stepfunctions", "lambda", "sqs", "events", "s3"):
                lab.client(service)
        except BaseException as error:
            lab._release()
            if type(error).__module__.startswith("botocore"):
                raise LabError(f"lab {name} was not opened: {error}") from error
            raise
        _OPEN[name] = lab
        print(f"Lab {name} on {target.name}: {target.says}.")
        return lab

    def client(self, service: str) -> Any:
        """A boto3 client for ``service``, made once. The first use of a service sweeps what an interrupted run left."""
        with self._guard:
            if self._closed:
                raise LabError(f"lab {self.name} is closed; run its Lab.open cell again.")
            if service not in self._clients:
                client = self.target.client(service, self.account)
                sweep.delete(service, client, self.scope)
                self._clients[service] = client
            return self._clients[service]

    def resource_name(self, name: str) -> str:
        """The name that a resource gets: as given where the account is the lab's own, with the lab's mark on AWS."""
        return f"{self.scope.prefix}{name}"

    def bucket_name(self, name: str) -> str:
        """A bucket's name, unique across accounts as S3 demands: name, account and region."""
        full = f"{self.scope.prefix}{name}-{self.account}-{self.region}"
        if len(full) <= 63:  # what S3 allows
            return full
        return f"{full[:50].rstrip('-')}-{hashlib.sha256(full.encode()).hexdigest()[:12]}"

    def arn(self, service: str, resource: str) -> str:
        """The ARN of a resource of this lab's account and region."""
        return f"arn:aws:{service}:{self.region}:{self.account}:{resource}"

    @property
    def tags(self) -> dict[str, str]:
        """The tags that every resource of the lab carries."""
        return {TAG: self.name}

    def on_close(self, says: str, action: Callable[[], object]) -> None:
        """Call ``action`` when the lab closes, last one first: for what is not an AWS resource (a thread, a server)."""
        self._on_close.append((says, action))

    def close(self, *, quiet: bool = False) -> None:
        """Remove everything that the lab made and say what went. Raises :class:`LabError` if anything is left.

        Closing twice is harmless. Where the process that the lab ran on has ended, there is nothing to remove, and
        whatever answers at its address now is left alone.
        """
        with self._guard:
            if self._closed:
                return
            self._closed = True
        # Without the lock from here on: what is told to end may be in the middle of asking for a client.
        if os.getpid() != self._pid:
            return  # a fork's copy: the lab is its parent's
        gone: dict[str, int] = {}
        try:
            left = self._run_on_close()
            there = True
            try:
                if there := self.target.answers():
                    left += self._sweep(gone)
            except EndpointDown as error:
                left.append(str(error))
            left += [f"thread {thread.name}" for thread in self._threads_left()]
        finally:
            for client in self._clients.values():
                client.close()
            self._release()
        if left:
            raise LabError(f"lab {self.name} could not be closed cleanly: {'; '.join(left)}.")
        if not quiet:
            removed = ", ".join(f"{count} {_plural(noun, count)}" for noun, count in sorted(gone.items())) or "nothing"
            if not there:
                removed = "nothing, because what it ran on has ended"
            print(f"Lab {self.name} closed: removed {removed}; 0 resources, 0 threads left behind.")

    def _sweep(self, gone: dict[str, int]) -> list[str]:
        """Delete what the lab made, counting it in ``gone``; returns what could not be deleted."""
        from botocore.exceptions import BotoCoreError, ClientError

        left: list[str] = []
        for service in sweep.in_order(list(self._clients)):
            client = self._clients[service]
            try:
                for noun, count in sweep.delete(service, client, self.scope).items():
                    gone[noun] = gone.get(noun, 0) + count
                left += [f"{kind.noun} {item}" for kind, item in sweep.find(service, client, self.scope)]
            except (BotoCoreError, ClientError) as error:
                left.append(f"{service}: {error}")
        return left

    def _run_on_close(self) -> list[str]:
        troubles = []
        for says, action in reversed(self._on_close):
            try:
                action()
            except Exception as error:  # noqa: BLE001 - one failing clean-up must not keep the others from running
                troubles.append(f"{says}: {error}")
        self._on_close.clear()
        return troubles

    def _threads_left(self) -> list[threading.Thread]:
        """Threads of labkit's that were started since the lab was opened and do not end, though they are waited for."""
        ours = [
            thread
            for thread in threading.enumerate()
            if thread not in self._threads_before and thread.name.startswith("labkit")
        ]
        end = time.monotonic() + _PATIENCE
        for thread in ours:
            thread.join(timeout=max(0.0, end - time.monotonic()))
        return [thread for thread in ours if thread.is_alive()]

    def _release(self) -> None:
        _OPEN.pop(self.name, None)
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(quiet=True)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<Lab {self.name}, {state}, on {self.target.name}, account {self.account}, {self.region}>"


def _plural(noun: str, count: int) -> str:
    if count == 1:
        return noun
    return noun + ("es" if noun.endswith("s") else "s")


def _claim(target: Target, account: str, name: str, learner: str) -> FileLock | None:
    """Hold the lab's account for this process, so that two kernels do not delete each other's resources."""
    if target.name == "aws":
        return None  # the prefix keeps labs apart; two kernels of one learner there are the learner's own affair
    folder = places.home() / "labs"
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / f"{account}.lock", thread_local=False)
    try:
        lock.acquire(timeout=0.2)
    except Timeout:
        raise LabError(
            f"lab {name} of {learner!r} is open in another kernel; shut that one down, "
            "or set LABKIT_LEARNER to another name."
        ) from None
    return lock
