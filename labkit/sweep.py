"""Sweeping: find and delete what a lab has left in its account.

A sweep serves three moments: opening a lab whose last run was interrupted, closing one, and proving afterwards that
nothing is left. What kinds there are, and in which order they go, is in :mod:`labkit.kinds`.

In an account that others use as well, a name that starts with the lab's prefix is not enough: the resource must carry
the lab's tag too (but for archives, which AWS does not let anyone tag).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

Client = Any
T = TypeVar("T")


@dataclass(frozen=True)
class Kind:
    """One kind of resource: ``find`` yields names below a prefix; ``delete`` and ``tags`` take one of them.

    ``begin`` asks for a deletion that takes its time, without waiting for it: many can then go at once.
    """

    service: str
    noun: str
    find: Callable[[Client, str], Iterator[str]]
    delete: Callable[[Client, str], None]
    tags: Callable[[Client, str], Mapping[str, str]] | None = None
    begin: Callable[[Client, str], None] | None = None


@dataclass(frozen=True)
class Scope:
    """What belongs to a lab: names that start with ``prefix`` ("" = all) and carry ``tag``, where one is set."""

    prefix: str = ""
    tag: tuple[str, str] | None = None

    def holds(self, kind: Kind, client: Client, name: str) -> bool:
        if self.tag is None or kind.tags is None:
            return True
        return kind.tags(client, name).get(self.tag[0]) == self.tag[1]


def patiently(
    call: Callable[[], T],
    *codes: str,
    within: float = 60.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Make a call again while it is refused with one of ``codes``: something else is still under way there.

    The waits grow from a tenth of a second to two. After ``within`` seconds the last refusal is raised.
    """
    from botocore.exceptions import ClientError

    end, wait = clock() + within, 0.1
    while True:
        try:
            return call()
        except ClientError as error:
            if error.response["Error"]["Code"] not in codes or clock() >= end:
                raise
        sleep(wait)
        wait = min(2.0, wait * 1.5)


def pages(client: Any, operation: str, key: str, **arguments: Any) -> Iterator[Any]:
    """Every item under ``key`` of a list operation, page by page."""
    if client.can_paginate(operation):
        for page in client.get_paginator(operation).paginate(**arguments):
            yield from page.get(key, [])
        return
    token: dict[str, str] = {}
    while True:
        page = getattr(client, operation)(**arguments, **token)
        yield from page.get(key, [])
        if not page.get("NextToken"):
            return
        token = {"NextToken": page["NextToken"]}


def find(service: str, client: Client, scope: Scope) -> list[tuple[Kind, str]]:
    """Everything of ``service`` that belongs to ``scope``."""
    from labkit.kinds import KINDS

    kinds = [kind for kind in KINDS if kind.service == service]
    return [
        (kind, name) for kind in kinds for name in kind.find(client, scope.prefix) if scope.holds(kind, client, name)
    ]


def delete(service: str, client: Client, scope: Scope) -> dict[str, int]:
    """Delete what :func:`find` finds; returns how many of each noun went."""
    gone: dict[str, int] = {}
    found = find(service, client, scope)
    for kind, name in found:
        if kind.begin:
            kind.begin(client, name)
    for kind, name in found:
        kind.delete(client, name)
        gone[kind.noun] = gone.get(kind.noun, 0) + 1
    return gone


def in_order(services: list[str]) -> list[str]:
    """The services in the order in which they are to be swept."""
    from labkit.kinds import KINDS

    order = list(dict.fromkeys(kind.service for kind in KINDS))
    return sorted(services, key=lambda service: order.index(service) if service in order else len(order))
