"""Hosted versions: their lock, their labels, and what of them can be deployed.

**On AWS** LatestVersionNumber is a lock: a version is refused with ConflictException when another number is the latest.
A label has 1 to 64 characters, of which one at least is no digit, and names the version in StartDeployment
(botocore: appconfig service model).

**MiniStack** ignores the lock and the description, takes any label, and deploys whatever it is told: readers of a
version that is not there get nothing.

**Here** a version that is not there is a BadRequestException (not verified: AWS's code). Of two versions with one label
the newer is deployed (not verified).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .appconfig_requests import BAD, CONFLICT, Refused, answered, header

MAX_LABEL = 64


def check_label(label: str | None) -> None:
    """Raise :class:`Refused` unless a version can be labelled so."""
    if label is not None and (not 1 <= len(label) <= MAX_LABEL or label.isdecimal()):
        raise Refused(BAD, f"A version label has 1 to {MAX_LABEL} characters, of which one at least is no digit.")


def check_lock(expected: str | None, latest: int) -> None:
    """Raise :class:`Refused` when somebody expects another number to be the latest."""
    if expected is not None and expected != str(latest):
        raise Refused(CONFLICT, f"LatestVersionNumber {expected} is not the latest version number, {latest}.")


def resolved(wanted: str, versions: Iterable[Mapping[str, Any]]) -> str:
    """The number, as text, of the version that a deployment names by number or label."""
    found = [
        version["VersionNumber"]
        for version in versions
        if wanted in (str(version["VersionNumber"]), version.get("VersionLabel"))
    ]
    if not found:
        raise Refused(BAD, f"There is no hosted configuration version {wanted}.")
    return str(max(found))


def install() -> None:
    from ministack.services import appconfig

    create, get = appconfig._create_hosted_configuration_version, appconfig._get_hosted_configuration_version
    start = appconfig._start_deployment

    def versions(app: str, profile: str) -> list[Any]:
        return [value for key, value in appconfig._hosted_versions.items() if key.startswith(f"{app}/{profile}/")]

    def with_description(answer: Any, description: str) -> Any:
        status, headers, content = answer
        return status, {**headers, **({"Description": description} if description else {})}, content

    def create_version(app: str, profile: str, content: bytes, kind: str, label: str | None = None) -> Any:
        if f"{app}/{profile}" in appconfig._config_profiles:
            check_label(label)
            check_lock(header("latest-version-number"), appconfig._latest_hosted_version_number(app, profile))
        answer, description = create(app, profile, content, kind, label), header("description") or ""
        if answer[0] == 201:
            appconfig._hosted_versions[f"{app}/{profile}/{answer[1]['Version-Number']}"]["Description"] = description
        return with_description(answer, description)

    def get_version(app: str, profile: str, number: int) -> Any:
        version = appconfig._hosted_versions.get(f"{app}/{profile}/{number}") or {}
        return with_description(get(app, profile, number), version.get("Description", ""))

    def start_deployment(app: str, environment: str, body: dict[str, Any]) -> Any:
        profile, strategy = body.get("ConfigurationProfileId", ""), body.get("DeploymentStrategyId", "")
        found = appconfig._config_profiles.get(f"{app}/{profile}")
        there = f"{app}/{environment}" in appconfig._environments and appconfig._find_deployment_strategy(strategy)
        if found and there and found["LocationUri"] == "hosted":
            number = resolved(str(body.get("ConfigurationVersion", "")), versions(app, profile))
            body = {**body, "ConfigurationVersion": number}
        return start(app, environment, body)

    appconfig._create_hosted_configuration_version = answered(create_version)
    appconfig._get_hosted_configuration_version = get_version
    appconfig._start_deployment = answered(start_deployment)
