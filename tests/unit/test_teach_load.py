"""The load of a provider, drawn from its hits."""

from __future__ import annotations

from labkit.routing.hits import RUNNING, Hit
from labkit.teach.load import at_once, load


def hit(arrived: float, seconds: float, outcome: str = "ok") -> Hit:
    return Hit(1, "o", "openai", outcome=outcome, arrived=arrived, seconds=seconds)


def test_calls_at_once_over_time() -> None:
    hits = [hit(10, 2), hit(11, 2), hit(12, 1), hit(15, 1, RUNNING)]
    # At 12 one goes before another one comes; at 13 both end.
    assert at_once(hits) == [(0, 0), (0, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 0)]
    assert at_once([]) == [(0.0, 0)]


def test_the_picture_says_what_it_shows() -> None:
    storm = [*(hit(0.1 * n, 0.5) for n in range(3)), hit(0.05, 0.01, "concurrency")]
    picture = load({"no gate": storm, "a gate": [hit(0, 1)]}, cap=2, title="A storm")
    assert picture.says == (
        "A storm. Calls at work over time, beside a cap of 2. no gate: 3 served, 1 refused, at most 3 at once; "
        "a gate: 1 served, 0 refused, at most 1 at once."
    )
    assert picture.png.startswith(b"\x89PNG")
    assert load({"none": []}, cap=1, says="Nothing came.").says == "Nothing came."
