"""Checks say what is wrong, and never raise, whatever a learner hands in."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from labkit.teach import check

BECAUSE = {"1": "nobody deleted it.", "2": "worker 2 deleted it.", "until retention": "worker 2 does delete it."}


class Evil:
    def __repr__(self) -> str:
        raise RuntimeError("no")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    __hash__ = None  # type: ignore[assignment]


def test_choice() -> None:
    ask = check("03-1")
    assert repr(ask.choice(2, right="2", because=BECAUSE)) == "03-1 ✓ Right. Worker 2 deleted it."
    assert repr(ask.choice(" Until  Retention", right="2", because=BECAUSE)).endswith("worker 2 does delete it.")
    assert "one of the choices: 1, 2, until retention" in ask.choice("7", right="2", because=BECAUSE).says
    assert repr(ask.choice(..., right="2")).startswith("03-1 ○ Not answered yet")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (12, "60 times too small: a unit"),
        (43_200, "60 times too large"),
        (7200, "10 times too large"),
        (720_000, "1,000 times too large"),
        (720 * 1024, "1,024 times too large: bytes"),
        (0.2, "3,600 times too small: hours"),
        (-720, "sign"),
        (700, "700 is too small (asked: s)"),
        (900, "that is case C's step time."),
        ("720", "without quotes"),
        (True, "without quotes"),
        ([720], "give a number in s"),
        (float("nan"), "not a finite number"),
        (float("inf"), "too large"),
    ],
)
def test_number_says_what_is_wrong(answer: object, says: str) -> None:
    verdict = check("03-2").number(answer, right=720, unit="s", hints={900: "that is case C's step time."})
    assert verdict.ok is False
    assert says in verdict.says


def test_number_right_within_tolerance() -> None:
    import numpy as np

    assert check("x").number(np.float64(719), right=720).ok
    assert check("x").number(719, right=720, tolerance=0).ok is False
    assert check("x").number(0, right=0).ok
    assert "MiB" in check("x").number(1_000_000, right=1_048_576).says


def test_items_and_order() -> None:
    ask = check("02-1")
    assert ask.items(["b", "a"], right={"a", "b"}).ok
    assert ask.items({"a", "c"}, right=["a", "b"]).says == "missing: b; not part of it: c."
    assert "list or a set" in ask.items("ab", right=["a", "b"]).says
    assert ask.order(["a", "b"], right=["a", "b"]).ok
    assert ask.order(["b", "a"], right=["a", "b"]).says == "all are there, but 'b' does not come at place 1."
    assert ask.order(["a", "b", "a"], right=["a", "b"]).says.startswith("3 entries, and 2 are asked")
    assert ask.order(["a"], right=["a", "b"]).says == "missing: b."


def test_code_shows_the_first_case_that_differs() -> None:
    ask = check("03-3")
    cases = [((720, 600), 1), ((720, 900), 2)]

    def ceil(visibility: int, step: int) -> int:
        return -(-step // visibility)

    assert ask.code(ceil, cases=cases).ok
    assert ask.code(lambda v, s: 1, cases=cases).says == "<lambda>(720, 900) gives 1, and 2 is right."
    assert "is a return missing?" in ask.code(lambda v, s: None, cases=cases).says
    assert "raises ZeroDivisionError" in ask.code(lambda v, s: 1 // 0, cases=cases).says
    assert "without calling it" in ask.code(3, cases=cases).says
    assert ask.code(lambda v, s: ..., cases=cases).ok is None
    assert ask.code(lambda x: x / 3, cases=[(1.0, 1 / 3)]).ok

    def spoil(x: list[int]) -> int:
        x.append(1)
        return len(x)

    shared = [1]
    assert ask.code(spoil, cases=[((shared,), 2), ((shared,), 2)]).ok


def test_holds() -> None:
    assert check("x").holds({"the queue is empty": True, "it has a policy": lambda: 1}).ok
    assert check("x").holds({"the queue is empty": lambda: 0}).says == "this does not hold: the queue is empty."
    assert "KeyError" in check("x").holds({"it has a policy": lambda: dict[str, str]()["a"]}).says
    assert check("x").holds({"it exists": ...}).ok is None


@pytest.mark.parametrize("answer", [..., None, "", [], {}, Evil(), object(), 3, float("nan"), lambda: 1, [Evil()]])
@pytest.mark.parametrize(
    "ask",
    [
        lambda a: check("x").choice(a, right="2", because=BECAUSE),
        lambda a: check("x").number(a, right=720),
        lambda a: check("x").items(a, right=["a"]),
        lambda a: check("x").order(a, right=["a"]),
        lambda a: check("x").code(a, cases=[(1, 2)]),
        lambda a: check("x").holds({"c": a}),
    ],
)
def test_no_answer_makes_a_check_raise(ask: Callable[[object], object], answer: object) -> None:
    assert str(ask(answer)).startswith("x ")
