"""What a function's answer says about its batch: which messages failed.

**On AWS** a mapping with ``FunctionResponseTypes=[ReportBatchItemFailures]`` reads the function's answer; any other
mapping deletes the whole batch when the function returns, whatever it returns. The answer is to be
``{"batchItemFailures": [{"itemIdentifier": <messageId>}, …]}`` (Lambda Developer Guide, "Handling errors for an SQS
event source", success and failure conditions):

* *complete success*, all are deleted: an empty list, a list that is null, an empty answer, an answer that is null;
* *complete failure*, all come back: an answer that is not JSON, an identifier that is empty, null, under another key,
  or that of no message in the batch;
* an exception fails the whole batch.

Recorded: ``{}`` is a success, an entry with another key is a failure. An object without ``batchItemFailures``, so also
one that says ``BatchItemFailures``, has a list that is null: **its failures are lost**. That follows from the words of
the guide and is not verified. Neither is that ``""`` is an empty answer; that a text, a number or a list as the answer,
a list that is none, and an entry that is no object are complete failures; that one bad entry spoils good ones.

**MiniStack** takes the identifiers that it can find and deletes the rest: with each of the malformed answers, work is
lost in silence.

**Here** :func:`failed` judges the answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

REPORT = "ReportBatchItemFailures"


def failed(answer: Any, ids: Collection[str]) -> frozenset[str]:
    """Which of the messages ``ids`` a function reports as failed.

    ``answer`` is what the function returned: a JSON value, or bytes when it was no JSON.
    """
    everything, nothing = frozenset(ids), frozenset[str]()
    if answer is None or answer in ("", b""):
        return nothing
    if not isinstance(answer, Mapping):
        return everything
    listed = answer.get("batchItemFailures")
    if listed is None:
        return nothing
    if not isinstance(listed, list):
        return everything
    found = set()
    for entry in listed:
        identifier = entry.get("itemIdentifier") if isinstance(entry, Mapping) else None
        if not isinstance(identifier, str) or identifier not in everything:
            return everything
        found.add(identifier)
    return frozenset(found)
