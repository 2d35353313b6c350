"""Another emulator beside which this process serves what that one lacks, and how it is called.

**On AWS** services call each other's public APIs: a pipe receives from its queue with ReceiveMessage and deletes with
DeleteMessageBatch, in the account and Region that it is in.

**LocalStack** 4.14.0 has no Pipes (nor AppConfig, Bedrock, AgentCore) in its free edition.

**Here** ``python -m parity --beside http://127.0.0.1:4566`` starts the stand-in as a companion of what listens there:
it serves the service that is missing, and what this touches lives in the neighbour, with the neighbour's visibility
timeouts, receive counts, redrive and order. :class:`Neighbour` makes the calls: the account as the access key, the
caller's Region, this machine only and no proxy. A call is made once: whoever calls knows whether, how long and with
what pause to try again. An answer that is an error is :class:`Refused`; no answer, or one of something that is only
starting or ending, is :class:`Unreachable`, and a call that has had all the time there is, :class:`TimeoutError`."""

from __future__ import annotations

import json
import os
import re
import threading
from collections import OrderedDict
from typing import Any

CONNECT, READ, READ_LONG = 3.0, 10.0, 310.0  # seconds; an execution of a pipe takes at most 300
AT_ONCE = 64  # connections of one client
CLIENTS = 48  # that are kept: each account and Region has its own, for each service
AWAY = (502, 503, 504)  # a proxy's answers, and those of an emulator that is not ready yet
LONG = ("invoke", "start_sync_execution")  # operations that wait for code of the user
ADDRESS = re.compile(r"http://(127\.0\.0\.1|localhost|\[::1\]):([0-9]{1,5})/?")


class Refused(Exception):
    """The neighbour answered with an error of AWS."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Unreachable(Exception):
    """The neighbour does not answer."""


def address(text: str) -> str:
    """The address of a neighbour. Raises :class:`ValueError` unless it is on this machine."""
    found = ADDRESS.fullmatch(text.strip())
    if not found or not 0 < int(found[2]) < 65_536:
        raise ValueError(f"{text!r} is no address like http://127.0.0.1:4566, on this machine and with a port")
    return f"http://{found[1]}:{int(found[2])}"


class Neighbour:
    """The emulator at ``endpoint``. May be called from any thread."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = address(endpoint)
        self._clients: OrderedDict[tuple[str, ...], Any] = OrderedDict()
        self._lock = threading.Lock()
        self._session: Any = None

    def ask(self, service: str, operation: str, account: str, region: str, **members: Any) -> dict[str, Any]:
        """Make one call: ``ask("sqs", "send_message", account, region, QueueUrl=…, MessageBody=…)``."""
        from botocore import exceptions as errors

        slow = operation in LONG
        client = self._client(service, account, region, slow)
        try:
            answer: dict[str, Any] = getattr(client, operation)(**members)
            if "Payload" in answer:  # a stream, and reading it can fail like the call itself
                answer["Payload"] = answer["Payload"].read()
        except errors.ClientError as error:
            said, status = error.response.get("Error", {}), error.response.get("ResponseMetadata", {})
            if status.get("HTTPStatusCode") in AWAY:
                raise self._away(error) from error
            raise Refused(str(said.get("Code", "")), str(said.get("Message", ""))) from error
        except errors.ParamValidationError as error:
            raise Refused("ValidationException", str(error)) from error
        except errors.ReadTimeoutError as error:
            if slow:
                raise TimeoutError(f"{service} {operation} took more than {READ_LONG:.0f} s.") from error
            raise self._away(error) from error
        except (errors.HTTPClientError, errors.BotoCoreError, OSError) as error:
            raise self._away(error) from error
        return answer

    def prepare(self, service: str, operation: str, account: str, region: str) -> None:
        """Make ready for :meth:`ask`, so that a first call takes no longer than the others: some 50 to 500 ms."""
        self._client(service, account, region, operation in LONG)

    def _away(self, error: Exception) -> Unreachable:
        return Unreachable(f"{self.endpoint} does not answer: {error}")

    def _client(self, service: str, account: str, region: str, slow: bool) -> Any:
        key = service, account, region, str(slow)
        with self._lock:
            client = self._clients.get(key)
            if client is None:
                client = self._clients[key] = self._make(service, account, region, slow)
                if len(self._clients) > CLIENTS:
                    self._clients.popitem(last=False)
            self._clients.move_to_end(key)
            return client

    def _make(self, service: str, account: str, region: str, slow: bool) -> Any:
        from botocore.config import Config
        from botocore.session import Session

        if self._session is None:
            # Nothing of the reader's AWS configuration: no profile, no file, nothing to break on.
            nothing = dict.fromkeys(("config_file", "credentials_file"), (None, None, os.devnull, None))
            self._session = Session(session_vars={**nothing, "profile": (None, None, None, None)})
        return self._session.create_client(
            service,
            region_name=region,
            endpoint_url=self.endpoint,
            aws_access_key_id=account,
            aws_secret_access_key="lab",
            config=Config(
                connect_timeout=CONNECT,
                read_timeout=READ_LONG if slow else READ,
                retries={"mode": "standard", "total_max_attempts": 1},
                max_pool_connections=AT_ONCE,
                proxies={},
                inject_host_prefix=False,  # StartSyncExecution would go to sync-127.0.0.1
                ignore_configured_endpoint_urls=True,
            ),
        )


def value_of(payload: bytes) -> Any:
    """What a function returned: a JSON value, or text."""
    text = payload.decode("utf-8", "replace")
    try:
        return json.loads(text)
    except ValueError:
        return text


_neighbour: Neighbour | None = None


def use(endpoint: str) -> None:
    """Let this process be the companion of the emulator at ``endpoint``. Call before :func:`parity.install`."""
    global _neighbour
    _neighbour = Neighbour(endpoint)


def current() -> Neighbour | None:
    """The neighbour of this process; None where everything is in the process itself."""
    return _neighbour
