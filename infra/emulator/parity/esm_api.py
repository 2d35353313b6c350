"""The calls that make, show, change and delete a mapping of a queue.

**On AWS** (recorded) each of them answers with the mapping: ARNs, batch size and window with their defaults, the list
of response types even when it is empty, the state and who caused it, and of the other members only those that are set.
Updates answer with HTTP 202; the mapping of a deleted function stays. Documented: an empty FilterCriteria,
ScalingConfig or ProvisionedPollerConfig in an update removes what was set, and what is left out stays. Not verified:
whether a mapping can be updated while its queue or its function is gone (here it can, unless the update names a
function that is gone).

**MiniStack** shows members that are its own, answers an update with HTTP 200, and lets a queue and a function have any
number of mappings.

**Here** the calls are replaced for queues; those for streams are MiniStack's. See :mod:`parity.esm_checks` for what is
refused, :mod:`parity.esm_states` for the states."""

from __future__ import annotations

import functools
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from parity import esm_checks as checks
from parity import esm_pollers
from parity.esm_states import TRANSITION, after_update, deleted, enabled, settled, state, transition
from parity.sqs_mailbox import number

DEFAULTS = {"BatchSize": 10, "MaximumBatchingWindowInSeconds": 0, "FunctionResponseTypes": []}
OPTIONAL = ("FilterCriteria", "ScalingConfig", "ProvisionedPollerConfig", "KMSKeyArn", "MetricsConfig")
CHANGEABLE = (*DEFAULTS, *OPTIONAL, "Enabled")

Mapped = dict[str, Any]


def is_queue(arn: Any) -> bool:
    return str(arn or "").split(":")[2:3] == ["sqs"]


def changed(mapping: Mapping[str, Any], request: Mapping[str, Any]) -> Mapped:
    """``mapping`` with what a request sets."""
    after = {**mapping, **{name: request[name] for name in CHANGEABLE if request.get(name) is not None}}
    after["Enabled"] = enabled(after)
    for name in OPTIONAL:
        if not after.get(name) or after[name] == {"Filters": []}:
            after.pop(name, None)
    return after


def shown(mapping: Mapping[str, Any], arn: str, now: float) -> Mapped:
    """The mapping as answers show it; ``arn`` is its own."""
    names = ("UUID", "EventSourceArn", "FunctionArn", "LastModified", *DEFAULTS, *OPTIONAL)
    return {
        **{name: mapping[name] for name in names if mapping.get(name) is not None},
        "EventSourceMappingArn": arn,
        "State": state(mapping, now),
        "StateTransitionReason": "USER_INITIATED",
    }


class Calls:
    """The calls, on the mappings of MiniStack's ``lambda_svc`` module."""

    def __init__(self, lambda_svc: Any, sqs: Any, eventbridge: Any, pollers: esm_pollers.Pollers) -> None:
        self.functions = lambda_svc
        self.sqs = sqs
        self.pollers = pollers
        self._refuses = lambda pattern: eventbridge._parse_pattern_text(pattern)[1] is not None

    def create(self, request: Mapping[str, Any]) -> Mapped:
        checks.check_request(request, self._refuses)
        name, qualifier, timeout = self._function(str(request.get("FunctionName") or ""))
        arn = request["EventSourceArn"]
        mapping = changed(DEFAULTS | {"FunctionResponseTypes": []}, request)
        self._check(mapping, arn, timeout)
        target = self._function_arn(name, qualifier)
        now = time.time()
        self.purge()
        for other in self.functions._esms.values():
            if (other["EventSourceArn"], other["FunctionArn"]) == (arn, target) and not _deleting(other, now):
                raise checks.duplicate(arn, name, other["UUID"])
        mapping |= {
            "UUID": str(uuid.uuid4()),
            "EventSourceArn": arn,
            "FunctionArn": target,
            "FunctionName": name,
            "Qualifier": qualifier,
            "LastModified": now,
            "StateTransitionReason": "USER_INITIATED",
        }
        if mapping["Enabled"]:
            mapping[TRANSITION] = transition("Creating", now)
        if request.get("Tags"):
            mapping["Tags"] = dict(request["Tags"])
        self.functions._esms[mapping["UUID"]] = mapping
        self.functions._ensure_poller()
        return self._after(mapping)

    def update(self, mapping: Mapped, request: Mapping[str, Any]) -> Mapped:
        now = time.time()
        if not settled(mapping, now):
            raise checks.in_use("update")
        checks.check_request(request, self._refuses)
        after = changed(mapping, request)
        timeout = 0
        if request.get("FunctionName"):
            name, qualifier, timeout = self._function(str(request["FunctionName"]))
            after |= {"FunctionName": name, "Qualifier": qualifier, "FunctionArn": self._function_arn(name, qualifier)}
        self._check(after, mapping["EventSourceArn"], timeout, gone=True)
        after |= {"LastModified": now, TRANSITION: transition(after_update(mapping, after), now)}
        # In place, and whole: pollers and tags hold on to this record.
        for left_out in set(mapping) - set(after):
            del mapping[left_out]
        mapping.update(after)
        return self._after(mapping)

    def delete(self, mapping: Mapped) -> Mapped:
        now = time.time()
        if not settled(mapping, now):
            raise checks.in_use("delete")
        mapping.update({"Enabled": False, "LastModified": now, TRANSITION: transition("Deleting", now)})
        return self._after(mapping)

    def show(self, mapping: Mapping[str, Any]) -> Mapped:
        return shown(mapping, self.functions._esm_arn(mapping["UUID"]), time.time())

    def purge(self) -> None:
        """Drop the mappings of this account whose deletion is done."""
        now = time.time()
        for mapping in list(self.functions._esms.values()):
            if deleted(mapping, now):
                self.functions._esms.pop(mapping["UUID"], None)

    def _after(self, mapping: Mapped) -> Mapped:
        self.pollers.changed()
        self.pollers.changed(mapping[TRANSITION]["Until"] if TRANSITION in mapping else None)
        return self.show(mapping)

    def _function(self, reference: str) -> tuple[str, str | None, int]:
        name, qualifier = self.functions._resolve_request_scoped_name_and_qualifier(reference)
        _, config = self.functions._get_func_record_for_qualifier(name, qualifier)
        if config is None:
            raise checks.no_function()
        return name, qualifier, int(config.get("Timeout") or 3)

    def _function_arn(self, name: str, qualifier: str | None) -> str:
        return str(self.functions._func_arn(name)) + (f":{qualifier}" if qualifier else "")

    def _check(self, mapping: Mapping[str, Any], arn: str, timeout: int, *, gone: bool = False) -> None:
        """Raise unless the mapping goes with its queue, which may be ``gone`` when the mapping is there already."""
        queue = self.sqs._queue_by_arn(arn)
        if queue is None and not gone:
            raise checks.no_queue()
        checks.check_mapping(mapping, fifo=arn.endswith(".fifo"))
        if queue is not None:
            checks.check_timeouts(number(queue, "VisibilityTimeout", 30), timeout)


def _deleting(mapping: Mapping[str, Any], now: float) -> bool:
    return state(mapping, now) == "Deleting" or deleted(mapping, now)


def install() -> None:
    from ministack.core.responses import error_response_json, json_response
    from ministack.services import eventbridge, lambda_svc, sqs

    _ = eventbridge._parse_pattern_text, lambda_svc._resolve_request_scoped_name_and_qualifier
    _ = lambda_svc._get_func_record_for_qualifier, lambda_svc._func_arn, lambda_svc._esm_arn
    _ = lambda_svc._ensure_poller, lambda_svc._validate_event_source_arn
    calls = Calls(lambda_svc, sqs, eventbridge, esm_pollers.pollers())

    def answering(call: Callable[..., tuple]) -> Callable[..., tuple]:
        """``call``, with refusals as answers, and without mappings that are gone."""

        @functools.wraps(call)
        def answered(*arguments: Any) -> tuple:
            calls.purge()
            try:
                return call(*arguments)
            except checks.Refused as refused:
                return error_response_json(refused.code, refused.message, refused.status)

        return answered

    def known(esm_id: str) -> Mapped:
        mapping: Mapped | None = lambda_svc._esms.get(esm_id)
        if mapping is None:
            raise checks.not_found()
        return mapping

    create, update, delete, show = (
        getattr(lambda_svc, name) for name in ("_create_esm", "_update_esm", "_delete_esm", "_esm_response")
    )

    def create_mapping(request: Mapping[str, Any]) -> tuple:
        arn = request.get("EventSourceArn")
        if not arn and not request.get("SelfManagedEventSource"):
            raise checks.no_source()
        if not is_queue(arn):
            return create(request)
        refusal = lambda_svc._validate_event_source_arn(arn)[1]
        return refusal or json_response(calls.create(request), 202)

    def update_mapping(esm_id: str, request: Mapping[str, Any]) -> tuple:
        mapping = known(esm_id)
        if not is_queue(mapping.get("EventSourceArn")):
            return update(esm_id, request)
        return json_response(calls.update(mapping, request), 202)

    def delete_mapping(esm_id: str) -> tuple:
        mapping = known(esm_id)
        if not is_queue(mapping.get("EventSourceArn")):
            return delete(esm_id)
        return json_response(calls.delete(mapping), 202)

    def get_mapping(esm_id: str) -> tuple:
        return json_response(lambda_svc._esm_response(known(esm_id)))

    def response(mapping: Mapped) -> Mapped:
        return calls.show(mapping) if is_queue(mapping.get("EventSourceArn")) else show(mapping)

    lambda_svc._create_esm = answering(create_mapping)
    lambda_svc._update_esm = answering(update_mapping)
    lambda_svc._delete_esm = answering(delete_mapping)
    lambda_svc._get_esm = answering(get_mapping)
    lambda_svc._list_esms = answering(lambda_svc._list_esms)
    lambda_svc._esm_response = response
