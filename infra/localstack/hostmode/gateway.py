"""Where LocalStack listens, and whom it serves: programs of this machine, on the address that it was told.

**LocalStack**'s Twisted server takes the port of an IPv4 address and listens on all of the machine's addresses: whoever
is in the same network could run code here. It serves any ``Host``, so a web page from elsewhere that resolves a name of
its own to 127.0.0.1 can, too. Where the port is taken, it says that it is ready.

**Here** it listens on the address itself, or ends; and what :mod:`parity.guard` refuses is refused before all else.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from localstack.runtime.server.twisted import TwistedRuntimeServer
from parity.guard import refusal
from rolo.serving.twisted import TwistedGateway
from twisted.internet import reactor
from twisted.internet.error import CannotListenError

PORT_TAKEN = 4  # exit code


class LoopbackServer(TwistedRuntimeServer):
    """LocalStack's server, without TLS, bound to the hosts of ``GATEWAY_LISTEN``."""

    def register(self, gateway: Any, listen: list[Any], ssl_creds: tuple[str, str] | None = None) -> None:
        gateway.request_handlers.insert(0, only_this_machine)
        site = TwistedGateway(gateway)
        for address in listen:
            try:
                reactor.listenTCP(address.port, site, interface=address.host)
            except CannotListenError as error:
                print(error, file=sys.stderr, flush=True)
                os._exit(PORT_TAKEN)  # nothing has begun that would have to end


def only_this_machine(chain: Any, context: Any, response: Any) -> None:
    """Refuse what comes from a web page of another machine, as the first handler of a request."""
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in context.request.headers.items()]
    reason = refusal(headers)
    if reason is not None:
        response.status_code = 403
        response.mimetype = "text/plain"
        response.set_data(reason)
        chain.terminate()
