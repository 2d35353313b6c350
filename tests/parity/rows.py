"""One test is one row of the parity table: an AWS behaviour, asked of whatever target is configured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def row(key: str, behaviour: str, *, source: str) -> Callable[[Any], Any]:
    """Mark a test as the row ``key`` of the table.

    ``behaviour`` is what AWS does, as one short sentence that a reader of the table understands; ``source`` says how we
    know: a page of the AWS documentation, a botocore model, or a response recorded on AWS.
    """
    return pytest.mark.row(key=key, behaviour=behaviour, source=source)


def ours(reason: str) -> Any:
    """Mark a test of the stand-in that is no row of the table: AWS promises nothing here, or we do not know what.

    ``reason`` says which of the two. Such a test runs on the embedded target alone.
    """
    return pytest.mark.ours(reason)
