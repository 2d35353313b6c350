"""In which field of a state an expression stands.

**On AWS** a failure of an expression names it: ``Output``, ``Output/total``, ``Arguments/QueueUrl``, ``Assign/found``,
``Items`` (histories recorded on AWS).

**MiniStack** does not say. moto's interpreter does for ``Items`` alone.

**Here** each part of the interpreter that evaluates a field notes its name while it does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def noted() -> Callable[[], str]:
    """Note which field is evaluated in this thread; what is returned says which."""
    from moto.stepfunctions.parser.asl.component.common import outputdecl, parargs
    from moto.stepfunctions.parser.asl.component.common.assign import assign_decl, assign_template_binding
    from moto.stepfunctions.parser.asl.component.common.jsonata import jsonata_template_binding as binding
    from moto.stepfunctions.parser.asl.component.common.jsonata import jsonata_template_value_array as array
    from moto.stepfunctions.parser.asl.component.common.timeouts import heartbeat, timeout
    from moto.stepfunctions.parser.asl.component.state.choice.comparison import comparison
    from moto.stepfunctions.parser.asl.component.state.exec.state_map import (
        item_selector,
        max_concurrency,
        tolerated_failure,
    )
    from moto.stepfunctions.parser.asl.component.state.exec.state_map.item_reader.reader_config import max_items_decl
    from moto.stepfunctions.parser.asl.component.state.exec.state_map.items import items
    from moto.stepfunctions.parser.asl.component.state.wait.wait_function import seconds

    here = threading.local()

    def within(kind: Any, name: str | None) -> None:
        evaluate_body = kind._eval_body

        def body(self: Any, env: Any) -> None:
            before: tuple[str, ...] = getattr(here, "path", ())
            here.path = (*before, name if name is not None else self.identifier)
            try:
                evaluate_body(self, env)
            finally:
                here.path = before

        kind._eval_body = body

    def elements(self: Any, env: Any) -> None:
        before: tuple[str, ...] = getattr(here, "path", ())
        found = []
        try:
            for number, value in enumerate(self.values):
                here.path = (*before[:-1], f"{before[-1] if before else ''}[{number}]")
                value.eval(env)
                found.append(env.stack.pop())
        finally:
            here.path = before
        env.stack.append(found)

    array.JSONataTemplateValueArray._eval_body = elements
    for kind, name in (
        (outputdecl.Output, "Output"),
        (parargs.ArgumentsJSONataTemplateValueObject, "Arguments"),
        (parargs.ArgumentsStringJSONata, "Arguments"),
        (assign_decl.AssignDecl, "Assign"),
        (assign_template_binding.AssignTemplateBinding, None),
        (binding.JSONataTemplateBinding, None),
        (item_selector.ItemSelector, "ItemSelector"),
        (items.ItemsArray, "Items"),
        (items.ItemsJSONata, "Items"),
        (timeout.TimeoutSecondsJSONata, "TimeoutSeconds"),
        (heartbeat.HeartbeatSecondsJSONata, "HeartbeatSeconds"),
        (max_concurrency.MaxConcurrencyJSONata, "MaxConcurrency"),
        (max_items_decl.MaxItemsStringJSONata, "MaxItems"),
        (tolerated_failure.ToleratedFailureCountStringJSONata, "ToleratedFailureCount"),
        (tolerated_failure.ToleratedFailurePercentageStringJSONata, "ToleratedFailurePercentage"),
        (seconds.SecondsJSONata, "Seconds"),
        (comparison.ConditionStringJSONata, "Condition"),
    ):
        within(kind, name)
    return lambda: "/".join(getattr(here, "path", ()))
