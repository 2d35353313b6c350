"""The calls that make, change and delete an event source mapping of a queue.

**On AWS**: see :mod:`parity.esm_api`, :mod:`parity.esm_checks` and :mod:`parity.esm_states`.

**LocalStack** refuses a part of it, keeps members of an update that are empty, changes states at once, shows a deleted
mapping no more, and never lets go of one that is deleted while it is disabled.

**Here** the rules are asked before LocalStack's own calls, and the mappings that it keeps are as the rules say. A
mapping works a moment after it was made and is gone a moment after it was deleted."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping
from typing import Any

from parity import esm_checks as checks
from parity.esm_api import DEFAULTS, OPTIONAL, changed, is_queue
from parity.esm_states import LAG, after_update

from hostmode.sqs_queues import find

SETTLED = ("Enabled", "Disabled")


def drop_empty(mapping: dict[str, Any]) -> None:
    """Take out what an update has removed, and what is no member of a mapping."""
    for name in OPTIONAL:
        if name in mapping and (not mapping[name] or mapping[name] == {"Filters": []}):
            del mapping[name]
    mapping.pop("Enabled", None)


def install() -> None:
    from localstack.aws.api import CommonServiceException
    from localstack.services.lambda_.api_utils import function_locators_from_arn
    from localstack.services.lambda_.event_source_mapping.esm_worker import EsmState, EsmWorker
    from localstack.services.lambda_.invocation.models import lambda_stores
    from localstack.services.lambda_.provider import LambdaProvider
    from localstack.utils.event_matcher import validate_event_pattern

    create, update = LambdaProvider.create_event_source_mapping_v2, LambdaProvider.update_event_source_mapping_v2
    delete, lists = LambdaProvider.delete_event_source_mapping, LambdaProvider.list_event_source_mappings
    loop, gone = EsmWorker.poller_loop, EsmWorker.delete_esm_in_store

    def refusing(call: Any) -> Any:
        @functools.wraps(call)
        def answer(*arguments: Any, **more: Any) -> Any:
            try:
                return call(*arguments, **more)
            except checks.Refused as refused:
                kind = type(refused.code, (CommonServiceException,), {})
                raise kind(refused.code, refused.message, refused.status, sender_fault=True) from refused

        return answer

    def timeout_of(context: Any, reference: str) -> int:
        """The timeout of a function; 0 of one that is not there, which LocalStack refuses."""
        name, qualifier, account, region = function_locators_from_arn(reference)
        function = lambda_stores[account or context.account_id][region or context.region].functions.get(name)
        if function is None:
            return 0
        alias = function.aliases.get(qualifier or "")
        version = function.versions.get(alias.function_version if alias else qualifier or "$LATEST")
        return int(version.config.timeout) if version else 0

    def check(mapping: Mapping[str, Any], timeout: int, *, gone: bool = False) -> None:
        queue = find(mapping["EventSourceArn"])
        if queue is None and not gone:
            raise checks.no_queue()
        checks.check_mapping(mapping, fifo=mapping["EventSourceArn"].endswith(".fifo"))
        if queue is not None:
            checks.check_timeouts(int(queue.visibility_timeout), timeout)

    def refuses(pattern: str) -> bool:
        return not validate_event_pattern(pattern)

    def create_mapping(self: Any, context: Any, request: Any) -> Any:
        arn = request.get("EventSourceArn")
        if is_queue(arn):
            checks.check_request(request, refuses)
            timeout = timeout_of(context, request["FunctionName"])
            if timeout:
                check({**changed(DEFAULTS, request), "EventSourceArn": arn}, timeout)
        answer = create(self, context, request)
        if is_queue(arn):
            drop_empty(answer)
        return answer

    def worker_at_rest(self: Any, context: Any, identity: str, verb: str) -> Any:
        """The mapping and its worker; refused while it is on its way."""
        mapping = lambda_stores[context.account_id][context.region].event_source_mappings.get(identity)
        worker = self.esm_workers.get(identity)
        if mapping is None or worker is None:
            raise checks.not_found()
        if is_queue(mapping.get("EventSourceArn")) and worker.current_state not in SETTLED:
            raise checks.in_use(verb)
        return mapping, worker

    def update_mapping(self: Any, context: Any, request: Any) -> Any:
        before, worker = worker_at_rest(self, context, request.get("UUID") or "", "update")
        if not is_queue(before.get("EventSourceArn")):
            return update(self, context, request)
        checks.check_request(request, refuses)
        was = worker.current_state == EsmState.ENABLED
        after = changed({**before, "Enabled": was}, request)
        reference = request.get("FunctionName")
        check({**DEFAULTS, **after}, timeout_of(context, reference) if reference else 0, gone=True)
        answer = dict(update(self, context, request))
        if "FunctionName" not in request:
            answer["FunctionArn"] = before["FunctionArn"]
        drop_empty(lambda_stores[context.account_id][context.region].event_source_mappings[request["UUID"]])
        drop_empty(answer)
        return {**answer, "State": after_update({"Enabled": was}, after)}

    def delete_mapping(self: Any, context: Any, uuid: str, **more: Any) -> Any:
        _, worker = worker_at_rest(self, context, uuid, "delete")
        worker.lab_workers = self.esm_workers
        answer = delete(self, context, uuid, **more)
        self.esm_workers[uuid] = worker  # it can be read until it is gone
        if worker._poller_thread is None:
            timer = threading.Timer(LAG, worker.delete_esm_in_store)
            timer.daemon = True
            timer.start()
        return answer

    @functools.wraps(lists)
    def list_mappings(self: Any, context: Any, *arguments: Any, **more: Any) -> Any:
        for identity, mapping in list(lambda_stores[context.account_id][context.region].event_source_mappings.items()):
            if identity in self.esm_workers:
                mapping["State"] = self.esm_workers[identity].current_state
        return lists(self, context, *arguments, **more)

    def delayed_loop(self: Any, *arguments: Any, **more: Any) -> None:
        self._shutdown_event.wait(LAG)
        loop(self, *arguments, **more)

    def forget(self: Any) -> None:
        if not self._graceful_shutdown_triggered:
            gone(self)
            getattr(self, "lab_workers", {}).pop(self.uuid, None)

    _ = EsmWorker.delete_esm_in_store, LambdaProvider.validate_event_source_mapping
    LambdaProvider.create_event_source_mapping_v2 = refusing(create_mapping)
    LambdaProvider.update_event_source_mapping_v2 = refusing(update_mapping)
    LambdaProvider.delete_event_source_mapping = refusing(delete_mapping)
    LambdaProvider.list_event_source_mappings = list_mappings
    EsmWorker.poller_loop, EsmWorker.delete_esm_in_store = delayed_loop, forget
