"""What every test can ask for: a lab of its own, on the target that is chosen."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator

import hypothesis
import pytest

from labkit import Lab


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """An open lab in an account that no other test uses; closed afterwards, which fails if anything is left."""
    monkeypatch.setenv("LABKIT_LEARNER", uuid.uuid4().hex)
    opened = Lab.open("test")
    yield opened
    opened.close()


# A shell starts what it runs in the background with Ctrl-C ignored, and every process below inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A deadline for single examples would be an asserted wall time, and so is the health check of how long drawing takes;
# pytest-timeout bounds each test as a whole.
hypothesis.settings.register_profile("project", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("project")
