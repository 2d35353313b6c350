"""What AppConfig does not delete: what holds something, and what is being read.

**On AWS** a profile that still has hosted versions is refused (BadRequestException; the text from public error
reports). Deletion protection is off unless the account has switched it on; with ``DeletionProtectionCheck: APPLY`` an
environment or a profile that GetLatestConfiguration has read within 60 minutes is refused (AppConfig User Guide,
"Bypassing or forcing a deletion protection check").

**MiniStack** deletes everything, with all that is in it.

**Here** an application that has environments or profiles is refused as well. Not verified: that AWS does so with this
code, and the code and the text of a refusal by the protection. The account's setting cannot be switched on.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from .appconfig_requests import BAD, Refused, answered, header

PERIOD = 3600.0  # seconds
CHECK = "x-amzn-deletion-protection-check"


def check_empty(kind: str, name: str, inside: Mapping[str, Iterable[str]]) -> None:
    """Raise :class:`Refused` when ``inside``, what it holds by kind, has anything."""
    for held, keys in inside.items():
        if any(True for _ in keys):
            raise Refused(BAD, f"Cannot delete {kind} {name} because there are still {held} existing under it.")


def check_unread(kind: str, name: str, check: str | None, last_read: float | None, now: float) -> None:
    """Raise :class:`Refused` when the check is to be applied and it was read within the hour."""
    if check == "APPLY" and last_read is not None and now - last_read < PERIOD:
        raise Refused(BAD, f"Cannot delete {kind} {name} because it was read within the last hour.")


def install() -> None:
    from ministack.core.responses import AccountRegionScopedDict
    from ministack.services import appconfig

    reads: Any = AccountRegionScopedDict()  # "{app}/{environment or profile}" → when it was read
    latest, delete_app = appconfig._get_latest_configuration, appconfig._delete_application
    delete_env, delete_profile = appconfig._delete_environment, appconfig._delete_configuration_profile

    def get_latest(token: str) -> Any:
        session = appconfig._sessions.get(token)
        answer = latest(token)
        if answer[0] == 200 and session:
            for what in ("EnvironmentIdentifier", "ConfigurationProfileIdentifier"):
                reads[f"{session['ApplicationIdentifier']}/{session[what]}"] = time.monotonic()
        return answer

    def under(store: Any, prefix: str) -> list[str]:
        return [key for key in store if key.startswith(prefix)]

    def unread(kind: str, app: str, name: str) -> None:
        check_unread(kind, name, header(CHECK), reads.get(f"{app}/{name}"), time.monotonic())

    def delete_application(app: str) -> Any:
        environments, profiles = (under(s, f"{app}/") for s in (appconfig._environments, appconfig._config_profiles))
        check_empty("application", app, {"environments": environments, "configuration profiles": profiles})
        return delete_app(app)

    def delete_environment(app: str, environment: str) -> Any:
        unread("environment", app, environment)
        return delete_env(app, environment)

    def delete_configuration_profile(app: str, profile: str) -> Any:
        versions = under(appconfig._hosted_versions, f"{app}/{profile}/")
        check_empty("configuration profile", profile, {"hosted configuration versions": versions})
        unread("configuration profile", app, profile)
        return delete_profile(app, profile)

    appconfig._get_latest_configuration = get_latest
    appconfig._delete_application = answered(delete_application)
    appconfig._delete_environment = answered(delete_environment)
    appconfig._delete_configuration_profile = answered(delete_configuration_profile)
