"""What the rows of AppConfig begin with: an application with an environment and a profile, versions, deployments."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import ClientError

from .conftest import Aws

MODEL = "botocore: appconfig service model"
DATA_MODEL = "botocore: appconfigdata service model"
GUIDE = "AWS documentation: AppConfig User Guide"
AT_ONCE = {"DeploymentDurationInMinutes": 0, "FinalBakeTimeInMinutes": 0, "GrowthFactor": 100.0, "ReplicateTo": "NONE"}
SLOW = {**AT_ONCE, "DeploymentDurationInMinutes": 60, "GrowthFactor": 1.0}
CODES = ("BadRequestException", "ConflictException", "ResourceNotFoundException")
POLL = 15  # seconds: the shortest interval that AppConfig takes


def refused(call: Any, **arguments: Any) -> str:
    """The code of the error with which a call is refused."""
    with pytest.raises(ClientError) as raised:
        call(**arguments)
    return str(raised.value.response["Error"]["Code"])


def problem(call: Any, **arguments: Any) -> tuple[str, str, list[str]]:
    """Code, reason and problems of the error with which a call of appconfigdata is refused."""
    with pytest.raises(ClientError) as raised:
        call(**arguments)
    answer = raised.value.response
    found = answer.get("Details", {}).get("InvalidParameters", {})
    return answer["Error"]["Code"], answer.get("Reason", ""), [each["Problem"] for each in found.values()]


@dataclass(frozen=True)
class Application:
    """One application with one environment, one hosted profile and a strategy, by client and ids."""

    client: Any
    data: Any
    app: str
    environment: str
    profile: str
    strategy: str

    @classmethod
    def create(cls, aws: Aws, **strategy: Any) -> Application:
        client = aws.client("appconfig")
        app = client.create_application(Name="fleet")["Id"]
        return cls(
            client,
            aws.client("appconfigdata"),
            app,
            client.create_environment(ApplicationId=app, Name="live")["Id"],
            client.create_configuration_profile(ApplicationId=app, Name="agents", LocationUri="hosted")["Id"],
            client.create_deployment_strategy(Name="plan", **{**AT_ONCE, **strategy})["Id"],
        )

    @property
    def inside(self) -> dict[str, str]:
        return {"ApplicationId": self.app}

    @property
    def below(self) -> dict[str, str]:
        return {**self.inside, "ConfigurationProfileId": self.profile}

    @property
    def place(self) -> dict[str, str]:
        return {**self.inside, "EnvironmentId": self.environment}

    def version(self, content: bytes = b"{}", **more: Any) -> int:
        answer = self.client.create_hosted_configuration_version(
            **self.below, Content=content, ContentType="application/json", **more
        )
        return int(answer["VersionNumber"])

    def start(self, version: int | str, strategy: str | None = None) -> dict[str, Any]:
        answer: dict[str, Any] = self.client.start_deployment(
            **self.place,
            DeploymentStrategyId=strategy or self.strategy,
            ConfigurationProfileId=self.profile,
            ConfigurationVersion=str(version),
        )
        return answer

    def deploy(self, version: int | str) -> dict[str, Any]:
        """Deploy at once and wait for the end."""
        number = self.start(version)["DeploymentNumber"]
        end = time.monotonic() + 60
        while True:
            found: dict[str, Any] = self.client.get_deployment(**self.place, DeploymentNumber=number)
            if found["State"] == "COMPLETE" or time.monotonic() > end:
                return found
            time.sleep(0.1)

    def session(self, poll: int | None = POLL, **where: str) -> str:
        given = {} if poll is None else {"RequiredMinimumPollIntervalInSeconds": poll}
        names = {
            "ApplicationIdentifier": self.app,
            "EnvironmentIdentifier": self.environment,
            "ConfigurationProfileIdentifier": self.profile,
        }
        return str(self.data.start_configuration_session(**{**names, **where}, **given)["InitialConfigurationToken"])

    def poll(self, token: str) -> dict[str, Any]:
        """An answer of GetLatestConfiguration, with its content as bytes."""
        answer: dict[str, Any] = self.data.get_latest_configuration(ConfigurationToken=token)
        return {**answer, "Configuration": answer["Configuration"].read()}
