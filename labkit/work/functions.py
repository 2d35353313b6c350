"""Functions: deploy a Lambda function, call it, read what it logged, feed it from a queue.

Deploying says what is to be, and changes only what is different: the code, when the package's sum is another one; the
configuration, when a value is. Every change of a function takes a moment in which it refuses the next one
(``ResourceConflictException``) and may still run the old code, so each one is waited for, with a bound.

A synchronous call is waited for by the caller, and a client whose wait breaks off sends the call again: the function
runs twice. So :meth:`Function.invoke` takes only functions whose timeout is below the client's, and everything longer
goes through a queue or :meth:`Function.invoke_async`.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit import kinds, places, sweep
from labkit.errors import LabError
from labkit.work import packages
from labkit.work.logs import Log, is_platform

if TYPE_CHECKING:
    from labkit.lab import Lab
    from labkit.work.mappings import QueueMapping
    from labkit.work.queues import Queue

# The Python that the libraries were installed for: the labkit that runs here and the one in the function are one.
RUNTIME = f"python{sys.version_info.major}.{sys.version_info.minor}"
_WITHIN = {"Delay": 0.25, "MaxAttempts": 240}  # 60 s for a change to come through
_BILLED = re.compile(r"Billed Duration: (\d+) ms")


class FunctionError(LabError):
    """Lambda refused something, or what was asked for makes no sense. ``code`` is AWS's, where it was AWS."""

    def __init__(self, says: str, code: str = "") -> None:
        self.code = code
        super().__init__(says)


class InvocationFailed(FunctionError):
    """The function itself failed, and the caller asked for an error then. ``result`` has the whole answer."""

    def __init__(self, name: str, result: Result) -> None:
        self.result = result
        super().__init__(f"function {name} failed: {result.error}: {result.message}", str(result.error))


@dataclass(frozen=True)
class Result:
    """What an invocation came to.

    ``error`` is the name of the exception (``ValueError``, ``Sandbox.Timedout``), ``message`` what it says; both are
    None when the function returned. ``log`` is the end of what it logged, 4 KB at most, without Lambda's own lines;
    ``billed_ms`` is from one of those.
    """

    payload: Any
    error: str | None
    message: str | None
    log: tuple[str, ...] = field(repr=False)
    billed_ms: int | None


class Function:
    """One function, by clients and name. :meth:`deploy` makes one in a lab; the constructor takes one that exists."""

    def __init__(self, client: Any, logs: Any, name: str, *, tags: Mapping[str, str] | None = None) -> None:
        self.client, self.name = client, name
        self.log = Log(logs, f"{kinds.LOGS}{name}")
        self.tags = dict(tags or {})
        found = client.get_function_configuration(FunctionName=name)
        self.arn: str = found["FunctionArn"]
        self.timeout: int = found["Timeout"]

    @classmethod
    def deploy(
        cls,
        lab: Lab,
        name: str,
        folder: str | Path | None = None,
        *,
        source: str | None = None,
        labkit: Sequence[str] = (),
        libraries: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        timeout: int | None = None,
        memory: int | None = None,
        concurrency: int | None = None,
        role: str | None = None,
    ) -> Function:
        """Create or update a function in ``lab`` and wait until it can be called.

        The code is ``folder``: a name in ``infra/functions`` (by default the function's own, with underscores), or a
        path; or ``source``, the text of a ``handler.py``, with the modules of ``labkit`` and the ``libraries`` that it
        takes along. ``timeout`` in seconds and ``memory`` in MB override its ``function.toml``. ``concurrency`` is
        reserved for the function, and at the same time its bound; None leaves it as it is. ``role`` is an ARN: needed
        on AWS; emulators take any.

        The log group is made here, because the one that Lambda makes at the first call carries no tag. Raises
        :class:`labkit.work.packages.PackageError` before any call, and :class:`FunctionError`.
        """
        from botocore.exceptions import ClientError, ParamValidationError

        package = _package(name, folder, source, labkit, libraries)
        client, logs, full = lab.client("lambda"), lab.client("logs"), lab.resource_name(name)
        wanted = {
            "Runtime": RUNTIME,
            "Handler": package.settings.handler,
            "Timeout": package.settings.timeout if timeout is None else timeout,
            "MemorySize": package.settings.memory if memory is None else memory,
            "Role": _role(lab, role),
            "Environment": {"Variables": {**lab.target.elsewhere(), **(env or {})}},  # the emulator itself it is told
        }
        try:
            _bring_to(client, full, package, wanted, lab)
            function = cls(client, logs, full, tags=lab.tags)
            function.log.make(lab.tags)
            if concurrency is not None:
                function.set_concurrency(concurrency)
        except ClientError as error:
            raise _refused(f"function {name} was not deployed", error) from error
        except ParamValidationError as error:
            raise FunctionError(f"function {name} was not deployed: {error}") from error
        return function

    def invoke(self, payload: Any = None, *, check: bool = False) -> Result:
        """Call the function and wait. A function that failed is a result like any other, unless ``check`` is set.

        Raises :class:`FunctionError` when Lambda did not run it (throttled, too large), when the payload is not what
        JSON can hold, and for a function whose timeout is longer than the client waits; :class:`InvocationFailed`.
        """
        patience = self.client.meta.config.read_timeout
        if self.timeout >= patience:
            raise FunctionError(
                f"function {self.name} may take {self.timeout} s and the client waits {patience} s, then calls it "
                "again; use invoke_async."
            )
        answer = self._call(payload, InvocationType="RequestResponse", LogType="Tail")
        body = answer["Payload"].read()
        said = json.loads(body) if body else None
        tail = base64.b64decode(answer.get("LogResult", "")).decode(errors="replace")
        log, billed = (line for line in tail.splitlines() if not is_platform(line)), _BILLED.search(tail)
        error = message = None
        if answer.get("FunctionError"):
            details = said if isinstance(said, dict) else {}
            error, message = details.get("errorType", answer["FunctionError"]), details.get("errorMessage")
        result = Result(said, error, message, tuple(log), int(billed[1]) if billed else None)
        if check and error is not None:
            raise InvocationFailed(self.name, result)
        return result

    def invoke_async(self, payload: Any = None) -> str:
        """Put an event into Lambda's own queue for the function; returns the request's id.

        Nobody learns what came of it, but the log: Lambda tries a failing event twice more (after one minute, and two).
        """
        return str(self._call(payload, InvocationType="Event")["ResponseMetadata"]["RequestId"])

    def _call(self, payload: Any, **options: Any) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            body = json.dumps(payload, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise FunctionError(f"a payload is what JSON can hold; this one is not: {error}.") from error
        try:
            return self.client.invoke(FunctionName=self.name, Payload=body, **options)
        except ClientError as error:
            raise _refused(f"function {self.name} was not called", error) from error
        except BotoCoreError as error:
            raise FunctionError(
                f"the call of function {self.name} broke off, and nobody knows whether it ran: {error}."
            ) from error

    def logs(self, since: float | None = None, *, limit: int = 1000, platform: bool = False) -> list[str]:
        """The newest lines that the function logged, in order: :meth:`labkit.work.logs.Log.lines`."""
        return self.log.lines(since, limit=limit, platform=platform)

    def follow(self, seconds: float, *, since: float | None = None, platform: bool = False) -> Iterator[str]:
        """Yield lines as they are logged, for so many seconds: :meth:`labkit.work.logs.Log.follow`."""
        return self.log.follow(seconds, since=since, platform=platform)

    def map_queue(
        self,
        queue: Queue,
        *,
        batch_size: int | None = None,
        window: int = 0,
        partial: bool = True,
        concurrency: int | None = None,
        filters: Sequence[Mapping[str, Any]] = (),
    ) -> QueueMapping:
        """Let Lambda feed the function from ``queue``: :meth:`labkit.work.mappings.QueueMapping.create`."""
        from labkit.work.mappings import QueueMapping

        return QueueMapping.create(
            self,
            queue,
            batch_size=batch_size,
            window=window,
            partial=partial,
            concurrency=concurrency,
            filters=filters,
        )

    def set_concurrency(self, most: int | None) -> None:
        """Reserve ``most`` concurrent executions, which are the function's bound too; 0 stops it, None frees it."""
        from botocore.exceptions import ClientError

        try:
            if most is None:
                self.client.delete_function_concurrency(FunctionName=self.name)
            else:
                self.client.put_function_concurrency(FunctionName=self.name, ReservedConcurrentExecutions=most)
        except ClientError as error:
            raise _refused(f"function {self.name} got no concurrency of {most}", error) from error

    def delete(self) -> None:
        """Delete the mappings that feed the function, then the function. Its log stays until the lab is closed."""
        fed = self.client.get_paginator("list_event_source_mappings").paginate(FunctionName=self.name)
        try:
            for mapping in [one for page in fed for one in page["EventSourceMappings"]]:
                kinds.delete_mapping(self.client, mapping["UUID"])
            sweep.patiently(lambda: self.client.delete_function(FunctionName=self.name), "ResourceConflictException")
        except self.client.exceptions.ResourceNotFoundException:
            return  # gone before

    def __repr__(self) -> str:
        return f"<Function {self.name}>"


def _package(
    name: str, folder: str | Path | None, source: str | None, labkit: Sequence[str], libraries: Sequence[str]
) -> packages.Package:
    if source is not None:
        if folder is not None:
            raise FunctionError(f"function {name} has a folder and a source; it is made of one of them.")
        return packages.from_source(source, packages.Settings(labkit=tuple(labkit), libraries=tuple(libraries)))
    if labkit or libraries:
        raise FunctionError(f"function {name} is a folder: its function.toml says what it takes along.")
    if not isinstance(folder, Path):
        folder = places.repository() / "infra" / "functions" / (folder or name.replace("-", "_"))
    return packages.from_folder(folder)


def _role(lab: Lab, role: str | None) -> str:
    if role is not None:
        return role
    if lab.target.name == "aws":
        raise FunctionError(
            "on AWS a function needs a role: give role the ARN of one that Lambda can assume and that may write logs."
        )
    return f"arn:aws:iam::{lab.account}:role/lab-function"


def _bring_to(client: Any, name: str, package: packages.Package, wanted: Mapping[str, Any], lab: Lab) -> None:
    """Make the function be as wanted, whatever it is now, with no call that is not needed."""
    try:
        found = client.get_function(FunctionName=name)
    except client.exceptions.ResourceNotFoundException:
        client.create_function(FunctionName=name, Code={"ZipFile": package.content}, Tags=lab.tags, **wanted)
        _settle(client, name)
        return
    tag = lab.scope.tag
    if tag is not None and found.get("Tags", {}).get(tag[0]) != tag[1]:
        raise FunctionError(f"function {name} exists and is not this lab's; nothing was changed.")
    now = {key: found["Configuration"].get(key) for key in wanted}
    now["Environment"] = {"Variables": (now["Environment"] or {}).get("Variables", {})}  # absent where there are none
    if found["Configuration"]["CodeSha256"] != package.sha256:
        _change(client, name, "update_function_code", ZipFile=package.content)
    if now != wanted:
        _change(client, name, "update_function_configuration", **wanted)
    _settle(client, name)


def _change(client: Any, name: str, operation: str, **arguments: Any) -> None:
    sweep.patiently(lambda: getattr(client, operation)(FunctionName=name, **arguments), "ResourceConflictException")
    _settle(client, name)


def _settle(client: Any, name: str) -> None:
    """Wait until the function is active and its last change has come through: until then the old code may answer."""
    from botocore.exceptions import WaiterError

    try:
        for waiter in ("function_active_v2", "function_updated_v2"):
            client.get_waiter(waiter).wait(FunctionName=name, WaiterConfig=_WITHIN)
    except WaiterError as error:
        last = error.last_response.get("Configuration", {})
        why = last.get("StateReason") or last.get("LastUpdateStatusReason") or error
        raise FunctionError(f"function {name} does not become ready: {why}") from error


def _refused(what: str, error: Any) -> FunctionError:
    code, message = error.response["Error"]["Code"], error.response["Error"]["Message"]
    return FunctionError(f"{what}: {code}: {message}", code)
