"""What a target receives in place of the event: Input, InputPath, InputTransformer.

**On AWS**: see :mod:`parity.events_envelope`, which holds the rules for paths and for values in a template.

**LocalStack** sends nothing when what is selected is empty or zero, writes an empty text for a zero or a false in a
template, fails on a number inside of a text and on a list of other things than texts, and drops the event when a filled
template is no JSON.

**Here** these places are replaced. An input that cannot be made is a delivery that fails, and does not cost the event:
INVALID_JSON when a filled template is no JSON, else INVALID_PARAMETER, neither of them retried (codes not verified).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from parity.events_delivery import Failure
from parity.events_envelope import at_path, rendered

BUS_NAME = "event-bus-name"  # a member of LocalStack's events that does not leave it

_PLACEHOLDER = re.compile(r"<([^<>]+)>")
_QUOTE = re.compile(r'(?<!\\)"')


def template_values(paths: Mapping[str, str], event: Mapping[str, Any]) -> dict[str, Any]:
    """The values that a template may name; what the event does not have is an empty text."""
    return {name: at_path(event, path, "") for name, path in paths.items()}


def filled(template: str, values: Mapping[str, Any]) -> Any:
    """An input template with its values: a JSON value, or a text when the template is one."""

    def value_of(match: re.Match[str]) -> str:
        in_string = len(_QUOTE.findall(template, 0, match.start())) % 2 == 1
        return rendered(values[match[1]], in_string=in_string) if match[1] in values else match[0]

    text = _PLACEHOLDER.sub(value_of, template)
    if not template.lstrip().startswith(("{", "[")):
        return text[1:-1].replace("\\n", "\n")
    try:
        return json.loads(text)
    except ValueError as error:
        raise Failure("INVALID_JSON", "The filled template of the target is not JSON.") from error


def input_of(sender: Any, event: Mapping[str, Any]) -> Any:
    """What ``sender``, one of LocalStack's, sends for ``event``."""
    target = sender.target
    if target.get("Input"):
        return json.loads(target["Input"])
    if target.get("InputPath"):
        return at_path(event, target["InputPath"], event)
    if target.get("InputTransformer"):
        return sender.transform_event_with_target_input_transformer(target["InputTransformer"], event)
    return event


def install() -> None:
    from localstack.services.events import target as senders
    from localstack.services.events.target import TargetSender

    def replacements(transformer: Mapping[str, Any], event: Mapping[str, Any]) -> dict[str, Any]:
        return template_values(transformer.get("InputPathsMap") or {}, event)

    def process_event(self: TargetSender, event: Mapping[str, Any], trace_header: Any) -> None:
        try:
            given = input_of(self, {name: value for name, value in event.items() if name != BUS_NAME})
        except Failure:
            raise
        except Exception as error:
            message = f"The input of the target cannot be made: {type(error).__name__}."
            raise Failure("INVALID_PARAMETER", message) from error
        self.send_event(given, trace_header)

    _ = senders.get_template_replacements, senders.replace_template_placeholders, TargetSender.process_event
    _ = TargetSender.transform_event_with_target_input_transformer
    senders.get_template_replacements = replacements
    senders.replace_template_placeholders = filled
    TargetSender.process_event = process_event
