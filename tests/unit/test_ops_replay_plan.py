"""The plan of a replay: no bus, however odd, lets one through to a target that nobody has called idempotent."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.control.envelope import Envelope
from labkit.models.windows import Window
from labkit.ops import replay

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
BUS = "arn:aws:events:us-east-1:111122223333:event-bus/fleet"
LIVE = [{"exists": False}]


@dataclass
class Rule:
    name: str
    pattern: dict[str, Any] = field(default_factory=lambda: {"source": ["fleet"]})
    targets: tuple[str, ...] = ("queue",)
    tags: dict[str, str] = field(default_factory=dict)
    state: str = "ENABLED"
    managed: bool = False

    @property
    def arn(self) -> str:
        return f"arn:aws:events:us-east-1:111122223333:rule/fleet/{self.name}"

    @property
    def target_arns(self) -> list[str]:
        return [f"arn:aws:sqs:us-east-1:111122223333:{self.name}-{target}" for target in self.targets]


class Events:
    """EventBridge as far as a plan asks it. Patterns of plain lists are all that it can match."""

    def __init__(self, *rules: Rule, pattern: Mapping[str, Any] | None = None, **archive: Any) -> None:
        self.rules = list(rules)
        self.archive = {"pattern": pattern or {}, "days": 0, "state": "ENABLED", "created": NOW - 9 * HOUR} | archive
        self.started: list[dict[str, Any]] = []
        self.refusal: Exception | None = None

    def can_paginate(self, operation: str) -> bool:
        return False

    def describe_archive(self, ArchiveName: str) -> dict[str, Any]:
        return {
            "ArchiveArn": f"arn:aws:events:us-east-1:111122223333:archive/{ArchiveName}",
            "EventSourceArn": BUS,
            "State": self.archive["state"],
            "RetentionDays": self.archive["days"],
            "EventPattern": json.dumps(self.archive["pattern"]) if self.archive["pattern"] else "",
            "CreationTime": self.archive["created"],
        }

    def list_rules(self, EventBusName: str, **_: Any) -> dict[str, Any]:
        assert EventBusName == "fleet"
        return {
            "Rules": [
                {"Name": rule.name, "Arn": rule.arn, "State": rule.state, "EventPattern": json.dumps(rule.pattern)}
                | ({"ManagedBy": "prod.vhs.events.aws.internal"} if rule.managed else {})
                for rule in self.rules
            ]
        }

    def list_targets_by_rule(self, Rule: str, EventBusName: str, **_: Any) -> dict[str, Any]:
        [found] = [rule for rule in self.rules if rule.name == Rule]
        return {"Targets": [{"Id": arn[-9:], "Arn": arn} for arn in found.target_arns]}

    def list_tags_for_resource(self, ResourceARN: str) -> dict[str, Any]:
        [found] = [rule for rule in self.rules if rule.arn == ResourceARN]
        return {"Tags": [{"Key": key, "Value": value} for key, value in found.tags.items()]}

    def test_event_pattern(self, EventPattern: str, Event: str) -> dict[str, Any]:
        pattern, event = json.loads(EventPattern), json.loads(Event)
        return {
            "Result": all(
                (key not in event) if wanted == LIVE else event.get(key) in wanted for key, wanted in pattern.items()
            )
        }

    def start_replay(self, **request: Any) -> dict[str, Any]:
        if self.refusal:
            raise self.refusal
        self.started.append(request)
        return {}

    def describe_replay(self, ReplayName: str) -> dict[str, Any]:
        return {"Description": "somebody else's", "State": "RUNNING", "EventStartTime": NOW, "EventEndTime": NOW + HOUR}


def planned(events: Events, since: timedelta = 3 * HOUR, until: timedelta = HOUR, **options: Any) -> replay.Plan:
    return replay.plan(replay.Archive(events, "a"), NOW - since, NOW - until, now=lambda: NOW, **options)


# -- never to a target that is not known to be idempotent

names = st.sampled_from(["one", "two", "three", "four"])
patterns = st.fixed_dictionaries(
    {"source": st.sampled_from([["fleet"], ["other"], ["fleet", "other"]])},
    optional={"replay-name": st.sampled_from([LIVE, ["mend"], ["another"]]), "detail-type": st.just(["step"])},
)
buses = st.lists(
    st.builds(
        Rule,
        name=names,
        pattern=patterns,
        targets=st.lists(st.sampled_from(["a", "b"]), max_size=2, unique=True).map(tuple),
        tags=st.sampled_from([{"replay": "safe"}] * 3 + [{}, {"replay": "unsafe"}, {"safe": "replay"}]),
        state=st.sampled_from(["ENABLED"] * 4 + ["DISABLED"]),
        managed=st.sampled_from([False] * 4 + [True]),
    ),
    unique_by=lambda rule: rule.name,
    max_size=4,
)
samples = st.lists(
    st.fixed_dictionaries({"source": st.sampled_from(["fleet", "other"]), "detail-type": st.just("step")}), max_size=2
)


@settings(max_examples=400)
@given(buses, samples, st.data())
def test_what_is_started_reaches_nothing_that_nobody_vouched_for(
    rules: list[Rule], events: list[dict[str, str]], data: st.DataObject
) -> None:
    client = Events(*rules)
    usable = [rule for rule in rules if not rule.managed]
    keys = [rule.name for rule in usable] + [arn for rule in usable for arn in rule.target_arns]
    chosen = st.lists(st.sampled_from(keys), max_size=3, unique=True) if keys else st.just([])
    idempotent = data.draw(st.dictionaries(st.sampled_from(keys), st.booleans(), max_size=2) if keys else st.just({}))
    allow = data.draw(chosen)
    plan = planned(
        client,
        samples=[{**event, "detail": {}} for event in events],
        idempotent=idempotent,
        allow=allow,
        name="mend",
    )
    if data.draw(st.booleans()):
        plan = plan.only_safe()
    # What happens on the bus between the plan and the start.
    for rule in data.draw(st.lists(st.sampled_from(rules), max_size=1)) if rules else []:
        change = data.draw(st.sampled_from(["tags", "targets", "pattern", "state"]))
        setattr(
            rule,
            change,
            {"tags": {}, "targets": ("a", "b", "c"), "pattern": {"source": ["fleet"]}, "state": "ENABLED"}[change],
        )
    if data.draw(st.booleans()):
        client.rules.append(Rule("late"))
    try:
        replay.start(plan)
    except replay.ReplayError:
        assert not client.started
        return
    [request] = client.started
    named = request["Destination"]["FilterArns"]
    assert named  # an empty list would be every rule
    for arn in named:
        [rule] = [rule for rule in client.rules if rule.arn == arn]
        assert rule.state == "ENABLED"
        assert not rule.managed
        assert rule.pattern.get("replay-name") in (None, ["mend"])
        for target in rule.target_arns:
            said = [idempotent[key] for key in (rule.name, target) if key in idempotent]
            vouched = all(said) if said else rule.tags == {"replay": "safe"}
            assert vouched or rule.name in allow or target in allow


@given(buses)
def test_without_samples_no_rule_is_left_out_that_could_match(rules: list[Rule]) -> None:
    """An event of the archive that a rule matches is an event for which the plan counts that rule."""
    client = Events(*rules, pattern={"source": ["fleet"]})
    event = json.dumps({"source": "fleet", "detail-type": "step", "replay-name": "mend"})
    reached = {route.rule for route in planned(client, name="mend").reached}
    for rule in rules:
        hit = client.test_event_pattern(json.dumps(rule.pattern), event)["Result"]
        if hit and rule.state == "ENABLED" and not rule.managed:
            assert rule.name in reached


# -- which rules, which targets, and how that is known


def test_rows_say_what_happens_and_how_that_is_known() -> None:
    events = Events(
        Rule("work", tags={"replay": "safe"}),
        Rule("mail"),
        Rule("log"),
        Rule("live", {"source": ["fleet"], "replay-name": LIVE}),
        Rule("off", state="DISABLED"),
        Rule("other", {"source": ["other"]}),
        Rule("empty", targets=()),
        Rule("Events-Archive-a", managed=True),
        pattern={"source": ["fleet"]},
    )
    log = events.rules[2].target_arns[0]
    plan = planned(events, idempotent={log: True}, allow=["mail"])
    assert plan.rows() == [
        ("empty", "", "matched, no target", "its pattern may match"),
        ("live", "", "nothing", "its pattern takes live events only (replay-name exists: false)"),
        ("log", "log-queue", "again", "declared idempotent"),
        ("mail", "mail-queue", "ALLOWED", "nobody said so"),
        ("off", "", "nothing", "the rule is disabled"),
        ("other", "", "nothing", "its source is none of the archive's"),
        ("work", "work-queue", "again", "the rule's tag replay=safe"),
    ]
    plan.check()


@pytest.mark.parametrize(
    "idempotent", [{"work": False}, {"work": True, "target": False}, {"work": False, "target": True}]
)
def test_false_wins(idempotent: dict[str, bool]) -> None:
    events = Events(Rule("work", tags={"replay": "safe"}))
    [target] = events.rules[0].target_arns
    plan = planned(events, idempotent={target if key == "target" else key: said for key, said in idempotent.items()})
    with pytest.raises(replay.ReplayError, match=r"work-queue, a target of rule work, .* \(declared not idempotent\)"):
        plan.check()


def test_one_unsafe_target_keeps_its_rule_out() -> None:
    events = Events(Rule("both", targets=("a", "b")), Rule("work", tags={"replay": "safe"}))
    plan = planned(events, idempotent={events.rules[0].target_arns[0]: True})
    assert [route.rule for route in plan.only_safe().reached] == ["work"]
    with pytest.raises(replay.ReplayError, match="no rule of the bus would get anything"):
        planned(Events(Rule("mail"))).only_safe().check()


def test_a_bus_is_a_target_with_rules_of_its_own() -> None:
    class Onward(Events):
        def list_targets_by_rule(self, Rule: str, EventBusName: str, **_: Any) -> dict[str, Any]:
            return {"Targets": [{"Id": "on", "Arn": BUS.replace("fleet", "billing")}]}

    with pytest.raises(replay.ReplayError, match=r"billing, a target of rule on, .* \(another bus"):
        planned(Onward(Rule("on"))).check()


# -- when


def test_the_last_ten_minutes_have_to_wait() -> None:
    events = Events(Rule("work", tags={"replay": "safe"}))
    with pytest.raises(replay.ReplayError, match="until lies less than 600 s in the past"):
        planned(events, until=timedelta(minutes=9))
    planned(events, until=timedelta(minutes=10)).check()
    planned(events, until=timedelta(0), lag=0).check()
    with pytest.raises(replay.ReplayError, match="until lies less than 0 s in the past"):
        planned(events, until=timedelta(seconds=-1), lag=0)


def test_a_range_is_in_whole_seconds_and_loses_nothing() -> None:
    half = timedelta(milliseconds=500)
    plan = replay.plan(
        replay.Archive(Events(Rule("r")), "a"), NOW - HOUR + half, NOW - HOUR / 2 + half, now=lambda: NOW
    )
    assert (plan.since, plan.until) == (NOW - HOUR, NOW - HOUR / 2 + timedelta(seconds=1))


def test_what_the_store_has_forgotten_is_refused() -> None:
    events = Events(Rule("work", tags={"replay": "safe"}), created=NOW - 1000 * HOUR)
    needed = timedelta(seconds=Window().needed)  # what a store has by default
    assert planned(events, since=needed).forgotten_at == NOW
    planned(events, since=needed).check()
    with pytest.raises(replay.ReplayError, match="records stand for 432000 s and the oldest events are older"):
        planned(events, since=needed + timedelta(seconds=1)).check()
    planned(events, since=needed * 2, window=math.inf).check()
    planned(events, since=needed * 2, window=1e300).check()  # longer than any calendar
    planned(Events(Rule("mail")), since=needed * 2, allow=["mail"]).check()  # nothing there relies on a store


def test_a_plan_that_was_kept_until_the_store_had_forgotten_is_not_started() -> None:
    clock = [NOW]
    events = Events(Rule("work", tags={"replay": "safe"}))
    plan = replay.plan(replay.Archive(events, "a"), NOW - 3 * HOUR, NOW - HOUR, now=lambda: clock[0])
    plan.check()
    clock[0] += timedelta(seconds=Window().needed)
    with pytest.raises(replay.ReplayError, match="the store has forgotten them"):
        replay.start(plan)
    assert not events.started


@pytest.mark.parametrize(
    ("archive", "since", "warning"),
    [
        ({"created": NOW - 2 * HOUR}, 3 * HOUR, "the archive is younger than since: what came before it is not in it"),
        ({"days": 1}, 25 * HOUR, "the archive keeps 1 days and since lies further back"),
        ({"state": "UPDATING"}, 3 * HOUR, "the archive is UPDATING"),
        ({}, 25 * HOUR, "envelopes older than their ttl of 86400 s are refused by Envelope.fresh"),
    ],
)
def test_warnings(archive: dict[str, Any], since: timedelta, warning: str) -> None:
    events = Events(Rule("work", tags={"replay": "safe"}), **{"created": NOW - 100 * HOUR} | archive)
    [found] = planned(events, since=since, ttl=since.total_seconds() if archive else 86_400).warnings
    assert found.startswith(warning)


def test_nothing_to_warn_of() -> None:
    assert planned(Events(Rule("work"))).warnings == ()


# -- bad input


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"since": HOUR, "until": 2 * HOUR}, "since must lie before until"),
        ({"since": HOUR, "until": HOUR}, "since must lie before until"),
        ({"lag": -1}, "lag must be at least 0 s; got -1"),
        ({"lag": math.nan}, "lag must be at least 0 s; got nan"),
        ({"window": "a day"}, "window must be at least 0 s; got 'a day'"),
        ({"ttl": -5}, "ttl must be at least 0 s; got -5"),
        ({"allow": "mail"}, "allow is a list of texts; got 'mail'"),
        ({"rules": "mail"}, "rules is a list of texts; got 'mail'"),
        ({"rules": ["nowhere"]}, "there is no rule 'nowhere' on this bus"),
        ({"allow": ["nowhere"]}, "allow names 'nowhere', which is no rule of the bus and no ARN of a target"),
        ({"idempotent": {"nowhere": True}}, "idempotent names 'nowhere'"),
        ({"idempotent": ["mail"]}, "idempotent maps rules or target ARNs to True or False"),
        ({"idempotent": {"mail": "yes"}}, "idempotent maps rules or target ARNs to True or False"),
        ({"samples": {"source": "x"}}, "samples is a list"),
        ({"samples": [{"source": "x"}]}, "a sample is an envelope, or an event with source, detail-type and detail"),
        ({"samples": [7]}, "a sample is an envelope"),
        ({"samples": None}, "samples is a list; got None"),
        ({"samples": [{"source": "fleet", "detail-type": "x", "detail": {"at": NOW}}]}, "a sample is no JSON"),
        ({"samples": [{"source": "fleet", "detail-type": "x", "detail": {"at": math.nan}}]}, "a sample is no JSON"),
        ({"allow": None}, "allow is a list of texts; got None"),
        ({"allow": [["mail"]]}, "allow is a list of texts"),
        ({"rules": 7}, "rules is a list of texts; got 7"),
        ({"lag": math.inf}, "until lies less than inf s in the past"),
        ({"name": "a b"}, r"replay 'a b': a name has at most 64 letters, digits and \. - _"),
        ({"name": "a" * 65}, "a name has at most 64"),
        ({"name": "a\n"}, "a name has at most 64"),
        ({"name": 7}, "replay 7: a name has"),
        ({"name": None}, "replay None: a name has"),
    ],
)
def test_bad_input(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(replay.ReplayError, match=sentence):
        planned(Events(Rule("mail")), **options)


def test_a_time_has_a_zone() -> None:
    archive = replay.Archive(Events(Rule("mail")), "a")
    with pytest.raises(replay.ReplayError, match="since is a datetime with a time zone"):
        replay.plan(archive, datetime(2026, 6, 1), NOW, now=lambda: NOW)
    with pytest.raises(replay.ReplayError, match="until is a datetime with a time zone; got 7"):
        replay.plan(archive, NOW - HOUR, 7, now=lambda: NOW)  # type: ignore[arg-type]
    early = datetime.min.replace(tzinfo=timezone(5 * HOUR))
    with pytest.raises(replay.ReplayError, match="since is no time that UTC has"):
        replay.plan(archive, early, NOW, now=lambda: NOW)
    with pytest.raises(replay.ReplayError, match="until lies less than 0 s in the past"):
        replay.plan(archive, NOW - HOUR, datetime.max.replace(tzinfo=UTC), lag=0, now=lambda: NOW)


def test_what_is_no_archive_and_no_plan() -> None:
    with pytest.raises(replay.ReplayError, match=r"archive is a labkit\.ops\.replay\.Archive; got None"):
        replay.plan(None, NOW - HOUR, NOW)  # type: ignore[arg-type]
    with pytest.raises(replay.ReplayError, match="what is started is a plan; got None"):
        replay.start(None)  # type: ignore[arg-type]


def test_a_range_is_sent_in_utc() -> None:
    """botocore writes ``timegm(value.timetuple())``: the hands of the clock, without the zone."""
    events, hanoi = Events(Rule("work", tags={"replay": "safe"})), timezone(7 * HOUR)
    since, until = (NOW - 3 * HOUR).astimezone(hanoi), (NOW - HOUR).astimezone(hanoi)
    replay.start(replay.plan(replay.Archive(events, "a"), since, until, now=lambda: NOW))
    [request] = events.started
    sent = [request[key].timetuple()[:5] for key in ("EventStartTime", "EventEndTime")]
    assert sent == [(2026, 6, 1, 9, 0), (2026, 6, 1, 11, 0)]


def test_an_envelope_is_a_sample() -> None:
    sample = Envelope.new(conversation_id="c", step=0, agent_class="writer", payload={})
    events = Events(Rule("hit", {"source": ["fleet.coordinator"]}), Rule("miss", {"detail-type": ["x"]}))
    assert [route.rule for route in planned(events, samples=[sample]).reached] == ["hit"]


# -- what EventBridge says to a start


def refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "No."}}, "StartReplay")


@pytest.mark.parametrize(
    ("refusal", "sentence"),
    [
        (refused("ResourceAlreadyExistsException"), "a replay 'mend' has been before"),
        (refused("LimitExceededException"), "10 replays run already"),
        (refused("InternalException"), "nobody knows whether replay mend has begun; Replay.of tells"),
        (refused("ThrottlingException"), "replay mend was not started: No."),
        (ConnectTimeoutError(endpoint_url="x"), "nobody knows whether replay mend has begun; Replay.of tells"),
    ],
)
def test_refusals_of_a_start(refusal: Exception, sentence: str) -> None:
    events = Events(Rule("work", tags={"replay": "safe"}))
    events.refusal = refusal
    with pytest.raises(replay.ReplayError, match=sentence):
        replay.start(planned(events, name="mend"))


def test_a_failed_replay_is_an_error() -> None:
    class Failing(Events):
        def describe_replay(self, ReplayName: str) -> dict[str, Any]:
            found = super().describe_replay(ReplayName)
            return {**found, "State": "FAILED", "StateReason": "the archive is gone"}

    with pytest.raises(replay.ReplayError, match="replay mend failed: the archive is gone"):
        replay.Replay(Failing(), "mend").follow()


# -- what a clumsy, or an unlucky, user meets


@pytest.mark.parametrize(
    ("arn", "name"),
    [
        ("arn:aws:sqs:us-east-1:111122223333:work", "work"),
        ("arn:aws:lambda:us-east-1:111122223333:function:charge:prod", "charge:prod"),
        ("arn:aws:events:us-east-1:111122223333:api-destination/hook/6a7e", "hook/6a7e"),
        ("arn:aws:events:us-east-1:111122223333:event-bus/other", "other"),
        ("arn:aws:logs:us-east-1:111122223333:log-group:/aws/events/all", "/aws/events/all"),
        ("arn:aws:states:us-east-1:111122223333:stateMachine:saga", "saga"),
        ("odd", "odd"),
    ],
)
def test_a_target_can_be_told_by_its_name(arn: str, name: str) -> None:
    assert replay.Target("1", arn, False, "").name == name


def test_targets_in_another_order_are_no_change() -> None:
    class Shuffled(Events):
        def list_targets_by_rule(self, Rule: str, EventBusName: str, **_: Any) -> dict[str, Any]:
            found = super().list_targets_by_rule(Rule, EventBusName)
            found["Targets"].sort(key=lambda target: target["Id"], reverse=self.turned)
            return found

        turned = False

    events = Shuffled(Rule("work", targets=("a", "b"), tags={"replay": "safe"}))
    plan = planned(events)
    events.turned = True
    replay.start(plan)
    assert events.started


class Remembering(Events):
    """Knows its replays by name, as EventBridge does."""

    def start_replay(self, **request: Any) -> dict[str, Any]:
        if any(request["ReplayName"] == before["ReplayName"] for before in self.started):
            raise refused("ResourceAlreadyExistsException")
        return super().start_replay(**request)

    def describe_replay(self, ReplayName: str) -> dict[str, Any]:
        [request] = [before for before in self.started if before["ReplayName"] == ReplayName]
        return {**request, "State": "RUNNING"}


def test_two_narrowings_of_a_plan_are_not_taken_for_one_replay() -> None:
    """The second would be told that it runs, and its rules would get nothing."""
    events = Remembering(Rule("one", tags={"replay": "safe"}), Rule("two", tags={"replay": "safe"}))
    plan = planned(events)
    assert replay.start(plan.only("one")).name == replay.start(plan.only("one")).name
    with pytest.raises(replay.ReplayError, match="has been before, and its name stays taken"):
        replay.start(plan.only("two"))
    assert len(events.started) == 1


class Stumbling(Events):
    """DescribeReplay answers with what it is given, one by one; the last one stays."""

    def __init__(self, *answers: str | Exception) -> None:
        super().__init__()
        self.answers = list(answers)

    def describe_replay(self, ReplayName: str) -> dict[str, Any]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return {"State": answer, "EventStartTime": NOW, "EventEndTime": NOW, "EventLastReplayedTime": NOW}

    def cancel_replay(self, ReplayName: str) -> None:
        raise refused("IllegalStatusException")


GONE = ConnectTimeoutError(endpoint_url="x")


def test_following_bears_a_service_that_stumbles() -> None:
    events = Stumbling(refused("ThrottlingException"), "RUNNING", GONE, refused("InternalException"), "COMPLETED")
    states: list[str] = []
    done = replay.Replay(events, "mend").follow(
        on_progress=lambda progress: states.append(progress.state), sleep=lambda _: None
    )
    assert (done.state, states) == ("COMPLETED", ["RUNNING", "COMPLETED"])


@pytest.mark.parametrize("answer", [GONE, refused("ThrottlingException")])
def test_following_a_service_that_is_gone_is_bounded(answer: Exception) -> None:
    ticks = iter(range(0, 1000, 10))
    with pytest.raises(replay.Unheard, match="replay 'mend' could not be looked at"):
        replay.Replay(Stumbling(answer), "mend").follow(
            seconds=20, clock=lambda: float(next(ticks)), sleep=lambda _: None
        )
    assert next(ticks) == 30


def test_what_will_not_pass_ends_following_at_once() -> None:
    running = replay.Replay(Stumbling(refused("AccessDeniedException")), "mend")
    with pytest.raises(replay.ReplayError, match="replay 'mend' could not be looked at: No"):
        running.follow(sleep=lambda _: pytest.fail("waited"))


def test_following_for_no_time_looks_once() -> None:
    running = replay.Replay(Stumbling("RUNNING"), "mend")
    with pytest.raises(replay.ReplayError, match="is RUNNING after 0 s, and goes on"):
        running.follow(seconds=0, sleep=lambda _: pytest.fail("waited"))
    assert replay.Replay(Stumbling("COMPLETED"), "mend").follow(seconds=0).share == 1.0


def test_following_does_not_sleep_past_its_end() -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    with pytest.raises(replay.ReplayError, match="is RUNNING after 20 s, and goes on"):
        replay.Replay(Stumbling("RUNNING"), "mend").follow(seconds=20, clock=lambda: now[0], sleep=sleep)
    assert sum(slept) == pytest.approx(20)


@pytest.mark.parametrize("seconds", [-1, None, math.nan, math.inf, "60", 10**400])
def test_a_wait_has_an_end(seconds: Any) -> None:
    running = replay.Replay(Stumbling("RUNNING"), "mend")
    for wait in (running.follow, running.cancel):
        with pytest.raises(replay.ReplayError, match="seconds must be"):
            wait(seconds=seconds)


def test_to_cancel_what_has_failed_leaves_it_so() -> None:
    assert replay.Replay(Stumbling("FAILED"), "mend").cancel().state == "FAILED"
    with pytest.raises(replay.ReplayError, match="is CANCELLING after 0 s, and has not stopped yet"):
        replay.Replay(Stumbling("CANCELLING"), "mend").cancel(seconds=0)
