"""LocalStack 4.14.0 without Docker: one process on 127.0.0.1, and AWS's behaviours that it lacks.

LocalStack is the second witness of the course: another implementation of the same AWS APIs. Its image brings along what
this package replaces (a container for each Lambda function, DynamoDB Local in Java, JSONata in Java), and some of AWS's
behaviours are missing in it. Most of what is mended here is mended with the rules of :mod:`parity`, which are written
down once, for both emulators; a module of this package holds the adapter: how a rule gets into LocalStack. Where only
LocalStack is at fault, the module here is all there is.

Everything goes in by LocalStack's own hooks: the entry points of ``pyproject.toml`` name :mod:`hostmode.plugins`, and
``python -m hostmode`` chooses them. A module is loaded with the service that it mends, at that service's first call.

To add a behaviour: write the rule as a plain function or class in ``infra/emulator/parity``, with MiniStack's adapter
in ``install()`` at its bottom (listed in ``parity.MODULES``); LocalStack's adapter in a module here (listed in
:mod:`hostmode.plugins` with its service); and a ``@row`` in ``tests/parity``, which runs on both. ``make parity`` and
``python -m tests.second_witness PART --record`` store what it shows. ``_ = Class.name`` in an ``install()`` touches
what is about to be replaced, so that a release without it fails at the start. A service that has no factory yet also
needs an entry point and its name in ``PROVIDER_OVERRIDE_…`` of ``__main__``.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

PINNED = "4.14.0"


class PinError(RuntimeError):
    """The LocalStack at hand is not the release that this package was written for."""


def check_pin() -> str:
    """Return the installed LocalStack's version, or raise :class:`PinError` when it is not :data:`PINNED`."""
    try:
        found = version("localstack-core")
    except PackageNotFoundError:
        found = "no release"
    if found != PINNED:
        raise PinError(f"LocalStack {PINNED} is needed here, by name: {found} is installed.")
    return found
