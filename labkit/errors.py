"""The errors that labkit raises: each one clear sentence for a reader, from one family."""

from __future__ import annotations


class LabError(Exception):
    """Base of every error that labkit raises: one clear sentence for a reader."""


class SetupError(LabError):
    """Something that the set-up makes is missing or broken; the sentence says what to type."""


class TargetError(LabError):
    """The chosen target cannot be used as asked."""


class EndpointDown(TargetError):
    """Nothing answers, or not AWS's APIs, where the target should be."""
