"""Exercises: a check says what is wrong with an answer, not only that it is wrong.

A cell reads like the question it closes::

    check("03-1").choice(answer, right="2", because={"1": "the first worker never deleted it.", …})
    check("03-2").number(answer, right=720, unit="s")
    check("03-3").items(answer, right={"Source", "Detail"})
    check("03-4").code(my_function, cases=[((720, 900), 2), …])

An answer that is still ``...`` is not answered yet. Whatever the answer is, nothing is raised: a :class:`Verdict` comes
back, whose text the notebook shows.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

Ask = TypeVar("Ask", bound=Callable[..., "Verdict"])


@dataclass(frozen=True)
class Verdict:
    """What a check found. ``ok``: True, False, or None while the exercise is open; ``says``: one sentence or two."""

    exercise: str
    ok: bool | None
    says: str

    def __repr__(self) -> str:
        mark = {True: "✓ Right.", False: "✗ Not yet:", None: "○"}[self.ok]
        return f"{self.exercise} {mark} {self.says}".rstrip()


# Wrong by a factor: answer / right -> what that looks like. The first match is told.
_FACTORS = (
    (60.0, "60 times too large: a unit of time is off by one step (s, min, h)."),
    (1 / 60, "60 times too small: a unit of time is off by one step (s, min, h)."),
    (3600.0, "3,600 times too large: hours and seconds are mixed up."),
    (1 / 3600, "3,600 times too small: hours and seconds are mixed up."),
    (1 / 86400, "86,400 times too small: days where seconds are asked?"),
    (1024.0, "1,024 times too large: bytes where KiB are asked?"),
    (1 / 1024, "1,024 times too small: KiB where bytes are asked?"),
    (1000.0, "1,000 times too large: milliseconds, or a thousand too many?"),
    (1 / 1000, "1,000 times too small: kB where bytes, or seconds where milliseconds are asked?"),
    (1000**2 / 1024**2, "close: MB is 1,000,000 bytes, MiB is 1,048,576. Which one does the limit use?"),
    (1024**2 / 1000**2, "close: MiB is 1,048,576 bytes, MB is 1,000,000. Which one does the limit use?"),
    (1000 / 1024, "close: kB is 1,000 bytes, KiB is 1,024. Which one does the limit use?"),
    (1024 / 1000, "close: KiB is 1,024 bytes, kB is 1,000. Which one does the limit use?"),
    (100.0, "100 times too large: per cent where a share from 0 to 1 is asked?"),
    (1 / 100, "100 times too small: a share from 0 to 1 where per cent are asked?"),
    (10.0, "10 times too large: one zero too many, or a batch of ten counted as ten requests?"),
    (1 / 10, "10 times too small: one zero too few, or a batch of ten counted once?"),
    (8.0, "8 times too large: bits where bytes are asked?"),
    (-1.0, "the size is right, the sign is not."),
)


def _never_raises(ask: Ask) -> Ask:
    """Whatever a learner hands in: an array without a truth, an object whose ``==`` raises."""

    @functools.wraps(ask)
    def asked(self: check, answer: object, **rest: Any) -> Verdict:
        try:
            return ask(self, answer, **rest)
        except Exception as raised:  # noqa: BLE001
            return self._wrong(f"{_short(answer)} cannot be compared ({type(raised).__name__}: {raised}).")

    return cast(Ask, asked)


class check:
    """The check of one exercise, named like ``"03-1"``: notebook and number. A notebook says it as a verb."""

    def __init__(self, exercise: str) -> None:
        self.exercise = exercise

    @_never_raises
    def choice(self, answer: object, *, right: object, because: Mapping[Any, str] | None = None) -> Verdict:
        """One of several; ``because`` gives the reason against each wrong one, and may give one for the right one."""
        if answer is ...:
            return self._open()
        reasons = {_plain(k): v for k, v in (because or {}).items()}
        given, wanted = _plain(answer), _plain(right)
        if given == wanted:
            return self._right(reasons.get(wanted, ""))
        if given in reasons:
            return self._wrong(f"{str(answer).strip()}: {reasons[given]}")
        offered = ", ".join(str(k) for k in {**dict.fromkeys(because or {}), right: None}) if because else ""
        return self._wrong(f"{_short(answer)} is not one of the choices{f': {offered}' if offered else ''}.")

    @_never_raises
    def number(
        self, answer: object, *, right: float, unit: str = "", tolerance: float = 0.01, because: str = "",
        hints: Mapping[float, str] | None = None,
    ) -> Verdict:  # fmt: skip
        """A number in ``unit``, right within ``tolerance`` (a share of it; 0 for exact).

        ``hints``: what a certain wrong number comes from. Mixed-up units are recognised without.
        """
        if answer is ...:
            return self._open()
        shown = f" in {unit}" if unit else ""
        if isinstance(answer, (str, bytes, bool)) or answer is None:
            return self._wrong(f"give a number{shown}, without quotes or unit; {answer!r} is not one.")
        try:
            given = float(answer)  # type: ignore[arg-type]
        except Exception:  # noqa: BLE001 - whatever a learner hands in
            return self._wrong(f"give a number{shown}; {_short(answer)} is not one.")
        if math.isclose(given, right, rel_tol=tolerance, abs_tol=1e-12):
            return self._right(because)
        for wrong, why in (hints or {}).items():
            if math.isclose(given, wrong, rel_tol=max(tolerance, 1e-9), abs_tol=1e-12):
                return self._wrong(f"{_figure(given)}: {why}")
        if right and math.isfinite(given):
            for factor, why in _FACTORS:
                if math.isclose(given / right, factor, rel_tol=0.001 if 0.9 < factor < 1.1 else 0.01):
                    return self._wrong(f"{_figure(given)} is {why}" if factor > 1.5 or 0 < factor < 0.5 else why)
        side = "too large" if given > right else "too small" if given < right else "not a finite number"
        return self._wrong(f"{_figure(given)} is {side}{f' (asked: {unit})' if unit else ''}.")

    @_never_raises
    def items(self, answer: object, *, right: Collection[object], because: str = "") -> Verdict:
        """A set or list in any order: says what is missing and what is too much."""
        if answer is ...:
            return self._open()
        listed = _listed(answer)
        if listed is None:
            return self._wrong(f"give a list or a set; {_short(answer)} is not one.")
        missing = [x for x in _ordered(right) if x not in listed]
        extra = [x for x in listed if x not in right]
        if not missing and not extra:
            return self._right(because)
        parts = [f"missing: {_names(missing)}"] * bool(missing) + [f"not part of it: {_names(extra)}"] * bool(extra)
        return self._wrong("; ".join(parts) + ".")

    @_never_raises
    def order(self, answer: object, *, right: Sequence[object], because: str = "") -> Verdict:
        """A list in order: says what is missing, or the first place that differs."""
        unordered = self.items(answer, right=list(right))
        listed = _listed(answer)
        if not unordered.ok or listed is None or listed == list(right):
            return self._right(because) if unordered.ok else unordered
        if len(listed) != len(right):
            return self._wrong(f"{len(listed)} entries, and {len(right)} are asked: something is there twice.")
        place = next(i for i, (a, b) in enumerate(zip(listed, right, strict=True)) if a != b)
        return self._wrong(f"all are there, but {listed[place]!r} does not come at place {place + 1}.")

    @_never_raises
    def code(self, function: object, *, cases: Iterable[tuple[object, object]], because: str = "") -> Verdict:
        """A function, called on ``cases`` of (arguments, result): shows the first one that differs.

        Arguments are a tuple, or one value. The function gets copies; floats are compared to nine digits.
        """
        if function is ...:
            return self._open()
        if not callable(function):
            return self._wrong(f"give the function itself, without calling it; {_short(function)} is not one.")
        name = getattr(function, "__name__", "your function")
        for args, wanted in cases:
            given = args if isinstance(args, tuple) else (args,)
            call = f"{name}({', '.join(_short(a) for a in given)})"
            try:
                got = function(*copy.deepcopy(given))
            except Exception as raised:  # noqa: BLE001 - a learner's function may raise anything
                return self._wrong(f"{call} raises {type(raised).__name__}: {raised}".rstrip(": ") + ".")
            if got is ... or (got is None and wanted is not None):
                return self._open() if got is ... else self._wrong(f"{call} gives None: is a return missing?")
            if not _same(got, wanted):
                return self._wrong(f"{call} gives {_short(got)}, and {_short(wanted)} is right.")
        return self._right(because)

    def holds(self, claims: Mapping[str, object | Callable[[], object]], because: str = "") -> Verdict:
        """Claims about what the learner built, each true or a function that says so: names the first that fails."""
        for claim, truth in claims.items():
            try:
                fine = truth() if callable(truth) else truth
            except Exception as raised:  # noqa: BLE001
                return self._wrong(f"{claim}: cannot be seen yet ({type(raised).__name__}: {raised}).")
            if fine is ...:
                return self._open()
            if not fine:
                return self._wrong(f"this does not hold: {claim}.")
        return self._right(because)

    @_never_raises
    def pairs(self, answer: object, *, right: Mapping[Any, object], because: str = "") -> Verdict:
        """A mapping, as a dictionary with the same keys as ``right``: says which values are not right."""
        if answer is ... or (isinstance(answer, Mapping) and ... in answer.values()):
            return self._open()
        if not isinstance(answer, Mapping):
            return self._wrong(f"give a dictionary; {_short(answer)} is not one.")
        missing = [key for key in right if key not in answer]
        if missing:
            return self._wrong(f"missing: {_names(missing)}.")
        off = [key for key, value in right.items() if _plain(answer[key]) != _plain(value)]
        return (
            self._wrong(f"not right: {'; '.join(f'{k} → {answer[k]}' for k in off)}.") if off else self._right(because)
        )

    def _open(self) -> Verdict:
        return Verdict(self.exercise, None, "Not answered yet: put your answer in place of the three dots.")

    def _right(self, because: str) -> Verdict:
        return Verdict(self.exercise, True, because[:1].upper() + because[1:])

    def _wrong(self, says: str) -> Verdict:
        return Verdict(self.exercise, False, says)


def _plain(value: object) -> str:
    return " ".join(str(value).split()).casefold()


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:,.6g}"


def _short(value: object, most: int = 60) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001
        text = f"a {type(value).__name__}"
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _listed(answer: object) -> list[object] | None:
    if isinstance(answer, (str, bytes, Mapping)) or not isinstance(answer, Iterable):
        return None
    try:
        return _ordered(answer)
    except Exception:  # noqa: BLE001 - a learner's iterator may raise anything
        return None


def _ordered(values: Iterable[object]) -> list[object]:
    """As a list; sets sorted, so that a message is the same on each run."""
    return sorted(values, key=str) if isinstance(values, (set, frozenset)) else list(values)


def _names(values: Iterable[object]) -> str:
    return ", ".join(str(v) for v in values)


def _same(got: object, wanted: object) -> bool:
    try:
        if isinstance(wanted, float) and not isinstance(got, (str, bytes)):
            return math.isclose(float(got), wanted, rel_tol=1e-9, abs_tol=1e-12)  # type: ignore[arg-type]
        return bool(got == wanted)
    except Exception:  # noqa: BLE001 - e.g. an array, whose truth is undefined
        return False
