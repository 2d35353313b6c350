"""A long poll whose client has gone gets nothing.

**On AWS**: see :mod:`parity.sqs_polls`.

**LocalStack** polls on for the dead client, up to 20 seconds, and hands it the next message.

**Here** the server watches the connection of a ReceiveMessage, and the poll ends soon after it closes: what is sent in
that moment may still be lost to it until the visibility timeout. JSON protocol only.
"""

from __future__ import annotations

from typing import Any

from parity.sqs_polls import Client

KEY = "hostmode.client"  # in the WSGI environment of a request
TARGET = "AmazonSQS.ReceiveMessage"


def client_of(context: Any) -> Client:
    """The client of a request of LocalStack; one that never leaves, when it is not watched."""
    found = getattr(context.request, "environ", {}).get(KEY)
    return found if isinstance(found, Client) else Client()


def install() -> None:
    from rolo.serving import twisted

    update = twisted.update_wsgi_environment

    def watched(environ: dict[str, Any], request: Any) -> None:
        update(environ, request)
        if request.getHeader("x-amz-target") == TARGET:
            here = environ[KEY] = Client()
            request.notifyFinish().addErrback(lambda failure: here.leave())  # and no error of the server

    twisted.update_wsgi_environment = watched
