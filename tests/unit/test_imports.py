"""What an import may cost: a worker or a function imports labkit at every start."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "litellm", "pandas", "matplotlib", "boto3", "numpy", "IPython", "ipywidgets", "prometheus_client", "opentelemetry",
    "rich",
)  # fmt: skip
LIGHT_MODULES = (
    "labkit",
    "labkit.lab",
    "labkit.targets",
    "labkit.control.envelope",
    "labkit.control.approvals",
    "labkit.control.bus",
    "labkit.control.callbacks",
    "labkit.control.machines",
    "labkit.control.pipes",
    "labkit.work.queues",
    "labkit.work.heartbeat",
    "labkit.state.claimcheck",
    "labkit.state.idempotency",
    "labkit.state.saga",
    "labkit.work.batch",
    "labkit.work.functions",
    "labkit.work.packages",
    "labkit.work.processes",
    "labkit.work.worker",
    "labkit.work.broker",
    "labkit.work.gateway",
    "labkit.work.supervisor",
    "labkit.routing.gate",
    "labkit.routing.provider",
    "labkit.routing.router",
    "labkit.state.identity",
    "labkit.state.memory",
    "labkit.state.sessions",
    "labkit.ops.readings",
    "labkit.ops.scrape",
    "labkit.ops.steps",
    "labkit.ops.trace_view",
    "labkit.ops.tracing",
    "labkit.ops.spans.files",
    "labkit.ops.spans.lines",
    "labkit.ops.spans.states",
    "labkit.ops.spans.deliveries",
    "labkit.ops.triage",
    "labkit.ops.watch",
)


@pytest.mark.parametrize("module", LIGHT_MODULES)
def test_an_import_pulls_nothing_heavy(module: str) -> None:
    script = f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_facts_is_the_function_whatever_was_imported_first() -> None:
    script = "import labkit.work.queues, labkit.facts; from labkit import facts; print(facts('sqs.batch.entries'))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "10"


def test_models_know_nothing_of_aws() -> None:
    script = (
        "import sys, pkgutil, importlib, labkit.models as m;"
        "[importlib.import_module(f'labkit.models.{i.name}') for i in pkgutil.iter_modules(m.__path__)];"
        "print([n for n in sys.modules if n.split('.')[0] in ('boto3', 'botocore') or n == 'labkit.lab'])"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
