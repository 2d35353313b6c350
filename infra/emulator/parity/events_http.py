"""Delivery from a rule to an HTTP endpoint (an API destination).

**On AWS** the answers 401, 407, 409, 429 and 5xx are retried, as is an endpoint that cannot be reached or takes more
than 5 seconds; any other answer outside 2xx fails at once (EventBridge User Guide, "API destinations as targets").

**MiniStack** sends once, on a thread of its own, and drops the event whatever the answer was.

**Here** MiniStack still builds the request and its authorization; what the answer means is decided here, and
:mod:`parity.events_delivery` does the rest. Not modelled: Retry-After, InvocationRateLimitPerSecond. Not verified:
which ERROR_CODE each answer gets on AWS.
"""

from __future__ import annotations

import copy
import socket
import ssl
import urllib.error
from collections.abc import Mapping
from typing import Any

from .events_delivery import Failure

RETRIED_STATUSES = frozenset({401, 407, 409, 429})


def failure_of_status(status: int) -> Failure | None:
    """What an HTTP answer means for the delivery: None when the event has arrived."""
    if 200 <= status < 300:
        return None
    retried = status in RETRIED_STATUSES or status >= 500
    return Failure("ERROR_FROM_TARGET", f"The endpoint answered with HTTP status {status}.", retried=retried)


def failure_of_error(error: Exception) -> Failure:
    """What it means that a request got no answer."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, TimeoutError):
        return Failure("TIMEOUT", "The endpoint did not answer within 5 seconds.")
    if isinstance(reason, socket.gaierror):  # documented with NO_RESOURCE: an invalid address is not tried again
        return Failure("NO_RESOURCE", "The address of the endpoint cannot be resolved.")
    if isinstance(reason, ssl.SSLCertVerificationError):
        return Failure("SDK_CLIENT_ERROR", "The certificate of the endpoint is not valid.")
    return Failure("CONNECTION_FAILURE", "The endpoint cannot be reached.")


def prepare(arn: str, payload: str, target: Mapping[str, Any], event: Mapping[str, Any]) -> Any:
    """A function that makes one request. Call it in the account of the rule; the function may run on any thread.

    Destination and connection are looked up at each attempt, so that a mended connection serves a pending retry.
    """
    from ministack.core.responses import get_account_id, get_region
    from ministack.services import eventbridge as eb

    parameters = eb._resolve_http_parameters(target.get("HttpParameters") or {}, event)

    def send() -> None:
        destination = eb._api_destinations.get(arn.split("/")[1])
        if destination is None:
            raise Failure("NO_RESOURCE", "The API destination does not exist.")
        name = (destination.get("ConnectionArn") or "").split("/")
        connection = eb._connections.get(name[1]) if len(name) > 1 else None
        if connection is None:
            raise Failure("NO_RESOURCE", "The connection of the API destination does not exist.")
        if destination.get("ApiDestinationState") != "ACTIVE" or connection.get("ConnectionState") != "AUTHORIZED":
            raise Failure("CONNECTION_FAILURE", "The connection of the API destination is not authorized.")
        connection = copy.deepcopy(connection)
        request = eb._build_api_destination_request(destination, connection, parameters, payload)
        key = (get_account_id(), get_region(), name[1])
        try:
            status = eb._api_destination_send_sync(request, eb._connection_auth_headers(connection, key))
            if status in (401, 407) and connection.get("AuthorizationType") == "OAUTH_CLIENT_CREDENTIALS":
                headers = eb._connection_auth_headers(connection, key, force_refresh=True)
                status = eb._api_destination_send_sync(request, headers)
        except (OSError, ValueError) as error:  # URLError and timeouts are OSErrors; a bad URL is a ValueError
            raise failure_of_error(error) from error
        failed = failure_of_status(status)
        if failed is not None:
            raise failed

    return send
