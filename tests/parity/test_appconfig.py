"""AppConfig: versions, deployments, and sessions that read them."""

from __future__ import annotations

import json
import time
import uuid

import pytest

from .appconfig_kit import CODES, DATA_MODEL, GUIDE, MODEL, POLL, SLOW, Application, problem, refused
from .conftest import Aws
from .raw import Wire
from .rows import ours, row


@pytest.fixture
def fleet(aws: Aws) -> Application:
    return Application.create(aws)


# -- hosted versions ---------------------------------------------------------------------------------------------------


@row(
    "appconfig.version.numbered",
    "A profile counts its hosted versions from 1; each keeps its content, type, description and label",
    source=MODEL,
)
def test_versions_are_counted(fleet: Application) -> None:
    assert fleet.version(b"one") == 1
    assert fleet.version(b"\x00two", Description="the second", VersionLabel="v2.0") == 2
    first = fleet.client.get_hosted_configuration_version(**fleet.below, VersionNumber=1)
    second = fleet.client.get_hosted_configuration_version(**fleet.below, VersionNumber=2)
    assert (first["Content"].read(), second["Content"].read()) == (b"one", b"\x00two")
    assert (second["ContentType"], second["Description"], second["VersionLabel"]) == (
        "application/json",
        "the second",
        "v2.0",
    )
    assert refused(fleet.client.get_hosted_configuration_version, **fleet.below, VersionNumber=3) == CODES[2]


@row(
    "appconfig.version.lock",
    "Two writers do not overwrite each other: a LatestVersionNumber that is not the latest is a ConflictException",
    source=MODEL,
)
def test_the_latest_version_number_is_a_lock(fleet: Application) -> None:
    assert fleet.version() == 1
    assert fleet.version(LatestVersionNumber=1) == 2
    create = fleet.client.create_hosted_configuration_version
    new = {**fleet.below, "Content": b"late", "ContentType": "text/plain", "LatestVersionNumber": 1}
    assert refused(create, **new) == "ConflictException"
    versions = fleet.client.list_hosted_configuration_versions(**fleet.below)["Items"]
    assert sorted(version["VersionNumber"] for version in versions) == [1, 2]


@row("appconfig.version.label", "A version's label has at most 64 characters, and not digits alone", source=MODEL)
@pytest.mark.parametrize("label", ["22", "v" * 65])
def test_a_label_is_no_number(fleet: Application, label: str) -> None:
    create = fleet.client.create_hosted_configuration_version
    new = {**fleet.below, "Content": b"{}", "ContentType": "application/json", "VersionLabel": label}
    assert refused(create, **new) == "BadRequestException"


@row(
    "appconfig.version.label_filter",
    "Versions are listed by label: exactly, or by a prefix and an asterisk",
    source=f"{MODEL}: ListHostedConfigurationVersions",
)
def test_versions_are_listed_by_label(fleet: Application) -> None:
    for label in ("v1.0", "v2.0", "v2.1"):
        fleet.version(VersionLabel=label)

    def labels(wanted: str) -> list[str]:
        found = fleet.client.list_hosted_configuration_versions(**fleet.below, VersionLabel=wanted)["Items"]
        return sorted(version["VersionLabel"] for version in found)

    assert (labels("v2.1"), labels("v2*"), labels("v2")) == (["v2.1"], ["v2.0", "v2.1"], [])


# -- deployments -------------------------------------------------------------------------------------------------------


@row(
    "appconfig.deployment.at_once",
    "Without duration and bake time a deployment is COMPLETE at once, and its number is one more than the last",
    source=f"{MODEL}; {GUIDE}: Working with deployment strategies",
)
def test_a_deployment_at_once_is_complete(fleet: Application) -> None:
    for number in (1, 2):
        found = fleet.deploy(fleet.version())
        assert (found["DeploymentNumber"], found["State"], found["PercentageComplete"]) == (number, "COMPLETE", 100.0)
        assert found["ConfigurationVersion"] == str(number)
        assert found["CompletedAt"] >= found["StartedAt"]
    assert fleet.client.get_environment(**fleet.place)["State"] == "READY_FOR_DEPLOYMENT"


@row(
    "appconfig.deployment.bake",
    "With a bake time a deployment that reached all targets is BAKING, and readers have its version already",
    source=f"{MODEL}: CreateDeploymentStrategy, FinalBakeTimeInMinutes",
)
def test_a_deployment_bakes(fleet: Application) -> None:
    number = fleet.start(fleet.version(b"baking"), "AppConfig.AllAtOnce")["DeploymentNumber"]
    end = time.monotonic() + 60
    while (found := fleet.client.get_deployment(**fleet.place, DeploymentNumber=number))["State"] == "DEPLOYING":
        assert time.monotonic() < end
        time.sleep(0.1)
    assert (found["State"], found["PercentageComplete"]) == ("BAKING", 100.0)
    assert fleet.client.get_environment(**fleet.place)["State"] == "DEPLOYING"
    assert fleet.poll(fleet.session())["Configuration"] == b"baking"


@row(
    "appconfig.deployment.one_at_a_time",
    "An environment has one deployment at a time: the next one is a ConflictException until it has ended",
    source=f"{MODEL}: StartDeployment; {GUIDE}: Deploying feature flags and configuration data",
)
def test_one_deployment_at_a_time(aws: Aws) -> None:
    fleet = Application.create(aws, **SLOW)
    first = fleet.start(fleet.version())
    start = {"DeploymentStrategyId": fleet.strategy, "ConfigurationProfileId": fleet.profile}
    again = {**fleet.place, **start, "ConfigurationVersion": str(fleet.version())}
    assert refused(fleet.client.start_deployment, **again) == "ConflictException"
    fleet.client.stop_deployment(**fleet.place, DeploymentNumber=first["DeploymentNumber"])
    assert fleet.client.start_deployment(**again)["DeploymentNumber"] == first["DeploymentNumber"] + 1


@row(
    "appconfig.deployment.stop",
    "What is stopped is rolled back, what is complete is reverted if that is asked for: readers get the version before",
    source=f"{MODEL}: StopDeployment",
)
def test_a_stopped_deployment_is_rolled_back(fleet: Application) -> None:
    fleet.deploy(fleet.version(b"one"))
    slow = fleet.client.create_deployment_strategy(Name="slow", **SLOW)["Id"]
    number = fleet.start(fleet.version(b"two"), slow)["DeploymentNumber"]
    stop = {**fleet.place, "DeploymentNumber": number}
    assert fleet.client.stop_deployment(**stop)["State"] in ("ROLLING_BACK", "ROLLED_BACK")
    assert fleet.poll(fleet.session())["Configuration"] == b"one"
    third = {**fleet.place, "DeploymentNumber": fleet.deploy(fleet.version(b"three"))["DeploymentNumber"]}
    assert refused(fleet.client.stop_deployment, **third) == "BadRequestException"
    assert fleet.poll(fleet.session())["Configuration"] == b"three"
    assert fleet.client.stop_deployment(**third, AllowRevert=True)["State"] == "REVERTED"
    assert fleet.poll(fleet.session())["Configuration"] == b"one"


@row(
    "appconfig.deployment.listed",
    "Deployments are listed with their profile, the newest first",
    source=f"{MODEL}: ListDeployments, DeploymentSummary",
)
def test_deployments_are_listed_the_newest_first(fleet: Application) -> None:
    for _ in range(3):
        fleet.deploy(fleet.version())
    found = fleet.client.list_deployments(**fleet.place)["Items"]
    assert [deployment["DeploymentNumber"] for deployment in found] == [3, 2, 1]
    assert {deployment["ConfigurationProfileId"] for deployment in found} == {fleet.profile}


@row(
    "appconfig.deployment.label",
    "A hosted version is deployed by its number or by its label, and readers are told the label",
    source=f"{MODEL}: StartDeployment, GetLatestConfiguration",
)
def test_a_version_is_deployed_by_its_label(fleet: Application) -> None:
    fleet.version(b"one")
    fleet.version(b"two", VersionLabel="v2.0")
    assert fleet.deploy("v2.0")["VersionLabel"] == "v2.0"
    found = fleet.poll(fleet.session())
    assert (found["Configuration"], found["VersionLabel"]) == (b"two", "v2.0")


@row(
    "appconfig.deployment.unknown",
    "A deployment to an environment, of a profile or by a strategy that is not there is a ResourceNotFoundException",
    source=f"{MODEL}: StartDeployment",
)
@pytest.mark.parametrize("what", ["EnvironmentId", "ConfigurationProfileId", "DeploymentStrategyId"])
def test_what_is_not_there_is_not_deployed(fleet: Application, what: str) -> None:
    version = str(fleet.version())
    known = {**fleet.place, **fleet.below, "DeploymentStrategyId": fleet.strategy, "ConfigurationVersion": version}
    assert refused(fleet.client.start_deployment, **{**known, what: "0000000"}) == "ResourceNotFoundException"


@ours("AWS's code for a version that is not there is not verified; it must not become what readers get")
@pytest.mark.parametrize("version", ["7", "v7"])
def test_an_unknown_version_is_not_deployed(fleet: Application, version: str) -> None:
    fleet.deploy(fleet.version(b"one"))
    known = {**fleet.place, **fleet.below, "DeploymentStrategyId": fleet.strategy}
    assert refused(fleet.client.start_deployment, **known, ConfigurationVersion=version) == "BadRequestException"
    assert fleet.poll(fleet.session())["Configuration"] == b"one"


# -- lists and names ---------------------------------------------------------------------------------------------------


@row(
    "appconfig.list.pages",
    "A list comes in pages of at most 50, and a token leads from one to the next",
    source=f"{MODEL}: MaxResults, NextToken",
)
def test_lists_come_in_pages(fleet: Application) -> None:
    for _ in range(52):
        fleet.version()
    pages = fleet.client.get_paginator("list_hosted_configuration_versions").paginate(**fleet.below)
    assert sorted(version["VersionNumber"] for page in pages for version in page["Items"]) == [*range(1, 53)]
    assert len(fleet.client.list_hosted_configuration_versions(**fleet.below)["Items"]) == 50
    few = fleet.client.get_paginator("list_applications").paginate(PaginationConfig={"PageSize": 1})
    fleet.client.create_application(Name="another")
    assert sorted(app["Name"] for page in few for app in page["Items"]) == ["another", "fleet"]
    assert refused(fleet.client.list_applications, MaxResults=51) == "BadRequestException"


@ours("that AWS takes a name twice is concluded from its model, which has no error for it: not verified")
def test_a_name_is_no_key(fleet: Application) -> None:
    again = fleet.client.create_application(Name="fleet")["Id"]
    assert again != fleet.app
    assert fleet.client.create_environment(ApplicationId=fleet.app, Name="live")["Id"] != fleet.environment


# -- deleting ----------------------------------------------------------------------------------------------------------


@row(
    "appconfig.delete.profile_with_versions",
    "A profile that still has hosted versions is not deleted",
    source="AWS's answer quoted in public error reports (pulumi/pulumi-aws#5675, aws/aws-cdk#26804)",
)
def test_a_profile_with_versions_stays(fleet: Application) -> None:
    number = fleet.version()
    with pytest.raises(fleet.client.exceptions.BadRequestException) as raised:
        fleet.client.delete_configuration_profile(**fleet.below)
    says = "because there are still hosted configuration versions existing under it."
    assert raised.value.response["Message"] == f"Cannot delete configuration profile {fleet.profile} {says}"
    fleet.client.delete_hosted_configuration_version(**fleet.below, VersionNumber=number)
    fleet.client.delete_configuration_profile(**fleet.below)
    assert refused(fleet.client.get_configuration_profile, **fleet.below) == "ResourceNotFoundException"


@ours("that AWS refuses this like a profile with versions, and with this code, is not verified")
def test_an_application_that_holds_something_stays(fleet: Application) -> None:
    assert refused(fleet.client.delete_application, **fleet.inside) == "BadRequestException"
    fleet.client.delete_environment(**fleet.place)
    assert refused(fleet.client.delete_application, **fleet.inside) == "BadRequestException"
    fleet.client.delete_configuration_profile(**fleet.below)
    fleet.client.delete_application(**fleet.inside)
    assert refused(fleet.client.get_application, **fleet.inside) == "ResourceNotFoundException"


@row(
    "appconfig.delete.protection",
    "Where the check is applied, an environment or a profile that was read within the hour is not deleted",
    source=f"{GUIDE}: Bypassing or forcing a deletion protection check",
)
def test_what_is_read_is_protected(fleet: Application) -> None:
    number = fleet.version()
    fleet.deploy(number)
    fleet.poll(fleet.session())
    fleet.client.delete_hosted_configuration_version(**fleet.below, VersionNumber=number)
    delete_environment, delete_profile = fleet.client.delete_environment, fleet.client.delete_configuration_profile
    assert refused(delete_environment, **fleet.place, DeletionProtectionCheck="APPLY") in CODES[:2]
    assert refused(delete_profile, **fleet.below, DeletionProtectionCheck="APPLY") in CODES[:2]
    delete_environment(**fleet.place, DeletionProtectionCheck="BYPASS")
    delete_profile(**fleet.below)  # the account's own setting: no protection unless it was switched on


# -- sessions ----------------------------------------------------------------------------------------------------------


@row(
    "appconfigdata.session.unknown",
    "A session for an application, environment or profile that is not there is a ResourceNotFoundException",
    source=DATA_MODEL,
)
@pytest.mark.parametrize("what", ["ApplicationIdentifier", "EnvironmentIdentifier", "ConfigurationProfileIdentifier"])
def test_a_session_for_nothing(fleet: Application, what: str) -> None:
    with pytest.raises(fleet.data.exceptions.ResourceNotFoundException):
        fleet.session(**{what: "no-such"})


@row("appconfigdata.session.names", "A session takes names as well as ids", source=DATA_MODEL)
def test_a_session_by_names(fleet: Application) -> None:
    fleet.deploy(fleet.version(b"named"))
    names = {"ApplicationIdentifier": "fleet", "EnvironmentIdentifier": "live"}
    token = fleet.session(**names, ConfigurationProfileIdentifier="agents")
    assert fleet.poll(token)["Configuration"] == b"named"


@row(
    "appconfigdata.session.poll",
    "A session's poll interval is 15 to 86,400 s, and the answer says it again",
    source=DATA_MODEL,
)
def test_a_poll_interval_has_bounds(aws: Aws, fleet: Application) -> None:
    fleet.deploy(fleet.version())
    for poll in (15, 86_400):
        assert fleet.poll(fleet.session(poll))["NextPollIntervalInSeconds"] == poll
    with pytest.raises(fleet.data.exceptions.BadRequestException):
        fleet.session(86_401)
    where = {"ApplicationIdentifier": fleet.app, "EnvironmentIdentifier": fleet.environment}
    asked = {**where, "ConfigurationProfileIdentifier": fleet.profile, "RequiredMinimumPollIntervalInSeconds": 14}
    beside = Aws(aws.client("appconfigdata").meta.endpoint_url, aws.account)
    with Wire(beside) as wire:  # the SDK does not send this one
        body = json.dumps(asked).encode()
        status, headers, _ = wire.send(body, {}, path="/configurationsessions", service="appconfig")
    assert (status, headers["x-amzn-errortype"].split(":")[0]) == (400, "BadRequestException")


@ours("a public report has AWS's default as 60 s (aws-powertools/powertools-lambda-python#1506); not verified")
def test_the_default_poll_interval(fleet: Application) -> None:
    fleet.deploy(fleet.version())
    assert fleet.poll(fleet.session(None))["NextPollIntervalInSeconds"] == 60


@row(
    "appconfigdata.token.corrupted",
    "A token that AppConfig did not give is a BadRequestException, and its details say Corrupted",
    source=DATA_MODEL,
)
def test_a_token_that_is_none(fleet: Application) -> None:
    call = fleet.data.get_latest_configuration
    told = problem(call, ConfigurationToken=uuid.uuid4().hex)
    assert told == ("BadRequestException", "InvalidParameters", ["Corrupted"])


@row(
    "appconfigdata.token.once",
    "A token is good for one call",
    source=f"{DATA_MODEL}: GetLatestConfiguration, each configuration token is only valid for one call",
)
def test_a_token_is_good_once(fleet: Application) -> None:
    fleet.deploy(fleet.version())
    token = fleet.session()
    assert fleet.poll(token)["NextPollConfigurationToken"] != token
    assert refused(fleet.data.get_latest_configuration, ConfigurationToken=token) == "BadRequestException"


@row(
    "appconfigdata.token.early",
    "Who polls sooner than the interval is refused with a BadRequestException, and its details say so",
    source=f"{DATA_MODEL}: PollIntervalNotSatisfied; AWS's answer in aws-samples/sample-python-helper-aws-appconfig#2",
)
def test_a_poll_that_is_too_early(fleet: Application) -> None:
    fleet.deploy(fleet.version())
    token = fleet.poll(fleet.session())["NextPollConfigurationToken"]
    told = problem(fleet.data.get_latest_configuration, ConfigurationToken=token)
    assert told == ("BadRequestException", "InvalidParameters", ["PollIntervalNotSatisfied"])


@pytest.fixture(scope="module")
def read(endpoint: str) -> tuple[Application, list[str]]:
    """Two sessions that have read the version ``one`` a poll interval ago, and the tokens for their next calls."""
    fleet = Application.create(Aws(endpoint))
    fleet.deploy(fleet.version(b"one", VersionLabel="v1.0"))
    answers = [fleet.poll(fleet.session()) for _ in range(2)]
    assert [answer["Configuration"] for answer in answers] == [b"one", b"one"]
    time.sleep(POLL + 0.5)
    return fleet, [answer["NextPollConfigurationToken"] for answer in answers]


@row(
    "appconfigdata.content.nothing_new",
    "Who has the newest version gets no content and no label, but a token for the next call",
    source=f"{DATA_MODEL}: GetLatestConfigurationResponse",
)
def test_nothing_new_is_no_content(read: tuple[Application, list[str]]) -> None:
    fleet, (token, _) = read
    found = fleet.poll(token)
    assert (found["Configuration"], found.get("VersionLabel", "")) == (b"", "")
    assert found["NextPollConfigurationToken"] != token
    assert found["NextPollIntervalInSeconds"] == POLL


@row(
    "appconfigdata.content.new",
    "A session gets a new version with the first poll after its deployment",
    source=DATA_MODEL,
)
def test_what_is_new_comes_with_the_next_poll(read: tuple[Application, list[str]]) -> None:
    fleet, (_, token) = read
    fleet.deploy(fleet.version(b"two", VersionLabel="v2.0"))
    found = fleet.poll(token)
    assert (found["Configuration"], found["ContentType"], found["VersionLabel"]) == (b"two", "application/json", "v2.0")


@ours("what AWS answers a session before the first deployment is not verified")
def test_nothing_was_deployed(fleet: Application) -> None:
    assert fleet.poll(fleet.session())["Configuration"] == b""
