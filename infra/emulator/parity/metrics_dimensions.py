"""A query for a metric without dimensions.

**On AWS** a metric is one series for each combination of dimensions, and a query gets the series whose dimensions are
exactly those it names; one that names none gets the series without dimensions, never a sum over the others (CloudWatch
User Guide, "Dimensions").

**MiniStack** adds up all series of the name when a query names no dimensions. A service that publishes one number for
itself as a whole and for each of its resources, as EventBridge and Lambda do, is counted several times.

**Here** no dimensions are dimensions too.
"""

from __future__ import annotations

from typing import Any


class Exactly(dict[str, str]):
    """Dimensions to be met exactly: MiniStack takes what is false for "any"."""

    def __bool__(self) -> bool:
        return True


def install() -> None:
    from ministack.services import cloudwatch

    dimensions = cloudwatch._dims_from_list

    def exactly(given: list[dict[str, Any]]) -> Exactly:
        return Exactly(dimensions(given))

    cloudwatch._dims_from_list = exactly
