"""AWS behaviours that the stand-in gets wrong, each mended in one module.

The stand-in is MiniStack, pinned to one release. It is right about the ordinary path and wrong about much of the
failure path: what happens when a timeout expires, a permission is missing, a handle is old. A course about failure
needs that half to be right, so each module here takes one AWS behaviour and says three things: what AWS does and where
that is documented or recorded, what the stand-in does instead, and how it is mended.

Shape of a module:

* the behaviour itself as plain functions and classes, importable anywhere (nothing of MiniStack at module level), so
  that it can be tested with an injected clock and used again behind another emulator;
* ``install()`` at the bottom: the thin adapter that puts the behaviour into MiniStack. It imports what it replaces, and
  fails loudly when a name it needs is gone.

``python -m parity`` starts the server with everything installed.
"""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version

PINNED = "1.5.33"

# What changes the interpreter of the states language, MiniStack's and LocalStack's, in this order: JSONata first,
# because other modules of the interpreter take its functions over by name when they are imported.
INTERPRETER: tuple[str, ...] = (
    "states_jsonata",
    "states_tokens",
    "states_waits",
    "states_errors",
    "states_frames",
    "states_batches",
    "states_redrive_places",
    "states_redrive_inside",
    "states_redrive_children",
    "states_items",
    "states_results",
    "states_map",
)

# In this order: a later module may build on what an earlier one installed.
MODULES: tuple[str, ...] = (
    "metrics",
    "metrics_alarms",
    "metrics_dimensions",
    "dynamodb_conditions",
    "dynamodb_updates",
    "sqs_wire",
    "sqs_shapes",
    "sqs_messages",
    "sqs_polls",
    "sqs_policies",
    "sqs_purge",
    "sqs_move_tasks",
    "sqs_queues",
    "sqs_metrics",
    "events_envelope",
    "events_put",
    "events_put_targets",
    "events_rules",
    "events_patterns",
    "events_archive",
    "events_targets",
    "events_dispatch",
    "lambda_pool",
    "lambda_logs",
    "lambda_execution",
    "lambda_metrics",
    "lambda_concurrency",
    "lambda_states",
    "lambda_destinations",
    "lambda_async",
    "lambda_event_config",
    "lambda_validation",
    "lambda_invoke",
    "esm_pollers",
    "esm_api",
    "states_engine",
    *INTERPRETER,
    "states_clients",
    "states_callbacks",
    "states_events",
    "states_runs",
    "states_executions",
    "states_descriptions",
    "states_validation",
    "states_machines",
    "states_versions",
    "states_activities",
    "states_testing",
    "states_redrive",
    "states_map_runs",
    "states_map_updates",
    "pipes_pollers",
    "pipes_api",
    "appconfig_requests",
    "appconfig_sessions",
    "appconfig_versions",
    "appconfig_lists",
    "appconfig_deletions",
    "agentcore_memories",
    "agentcore_events",
    "agentcore_records",
    "agentcore_requests",
    "agentcore_tags",
)


class PinError(RuntimeError):
    """The MiniStack at hand is not the release that the parity modules were written for."""


def check_pin() -> str:
    """Return the installed MiniStack version, or raise :class:`PinError` when it is not :data:`PINNED`."""
    try:
        found = version("ministack")
    except PackageNotFoundError:
        raise PinError(
            f"MiniStack {PINNED} is not installed in this environment; run `make lab` to make the stand-in's own."
        ) from None
    if found != PINNED:
        raise PinError(
            f"MiniStack {found} is installed, but the parity modules replace functions of {PINNED} by name; "
            f"install {PINNED}, or rerun the parity suite and move the pin."
        )
    return found


def install() -> None:
    """Install every parity module into the MiniStack of this process. Call before the server starts."""
    check_pin()
    for name in MODULES:
        importlib.import_module(f"parity.{name}").install()
