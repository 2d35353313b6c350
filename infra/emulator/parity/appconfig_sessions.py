"""Tokens of a configuration session: for one call, not too early, and not for ever.

**On AWS** a token is valid for one call of GetLatestConfiguration and for up to 24 hours, and no sooner than the
session's poll interval after the call that it came with. Anything else is a BadRequestException; its details say
``Corrupted``, ``Expired`` or ``PollIntervalNotSatisfied`` (botocore: appconfigdata service model; the message "Request
too early" from aws-samples/sample-python-helper-aws-appconfig#2). Who has the newest version already gets no content,
and no label.

**MiniStack** takes a token at any time, has no details, and always sends the label.

**Here** a session that asked for no interval has 60 s, as a public report has it
(aws-powertools/powertools-lambda-python#1506). Not verified: what is called ``Corrupted`` of a token that was used
already, that a call that came too early leaves its token as it was, and how the details name the parameter.
"""

from __future__ import annotations

import json
import time
from typing import Any

from .appconfig_requests import BAD, Refused, answered

MAX_AGE = 86_400.0  # seconds
DEFAULT_POLL = 60
SAYS = {
    "Corrupted": "Token not valid",
    "Expired": "Token has expired",
    "PollIntervalNotSatisfied": "Request too early",
}


def refused(problem: str) -> Refused:
    details = {"InvalidParameters": {"ConfigurationToken": {"Problem": problem}}}
    return Refused(BAD, SAYS[problem], Reason="InvalidParameters", Details=details)


class Tokens:
    """When each token was given, and when it may be used."""

    def __init__(self) -> None:
        self._given: dict[str, tuple[float, float]] = {}  # token → given at, not before

    def give(self, token: str, now: float, wait: float = 0.0) -> None:
        """``token`` was given at ``now``, to be used ``wait`` seconds later. Those that are too old are forgotten."""
        for old in [old for old, (given, _) in self._given.items() if now - given > 2 * MAX_AGE]:
            del self._given[old]
        self._given[token] = now, now + wait

    def check(self, token: str, now: float) -> None:
        """Raise :class:`Refused` unless ``token`` can be used at ``now``."""
        if token not in self._given:
            raise refused("Corrupted")
        given, earliest = self._given[token]
        if now - given > MAX_AGE:
            raise refused("Expired")
        if now < earliest:
            raise refused("PollIntervalNotSatisfied")

    def spend(self, token: str) -> None:
        """It was used: it is no token any more."""
        self._given.pop(token, None)


def install() -> None:
    from ministack.services import appconfig

    start, latest = appconfig._start_configuration_session, appconfig._get_latest_configuration
    tokens = Tokens()

    def start_session(body: Any) -> Any:
        status, headers, content = start(body)
        if status == 201:
            tokens.give(json.loads(content)["InitialConfigurationToken"], time.monotonic())
        return status, headers, content

    def get_latest(token: str) -> Any:
        now, session = time.monotonic(), appconfig._sessions.get(token)
        if session is None:  # used, of another account, or none at all
            raise refused("Corrupted")
        tokens.check(token, now)
        status, headers, content = latest(token)
        tokens.spend(token)
        following = headers["Next-Poll-Configuration-Token"]
        tokens.give(following, now, float(headers["Next-Poll-Interval-In-Seconds"]))
        if appconfig._sessions[following]["LastServedVersion"] == session["LastServedVersion"]:
            headers.pop("Version-Label", None)
        return status, headers, content

    _ = appconfig._DEFAULT_POLL_INTERVAL_SECONDS
    appconfig._DEFAULT_POLL_INTERVAL_SECONDS = DEFAULT_POLL
    appconfig._start_configuration_session = start_session
    appconfig._get_latest_configuration = answered(get_latest)
