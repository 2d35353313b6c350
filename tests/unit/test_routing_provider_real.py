"""A real provider is called only where the reader has a key and says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from labkit.routing.provider import Provider
from labkit.routing.real import RealError, endpoint
from labkit.routing.script import Script


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider(Script("x")) as made:
        yield made


class Untouched(dict[str, str]):
    def get(self, *_: Any) -> Any:
        raise AssertionError("the environment was read without real=True")


def test_by_default_it_is_the_script_and_no_key_is_looked_for(provider: Provider) -> None:
    found = endpoint(provider, environ=Untouched(OPENAI_API_KEY="secret"))
    assert (found.base_url, found.api_key, found.real) == (provider.openai_url, "none", False)


def test_a_key_and_a_word(provider: Provider) -> None:
    found = endpoint(provider, real=True, environ={"OPENAI_API_KEY": "secret"})
    assert (found.base_url, found.api_key, found.real) == ("https://api.openai.com/v1", "secret", True)
    assert "secret" not in repr(found)
    found = endpoint(
        provider, real=True, environ={"OPENAI_API_KEY": "secret", "OPENAI_BASE_URL": "https://h.example/v1"}
    )
    assert found.base_url == "https://h.example/v1"


@pytest.mark.parametrize(
    ("real", "environ", "says"),
    [
        (True, {}, "OPENAI_API_KEY is not set"),
        (True, {"OPENAI_API_KEY": " "}, "OPENAI_API_KEY is not set"),
        (True, {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://h.example"}, "must begin with https://"),
        ("yes", {"OPENAI_API_KEY": "k"}, "real must be True or False"),
        (1, {"OPENAI_API_KEY": "k"}, "real must be True or False"),
    ],
)
def test_half_of_it_is_refused(provider: Provider, real: Any, environ: dict[str, str], says: str) -> None:
    with pytest.raises(RealError, match=says):
        endpoint(provider, real=real, environ=environ)
