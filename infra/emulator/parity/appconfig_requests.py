"""What requests of AppConfig have in common: refusals, and members that travel as headers.

**On AWS** CreateHostedConfigurationVersion has its description and its lock, and DeleteEnvironment and
DeleteConfigurationProfile their protection check, in headers (botocore: appconfig service model).

**MiniStack** passes the content type and the label on to the operation, and no other header.

**Here** the headers of the request that is being answered can be asked for wherever it is answered.
"""

from __future__ import annotations

import contextvars
import functools
import json
from collections.abc import Mapping
from typing import Any

BAD, CONFLICT = "BadRequestException", "ConflictException"
STATUS = {BAD: 400, CONFLICT: 409}

_headers: contextvars.ContextVar[Mapping[str, str]] = contextvars.ContextVar("appconfig_headers")


class Refused(Exception):
    """A request is refused, with this error code and message, and with what else AWS says of it."""

    def __init__(self, code: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.code, self.message, self.more = code, message, more

    @property
    def body(self) -> dict[str, Any]:
        return {"__type": self.code, "Message": self.message, **self.more}


def header(name: str) -> str | None:
    """A header of the request that is being answered, by its name in lower case."""
    return _headers.get({}).get(name)


def answered(operation: Any) -> Any:
    """``operation``, with a :class:`Refused` as an answer of MiniStack's."""

    @functools.wraps(operation)
    def answer(*arguments: Any) -> Any:
        try:
            return operation(*arguments)
        except Refused as error:
            headers = {"Content-Type": "application/json", "x-amzn-errortype": error.code}
            return STATUS[error.code], headers, json.dumps(error.body).encode()

    return answer


def install() -> None:
    from ministack.services import appconfig

    handle = appconfig.handle_request

    async def handle_request(method: str, path: str, headers: Mapping[str, str], body: bytes, query: Any) -> Any:
        token = _headers.set({name.lower(): value for name, value in headers.items()})
        try:
            return await handle(method, path, headers, body, query)
        finally:
            _headers.reset(token)

    appconfig.handle_request = handle_request
