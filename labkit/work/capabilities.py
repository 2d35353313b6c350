"""Capabilities: what each agent can do, as records that a broker reads. A new agent is a queue and a record, no code.

The records are one document, because whoever chooses among agents has to see all of them at once::

    {"agents": [{"agent": "researcher",                          the agent class, and the name of the model's tool
                 "description": "Finds sources on a topic.",     what the model chooses by
                 "queue_url": "https://sqs.…/researcher",        where its work goes
                 "input_schema": {"type": "object", …}}]}        JSON Schema (draft 7) of what the model must fill in

AWS AppConfig keeps it: versions, a deployment that can be gradual and is rolled back by an alarm, and a validator of
its own. The price is delay: a client asks at most once in a poll interval and goes on with what it has meanwhile::

    deploy v2 ─────────────┐
    broker   v1 ── v1 ── v1│── v1 ──▏poll▕── v2 ── v2          nobody waits, for one interval some still use v1
    deploy v3, broken ─────────────────────▏poll▕── v2 ── v2   refused with a sentence, the last good one goes on

A session of AppConfig has a token that is good for one call and for a day; the answer brings the next one, and the time
to wait before it is used. Where a token is refused, a new session begins at once. An answer without content says that
nothing is new. Sources: botocore's model of appconfigdata.

Only ``labkit.errors``, ``facts``, ``models`` and fastjsonschema are needed: this module travels into Lambda functions.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from labkit.errors import LabError
from labkit.facts import facts
from labkit.models._input import ModelError, limit, whole

__all__ = ["Capabilities", "Capability", "CapabilityError", "parse"]

_NAME = re.compile(r"[a-z][a-z0-9-]*")  # what an envelope takes as an agent class; a tool's name may be more
_FIELDS = {"agent": str, "description": str, "queue_url": str, "input_schema": Mapping}

logger = logging.getLogger(__name__)


class CapabilityError(LabError):
    """A record is not as it should be, or there are no capabilities to be had; the sentence names record and field."""


@dataclass(frozen=True)
class Capability:
    """One agent: its class, what it is for, its queue, and the JSON Schema of its input."""

    agent: str
    description: str
    queue_url: str
    input_schema: Mapping[str, Any]
    _check: Callable[[Any], Any] = field(repr=False, compare=False)

    @classmethod
    def of(cls, record: Any, where: str = "the record") -> Capability:
        """A capability from plain data. Raises :class:`CapabilityError`."""
        if not isinstance(record, Mapping):
            raise CapabilityError(f"{where} is a {type(record).__name__}; a record is an object.")
        for name, kind in _FIELDS.items():
            if not isinstance(record.get(name), kind) or not record[name]:
                what = "an object" if kind is Mapping else "a text"
                raise CapabilityError(
                    f"{where} needs {name}, {what} that is not empty; it is {record.get(name)!r:.80}."
                )
        if unknown := sorted(set(record) - set(_FIELDS)):
            raise CapabilityError(f"{where} has a field {unknown[0]!r:.40}; there are {', '.join(_FIELDS)}.")
        agent, most = record["agent"], int(facts("bedrock.tool_name.max_chars"))
        if not _NAME.fullmatch(agent) or len(agent) > most:
            raise CapabilityError(
                f"{where}: agent is {agent!r:.80}; it has lower-case letters, digits and hyphens, begins with a letter "
                f"and has at most {most} characters."
            )
        if not re.match(r"https?://[^/]+/.+", record["queue_url"]):
            raise CapabilityError(f"{where}: queue_url is {record['queue_url']!r:.80}; it is the URL of a queue.")
        schema = record["input_schema"]
        if schema.get("type") != "object":
            raise CapabilityError(f"{where}: input_schema has type {schema.get('type')!r:.40}; a tool's is 'object'.")
        return cls(agent, record["description"], record["queue_url"], schema, _compiled(schema, where))

    def fault(self, value: Any) -> str:
        """What is wrong with a model's ``value`` for this agent, as a sentence; "" when nothing is."""
        from fastjsonschema import JsonSchemaValueException

        try:
            self._check(value)
        except JsonSchemaValueException as error:
            return str(error.message).replace("data", "the input", 1)
        except Exception as error:  # noqa: BLE001 - infinity as a multiple of something, a depth that nobody can follow
            return f"the input cannot be checked: {type(error).__name__}: {error!s:.80}"
        return ""

    @property
    def tool(self) -> dict[str, Any]:
        """The tool of Bedrock's Converse that stands for this agent."""
        schema = {"json": self.input_schema}
        return {"toolSpec": {"name": self.agent, "description": self.description, "inputSchema": schema}}


def parse(document: str | bytes) -> dict[str, Capability]:
    """The capabilities in a document, by agent. Raises :class:`CapabilityError`: one bad record refuses all of it."""
    try:
        said = json.loads(document)
    except (ValueError, RecursionError) as error:
        raise CapabilityError(f"the capabilities are no JSON: {error}.") from error
    records = said.get("agents") if isinstance(said, Mapping) else None
    if not isinstance(records, list) or not records:
        raise CapabilityError("the capabilities are an object with a list agents that is not empty.")
    found: dict[str, Capability] = {}
    for number, record in enumerate(records):
        made = Capability.of(record, f"agents[{number}]")
        if made.agent in found:
            raise CapabilityError(f"agents[{number}]: there is another record of agent {made.agent}.")
        found[made.agent] = made
    return found


class Capabilities:
    """The capabilities as AppConfig has them, asked for when they are needed and due. Threads may share one.

    ``client`` is of the service ``appconfigdata``; ``application``, ``environment`` and ``profile`` are names or ids.
    ``poll``: seconds between two calls, at least (15 to 86,400); AppConfig's own answer counts where it is longer.
    ``clock`` gives seconds. Raises :class:`CapabilityError` for a poll that cannot be.
    """

    def __init__(
        self,
        client: Any,
        application: str,
        environment: str,
        profile: str,
        *,
        poll: int = 60,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        try:
            self.poll = whole("poll", poll, low=limit("appconfig.poll.min"), high=limit("appconfig.poll.max"))
        except ModelError as error:
            raise CapabilityError(f"capabilities cannot be read so: {error}") from error
        self._client, self._clock = client, clock
        self._where = {
            "ApplicationIdentifier": application,
            "EnvironmentIdentifier": environment,
            "ConfigurationProfileIdentifier": profile,
        }
        self._guard = threading.Lock()
        self._token = ""
        self._due = float("-inf")
        self._good: dict[str, Capability] = {}
        self.trouble = ""  # why the newest answer was not taken; "" when it was

    def get(self) -> Mapping[str, Capability]:
        """The capabilities by agent: those in hand, or newer ones when a poll is due.

        What is broken (no answer, a bad record) is logged, stands in :attr:`trouble`, and changes nothing: the last
        good ones go on, and the next poll tries again. Raises :class:`CapabilityError` where there never were any.
        """
        with self._guard:
            if self._clock() >= self._due:
                self._due = self._clock() + self.poll
                self._refresh()
            if not self._good:
                # Nobody can work until this is mended: a new session, as soon as somebody asks.
                self._due, self._token = float("-inf"), ""
                raise CapabilityError(f"there are no capabilities: {self.trouble or 'nothing was deployed'}")
            return self._good

    def _refresh(self) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer = self._latest()
            content = answer["Configuration"].read()
            self._token = answer["NextPollConfigurationToken"]
            self._due = self._clock() + max(self.poll, answer["NextPollIntervalInSeconds"])
            if content:  # none: nothing is new, and a document that was refused before is not shown again
                self._good, self.trouble = parse(content), ""
        except (CapabilityError, BotoCoreError, ClientError) as error:
            self.trouble = str(error)
            logger.error("the capabilities were not taken, %d older ones go on: %s", len(self._good), error)

    def _latest(self) -> Any:
        """The session's next answer, or the first one of a new session where AppConfig does not take the token."""
        from botocore.exceptions import ClientError

        token, self._token = self._token, ""  # good for one call: where its answer is lost, a new session begins
        if token:
            try:
                return self._client.get_latest_configuration(ConfigurationToken=token)
            except ClientError as error:
                if error.response["Error"]["Code"] != "BadRequestException":
                    raise
                # Nobody asked for a day, and it has expired; or it came too early, by AppConfig's clock.
                logger.info("the session of AppConfig begins anew: %s", error)
        return self._client.get_latest_configuration(ConfigurationToken=self._start())

    def _start(self) -> str:
        asked = {**self._where, "RequiredMinimumPollIntervalInSeconds": self.poll}
        return str(self._client.start_configuration_session(**asked)["InitialConfigurationToken"])


def _compiled(schema: Mapping[str, Any], where: str) -> Callable[[Any], Any]:
    import fastjsonschema

    def elsewhere(uri: str) -> Any:
        raise fastjsonschema.JsonSchemaDefinitionException(f"it refers to {uri:.80}, and nothing is fetched")

    schemes = dict.fromkeys(("http", "https", "ftp", "file", ""), elsewhere)
    try:
        made: Callable[[Any], Any] = fastjsonschema.compile(
            {"$schema": "http://json-schema.org/draft-07/schema#", **schema}, handlers=schemes, use_default=False
        )
    except Exception as error:
        raise CapabilityError(f"{where}: input_schema cannot be used: {error!s:.200}.") from error
    return made
