"""Lists of AppConfig: their pages, and the order of deployments.

**On AWS** a list comes in pages of at most 50 items, and NextToken leads to the next one. Versions can be listed by
label, exactly or by a prefix with an asterisk. Deployments come with their profile, the newest first (botocore:
appconfig service model).

**MiniStack** ends every list after 50 items, ignores the label, and lists the oldest deployment first.

**Here** a page goes on after the item that the last one ended with, also when items were added or removed meanwhile.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .appconfig_requests import BAD, Refused, answered

PAGE = 50
Item = Mapping[str, Any]
KEYS = ("Id", "VersionNumber", "DeploymentNumber")  # what an item is known by, whichever it has


def key_of(item: Item) -> str:
    return str(next(item[key] for key in KEYS if key in item))


def page(items: Sequence[Item], query: Mapping[str, str]) -> dict[str, Any]:
    """The page of ``items`` that the query asks for."""
    given, token = str(query.get("max_results", PAGE)), query.get("next_token")
    if not given.isdecimal() or not 1 <= int(given) <= PAGE:
        raise Refused(BAD, f"MaxResults is a number from 1 to {PAGE}.")
    start = _after(items, token) if token else 0
    end = start + int(given)
    answer: dict[str, Any] = {"Items": [*items[start:end]]}
    if end < len(items):
        mark = json.dumps([key_of(items[end - 1]), end])
        answer["NextToken"] = base64.urlsafe_b64encode(mark.encode()).decode()
    return answer


def _after(items: Sequence[Item], token: str) -> int:
    try:
        key, end = json.loads(base64.urlsafe_b64decode(token.encode()))
        end = int(end)
    except (ValueError, TypeError):
        raise Refused(BAD, "NextToken is not one that a list has given.") from None
    keys = [key_of(item) for item in items]
    return keys.index(key) + 1 if key in keys else min(end - 1, len(items))  # its last item is gone


def labelled(items: Sequence[Item], wanted: str | None) -> list[Item]:
    """The versions with this label, or with one that begins so if an asterisk ends it."""
    if wanted is None:
        return [*items]
    labels = ((item, item.get("VersionLabel", "")) for item in items)
    if wanted.endswith("*"):
        return [item for item, label in labels if label and label.startswith(wanted[:-1])]
    return [item for item, label in labels if label == wanted]


def install() -> None:
    from ministack.services import appconfig

    def paged(listed: Callable[..., Any], arrange: Callable[..., Sequence[Item]]) -> Any:
        def answer(*arguments: Any) -> Any:
            *where, query = arguments
            status, headers, content = listed(*where, {"max_results": "1000000"})
            if status != 200:
                return status, headers, content
            items = arrange(*where, query, json.loads(content)["Items"])
            return status, headers, json.dumps(page(items, query)).encode()

        return answered(answer)

    def as_they_are(*arguments: Any) -> Sequence[Item]:
        return arguments[-1]  # type: ignore[no-any-return]

    def versions(_app: str, _profile: str, query: Mapping[str, str], items: list[Item]) -> Sequence[Item]:
        return labelled(items, query.get("version_label"))

    def deployments(app: str, environment: str, _query: Mapping[str, str], items: list[Item]) -> Sequence[Item]:
        records = {
            record["DeploymentNumber"]: record for record in appconfig._environment_deployments(app, environment)
        }
        profiles = {number: record["ConfigurationProfileId"] for number, record in records.items()}
        newest = sorted(items, key=lambda item: -item["DeploymentNumber"])
        return [{**item, "ConfigurationProfileId": profiles[item["DeploymentNumber"]]} for item in newest]

    for name in ("applications", "environments", "configuration_profiles", "deployment_strategies"):
        setattr(appconfig, f"_list_{name}", paged(getattr(appconfig, f"_list_{name}"), as_they_are))
    listed = appconfig._list_hosted_configuration_versions
    appconfig._list_hosted_configuration_versions = paged(listed, versions)
    appconfig._list_deployments = paged(appconfig._list_deployments, deployments)
