"""Each row of the failure taxonomy: injected, found by its signal, mended, and nothing lost or doubled."""

from __future__ import annotations

import json
from typing import Any

import pytest

from labkit import Lab
from labkit.ops import taxonomy
from labkit.ops.taxonomy import ROWS, SIGNALS, WITHIN, Account, Fleet, Row, TaxonomyError, run
from labkit.ops.taxonomy.control import retargeted, without_policy
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


def test_a_healthy_fleet_moves_no_signal(fleet: Fleet) -> None:
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
    fleet.store = None  # type: ignore[assignment]
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
