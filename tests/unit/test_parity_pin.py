"""The parity modules replace functions of one MiniStack release by name: another one is refused at the start."""

from __future__ import annotations

import parity
import pytest


@pytest.mark.parametrize("found", ["1.5.32", "1.6.0", "2.0"])
def test_another_release_is_refused(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    monkeypatch.setattr(parity, "version", lambda name: found)
    with pytest.raises(parity.PinError, match=rf"MiniStack {found} is installed"):
        parity.install()


def test_the_pinned_release_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parity, "version", lambda name: parity.PINNED)
    assert parity.check_pin() == parity.PINNED


def test_every_module_says_what_aws_does_and_can_be_installed() -> None:
    import importlib

    for name in parity.MODULES:
        module = importlib.import_module(f"parity.{name}")
        assert callable(module.install), name
        assert "**On AWS" in (module.__doc__ or "") or "**Here" in (module.__doc__ or ""), name
