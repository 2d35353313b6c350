"""PutEvents: what is refused whole, what is refused entry by entry, and the event that comes of an entry.

**On AWS**: see :mod:`parity.events_put` and :mod:`parity.events_envelope`.

**LocalStack** refuses an entry over 256 KB (a request may have 1 MB), takes no entries at all, NaN in a Detail, a long
DetailType and a source that belongs to AWS, and escapes what is not ASCII in what a target receives.

**Here** parity's checks take the place of LocalStack's. A source of AWS's is taken from LocalStack's own services, and
from the archive when it is replayed. (LocalStack does not let an event that a state machine puts be told from one about
the state machine: the former may use such a source, too.)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from parity.events_envelope import in_order
from parity.events_put import check_request, entry_error

from .events_rules import checked

_from_aws: ContextVar[bool] = ContextVar("from_aws", default=False)


def entry_refused(entry: Mapping[str, Any]) -> dict[str, str] | None:
    """The answer for an entry that fails alone, or None."""
    failed = entry_error(entry, aws_source=_from_aws.get() or "ReplayName" in entry)
    return {"ErrorCode": failed[0], "ErrorMessage": failed[1]} if failed else None


def install() -> None:
    from localstack.services.events import provider, target
    from localstack.services.events.provider import EventsProvider
    from localstack.services.events.utils import EventJSONEncoder

    format_event = provider.format_event
    _ = provider.validate_event, target.to_json_str

    def formatted(*arguments: Any, **named: Any) -> dict[str, Any]:
        return in_order(format_event(*arguments, **named))

    def as_text(value: Any, separators: tuple[str, str] = (",", ":")) -> str:
        return json.dumps(value, cls=EventJSONEncoder, separators=separators, ensure_ascii=False)

    def check(_: EventsProvider, context: Any, request: Mapping[str, Any]) -> None:
        check_request(request.get("Entries") or [])
        _from_aws.set(context.is_internal_call)

    provider.validate_event = entry_refused
    provider.format_event = formatted
    target.to_json_str = as_text
    checked(EventsProvider, "put_events", check)
