"""What all requests of Step Functions have in common: ARNs, pages, names.

**On AWS** an ARN that is none is InvalidArn. A list comes in pages of 100 items unless maxResults, up to 1,000, says
otherwise; a nextToken that the service did not give is InvalidToken (Step Functions API Reference; refusals recorded
on AWS). Names have at most 80 characters and no white space, brackets, wildcards or special characters.

**MiniStack** answers a malformed ARN with DoesNotExist and knows pages of some lists.

**Here** a page goes on after the item that the last one ended with, also when items were added or removed meanwhile.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .states_tokens import Refused

PAGE, LARGEST_PAGE = 100, 1000
MAX_NAME = 80
LONGEST_TOKEN = 1024
NOT_IN_NAMES = re.compile(r'[\s<>{}\[\]?*"#%\\^|~`$&,;:/\x00-\x1f\x7f-\x9f]')
Row = tuple[str, str, dict[str, Any]]  # what the list is sorted by, ARN, item


def constraint(member: str, value: Any, told: str) -> Refused:
    """The refusal of a member's value."""
    text = f"1 validation error detected: Value '{value}' at '{member}' failed to satisfy constraint: {told}"
    return Refused("ValidationException", text)


def check_enum(member: str, value: Any, values: Sequence[str]) -> None:
    if value is not None and value not in values:
        raise constraint(member, value, f"Member must satisfy enum value set: [{', '.join(values)}]")


def check_name(name: Any) -> None:
    """Raise :class:`Refused` unless an execution, a state machine or an activity can be called so."""
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME or NOT_IN_NAMES.search(name):
        raise Refused("InvalidName", f"Invalid Name: '{name}'")


def check_arn(arn: Any, *kinds: str) -> None:
    """Raise :class:`Refused` unless this is an ARN of Step Functions, and of one of these kinds."""
    parts = str(arn).split(":")
    if parts[0] != "arn":
        raise Refused("InvalidArn", f"Invalid Arn: 'Invalid ARN prefix: {arn}'")
    if len(parts) < 7 or parts[2] != "states":
        raise Refused("InvalidArn", f"Invalid Arn: '{arn}'")
    if kinds and parts[5] not in kinds:
        raise Refused("InvalidArn", f"Invalid Arn: 'Resource type not valid in this context: {parts[5]}'")


def page(
    data: Mapping[str, Any], member: str, rows: Sequence[Row], *, newest_first: bool, longest: int = LONGEST_TOKEN
) -> dict[str, Any]:
    """The page that the request asks for; ``rows`` stand in the order of the list."""
    most, token = data.get("maxResults") or PAGE, data.get("nextToken")
    if most > LARGEST_PAGE:
        raise constraint("maxResults", most, f"Member must have value less than or equal to {LARGEST_PAGE}")
    if token is not None:
        if len(token) > longest:
            raise constraint("nextToken", token, f"Member must have length less than or equal to {longest}")
        rows = _after(rows, *_read(token), newest_first=newest_first)
    answer: dict[str, Any] = {member: [item for _, _, item in rows[:most]]}
    if len(rows) > most:
        key, arn, _ = rows[most - 1]
        answer["nextToken"] = base64.urlsafe_b64encode(json.dumps([key, arn]).encode()).decode()
    return answer


def _read(token: str) -> tuple[str, str]:
    try:
        key, arn = json.loads(base64.urlsafe_b64decode(token.encode()))
        return str(key), str(arn)
    except (ValueError, TypeError):
        raise Refused("InvalidToken", "Invalid Token: 'Invalid token'") from None


def _after(rows: Sequence[Row], key: str, arn: str, *, newest_first: bool) -> Sequence[Row]:
    for number, row in enumerate(rows):
        if row[1] == arn:
            return rows[number + 1 :]
    return [row for row in rows if (row[0] < key if newest_first else row[0] > key)]
