"""Each row of the failure taxonomy: injected, found by its signal, mended, and nothing lost or doubled."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from labkit import Lab
from labkit.ops import taxonomy
from labkit.ops.taxonomy import ROWS, SIGNALS, WITHIN, Account, Fleet, Row, TaxonomyError, run
from labkit.ops.taxonomy.control import retargeted, tagged, without_policy
from labkit.ops.taxonomy.doomed import doomed
from labkit.ops.taxonomy.parts import FALLBACK, PRIMARY
from labkit.routing.router import Routed, Router, RouterConfig

BY_KEY = {row.key: row for row in ROWS}
PARTS = {"queue → function": ["function"], "worker → router → model": ["provider"]}

# Every signal that the row moves for certain; what depends on chance (a retry more) is left out.
MOVES = {
    "answer-lost": {"MatchedEvents beyond sent"},
    "target-throttled": {"RetryInvocationAttempts"},
    "target-forbidden": {"FailedInvocations", "InvocationsSentToDlq", "depth of the rule's DLQ"},
    "target-gone": {"FailedInvocations", "InvocationsSentToDlq", "depth of the rule's DLQ"},
    "no-dlq": {"FailedInvocations", "sent, not done, nowhere"},
    "dlq-broken": {"FailedInvocations", "InvocationsFailedToBeSentToDlq", "sent, not done, nowhere"},
    "worker-crash": {"received beyond sent"},
    "poison": {"depth of a queue's DLQ", "received beyond sent", "deliveries failed"},
    "swallowed": {"sent, not done, nowhere"},
    "heartbeats-lost": {"received beyond sent", "messages lost"},
    "function-throttled": {"Throttles", "received beyond sent", "depth of a queue's DLQ"},
    "function-raises": {"Errors", "received beyond sent", "depth of a queue's DLQ"},
    "answer-malformed": {"received beyond sent", "depth of a queue's DLQ"},
    "answer-empty": {"sent, not done, nowhere"},
    "token-held": {"TaskTimedOut"},
    "token-stale": {"TaskTimedOut", "stale callbacks"},
    "state-failed": {"executions failed", "depth of a queue's DLQ", "deliveries failed"},
    "model-down": {"calls refused"},
    "model-quota": {"calls refused"},
}

# And some that it must not move: a rule knows nothing of what happens behind its target.
RULES = {"depth of the rule's DLQ", "InvocationsSentToDlq", "FailedInvocations", "RetryInvocationAttempts"}
NEVER = {
    "target-throttled": {"FailedInvocations"},  # it counts what failed for good
    "target-forbidden": {"RetryInvocationAttempts"},
    "target-gone": {"RetryInvocationAttempts"},
    "function-throttled": {"Errors", *RULES},
    "function-raises": {"Throttles", *RULES},
    "answer-malformed": {"Errors", "Throttles", *RULES},
    "poison": RULES,
}
NEVER_RUN = {"target-throttled", "target-forbidden", "target-gone", "no-dlq", "dlq-broken", "function-throttled"}


@pytest.fixture
def fleet(lab: Lab) -> Fleet:
    return Fleet.create(lab)


def configuration(fleet: Fleet) -> dict[str, Any]:
    """Everything that an injector can have its hands on."""
    sqs, events = fleet.queue.client, fleet.bus.client
    names = ["Policy", "VisibilityTimeout", "RedrivePolicy"]
    queues = {
        queue.name: (
            sqs.get_queue_attributes(QueueUrl=queue.url, AttributeNames=names).get("Attributes"),
            sqs.list_queue_tags(QueueUrl=queue.url).get("Tags"),
        )
        for queue in (fleet.queue, fleet.calls, fleet.rule_dlq)
    }
    targets = {
        rule: events.list_targets_by_rule(Rule=rule, EventBusName=fleet.bus.name)["Targets"] for rule in fleet.rules
    }
    handlers = [
        list(client.meta.events._emitter._handlers.prefix_search(name))
        for client, name in (
            (sqs, "before-send.sqs.ChangeMessageVisibility"),
            (events, "before-send.eventbridge.PutEvents"),
        )
    ]
    function, provider = fleet.made("function"), fleet.made("provider")
    reserved = function and function.client.get_function_concurrency(FunctionName=function.name)
    mistake = fleet.store.client.get_item(
        TableName=fleet.store.table, Key={"pk": {"S": "mistake"}, "sk": {"S": "caller"}}
    ).get("Item")
    return {
        "queues": queues, "targets": targets, "handlers": handlers, "mistake": mistake, "step": fleet.step,
        "concurrency": (reserved or {}).get("ReservedConcurrentExecutions"),
        "switches": provider.switches if provider else [],
        "works": fleet._thread is not None and fleet._thread.is_alive(),
    }  # fmt: skip


def test_a_healthy_fleet_moves_no_signal(lab: Lab) -> None:
    fleet = Fleet.create(lab, visibility=60)  # a machine that stands still for a moment is no failure
    _ = fleet.function, fleet.machine
    ids = fleet.send() + fleet.send(to="caller") + fleet.begin(2)
    assert fleet.settle(ids) == Account(sent=8, done=8, dead=0, lost=0, duplicated=0, runs=8)
    assert {name: signal.read(fleet) for name, signal in SIGNALS.items()} == dict.fromkeys(SIGNALS, 0)


@pytest.mark.parametrize("row", ROWS, ids=list(BY_KEY))
def test_injected_seen_mended_accounted_for(fleet: Fleet, row: Row) -> None:
    for part in PARTS.get(row.hop, ()):
        getattr(fleet, part)
    before = configuration(fleet)
    finding = run(fleet, row, within=WITHIN)
    assert finding.seen
    assert finding.row is row
    assert MOVES[row.key] <= finding.signals.keys()
    assert not NEVER.get(row.key, set()) & finding.signals.keys()
    account = finding.account
    assert (account.done, account.dead, account.lost, account.duplicated) == (account.sent, 0, 0, 0)
    assert account.sent >= 1
    if row.key in NEVER_RUN:
        assert finding.runs == 0
    # Whole again, also when the block ended in an error: the hop delivers, and the account of everything is clean.
    assert configuration(fleet) == before

    def block() -> None:
        with row.inject(fleet):
            raise KeyError("what a block raises")

    with pytest.raises(KeyError):
        block()
    assert configuration(fleet) == before
    assert fleet.settle(fleet.send(2)).done == 2
    assert fleet.missing(fleet.outbox) == 0
    assert max(fleet.done.values()) == 1


@pytest.mark.parametrize("key", ["model-down", "model-quota"])
def test_the_real_router_falls_back_as_well(lab: Lab, fleet: Fleet, key: str) -> None:
    def group(name: str, model: str) -> dict[str, Any]:
        where = {"model": f"openai/{model}", "api_base": fleet.provider.openai_url, "api_key": "none"}
        return {"model_name": name, "litellm_params": where, "model_info": {"id": model}}

    settings = {"num_retries": 0, "disable_cooldowns": True, "fallbacks": [{"agent-primary": ["agent-overflow"]}]}
    groups = [group("agent-primary", PRIMARY), group("agent-overflow", FALLBACK)]
    config = RouterConfig.of({"model_list": groups, "router_settings": {"timeout": 30, **settings}})
    router = Router(config, lab=lab).warm()  # the import takes longer than a message waits
    answers: list[Routed] = []
    fleet.ask = lambda prompt: answers.append(router.complete("agent-primary", prompt))
    finding = run(fleet, BY_KEY[key])
    assert (finding.seen, finding.account.done, finding.account.lost, finding.account.duplicated) == (True, 3, 0, 0)
    assert FALLBACK in {answer.deployment for answer in answers}


def test_silent_rows_are_those_that_no_dead_letter_queue_sees(fleet: Fleet) -> None:
    queues = {"depth of the rule's DLQ", "depth of a queue's DLQ", "deliveries failed", "Errors"}
    assert {row.key for row in ROWS if row.silent} == {
        key for key, moves in MOVES.items() if "sent, not done, nowhere" in moves and not moves & queues
    }


def test_the_account_sees_what_is_lost(fleet: Fleet) -> None:
    with retargeted(fleet, DeadLetterConfig=None), without_policy(fleet.queue):
        ids = fleet.send(2)
    assert fleet.settle(ids, within=1) == Account(sent=2, done=0, dead=0, lost=2, duplicated=0, runs=0)


def test_the_account_sees_what_is_dead(fleet: Fleet) -> None:
    with without_policy(fleet.queue):
        ids = fleet.send(2)
    assert fleet.settle(ids, within=1) == Account(sent=2, done=0, dead=2, lost=0, duplicated=0, runs=0)


def test_the_account_sees_what_is_doubled(fleet: Fleet) -> None:
    """Without a store the second delivery runs the step again: the row is dangerous, and the drill is no decoration."""
    fleet.stop()
    fleet.store, fleet.visibility = None, 60  # type: ignore[assignment]  # nothing but the injection doubles it
    fleet.start()
    with BY_KEY["answer-lost"].inject(fleet):
        ids = fleet.send(3)
    fleet.until(lambda: sum(fleet.done.values()) == 6, "six runs")
    assert fleet.settle(ids) == Account(sent=3, done=3, dead=0, lost=0, duplicated=3, runs=6)


def test_a_signal_that_does_not_move_is_an_error(fleet: Fleet) -> None:
    from dataclasses import replace

    wrong = replace(BY_KEY["poison"], signal="Throttles")
    before = configuration(fleet)
    with pytest.raises(TaxonomyError, match="Throttles"):
        run(fleet, wrong, within=0.5)
    assert configuration(fleet) == before


def test_rows_at_the_same_time_on_fleets_of_their_own(lab: Lab) -> None:
    running = taxonomy.begin(lab, ["poison", "no-dlq", "swallowed", "answer-lost"])
    assert list(running) == ["poison", "no-dlq", "swallowed", "answer-lost"]
    for future in running.values():
        finding = future.result(WITHIN)
        assert finding.seen
        assert (finding.account.done, finding.account.lost, finding.account.duplicated) == (3, 0, 0)
    assert taxonomy.begin(lab, ["swallowed"])["swallowed"].result(WITHIN).seen  # a cell that runs again
    with pytest.raises(TaxonomyError, match="'poisson'"):
        taxonomy.begin(lab, ["poisson"])


def test_what_a_row_raises_its_future_raises(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise TaxonomyError("a hop that does not break")

    monkeypatch.setattr(taxonomy, "run", fails)
    with pytest.raises(TaxonomyError, match="does not break"):
        taxonomy.begin(lab, ["poison"])["poison"].result(WITHIN)


def test_the_rule_tells_which_error_it_met(fleet: Fleet) -> None:
    """The two causes that a rule does not retry, as its dead letters name them."""
    codes = []
    for key in ("target-forbidden", "target-gone"):
        with BY_KEY[key].inject(fleet):
            fleet.send(1)
            [letter] = fleet.until(lambda: fleet.rule_dlq.receive(wait=1), "a dead letter")
        codes.append((letter.attributes["ERROR_CODE"], letter.attributes["RETRY_ATTEMPTS"]))
        assert json.loads(letter.body)["detail"]["trace_id"] in fleet.outbox
        fleet.rule_dlq.delete(letter)
    assert codes == [("NO_PERMISSIONS", "0"), ("NO_RESOURCE", "0")]


def test_what_is_broken_within_what_is_broken_comes_back(fleet: Fleet) -> None:
    """The inner block gives back what the outer one had set, and no more."""
    before, url = configuration(fleet), fleet.queue.url
    with tagged(fleet.queue, {"lab:fault": "THROTTLING"}):
        outer = configuration(fleet)
        with tagged(fleet.queue, {"lab:fault": "SDK_CLIENT_ERROR", "lab:more": "x"}), without_policy(fleet.queue):
            assert fleet.queue.client.list_queue_tags(QueueUrl=url)["Tags"]["lab:fault"] == "SDK_CLIENT_ERROR"
        assert configuration(fleet) == outer
    assert configuration(fleet) == before


def test_what_cannot_be_is_refused_and_nothing_is_sent(lab: Lab, fleet: Fleet) -> None:
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: fleet.send(1, to="nobody"), "no rule sends any to 'nobody'"),
        (lambda: fleet.resend(["unheard-of"]), "the outbox has no 'unheard-of'"),
        (lambda: run(fleet, BY_KEY["poison"], within="soon"), "within"),  # type: ignore[arg-type]
        (lambda: run(fleet, BY_KEY["poison"], within=-1), "within"),
        (lambda: taxonomy.begin(lab, [["poison"]]), "there is no row"),  # type: ignore[list-item]
    ]
    for wrong, says in refused:
        with pytest.raises(TaxonomyError, match=says):
            wrong()
    assert not fleet.outbox
    assert fleet.begin(0) == []


def test_a_row_that_was_given_up_leaves_a_fleet_for_the_next(fleet: Fleet) -> None:
    with pytest.raises(TaxonomyError, match="waited 0 s"):
        run(fleet, BY_KEY["poison"], within=0)
    finding = run(fleet, BY_KEY["poison"])
    assert (finding.account.done, finding.account.lost, finding.account.duplicated) == (3, 0, 0)


def test_a_late_answer_is_refused_also_after_an_execution_that_failed(fleet: Fleet) -> None:
    with BY_KEY["state-failed"].inject(fleet):
        fleet.begin(1)
        fleet.until(lambda: fleet.executions[0].status == "FAILED", "an execution to fail")
    assert run(fleet, BY_KEY["token-stale"]).seen


def test_a_doomed_worker_that_fails_leaves_the_fleet_its_own(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threading.excepthook", lambda _: None)
    with doomed(fleet, lambda message: json.loads("no json")):
        fleet.send(1)
        fleet.until(lambda: fleet._thread is not None, "the fleet's own worker")
    assert fleet.settle(list(fleet.outbox)).done == 1


def test_the_end_of_the_lab_ends_what_runs(lab: Lab) -> None:
    """Nobody waits for a fleet that has ended, nor for rows that have not begun."""
    running = taxonomy.begin(lab, ["heartbeats-lost", "swallowed"])
    end = time.monotonic() + WITHIN
    while time.monotonic() < end and not any(
        thread.name.startswith("labkit-fleet-") for thread in threading.enumerate()
    ):
        time.sleep(0.05)
    lab.close(quiet=True)  # raises if a thread is left
    with pytest.raises(TaxonomyError, match="has ended"):
        running["swallowed"].result(WITHIN)


def test_a_cancelled_row_is_left_out_and_the_others_run(lab: Lab) -> None:
    running = taxonomy.begin(lab, ["swallowed", "heartbeats-lost"])
    assert running["swallowed"].cancel()
    assert running["heartbeats-lost"].result(WITHIN).seen
