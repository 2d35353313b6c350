"""Which series of a metric a query means.

**On AWS** (CloudWatch User Guide, "Dimensions") a metric is one series for each combination of dimensions, and a query
gets the series whose dimensions are exactly those that it names. ListMetrics filters: it gets every series that has the
dimensions it names, among others (API reference ListMetrics).

**LocalStack** keeps the dimensions of a series as one text and looks for ``LIKE '%QueueName=work%'`` in it: a query
for the queue ``work`` adds up ``work-dead`` and ``my_work`` as well. A value with an equals sign breaks ListMetrics.

**Here** the text stays as it is, and ``LIKE`` in CloudWatch's database is a function that compares dimensions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

END = "\t"  # of each dimension in LocalStack's text
EXACTLY, AMONG = "exactly\n", "among\n"

Dimensions = list[dict[str, str]]


class Filters(Dimensions):
    """The dimensions that ListMetrics looks for: a series may have others."""


def search_text(dimensions: Dimensions) -> str:
    """What ``dimensions`` look for, as the right side of ``LIKE``."""
    kind = AMONG if isinstance(dimensions, Filters) else EXACTLY
    # A filter may name a dimension without a value.
    pairs = sorted(f"{pair['Name']}={pair['Value']}" if "Value" in pair else pair["Name"] for pair in dimensions)
    return kind + "".join(f"{pair}{END}" for pair in pairs)


def matches(wanted: str, stored: str | None) -> bool:
    """``stored LIKE wanted``: whether a series with the dimensions ``stored`` is meant."""
    found = set((stored or "").split(END))
    kind, _, text = wanted.partition("\n")
    pairs = set(text.split(END))
    if kind + "\n" == EXACTLY:
        return found == pairs
    return (pairs - {""}) <= (found | {pair.partition("=")[0] for pair in found})


def restored(stored: str | None) -> Dimensions:
    pairs = (pair.partition("=") for pair in (stored or "").split(END) if pair)
    return [{"Name": name, "Value": value} for name, _, value in pairs]


class Sqlite:
    """Stands for the module ``sqlite3`` where LocalStack opens the database."""

    @staticmethod
    def connect(*arguments: Any, **more: Any) -> sqlite3.Connection:
        connection = sqlite3.connect(*arguments, **more)
        connection.create_function("like", 2, matches, deterministic=True)
        return connection


def install() -> None:
    from localstack.services.cloudwatch import cloudwatch_database_helper as helper

    database = helper.CloudwatchDatabase
    stored_text: Callable[..., str | None] = database._get_ordered_dimensions_with_separator
    list_metrics, _ = database.list_metrics, (helper.sqlite3, database._restore_dimensions_from_string)

    def text(self: Any, dims: Dimensions | None, for_search: bool = False) -> str | None:
        return search_text(dims) if for_search and dims else stored_text(self, dims)

    def listed(
        self: Any, account_id: str, region: str, namespace: str, metric_name: str, dimensions: Dimensions
    ) -> dict[str, Any]:
        return list_metrics(self, account_id, region, namespace, metric_name, Filters(dimensions))

    helper.sqlite3 = Sqlite
    database._get_ordered_dimensions_with_separator = text
    database._restore_dimensions_from_string = lambda self, stored: restored(stored)
    database.list_metrics = listed
