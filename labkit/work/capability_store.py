"""Capability store: where capabilities are kept and deployed, in AWS AppConfig. The writer's side; a broker only reads.

AppConfig has four things between a document and its readers: an *application*, an *environment* of it, a
*configuration profile* (whose versions are the documents), and a *deployment strategy*, which says how fast a version
comes to all readers. The strategy here is "at once, and nothing is watched afterwards": right for a lab. In production
one deploys to a part of the readers first, watches an alarm while it bakes, and AppConfig rolls back by itself.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from labkit.work.capabilities import Capabilities, CapabilityError, parse

if TYPE_CHECKING:
    from labkit.lab import Lab

__all__ = ["CapabilityStore"]

ENVIRONMENT, PROFILE = "live", "agents"
_CONTENT = "application/json"
_AT_ONCE = {"DeploymentDurationInMinutes": 0, "FinalBakeTimeInMinutes": 0, "GrowthFactor": 100.0, "ReplicateTo": "NONE"}
_IN_PROGRESS = {"DEPLOYING", "BAKING", "VALIDATING", "ROLLING_BACK"}


class CapabilityStore:
    """One application of AppConfig, by client and ids. :meth:`create` makes one in a lab."""

    def __init__(self, client: Any, name: str, application: str, environment: str, profile: str, strategy: str) -> None:
        self.client, self.name = client, name
        self._application, self._environment, self._profile = application, environment, profile
        self._strategy = strategy

    @classmethod
    def create(cls, lab: Lab, name: str) -> CapabilityStore:
        """Make the application ``name`` in ``lab`` with all that it needs, or take the one that is there.

        Raises :class:`CapabilityError` when AppConfig refuses.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        client, full, tags = lab.client("appconfig"), lab.resource_name(name), lab.tags
        try:
            app = _found(client, "list_applications", full) or client.create_application(Name=full, Tags=tags)["Id"]
            inside = {"ApplicationId": app}
            environment = _found(client, "list_environments", ENVIRONMENT, **inside)
            profile = _found(client, "list_configuration_profiles", PROFILE, **inside)
            strategy = _found(client, "list_deployment_strategies", full)
            return cls(
                client,
                full,
                app,
                environment or client.create_environment(Name=ENVIRONMENT, Tags=tags, **inside)["Id"],
                profile
                or client.create_configuration_profile(Name=PROFILE, LocationUri="hosted", Tags=tags, **inside)["Id"],
                strategy or client.create_deployment_strategy(Name=full, Tags=tags, **_AT_ONCE)["Id"],
            )
        except (BotoCoreError, ClientError) as error:
            raise CapabilityError(f"the capability store {name!r:.80} was not made: {error}") from error

    @property
    def place(self) -> str:
        """Application, environment and profile, as a function's environment variable says them."""
        return f"{self.name}/{ENVIRONMENT}/{PROFILE}"

    def reader(self, lab: Lab, **options: Any) -> Capabilities:
        """What a broker reads this store by; ``options`` are those of :class:`Capabilities`."""
        return Capabilities(lab.client("appconfigdata"), self.name, ENVIRONMENT, PROFILE, **options)

    def deploy(
        self,
        records: Sequence[Mapping[str, Any]],
        *,
        check: bool = True,
        within: float = 120.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> int:
        """Deploy ``records`` as a new version and wait until it is what readers get; returns the version.

        A bad record is refused before any call, unless ``check`` is False: an experiment. Raises
        :class:`CapabilityError`, also when the deployment is not complete after ``within`` seconds.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        document = json.dumps({"agents": list(records)}, indent=1)
        if check:
            parse(document)
        where = {"ApplicationId": self._application, "EnvironmentId": self._environment}
        try:
            version = self.client.create_hosted_configuration_version(
                ApplicationId=self._application,
                ConfigurationProfileId=self._profile,
                Content=document.encode(),
                ContentType=_CONTENT,
            )["VersionNumber"]
            number = self.client.start_deployment(
                **where,
                DeploymentStrategyId=self._strategy,
                ConfigurationProfileId=self._profile,
                ConfigurationVersion=str(version),
            )["DeploymentNumber"]
            end, wait = clock() + within, 0.05
            while (state := self.client.get_deployment(**where, DeploymentNumber=number)["State"]) in _IN_PROGRESS:
                if clock() >= end:
                    break
                sleep(wait)
                wait = min(2.0, wait * 1.5)
        except (BotoCoreError, ClientError) as error:
            raise CapabilityError(f"the capabilities were not deployed to {self.name}: {error}") from error
        if state != "COMPLETE":
            raise CapabilityError(f"the deployment of version {version} to {self.name} is {state} after {within:g} s.")
        return int(version)

    def __repr__(self) -> str:
        return f"<CapabilityStore {self.name}>"


def _found(client: Any, operation: str, name: str, **where: Any) -> str | None:
    """The id of the one with this name, if there is one: a name is no key to AppConfig, and two may have the same."""
    for page in client.get_paginator(operation).paginate(**where):
        for item in page["Items"]:
            if item["Name"] == name:
                return str(item["Id"])
    return None
