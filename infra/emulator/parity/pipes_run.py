"""One execution of a pipe: a batch goes through the enrichment and the templates to the target.

**On AWS** (User Guide, "Amazon EventBridge Pipes batching and concurrency", "… error handling and troubleshooting",
"Event enrichment")

* the enrichment gets the batch as a JSON array and returns what goes on: an array of any length, one object, a text.
  An empty answer (``""``, ``{}``, ``[]``, null) goes nowhere, and the batch is done;
* an array that is longer than what the target takes at once is not delivered;
* what the enrichment or the target did not take stays in the source queue, invisible until its visibility timeout ends;
  then it comes back with a receive count that is one higher, or goes to the queue's own dead-letter queue: a pipe with
  a queue as its source has none. It goes through the enrichment again;
* of a batch that the target took in part only the rest comes back. A function or an Express state machine says which
  with ``{"batchItemFailures": [{"itemIdentifier": <messageId>}, …]}``; what the enrichment returned must carry the
  message ids for that. A report that is malformed fails the whole batch;
* an execution takes at most five minutes.

Not verified: what becomes of a batch whose array is too long (here it comes back, so that nothing is lost); of an
answer that reports nothing, such as a text (here a success); of a part that failed and carries no message id after an
enrichment (here the whole batch comes back); that one event which a template cannot take fails its whole batch; that
five minutes are measured at the end of each stage, as they are here, without breaking it off.

**Here** :class:`Run` says what became of a batch, in the terms of :mod:`parity.esm_poller`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from parity.esm_poller import Outcome
from parity.esm_response import failed
from parity.pipes_checks import TARGET_BATCH, service_of
from parity.pipes_metrics import Measured
from parity.pipes_services import Failed, Services, Stopped, Throttled
from parity.pipes_stages import Stages
from parity.pipes_template import Template, Unrendered, compact, view_of

LONGEST = 300.0  # seconds
EMPTY: tuple[Any, ...] = ("", None, {}, [])

Records = Sequence[Mapping[str, Any]]
logger = logging.getLogger("parity.pipes")


def items_of(answer: Any) -> list[Any]:
    """What an enrichment's answer sends on."""
    if any(answer is empty or (type(answer) is type(empty) and answer == empty) for empty in EMPTY):
        return []
    return list(answer) if isinstance(answer, list) else [answer]


def ids_of(items: Sequence[Any], ids: Sequence[str], *, enriched: bool) -> list[str | None]:
    """Which message each item comes from; None where an enrichment has left that out."""
    if not enriched:
        return list(ids)
    known = set(ids)
    found = [item.get("messageId") if isinstance(item, Mapping) else None for item in items]
    return [one if isinstance(one, str) and one in known else None for one in found]


def came_back(answer: Any, origins: Sequence[str | None], ids: Sequence[str]) -> frozenset[str]:
    """Which messages a target's answer sends back: a set of indices, or what a function said."""
    everything = frozenset(ids)
    if isinstance(answer, set):
        back = {origins[index] for index in answer}
        return everything if None in back else frozenset(one for one in back if one)
    if isinstance(answer, Mapping) and "batchItemFailures" in answer:
        return failed(answer, everything)
    return frozenset()


def template(pipe: Mapping[str, Any], side: str) -> Template | None:
    """The input template of one side: ``Enrichment`` or ``Target``."""
    text = (pipe.get(f"{side}Parameters") or {}).get("InputTemplate")
    if not text:
        return None
    names = {
        "aws.pipes.pipe-arn": pipe["Arn"],
        "aws.pipes.pipe-name": pipe["Name"],
        "aws.pipes.source-arn": pipe["Source"],
        "aws.pipes.enrichment-arn": pipe.get("Enrichment") or "",
        "aws.pipes.target-arn": pipe["Target"],
    }
    return Template(text, names)


def rendered(made: Template | None, items: Sequence[Any], now: float, *, bare: bool = False) -> list[str]:
    """What the enrichment or the target gets for each item. ``bare``: a text needs no quotes where it goes."""
    if made is not None:
        return [made.render(item, now) for item in items]
    return [item if bare and isinstance(item, str) else compact(item) for item in items]


class Run:
    """Executions of one pipe. ``stopped(reason)`` is called when the pipe cannot work as it is."""

    def __init__(
        self, services: Services, stopped: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._services = services
        self._stages = Stages(services)
        self._stopped = stopped
        self._clock = clock
        self.missing: str | None = None  # what the last execution did not find

    def execute(self, pipe: Mapping[str, Any], records: Records, *, ordered: bool) -> Outcome:
        """Process a batch, in the scope of the pipe's account and Region. The answer names what comes back."""
        ids = [str(record["messageId"]) for record in records]
        measured = Measured(pipe, records, self._clock, self._services.count)
        self.missing = None
        try:
            back = self._execute(pipe, records, ids, measured, ordered)
        except Throttled as error:
            logger.info("pipe %s: %s", pipe["Name"], error)
            measured.ended("ExecutionThrottled")
            return Outcome(error=True, throttled=True)
        except (Failed, Unrendered, Stopped) as error:
            logger.info("pipe %s: %s", pipe["Name"], error)
            if isinstance(error, Stopped):
                self._stopped(str(error))
            self.missing = str(error) if isinstance(error, Failed) and error.missing else None
            measured.ended("ExecutionFailed")
            return Outcome(error=True)
        except TimeoutError as error:
            logger.info("pipe %s: %s", pipe["Name"], error)
            measured.ended("ExecutionTimeout")
            return Outcome(error=True)
        except Exception:
            measured.ended("ExecutionFailed")
            raise
        measured.ended("ExecutionPartiallyFailed" if back else None)
        return Outcome(answer={"batchItemFailures": [{"itemIdentifier": one} for one in sorted(back)]})

    def _execute(
        self, pipe: Mapping[str, Any], records: Records, ids: list[str], measured: Measured, ordered: bool
    ) -> frozenset[str]:
        began = self._clock()
        items: list[Any] = list(records)
        enrichment = pipe.get("Enrichment")
        if enrichment:
            with measured.stage("Enrichment"):
                texts = rendered(template(pipe, "Enrichment"), items, time.time())
                items = items_of(self._stages.enrich(enrichment, texts))
            self._in_time(began)
        if not items:
            measured.count("TargetStageSkipped")
            return frozenset()
        with measured.stage("Target"):
            service = service_of(pipe["Target"])
            most = TARGET_BATCH.get(service, len(items))
            if len(items) > most:
                raise Failed(f"The enrichment returned {len(items)} items, and the target takes {most} at once.")
            texts = rendered(template(pipe, "Target"), items, time.time(), bare=service == "sqs")
            views = [view_of(item) for item in items]
            answer = self._stages.deliver(pipe, views, texts, ordered=ordered)
            back = came_back(answer, ids_of(items, ids, enriched=bool(enrichment)), ids)
            if len(back) == len(ids):
                raise Failed("The target took nothing of the batch.")
        if back:
            measured.count("TargetStagePartiallyFailed")
        self._in_time(began)
        return back

    def _in_time(self, began: float) -> None:
        if self._clock() - began > LONGEST:
            raise TimeoutError(f"An execution takes at most {LONGEST:.0f} seconds.")
