"""A browser of the machine's own, driven by playwright; without one these tests are skipped and say what to install."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 30_000  # milliseconds for a page to be there


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no browser: install Debian's chromium (apt install chromium), or Chrome, to run these tests")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is part of labkit's dev extra")
    # Chromium's sandbox does not start for root.
    options = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=found, args=options, timeout=200_000)
        yield opened
        opened.close()


@pytest.fixture
def context(browser: Any) -> Iterator[Any]:
    made = browser.new_context()
    made.set_default_timeout(PATIENCE)
    yield made
    made.close()
