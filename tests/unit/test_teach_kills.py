"""A life ends at the call that it was given, before or after the service has heard it."""

from __future__ import annotations

from typing import Any

import pytest

from labkit.models._input import ModelError
from labkit.teach.kills import Killed, Life


class Service:
    """A client that keeps what it heard."""

    meta = "its meta"

    def __init__(self) -> None:
        self.heard: list[int] = []

    def put(self, n: int) -> int:
        self.heard.append(n)
        return n

    def get_paginator(self, name: str) -> str:
        return f"pages of {name}"


def lived(life: Life, *services: Any) -> None:
    with life:
        for n, service in enumerate(services, 1):
            assert life.client(service).put(n=n) == n


@pytest.mark.parametrize(("after", "heard"), [(False, [1]), (True, [1, 2])])
def test_it_ends_at_its_call(after: bool, heard: list[int]) -> None:
    service, life = Service(), Life(2, after=after)
    lived(life, service, service, service)
    assert service.heard == heard
    assert life.over


def test_its_clients_share_it() -> None:
    one, other = Service(), Service()
    lived(Life(2), one, other)
    assert (one.heard, other.heard) == ([1], [])


def test_one_that_is_not_killed_comes_to_its_end() -> None:
    service, life = Service(), Life()
    lived(life, service, service)
    assert (service.heard, life.calls, life.over) == ([1, 2], 2, False)
    assert repr(life) == "<Life of 2 calls>"


def test_the_dead_call_nothing() -> None:
    service, life = Service(), Life(1, after=True)
    lived(life, service)
    with pytest.raises(Killed):
        life.client(service).put(n=9)
    assert service.heard == [1]
    assert repr(life) == "<Life of 2 calls, killed>"


def test_nothing_catches_it_but_the_life() -> None:
    def careless() -> None:
        try:
            Life(1).client(Service()).put(n=1)
        except Exception:  # noqa: BLE001 - what it must not reach
            pytest.fail("a kill was caught")

    with pytest.raises(Killed):
        careless()


def test_an_error_of_the_service_passes() -> None:
    with pytest.raises(TypeError), Life() as life:
        life.client(Service()).put(unknown=1)


def test_what_is_no_call_is_not_counted() -> None:
    life = Life(1)
    client = life.client(Service())
    assert (client.meta, client.get_paginator("rows")) == ("its meta", "pages of rows")
    assert life.calls == 0


@pytest.mark.parametrize("dies_at", [-1, 1.5, True])
def test_a_number_that_cannot_be(dies_at: Any) -> None:
    with pytest.raises(ModelError, match="dies_at"):
        Life(dies_at)
