"""Step Functions: AWS's behaviours in LocalStack's interpreter, and in its pages.

**LocalStack** has an interpreter that follows what was recorded on AWS in most histories, and lacks what happens when
something ends early: tokens, heartbeats, stops, redrives, the child executions of Map runs.

**Here** the changes that :mod:`parity` makes in the interpreter are made in LocalStack's own
(:mod:`hostmode.states_names`). Its provider, its store and its classes of executions stay; what the modules
``states_*`` of this package replace in them is named there.
"""

from __future__ import annotations

import importlib
import sys

from hostmode import states_names

ADAPTERS = (
    "states_workers",
    "states_calls",
    "states_machines",
    "states_lists",
)


def install() -> None:
    from parity import INTERPRETER, states_engine, states_map_runs

    states_names.install()
    for name in INTERPRETER:
        importlib.import_module(f"parity.{name}").install()
    states_engine.on_load(states_map_runs.change)
    _load()
    for name in ADAPTERS:
        importlib.import_module(f"hostmode.{name}").install()


def _load() -> None:
    """Load the interpreter, of which another service may have imported parts with what they had bound by name."""
    from localstack.services.stepfunctions.asl.jsonata import jsonata
    from parity import states_engine

    names = "encode_jsonata_variable_declarations", "extract_jsonata_variable_references"
    before = {name: getattr(jsonata, name) for name in names}
    states_engine.load()
    for module in [module for name, module in sys.modules.items() if name.startswith(f"{states_names.ORIGINAL}.")]:
        for name, function in before.items():
            if getattr(module, name, None) is function:
                setattr(module, name, getattr(jsonata, name))
