"""Event patterns, fuzzed: events and patterns whose verdict is known because of how they were made.

An event is drawn, a way down through it is chosen (of an array, one element), and at each value a condition is written
that holds for that value. Such a pattern matches. Then one leaf is replaced by conditions that hold for nothing in the
event: such a pattern does not match. No second matcher is asked.

The rules: EventBridge User Guide, "Event pattern syntax" and "Comparison operators for use in event patterns"; the
README of Event Ruler, with which EventBridge matches ("JSON Array Matching"). LAB_FUZZ_EXAMPLES and --hypothesis-seed
make a longer or another run.
"""

from __future__ import annotations

import copy
import ipaddress
import itertools
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parity.events_patterns import event_of, matches, present

from labkit import Lab

EXAMPLES = int(os.environ.get("LAB_FUZZ_EXAMPLES", "0"))
OVER_HTTP = settings(
    max_examples=EXAMPLES or 70,
    deadline=None,
    derandomize=False,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
PURE = settings(max_examples=EXAMPLES or 150, deadline=None, suppress_health_check=[HealthCheck.too_slow])

Json = Any
Draw = Callable[[st.SearchStrategy[Any]], Any]
Keys = tuple[str, ...]  # the way to a leaf of a pattern

# Characters that mean something in a wildcard, in JSON, in a path that is joined by slashes; letters with and without
# case, one of them beyond 16 bits. No upper and lower case outside of ASCII: AWS does not say what becomes of it.
ALPHABET = 'abAB09*\\"/._- \n\u00fc\u4e2d\U0001f980'
KEYS = st.sampled_from(["a", "b", "c", "state", "$or-not", "k\u00fc", "x y", "prefix", "exists"])
TEXTS = st.text(ALPHABET, max_size=8)
ADDRESSES = st.ip_addresses(v=4).map(str) | st.ip_addresses(v=6).map(str)
NUMBERS = st.integers(-(10**6), 10**6) | st.integers(-(10**9), 10**9).map(lambda n: n / 1000)
SCALARS = st.one_of(TEXTS, TEXTS, NUMBERS, ADDRESSES, st.booleans(), st.none())
DETAILS = st.dictionaries(
    KEYS,
    st.recursive(
        SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
    ),
    min_size=1,
    max_size=4,
)
OPERATORS = {"prefix", "exists"}
NEVER = "!never!"  # no text of an event has an exclamation mark
ABSENT = "absent"  # no event has this key
ABOVE = 10**10  # no number of an event is that large


def is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def literal(text: str) -> str:
    """The wildcard that means the text itself."""
    return text.replace("\\", "\\\\").replace("*", "\\*")


def other_case(draw: Draw, text: str) -> str:
    return "".join(c.swapcase() if c.isascii() and draw(st.booleans()) else c for c in text)


def wildcard_for(draw: Draw, text: str) -> str:
    """A wildcard that matches the text: stars, none beside another, in place of pieces of it."""
    made, at, starred = "", 0, False
    while at < len(text):
        piece = draw(st.integers(0, len(text) - at))
        if piece and not starred and draw(st.booleans()):
            made, starred = made + "*", True
            at += piece
        else:
            made, starred = made + literal(text[at]), False
            at += 1
    return made + "*" if not starred and draw(st.booleans()) else made


def network_of(draw: Draw, address: str, inside: bool) -> str:
    parsed = ipaddress.ip_address(address)
    bits = draw(st.integers(1, 31 if parsed.version == 4 else 127))
    number = int(parsed) if inside else int(parsed) ^ (1 << parsed.max_prefixlen - draw(st.integers(1, bits)))
    return str(ipaddress.ip_network((number, bits), strict=False))


def is_address(value: Json) -> bool:
    try:
        ipaddress.ip_address(value if isinstance(value, str) else "")
    except ValueError:
        return False
    return True


def true_for(draw: Draw, value: Json) -> Json:
    """A condition that holds for the value."""
    ways: list[Callable[[], Json]] = [
        lambda: value,
        lambda: {"exists": True},
        lambda: {"anything-but": NEVER},
        lambda: {"anything-but": [NEVER, "!"]},
        lambda: {"anything-but": [ABOVE, ABOVE + 1]},
        lambda: {"anything-but": {"prefix": NEVER}},
        lambda: {"anything-but": {"suffix": ["!", NEVER]}},
        lambda: {"anything-but": {"wildcard": "*!*"}},
        lambda: {"anything-but": {"equals-ignore-case": [NEVER, "!"]}},
    ]
    if is_number(value):
        ways = [
            *ways,
            lambda: float(value),  # 300 and 300.0 are the same number
            lambda: {"numeric": ["=", value]},
            lambda: {"numeric": [draw(st.sampled_from([">=", "<="])), value]},
            lambda: {"numeric": ["<", value + draw(st.integers(1, 1000))]},
            lambda: {"numeric": [">", value - draw(st.integers(1, 1000))]},
            lambda: {"numeric": [">", value - 0.5, "<=", value]},
            lambda: {"numeric": [">=", value, "<", value + 0.5]},
            lambda: {"anything-but": value + 1},
        ]
    if isinstance(value, str):
        ways = [*ways, lambda: {"equals-ignore-case": other_case(draw, value)}]
        ways = [*ways, lambda: {"wildcard": wildcard_for(draw, value)}]
    if isinstance(value, str) and value:
        cut = draw(st.integers(1, len(value)))
        ways = [
            *ways,
            lambda: {"prefix": value[:cut]},
            lambda: {"suffix": value[-cut:]},
            lambda: {"prefix": {"equals-ignore-case": other_case(draw, value[:cut])}},
            lambda: {"suffix": {"equals-ignore-case": other_case(draw, value[-cut:])}},
        ]
    if is_address(value):
        ways = [*ways, lambda: {"cidr": network_of(draw, value, inside=True)}]
    return draw(st.sampled_from(ways))()


def false_for_all(draw: Draw) -> Json:
    """A condition that holds for no value of any event."""
    return draw(
        st.sampled_from(
            [
                NEVER,
                ABOVE,
                {"prefix": "!"},
                {"suffix": {"equals-ignore-case": NEVER}},
                {"equals-ignore-case": NEVER},
                {"wildcard": "*!*"},
                {"numeric": [">", ABOVE]},
                {"numeric": [">=", ABOVE, "<", ABOVE + 1]},
            ]
        )
    )


def false_for(draw: Draw, value: Json) -> Json:
    """A condition that does not hold for the value, and may for another."""
    ways: list[Callable[[], Json]] = [
        lambda: {"exists": False},
        lambda: "" if value is None else None,  # null and "" are two things
        lambda: not value if isinstance(value, bool) else True,
        lambda: str(value) if not isinstance(value, str) else value + "!",  # a number is no text
        lambda: {"numeric": ["=", 1]} if not is_number(value) else {"prefix": str(value)},
    ]
    if is_number(value):
        ways = [
            *ways,
            lambda: value + 1,
            lambda: {"numeric": [draw(st.sampled_from(["<", ">"])), value]},
            lambda: {"numeric": ["=", value + 0.5]},
            lambda: {"numeric": [">", value, "<=", value + 1]},
            lambda: {"numeric": [">=", value - 1, "<", value]},
            lambda: {"anything-but": value},
            lambda: {"anything-but": [value + 1, value]},
        ]
    if isinstance(value, str):
        ways = [
            *ways,
            lambda: {"prefix": value + "!"},
            lambda: {"suffix": "!" + value},
            lambda: {"prefix": {"equals-ignore-case": value + "!"}},
            lambda: {"equals-ignore-case": value + "!"},
            lambda: {"wildcard": literal(value) + "!*"},
            lambda: {"wildcard": "*!" + literal(value)},
            lambda: {"anything-but": value},
            lambda: {"anything-but": [NEVER, value]},
            lambda: {"anything-but": {"wildcard": wildcard_for(draw, value)}},
            lambda: {"anything-but": {"equals-ignore-case": [NEVER, other_case(draw, value)]}},
        ]
    if isinstance(value, str) and value:
        cut = draw(st.integers(1, len(value)))
        ways = [*ways, lambda: {"anything-but": {"prefix": value[:cut]}}]
        ways = [*ways, lambda: {"anything-but": {"suffix": [NEVER, value[-cut:]]}}]
    if is_address(value):
        ways = [*ways, lambda: {"cidr": network_of(draw, value, inside=False)}]
    return draw(st.sampled_from(ways))()


class Made:
    """A pattern that matches ``detail``. ``leaves``: the ways to its leaves; ``alone``: those not within an array."""

    def __init__(self, draw: Draw, detail: dict[str, Json]) -> None:
        self.draw = draw
        self.leaves: list[Keys] = []
        self.alone: dict[Keys, Json] = {}  # the value that the event has there
        self.pattern = self._down(detail, (), False) or {}

    def _down(self, node: Json, keys: Keys, in_array: bool) -> Json | None:
        if isinstance(node, list):
            return self._down(self.draw(st.sampled_from(node)), keys, True) if node else None
        if not isinstance(node, dict):
            self.leaves.append(keys)
            if not in_array:
                self.alone[keys] = node
            others = [false_for_all(self.draw) for _ in range(self.draw(st.integers(0, 2)))]
            return self.draw(st.permutations([true_for(self.draw, node), *others]))
        chosen = self.draw(st.lists(st.sampled_from(sorted(node)), unique=True, min_size=1)) if node else []
        found = {key: self._down(node[key], (*keys, key), in_array) for key in chosen}
        return {key: inner for key, inner in found.items() if inner is not None} or None

    def broken(self) -> dict[str, Json]:
        """The same pattern with one leaf that cannot match."""
        keys, conditions = self.draw(st.sampled_from(self.leaves)), [false_for_all(self.draw)]
        if keys in self.alone and self.draw(st.booleans()):
            conditions = [false_for(self.draw, self.alone[keys]) for _ in range(self.draw(st.integers(1, 2)))]
        return replaced(self.pattern, keys, conditions)


def has_values(node: Json) -> bool:
    inner = node.values() if isinstance(node, dict) else node
    return any(map(has_values, inner)) if isinstance(node, dict | list) else True


def replaced(pattern: dict[str, Json], keys: Keys, conditions: list[Json]) -> dict[str, Json]:
    changed = copy.deepcopy(pattern)
    node = changed
    for key in keys[:-1]:
        node = node[key]
    node[keys[-1]] = conditions
    return changed


@st.composite
def cases(draw: Draw) -> tuple[Json, Json, bool]:
    """A detail, a pattern for it, and the verdict."""
    detail = draw(DETAILS)
    made = Made(draw, detail)
    if not made.leaves:  # nothing but empty objects and arrays on the way: where there is no value, there is no key
        key = draw(st.sampled_from([ABSENT, *(key for key in sorted(detail) if not has_values(detail[key]))]))
        expected = draw(st.booleans())
        return detail, {key: [{"exists": not expected}]}, expected
    verdict = draw(st.booleans())
    pattern = made.pattern if verdict else made.broken()
    form = draw(st.integers(0, 5))
    if form == 1:  # one more key, which the event lacks: only exists: false can be true of it
        lacking = [(True, {"exists": False}), (False, {"exists": True}), (False, {"anything-but": NEVER})]
        expected, condition = draw(st.sampled_from(lacking))
        return detail, pattern | {ABSENT: [condition]}, verdict and expected
    if form == 2 and not verdict and not OPERATORS & set(itertools.chain(*made.leaves)):
        # A false alternative beside a true one. With a key that is an operator's name, $or would be a key itself.
        pair = draw(st.permutations([pattern, made.pattern]))
        return detail, {"$or": list(pair)}, True
    if form == 3:  # alternatives that are false beside what is asked in any case
        alternatives = [{ABSENT: [false_for_all(draw)]}, {ABSENT: [{"exists": True}]}]
        holds = draw(st.booleans())
        if holds:
            alternatives.insert(draw(st.integers(0, 2)), {ABSENT: [{"exists": False}]})
        return detail, {"$or": alternatives, **pattern}, verdict and holds
    if form == 4:
        return dotted(draw, {"w": detail}), {"w": pattern}, verdict
    if form == 5:
        return {"w": detail}, dotted(draw, {"w": pattern}), verdict
    return detail, pattern, verdict


def dotted(draw: Draw, node: Json) -> Json:
    """The same with some keys joined to those above them by a dot, which means the same."""
    if not isinstance(node, dict):
        return node
    made: dict[str, Json] = {}
    for key, value in node.items():
        inner = dotted(draw, value)
        if isinstance(inner, dict) and inner and draw(st.booleans()):
            made |= {f"{key}.{below}": each for below, each in inner.items()}
        else:
            made[key] = inner
    return made


ENVELOPE = {
    "version": "0",
    "id": "1",
    "detail-type": "step.done",
    "source": "lab.fuzz",
    "account": "123456789012",
    "time": "2026-01-01T00:00:00Z",
    "region": "us-east-1",
    "resources": ["arn:aws:lab:::x"],
}


@pytest.fixture
def ask(lab: Lab) -> Callable[[Json, Json], bool]:
    client = lab.client("events")

    def asked(pattern: Json, detail: Json) -> bool:
        event = ENVELOPE | {"detail": detail}
        text = pattern if isinstance(pattern, str) else json.dumps(pattern)
        return bool(client.test_event_pattern(EventPattern=text, Event=json.dumps(event))["Result"])

    return asked


@OVER_HTTP
@given(case=cases())
def test_verdicts_that_are_known_by_construction(ask: Callable[[Json, Json], bool], case: tuple) -> None:
    detail, pattern, verdict = case
    assert ask({"detail": pattern}, detail) is verdict
    assert ask({"source": ["lab.fuzz"], "detail": pattern}, detail) is verdict
    assert not ask({"source": ["lab.other"], "detail": pattern}, detail)


def by_value(value: Json, conditions: list[Json]) -> bool:
    return any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in conditions)


def paths_of(pattern: Json, above: str = "") -> Iterator[tuple[str, list[Json]]]:
    for key, value in pattern.items():
        path = f"{above}.{key}" if above else key
        yield from paths_of(value, path) if isinstance(value, dict) else [(path, value)]


VALUES = st.integers(0, 3) | st.booleans() | st.none() | st.sampled_from(["", "a"])
SMALL = st.recursive(
    VALUES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "a.b"]), inner, max_size=3),
    max_leaves=10,
)


@st.composite
def exact(draw: Draw) -> tuple[dict, dict]:
    detail = draw(st.dictionaries(st.sampled_from(["a", "b", "c"]), SMALL, min_size=1, max_size=3))

    def down(node: Json) -> Json | None:
        if isinstance(node, list):
            return down(draw(st.sampled_from(node))) if node else None
        if not isinstance(node, dict):
            return [node]
        found = {key: down(inner) for key, inner in node.items() if draw(st.booleans())}
        return {key: inner for key, inner in found.items() if inner is not None} or None

    return detail, down(detail) or {}


@PURE
@given(exact())
def test_what_stands_in_an_event_is_found_there(case: tuple[dict, dict]) -> None:
    detail, pattern = case
    paths = dict(paths_of(pattern))
    assert matches(detail, paths, by_value)
    for path in paths:
        assert present(detail, path)
        assert not matches(detail, paths | {path: [NEVER]}, by_value)
        assert not matches(detail, paths | {path: [{"exists": False}]}, by_value)
        assert matches(detail, paths | {path: [NEVER, {"exists": True}]}, by_value)
    assert matches(detail, paths | {ABSENT: [{"exists": False}]}, by_value)
    assert not matches(detail, paths | {ABSENT: [{"exists": True}, NEVER]}, by_value)


@PURE
@given(SMALL, SMALL, st.sampled_from(["a", "a.b", "b"]))
def test_an_array_is_as_good_as_its_elements(one: Json, other: Json, path: str) -> None:
    """A path is there in an array when it is there in one of its elements, in any order and depth."""
    either = present({"k": one}, f"k.{path}") or present({"k": other}, f"k.{path}")
    for array in ([one, other], [other, one], [[one], [[other]]], [[], one, {}, other]):
        assert present({"k": array}, f"k.{path}") == either
        asked = {f"k.{path}": [{"exists": True}]}
        assert matches({"k": array}, asked, by_value) == either


@PURE
@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=5), VALUES, VALUES)
def test_what_is_asked_of_objects_in_an_array_holds_in_one_of_them(pairs: list, x: Json, y: Json) -> None:
    detail = {"employees": [{"first": first, "last": last} for first, last in pairs]}
    asked = {"employees.first": [x], "employees.last": [y]}
    expected = any(by_value(first, [x]) and by_value(last, [y]) for first, last in pairs)
    assert matches(detail, asked, by_value) == expected


def test_exists_false_means_nowhere_in_an_array() -> None:
    asked = {"k.a": [{"exists": False}]}
    assert matches({"k": [{"b": 1}, {}]}, asked, by_value)
    assert not matches({"k": [{"b": 1}, {"a": None}]}, asked, by_value)
    assert matches({"k": [{"a": {}}, {"a": []}]}, asked, by_value)  # no leaf


def test_deep_events_and_many_readings_end() -> None:
    deep: Json = 1
    for _ in range(50_000):
        deep = [deep]
    assert matches({"k": deep}, {"k": [1]}, by_value)
    assert not matches({"k": deep}, {"k.a": [1]}, by_value)
    ambiguous = {"a": {f"k{n}": n for n in range(40)}, **{f"a.k{n}": n for n in range(40)}}
    assert not matches(ambiguous, {f"a.k{n}": [NEVER] for n in range(40)}, by_value)


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "[]", "1", "null", "{}", '"{}"', None, 7),
        *('{"id": %s}' % ("9" * 5000), "[" * 100_000, '{"a":' * 100_000),
        *(json.dumps({key: "x" for key in ENVELOPE if key != missing}) for missing in ("id", "time", "detail-type")),
    ],
    ids=lambda text: str(text)[:12],
)
def test_what_is_no_event(text: object) -> None:
    assert event_of(text) is None
    assert event_of(json.dumps(ENVELOPE)) == ENVELOPE
    assert event_of(json.dumps({key: "x" for key in ENVELOPE if key not in ("version", "resources")})) is not None


REFUSED = [
    # A value is in an array, and the array is not empty.
    *("a", 1, None, True, {}, [], [[]], [["a"]]),
    # One operator, that exists, in its own case.
    *([{}], [{"like": "a"}], [{"PREFIX": "a"}], [{"prefix": "a", "suffix": "b"}], [{"exists": True, "prefix": "a"}]),
    *([{"exists": "true"}], [{"exists": 1}], [{"exists": None}]),
    *([{"prefix": 1}], [{"prefix": ["a"]}], [{"prefix": None}], [{"prefix": {"wildcard": "a"}}], [{"suffix": {}}]),
    *([{"suffix": 1}], [{"suffix": ["a"]}], [{"suffix": {"equals-ignore-case": 1}}]),
    *([{"equals-ignore-case": ["a"]}], [{"equals-ignore-case": 1}], [{"equals-ignore-case": {"prefix": "a"}}]),
    *([{"wildcard": 1}], [{"wildcard": ["*"]}], [{"wildcard": "a**b"}], [{"wildcard": "a\\b"}], [{"wildcard": "\\"}]),
    *([{"cidr": "10.0.0.0"}], [{"cidr": "10.0.0.0/33"}], [{"cidr": "x/8"}], [{"cidr": 1}], [{"cidr": ["10.0.0.0/8"]}]),
    # numeric: a comparison, or two of them that make a range, the lower bound first.
    *([{"numeric": 1}], [{"numeric": []}], [{"numeric": [1]}], [{"numeric": ["="]}], [{"numeric": ["=", "1"]}]),
    *(
        [{"numeric": ["==", 1]}],
        [{"numeric": ["=", True]}],
        [{"numeric": ["=", None]}],
        [{"numeric": ["=", 1, "=", 2]}],
    ),
    *([{"numeric": ["<", 5, ">", 0]}], [{"numeric": [">", 0, "<"]}], [{"numeric": [">", 0, ">", 1]}]),
    *([{"numeric": [">", 5, "<", 0]}], [{"numeric": [">", 0, "<", 5, "<", 6]}], [{"numeric": {"=": 1}}]),
    # anything-but: a text, a number, a list of one of the two, or one further operator.
    *([{"anything-but": None}], [{"anything-but": True}], [{"anything-but": [None]}], [{"anything-but": [True]}]),
    *(
        [{"anything-but": []}],
        [{"anything-but": ["a", 1]}],
        [{"anything-but": [{"prefix": "a"}]}],
        [{"anything-but": {}}],
    ),
    *([{"anything-but": {"prefix": ""}}], [{"anything-but": {"suffix": ""}}], [{"anything-but": {"prefix": [1]}}]),
    *([{"anything-but": {"numeric": ["=", 1]}}], [{"anything-but": {"cidr": "10.0.0.0/8"}}]),
    *([{"anything-but": {"prefix": {"equals-ignore-case": "a"}}}], [{"anything-but": {"wildcard": 1}}]),
    *([{"anything-but": {"wildcard": "a**"}}], [{"anything-but": {"equals-ignore-case": 1}}]),
    *([{"anything-but": {"prefix": "a", "suffix": "b"}}], ["good", {"like": "a"}]),
]
NO_JSON = ["{", "pattern", "[]", "1", "null", "{'a': ['b']}", '{"a": [NaN]}', '{"a": [1]} x', '{"a":' * 300]


def test_patterns_that_are_refused(lab: Lab, ask: Callable[[Json, Json], bool]) -> None:
    """Each of them with InvalidEventPatternException, at whatever depth, in PutRule as in TestEventPattern."""
    client = lab.client("events")

    def code(call: Callable[[], Any]) -> str:
        try:
            call()
        except ClientError as error:
            return str(error.response["Error"]["Code"])
        return "taken"

    texts = list(NO_JSON)
    for value in REFUSED:
        forms = [{"detail": {"k": value}}, {"detail": {"a": {"$or": [{"k": value}, {"j": ["x"]}]}}}, {"source": value}]
        texts += map(json.dumps, forms)
    wrong = [text for text in texts if code(lambda text=text: ask(text, {})) != "InvalidEventPatternException"]
    name = lab.resource_name("r")
    wrong += [
        text
        for text in texts[::3]
        if code(lambda text=text: client.put_rule(Name=name, EventPattern=text)) != "InvalidEventPatternException"
    ]
    assert not wrong


WORDS = ["$or", "prefix", "suffix", "anything-but", "numeric", "exists", "cidr", "wildcard", "equals-ignore-case"]
ODD = st.recursive(
    SCALARS | st.sampled_from([10**400, -0.0, 1e308, "10.0.0.0/8", "a**", "*", "\ud800", "$or"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from([*WORDS, "exactly", "=", "a", "a.b", "", ".", "detail"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@OVER_HTTP
@given(pattern=ODD, detail=ODD)
def test_odd_input_is_judged_or_refused(ask: Callable[[Json, Json], bool], pattern: Json, detail: Json) -> None:
    for asked in (pattern, {"detail": pattern}, {"detail": {"k": [pattern]}}):
        try:
            answer = (ask(asked, detail), 200)
        except ClientError as error:
            answer = (error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"])
        judged = [(True, 200), (False, 200)]
        assert answer in [*judged, ("InvalidEventPatternException", 400), ("ValidationException", 400)]
