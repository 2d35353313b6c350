"""The embedded stand-in for AWS: MiniStack with the parity modules, in a process of its own.

It runs in an environment of its own (``.lab/emulator``), because the emulator pins a botocore that LiteLLM cannot live
with, and because Lambda handlers run in it and must not see a notebook's environment.
"""

from __future__ import annotations

from dataclasses import replace

from labkit.places import interpreter
from labkit.servers import Server

SERVER = Server(
    name="embedded",
    what="the stand-in",
    module="parity",
    folder="stand-in",
    code=("infra/emulator/parity",),
    python=lambda: interpreter("emulator"),
    package="ministack",
    setup="make setup",
    limit=30.0,  # measured 2 to 3 on two cores, more when thirty start at once
)


def beside(endpoint: str) -> Server:
    """A second one beside the emulator at ``endpoint``: it answers for the services that the other one lacks.

    What such a service works on (a pipe's queue, its target) is the other emulator's.
    """
    return replace(SERVER, name="beside", folder="stand-in-beside", options=("--beside", endpoint))
