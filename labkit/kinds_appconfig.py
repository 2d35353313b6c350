"""What a lab may have left in AWS AppConfig: applications with all that is in them, and deployment strategies.

Their ARNs need the account's number, which a kind does not get: the name's prefix alone says whose they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from labkit.sweep import Kind, pages

Client = Any


def _applications(appconfig: Client, prefix: str) -> Iterator[str]:
    for application in pages(appconfig, "list_applications", "Items"):
        if application["Name"].startswith(prefix):
            yield application["Id"]


def _delete_application(appconfig: Client, application: str) -> None:
    """Environments and profiles go first, with the versions of these: an application that holds any is refused."""
    inside = {"ApplicationId": application}
    for environment in list(pages(appconfig, "list_environments", "Items", **inside)):
        # Else one whose configuration was read within the last hour is kept.
        appconfig.delete_environment(EnvironmentId=environment["Id"], DeletionProtectionCheck="BYPASS", **inside)
    for profile in list(pages(appconfig, "list_configuration_profiles", "Items", **inside)):
        below = {"ConfigurationProfileId": profile["Id"], **inside}
        for version in list(pages(appconfig, "list_hosted_configuration_versions", "Items", **below)):
            appconfig.delete_hosted_configuration_version(VersionNumber=version["VersionNumber"], **below)
        appconfig.delete_configuration_profile(DeletionProtectionCheck="BYPASS", **below)
    appconfig.delete_application(**inside)


def _strategies(appconfig: Client, prefix: str) -> Iterator[str]:
    for strategy in pages(appconfig, "list_deployment_strategies", "Items"):
        if strategy["Name"].startswith(prefix) and not strategy["Id"].startswith("AppConfig."):  # these are AWS's own
            yield strategy["Id"]


def _delete_strategy(appconfig: Client, strategy: str) -> None:
    appconfig.delete_deployment_strategy(DeploymentStrategyId=strategy)


KINDS = (
    Kind("appconfig", "configuration application", _applications, _delete_application),
    Kind("appconfig", "deployment strategy", _strategies, _delete_strategy),
)
