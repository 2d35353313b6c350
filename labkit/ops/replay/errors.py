"""How a replay goes wrong: one exception, and the sentence for each way in which AWS can refuse, or stay silent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from labkit.errors import LabError

_PASSES = re.compile("Throttl|TooManyRequests|RequestLimitExceeded|ServiceUnavailable|Internal")


class ReplayError(LabError):
    """A replay was not planned, started or followed; the sentence says why, and what goes on regardless."""


class Unheard(ReplayError):
    """Too busy, failing, or no answer at all: what was asked for may have happened, and may be asked for again."""


@contextmanager
def asking(sentence: str, **codes: str) -> Iterator[None]:
    """Turn what botocore raises in the block into a :class:`ReplayError` that begins with ``sentence``.

    ``codes``: another beginning, by error code. What may pass by itself is an :class:`Unheard`.
    """
    from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError

    try:
        yield
    except ClientError as error:
        code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
        kind = Unheard if passes(error) else ReplayError
        raise kind(f"{codes.get(code, sentence)}: {message or code}") from error
    except BotoCoreError as error:
        kind = Unheard if isinstance(error, ConnectionError | HTTPClientError) else ReplayError
        raise kind(f"{sentence}: {error}") from error


def passes(error: Exception) -> bool:
    """Whether a ClientError is a throttle, or a fault of the service's own."""
    answer = getattr(error, "response", {})
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status >= 500 or bool(_PASSES.search(answer.get("Error", {}).get("Code", "")))
