"""Real: the same calls to a real provider, if the reader has a key *and* says so.

A notebook asks for an endpoint and gets the scripted provider's. Only ``real=True`` in the code makes the environment
be read at all, and only with a key there is anything called. So no run costs money by accident: not with a key that
happens to be set, and not with an argument that was copied::

    where = endpoint(provider)                  # the script
    where = endpoint(provider, real=True)       # OPENAI_API_KEY, and OPENAI_BASE_URL where it is another house
    client = OpenAI(base_url=where.base_url, api_key=where.api_key)

Switches and counts are the scripted provider's alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from labkit.errors import LabError
from labkit.routing.provider import Provider

__all__ = ["Endpoint", "RealError", "endpoint"]

KEY, BASE = "OPENAI_API_KEY", "OPENAI_BASE_URL"
_OPENAI = "https://api.openai.com/v1"


class RealError(LabError):
    """A real provider was asked for and cannot be used; the sentence says what is missing. Nothing was called."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where chat completions are, for the openai package or LiteLLM. The key is not shown."""

    base_url: str
    api_key: str = field(repr=False)
    real: bool


def endpoint(provider: Provider, *, real: bool = False, environ: Mapping[str, str] = os.environ) -> Endpoint:
    """The endpoint of ``provider``, or of a real one. Raises :class:`RealError` where that has no key or no TLS."""
    if real is not True and real is not False:
        raise RealError(f"real must be True or False; got {real!r:.40}.")
    if not real:
        return Endpoint(provider.openai_url, "none", False)
    key, base = environ.get(KEY, "").strip(), environ.get(BASE, "").strip() or _OPENAI
    if not key:
        raise RealError(f"real is True and {KEY} is not set; set it, or leave real=True out.")
    if not base.startswith("https://"):
        raise RealError(f"{BASE} must begin with https://, as a key goes there; it is {base!r:.80}.")
    return Endpoint(base, key, True)
